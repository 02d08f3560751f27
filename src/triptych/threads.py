"""How torch's threads wait for each other; imports nothing, as it must come before torch."""

import os


def wait_in_short() -> None:
    """Let waiting threads spin for a short time only, unless the environment says how they wait.

    Torch's threads spin while they wait for each other; on a machine with other work that made
    small models 8 times slower (40 steps in 20 s instead of 3 s, two cores, one of them busy).
    Never to spin costs as much on an idle one where products are small and many (attention in tiles
    37 ms instead of 61, a decoding step 2.4 instead of 5.0): a short spin serves both. To spin for
    ever (OMP_WAIT_POLICY=ACTIVE) is up to 1.2 times as fast where nothing else runs (a decoding
    step 2.2 to 2.7 ms instead of 2.5 to 3.4), and half as fast beside three other processes (28 ms
    instead of 13), so that is for the user to choose. It is read when torch is imported, so it is
    set before.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "3000"}
