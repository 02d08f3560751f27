"""What torch reads from the environment; imports nothing heavy, as it comes before torch.

What the user set stays as it is.
"""

import os


def prepare() -> None:
    """Choose how torch's threads wait and which pages its tensors lie in."""
    wait_in_short()
    take_large_pages()


def wait_in_short() -> None:
    """Let waiting threads spin for a short time only.

    Torch's threads spin while they wait for each other; on a machine with other work that made
    small models 8 times slower (40 steps in 20 s instead of 3 s, two cores, one of them busy).
    Never to spin costs as much on an idle one where products are small and many (attention in tiles
    37 ms instead of 61, a decoding step 2.4 instead of 5.0): a short spin serves both. To spin for
    ever (OMP_WAIT_POLICY=ACTIVE) is up to 1.2 times as fast where nothing else runs (a decoding
    step 2.2 to 2.7 ms instead of 2.5 to 3.4), and half as fast beside three other processes (28 ms
    instead of 13), so that is for the user to choose.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "3000"}


def take_large_pages() -> None:
    """Let tensors of 2 MiB and more lie in pages of 2 MiB, where the system grants them.

    Linux looks up fewer pages then, which counts most on a virtual machine. A training step, d 512,
    6 layers, L 1024, two cores with AMX, milliseconds without and with (two runs in turn each):
    full bf16 392, 420 and 379, 321; relative bf16 539, 430 and 424, 450; relative fp32 1008, 1000
    and 891, 837; full fp32 785, 842 and 844, 849. Decoding: no difference. NumPy does the same by
    default. Torch warns where a system has no such pages, and on some processors it does not ask.
    """
    if os.path.exists("/sys/kernel/mm/transparent_hugepage"):
        os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
