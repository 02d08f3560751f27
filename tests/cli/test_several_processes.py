"""`triptych train` in two processes on the CPU: scores of one process, a killed rank, launchers."""

from __future__ import annotations

import contextlib
import copy
import csv
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from triptych.cli.main import main
from triptych.training.engine import muon
from triptych.training.run.checkpoint import read_checkpoint

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow

Settings = Callable[[str], dict[str, Any]]
LEARNING = {
    "translation": {
        "optimizer": {"class_path": "Muon", "init_args": {"weight_decay": 0.1}},
        "ema_decay": 0.9,
    },
    "image": {"ema_decay": 0.9},
    "music": {"optimizer": {"class_path": "Muon"}},
}
MONITOR = {"image": "bits_per_dim"}
LAUNCHER_VARIABLES = ("LOCAL_RANK", "NODE_RANK", "RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def free_port() -> int:
    with contextlib.closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Folder:
    """A folder with one settings file, in which `triptych train` runs as processes of its own."""

    def __init__(self, path: Path, domain: str, content: dict[str, Any]) -> None:
        self.path, self.domain = path, domain
        self.program = ["-m", "triptych"]
        content["run"]["directory"] = str(path / "runs")
        content["trainer"] |= {"precision": "32-true", "log_every_n_steps": 1}
        schedule = {"class_path": "InverseSqrt", "init_args": {"warmup_steps": 2}}
        content["optim"] = {"learning_rate": 0.01, "schedule": schedule, **LEARNING[domain]}
        (path / "settings.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")

    def start(self, name: str, *words: object, **variables: object) -> subprocess.Popen[str]:
        command = [*self.program, "train", self.domain, "--config", "settings.yaml"]
        named = ["--run.name", name, *words]
        return self.execute([sys.executable, *command, *map(str, named)], **variables)

    def execute(self, command: list[str], **variables: object) -> subprocess.Popen[str]:
        kept = {k: v for k, v in os.environ.items() if k not in LAUNCHER_VARIABLES}
        return subprocess.Popen(
            command,
            cwd=self.path,
            env={**kept, "OMP_NUM_THREADS": "1", **{k: str(v) for k, v in variables.items()}},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,  # so that all its processes can be ended with it
        )

    def run_here(self, name: str, *words: object) -> None:
        """Train in this process, which has imported everything already."""
        command = ["train", self.domain, "--config", "settings.yaml", "--run.name", name]
        with contextlib.chdir(self.path):
            assert main([*command, *map(str, words)]) == 0

    def run(self, name: str, *words: object, **variables: object) -> str:
        (said,) = self.finish([self.start(name, *words, **variables)])
        return said

    @staticmethod
    def finish(processes: Sequence[subprocess.Popen[str]], code: int = 0) -> list[str]:
        said = []
        for process in processes:
            try:
                said.append(process.communicate(timeout=300)[0])
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            assert process.returncode == code, said[-1]
        return said

    def wait_for_checkpoint(self, name: str, process: subprocess.Popen[str]) -> None:
        deadline = time.monotonic() + 300
        while not (self.path / "runs" / name / "checkpoints/last.ckpt").exists():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < deadline
            time.sleep(0.01)

    def last(self, name: str) -> dict[str, Any]:
        return read_checkpoint(self.path / "runs" / name / "checkpoints/last.ckpt")

    def rows(self, name: str) -> list[dict[str, str]]:
        with (self.path / "runs" / name / "metrics.csv").open(encoding="utf-8") as file:
            return list(csv.DictReader(file))

    def scores(self, name: str) -> list[dict[str, float]]:
        return [
            {key: float(row[key]) for key in row if key.startswith("val/")}
            for row in self.rows(name)
            if row[f"val/{MONITOR.get(self.domain, 'nats_per_token')}"]
        ]


def child_of(process: subprocess.Popen[str]) -> int:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return int(children.split()[0])


@pytest.fixture
def folder(tmp_path: Path, tiny_settings: Settings) -> Callable[..., Folder]:
    return lambda domain="image": Folder(tmp_path, domain, tiny_settings(domain))


def differing(one: Any, other: Any, path: str = "") -> list[str]:
    """Paths of everything that differs between two checkpoints; times and names may."""
    if isinstance(one, dict):
        keys = [*one, *(key for key in other if key not in one)]
        return [
            found
            for key in keys
            for found in differing(one.get(key), other.get(key), f"{path}/{key}")
        ]
    if isinstance(one, (list, tuple)):
        pairs = zip(one, other, strict=True)
        return [f for i, (a, b) in enumerate(pairs) for f in differing(a, b, f"{path}/{i}")]
    same = torch.equal(one, other) if isinstance(one, torch.Tensor) else one == other
    return [] if same or path.endswith("/run/name") else [path]


@pytest.mark.parametrize("domain", ["translation", "image", "music"])
def test_two_processes_score_as_one_with_the_same_global_batch(
    folder: Callable[..., Folder], domain: str
) -> None:
    """Accumulation, moving average and Muon are in it, see LEARNING."""
    runs = folder(domain)
    # Lightning ends an update with the epoch, so each epoch needs a multiple of 4 batches.
    sizes = ["--data.batch_size", 1] if domain == "music" else []
    steps = [*sizes, "--trainer.max_steps", 6, "--trainer.val_check_interval"]
    accumulated = "--trainer.accumulate_grad_batches"
    said = runs.run("two", *steps, 6, accumulated, 2, "--trainer.devices", 2, "--resume", "auto")
    runs.run_here("one", *steps, 12, accumulated, 4)
    assert said.count("an update takes 4 batches") == said.count("Finished at step 6") == 1
    two, one = runs.scores("two"), runs.scores("one")
    assert len(two) == len(one) == 2
    for pair in zip(two, one, strict=True):
        assert pair[0] == pytest.approx(pair[1], rel=1e-5)
    assert one[0] != one[1], "it learns"
    kept, alone = runs.last("two"), runs.last("one")
    assert kept["triptych"]["vocabulary"] == alone["triptych"]["vocabulary"]
    positions = [c["loops"]["fit_loop"]["state_dict"]["combined_loader"][0] for c in (kept, alone)]
    assert positions[0]["batches_taken"] == positions[1]["batches_taken"] == 24
    assert positions[0]["plan"] == positions[1]["plan"]


FULL_PRECISION = """
import sys
from triptych.cli.main import main
from triptych.training.engine import muon
muon.cpu_has_bf16 = lambda: False
sys.exit(main(sys.argv[1:]))
"""
SHARDED = ("--trainer.devices", 2, "--trainer.strategy", "fsdp")


def assert_same_weights(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Of two checkpoints: weights, averages and what the optimisers keep."""
    for part in ("state_dict", "average", "optimizer_states"):
        mine, its = (dict(named_tensors(content.get(part))) for content in (one, other))
        assert mine.keys() == its.keys()
        for name, tensor in mine.items():
            torch.testing.assert_close(its[name], tensor, rtol=1e-4, atol=1e-5, msg=name)


def named_tensors(tree: Any, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(tree, torch.Tensor):
        yield path, tree
    elif isinstance(tree, (dict, list, tuple)):
        for key, part in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from named_tensors(part, f"{path}/{key}")


@pytest.mark.parametrize("domain", ["translation", "image", "music"])
def test_shared_weights_are_those_of_one_process_and_resume_in_any(
    folder: Callable[..., Folder], domain: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Muon's polynomial is in float32, since bfloat16 rounds other sums to other weights."""
    runs = folder(domain)
    script = runs.path / "full_precision.py"
    script.write_text(FULL_PRECISION)
    runs.program = [str(script)]
    monkeypatch.setattr(muon, "cpu_has_bf16", lambda: False)
    # Lightning counts batches of a process, so that updates after a resumption in another number
    # of processes are whole only from some places of an epoch.
    cut = 3 if domain == "music" else 4
    sizes = ["--data.batch_size", 1] if domain == "music" else []
    words = [*sizes, "--model.transformer.activation_checkpointing", "true"]
    # With a small epsilon Adam makes steps of gradients that are zero but for rounding.
    words += ["--optim.optimizer.epsilon", 1e-3]
    words += ["--trainer.gradient_clip_val", 0.5, "--trainer.accumulate_grad_batches"]
    two, one = [*words, 2, "--trainer.val_check_interval", 4], [*words, 4]
    one += ["--trainer.val_check_interval", 8]
    runs.run("cut", *two, *SHARDED, "--trainer.max_steps", cut)
    runs.run_here("one", *one, "--trainer.max_steps", cut)
    assert_same_weights(runs.last("one"), runs.last("cut"))
    for mine, its in zip(runs.scores("one"), runs.scores("cut"), strict=True):
        assert its == pytest.approx(mine, rel=1e-5)
    for name in ("here", "shared"):
        shutil.copytree(runs.path / "runs/cut", runs.path / "runs" / name)
    runs.run_here("one", *one, "--trainer.max_steps", cut + 2, "--resume")
    runs.run_here("here", *one, "--trainer.max_steps", cut + 2, "--resume")
    runs.run("shared", *two, *SHARDED, "--trainer.max_steps", cut + 2, "--resume")
    assert_same_weights(runs.last("one"), runs.last("here"))
    assert_same_weights(runs.last("one"), runs.last("shared"))


@pytest.mark.parametrize("domain", ["translation", "image", "music"])
def test_a_killed_rank_and_resume_auto_end_in_the_same_checkpoint(
    folder: Callable[..., Folder], domain: str
) -> None:
    runs = folder(domain)
    words = ["--trainer.max_steps", 40, "--trainer.val_check_interval", 8, "--trainer.devices", 2]
    words += ["--trainer.accumulate_grad_batches", 2, "--resume", "auto"]
    words += ["--model.transformer.dropout", 0.1, "--run.keep_late", 2]
    runs.run("whole", *words)
    process = runs.start("cut", *words)
    runs.wait_for_checkpoint("cut", process)
    os.kill(child_of(process), signal.SIGKILL)
    said = process.communicate(timeout=300)[0]
    assert process.returncode != 0, said
    assert 0 < runs.last("cut")["global_step"] < 40, "the kill came too late to say anything"
    again = runs.run("cut", *words)
    assert "Resuming from step" in again
    assert differing(runs.last("whole"), runs.last("cut")) == []
    assert runs.scores("whole") == runs.scores("cut")
    metric = f"val/{MONITOR.get(domain, 'nats_per_token')}"
    validated = [int(row["step"]) for row in runs.rows("whole") if row[metric]]
    late = [f"late-{step:08d}.ckpt" for step in validated[-2:]]
    whole, cut = (runs.path / "runs" / name / "checkpoints" for name in ("whole", "cut"))
    for checkpoints in (whole, cut):
        assert sorted(path.name for path in checkpoints.glob("late-*.ckpt")) == late
    for name in late:
        assert differing(read_checkpoint(whole / name), read_checkpoint(cut / name)) == []


def test_another_number_of_processes_is_told_and_the_order_of_the_data_goes_on(
    folder: Callable[..., Folder], capsys: pytest.CaptureFixture[str]
) -> None:
    runs = folder()
    words = ["--trainer.val_check_interval", 6, "--trainer.max_steps"]
    runs.run("run", *words, 6, "--trainer.devices", 2)
    runs.run_here("run", *words, 12, "--resume", "auto")
    said = capsys.readouterr().out
    assert "with 1 processes in place of 2" in said
    position = runs.last("run")["loops"]["fit_loop"]["state_dict"]["combined_loader"][0]
    assert (position["batches_taken"], position["processes"]) == (12 + 6, 1)


def manual(rank: int, port: int) -> dict[str, object]:
    """Variables of a process that the user starts."""
    return {"LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def test_processes_with_different_data_refuse_to_train(folder: Callable[..., Folder]) -> None:
    runs, port = folder(), free_port()
    sizes = ["--data.batch_size", 8], ["--data.batch_size", 9]
    said = Folder.finish(
        [
            runs.start("run", "--trainer.devices", 2, *size, **manual(rank, port))
            for rank, size in enumerate(sizes)
        ],
        code=2,
    )
    assert all("process 1 has read other data than process 0" in text for text in said)
    assert not (runs.path / "runs/run").exists()


@pytest.mark.parametrize(
    ("options", "says", "times"),
    [
        (["--resume"], "there is nothing to resume", [1, 0]),
        # An epoch of 180 batches.
        (["--trainer.val_check_interval", 91, "--trainer.check_val_every_n_epoch", 1],
         "but an epoch has 90 batches", [1, 1]),
    ],
)  # fmt: skip
def test_a_refusal_ends_all_processes(
    folder: Callable[..., Folder], options: list[object], says: str, times: list[int]
) -> None:
    """A decision of rank 0 is told once; what each process finds itself, by each."""
    runs, port = folder(), free_port()
    words = ["--trainer.devices", 2, *options]
    said = Folder.finish(
        [runs.start("run", *words, **manual(rank, port)) for rank in range(2)], code=2
    )
    assert [text.count(says) for text in said] == times


def slurm(rank: int, port: int, folder: Path) -> dict[str, object]:
    """Variables of `srun` on two nodes with one task each."""
    return {
        "SLURM_JOB_ID": 4321, "SLURM_NTASKS": 2, "SLURM_NTASKS_PER_NODE": 1, "SLURM_NNODES": 2,
        "SLURM_PROCID": rank, "SLURM_NODEID": rank, "SLURM_LOCALID": 0, "MASTER_PORT": port,
        "SLURM_NODELIST": "localhost",
    }  # fmt: skip


def lsf(rank: int, port: int, folder: Path) -> dict[str, object]:
    """Variables of `jsrun` on one host with two tasks."""
    hosts = folder / "hosts"
    hosts.write_text(f"launcher\n{socket.gethostname()}\n{socket.gethostname()}\n")
    return {
        "LSB_JOBID": 4321, "LSB_DJOB_RANKFILE": hosts, "JSM_NAMESPACE_LOCAL_RANK": rank,
        "JSM_NAMESPACE_SIZE": 2, "JSM_NAMESPACE_RANK": rank, "MASTER_PORT": port,
    }  # fmt: skip


@pytest.mark.parametrize("cluster", [slurm, lsf])
def test_one_process_of_a_cluster_writes_the_folder(
    folder: Callable[..., Folder], cluster: Callable[..., dict[str, object]]
) -> None:
    """Each process has a working folder of its own here."""
    runs, port = folder(), free_port()
    other = copy.copy(runs)
    other.path = runs.path / "other"
    other.path.mkdir()
    shutil.copy(runs.path / "settings.yaml", other.path)
    words = ["--trainer.num_nodes", 2] if cluster is slurm else ["--trainer.devices", 2]
    words += ["--run.directory", "runs"]
    said = Folder.finish(
        [
            place.start("run", *words, **cluster(rank, port, runs.path))
            for rank, place in enumerate([runs, other])
        ]
    )
    assert ["Finished at step 3" in text for text in said] == [True, False]
    assert len(runs.scores("run")) == 1
    assert [path.name for path in other.path.iterdir()] == ["settings.yaml"]


STUBS = {
    "triptych": 'exec "$PYTHON" -m triptych "$@"',
    "torchrun": 'exec "$PYTHON" -m torch.distributed.run "$@"',
    "scontrol": 'echo "$@" >> requeued',
    # Two nodes with one task each, as the variables of `slurm`.
    "srun": """
        shift
        for rank in 0 1; do
            SLURM_PROCID=$rank SLURM_NODEID=$rank "$@" & tasks="$tasks $!"
        done
        echo $tasks > tasks
        for task in $tasks; do wait $task || code=$?; done
        exit ${code:-0}
    """,
}


class Recipes:
    """Commands of docs/scaling.md, made small, with stand-ins for what a cluster installs."""

    def __init__(self, runs: Folder) -> None:
        self.runs, self.port = runs, free_port()
        (runs.path / "bin").mkdir()
        for name, script in STUBS.items():
            program = runs.path / "bin" / name
            program.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
            program.chmod(0o755)

    def start(
        self, section: str, program: str, each: int, **variables: object
    ) -> subprocess.Popen[str]:
        """each: processes of a node."""
        page = (ROOT / "docs/scaling.md").read_text(encoding="utf-8")
        text = page.partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        blocks = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
        script = next(block for block in blocks if program in block)
        for before, after in (
            ("configs/gpu/image/cifar10.yaml", "settings.yaml"),
            ("--nproc-per-node 8", f"--nproc-per-node {each}"),
            ("--trainer.devices 8", f"--trainer.devices {each}"),
            ("node0:29500", f"127.0.0.1:{self.port}"),
        ):
            script = script.replace(before, after)
        path = f"{self.runs.path / 'bin'}:{os.environ['PATH']}"
        script = script if "\nsrun" in script else f"exec env {script}"
        return self.runs.execute(
            ["bash", "-c", script], PATH=path, PYTHON=sys.executable, **variables
        )


@pytest.fixture
def recipes(tmp_path: Path, tiny_settings: Settings) -> Recipes:
    content = tiny_settings("image")
    content["trainer"] |= {"max_steps": 40, "val_check_interval": 8}
    return Recipes(Folder(tmp_path, "image", content))


def test_the_recipes_for_several_gpus(recipes: Recipes) -> None:
    """torchrun starts again after a killed process; the checkpoint is that of a run without."""
    runs = recipes.runs
    (said,) = Folder.finish([recipes.start("Several GPUs", "triptych", 2)])
    assert said.count("Finished at step 40") == 1
    (runs.path / "runs/run").rename(runs.path / "runs/whole")
    process = recipes.start("Several GPUs", "torchrun", 2)
    runs.wait_for_checkpoint("run", process)
    os.kill(child_of(process), signal.SIGKILL)
    (said,) = Folder.finish([process])
    assert "Resuming from step" in said
    assert differing(runs.last("whole"), runs.last("run")) == []


def test_the_recipe_for_several_nodes(recipes: Recipes) -> None:
    said = Folder.finish([recipes.start("Several nodes", "torchrun", 1) for _ in range(2)])
    assert sum(text.count("Finished at step 40") for text in said) == 1


def test_the_recipe_for_slurm_queues_a_stopped_job_again(recipes: Recipes) -> None:
    runs = recipes.runs
    variables = slurm(0, recipes.port, runs.path)
    process = recipes.start("SLURM", "srun", 1, **variables)
    runs.wait_for_checkpoint("run", process)
    for task in (runs.path / "tasks").read_text().split():
        os.kill(int(task), signal.SIGTERM)
    Folder.finish([process], code=143)
    assert (runs.path / "requeued").read_text() == "requeue 4321\n"
    (said,) = Folder.finish([recipes.start("SLURM", "srun", 1, **variables)])
    assert "Resuming from step" in said
    assert said.count("Finished at step 40") == 1
    assert (runs.path / "requeued").read_text() == "requeue 4321\n"
