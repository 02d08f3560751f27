"""Trained models in use import neither Lightning nor other libraries that they do not need."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

NEVER = (
    "pytorch_lightning", "lightning", "lightning_fabric", "torchvision", "torchmetrics",
    "transformers", "torch._dynamo", "torch._inductor", "wandb", "music21",
)  # fmt: skip
RUN = {"triptych.training.run.settings", "triptych.training.engine.optim"}
"""Settings of a run, which `evaluate` alone imports with those of its data."""
WHEN_USED = (
    "pretty_midi", "matplotlib", "sacrebleu", "PIL", "sklearn", "scipy", "num2words", "pandas",
    *sorted(RUN),
)  # fmt: skip
SAMPLE = ["--out", "out", "--count", "1"]
COMMANDS: dict[str, list[tuple[list[str], set[str]]]] = {
    # One after the other in one process; what each may import of WHEN_USED.
    "image": [
        ([], set()),
        (["sample", "image", *SAMPLE], {"PIL"}),
        # Of its data, the digits; sklearn imports pandas where it is installed.
        (["evaluate", "image", "--limit", "2"], {"sklearn", "scipy", "pandas", *RUN}),
    ],
    "music": [
        ([], set()),
        (["sample", "music", *SAMPLE, "--seconds", "1"], {"pretty_midi", "matplotlib", "PIL"}),
    ],
    "translation": [
        ([], set()),
        (["translate", "--beam", "1"], set()),
        (["evaluate", "translation", "--limit", "2"], {"sacrebleu", "num2words", *RUN}),
    ],
}
CODE = """
import json, sys
commands, names, checkpoint = json.loads(sys.argv[1])
for words in commands:
    if words:
        from triptych.cli.main import main
        assert main([*words, "--checkpoint", checkpoint, "--device", "cpu"]) == 0
    else:
        import triptych
        triptych.load(checkpoint, device="cpu")
    print("\\n@", json.dumps([name for name in names if name in sys.modules]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("domain", COMMANDS)
def test_only_what_is_used_is_imported(
    tmp_path: Path, checkpoints: dict[str, Path], translation_checkpoint: Path, domain: str
) -> None:
    own = {**checkpoints, "translation": translation_checkpoint}  # evaluate reads its data
    commands = [words for words, _ in COMMANDS[domain]]
    given = json.dumps([commands, NEVER + WHEN_USED, str(own[domain])])
    done = subprocess.run(
        [sys.executable, "-c", CODE, given],
        input="eins\n", capture_output=True, text=True, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [set(json.loads(row[2:])) for row in done.stdout.splitlines() if row.startswith("@ ")]
    allowed: set[str] = set()
    for found, (words, more) in zip(rows, COMMANDS[domain], strict=True):
        allowed |= more
        assert found <= allowed, words or "triptych.load"


def test_the_command_line_lets_no_thread_spin() -> None:
    """The variable counts before torch is imported; a value of the user's own stays."""
    code = (
        "import os, sys; from triptych.cli.main import main; main(['--help']); "
        "print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules)"
    )
    others = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    for given, policy in (({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")):
        done = subprocess.run(
            [sys.executable, "-c", code], env={**others, **given}, capture_output=True, text=True,
            check=True,
        )  # fmt: skip
        assert done.stdout.splitlines()[-1] == f"{policy} False"
