"""Sections on whole commands: every system, resumed and compiled runs, DDP of one process."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import itertools
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from gpu.setting import Row, Setting, difference
from gpu.training import DATA
from triptych.tools import recipes

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
IMAGES = ("--data.source", "MNIST", "--data.bits", "3")
SMALL = ("--model.transformer.n_layers", "2", "--model.transformer.d_model", "64",
         "--model.transformer.n_heads", "2")  # fmt: skip
"""Heads of 32 features, which FlexAttention computes."""
ATTENTION = "--model.transformer.attention"
SAMPLE = ("sample", "--count", "2")
MUSIC = (*SAMPLE, "--seconds", "2")


@dataclass(frozen=True)
class System:
    """What is trained for some steps, scored on the device and on the CPU, and used."""

    config: str
    words: tuple[str, ...] = ()
    use: tuple[str, ...] = SAMPLE


LOCAL = System("image/copied-rows", (*SMALL, ATTENTION, "Local2D"))
RELATIVE = System(
    "music/copied-motifs",
    (*SMALL, ATTENTION, "Relative", "--model.transformer.positions", "NoPositions"), MUSIC,
)  # fmt: skip
SYSTEMS = {
    "images, local 2-D": LOCAL,
    "super-resolution": System("image/digits-super-resolution", (*IMAGES, *SMALL), ()),
    "GAN": System("gan/digits-gan"),
    "music, relative": RELATIVE,
    "music, compressed": System("music/copied-motifs", (*SMALL, ATTENTION, "Compressed"), MUSIC),
    "music, melody": System(
        "music/copied-motifs", (*SMALL, "--model.melody", '{"n_layers": 1}'), ()
    ),
    "translation": System("translation/reversed", SMALL, ("translate",)),
    "translation, recurrent": System("translation/numbers-en-de-rnn", (), ("translate",)),
    "translation, Universal": System(
        "translation/numbers-en-de-universal", SMALL, ("translate",)
    ),
    "language": System("language/lm-multi30k", SMALL),
    "masked language": System("language/bert-multi30k", SMALL, ()),
    "images, fp16": System(
        "image/copied-rows", (*SMALL, "--trainer.precision", "16-mixed")
    ),
}  # fmt: skip


@dataclass
class Workplace:
    """A folder of runs, and commands of the program in this process."""

    setting: Setting
    folder: Path

    @classmethod
    @contextlib.contextmanager
    def of(cls, setting: Setting) -> Iterator[Workplace]:
        with TemporaryDirectory() as folder:
            lines = [f"A man with {n} dogs walks to the red house ." for n in range(200)]
            for name in ("train.en.gz", "val.en.gz", "test_2016_flickr.en.gz"):
                with gzip.open(Path(folder, name), "wt", encoding="utf-8") as file:
                    file.write("\n".join(lines))
            for name in {*DATA.values()}:
                recipes.make(name, ["--out", f"{folder}/{name}"])
            yield cls(setting, Path(folder))

    def command(self, *words: object) -> str:
        """Run a command and return what it prints; RuntimeError where it fails."""
        from triptych.cli.main import main

        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main([str(word) for word in words])
        if code:
            said = err.getvalue().strip().splitlines()
            raise RuntimeError(
                f"triptych {words[0]} ended with {code}: {(said or ['nothing'])[-1]}"
            )
        return out.getvalue()

    def train(self, name: str, system: System, steps: int, *words: object) -> Path:
        """Train a system and return its last checkpoint."""
        domain = system.config.partition("/")[0]
        data = ("--data.source.init_args.directory", self.folder / DATA.get(domain, ""))
        if domain == "gan":  # the digits, whose classes it needs, have no folder
            data = ()
        length = ("--trainer.max_steps", steps, "--trainer.val_check_interval", steps)
        device = ("--trainer.accelerator", "gpu" if self.setting.on_cuda else "cpu")
        with self.setting.strict():
            self.command(
                "train", domain, "--config", CONFIGS / f"{system.config}.yaml", *device,
                "--run.directory", self.folder, "--run.name", name, "--run.wandb", "off",
                "--trainer.log_every_n_steps", 1, *length, *system.words, *data, *words,
            )  # fmt: skip
        return self.folder / name / "checkpoints" / "last.ckpt"

    def losses(self, name: str) -> list[float]:
        with (self.folder / name / "metrics.csv").open(encoding="utf-8") as file:
            return [float(row["train/loss"]) for row in csv.DictReader(file) if row["train/loss"]]

    def scores(self, domain: str, checkpoint: Path, device: str) -> dict[str, float]:
        out = self.folder / "score.json"
        self.command("evaluate", domain, "--checkpoint", checkpoint, "--device", device,
                     "--limit", 4, "--json", out)  # fmt: skip
        found = json.loads(out.read_text(encoding="utf-8"))
        # Of translations a near tie may be another word on another device.
        of_text = "bleu", "chrf", "exact_match"
        scores = {k: v for k, v in found["metrics"].items() if not k.startswith(of_text)}
        if not any(isinstance(v, float) for v in scores.values()):
            raise RuntimeError(f"triptych evaluate {domain} wrote no score")
        return scores


def systems(setting: Setting) -> Iterator[Row]:
    """Train each system, score it on the device and on the CPU, and use it."""
    with Workplace.of(setting) as place:
        for number, (name, system) in enumerate(SYSTEMS.items()):
            if "16-mixed" in system.words and not setting.on_cuda:
                continue  # refused elsewhere
            domain, started = system.config.partition("/")[0], time.perf_counter()
            row: Row = {"case": name}
            try:
                checkpoint = place.train(f"run{number}", system, 3)
                loss = place.losses(f"run{number}")[-1]
                here, cpu = (
                    place.scores(domain, checkpoint, device)
                    for device in (setting.device.type, "cpu")
                )
                apart = max(
                    (abs(here[k] - cpu[k]) / max(1.0, abs(cpu[k])) for k in here), default=0.0
                )
                row |= {"loss": loss, "score apart": apart}
                if system.use:
                    use(place, system, checkpoint, number)
                row["passed"] = bool(torch.isfinite(torch.tensor(loss))) and apart <= 1e-4
            except RuntimeError as error:
                row |= {"problem": str(error).partition("\n")[0], "passed": False}
            yield row | {"seconds": time.perf_counter() - started}


def use(place: Workplace, system: System, checkpoint: Path, number: int) -> None:
    command, *words = system.use
    device = ("--device", place.setting.device.type)
    if command == "translate":
        from triptych import load

        load(str(checkpoint), device=place.setting.device.type).translate(["a b c", "b a"])
    else:
        domain = system.config.partition("/")[0]
        out = place.folder / f"samples{number}"
        place.command(command, domain, "--checkpoint", checkpoint, "--out", out, *words, *device)


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return dict(torch.load(checkpoint, weights_only=True, map_location="cpu")["state_dict"])


def largest_difference(one: Path, other: Path) -> float:
    first, second = weights(one), weights(other)
    return max(difference(first[name], second[name]) for name in first)


def resumed(setting: Setting) -> Iterator[Row]:
    """A run that stops and goes on, beside one that does not; and the same run twice."""
    steps = 4 if setting.tiny else 40
    with Workplace.of(setting) as place:
        for mode in ("deterministic",) if setting.tiny else ("as it is", "deterministic"):
            words = ("--trainer.deterministic", "true") if mode == "deterministic" else ()
            whole = place.train(f"whole {mode}", LOCAL, steps, *words)
            again = place.train(f"again {mode}", LOCAL, steps, *words)
            place.train(f"parts {mode}", LOCAL, steps // 2, *words)
            parts = place.train(f"parts {mode}", LOCAL, steps, "--resume", "auto", *words)
            apart = largest_difference(whole, again), largest_difference(whole, parts)
            row = {"case": mode, "same run twice": apart[0], "resumed": apart[1]}
            yield row | {"passed": max(apart) == 0 if words else True}


def compiled(setting: Setting) -> Iterator[Row]:
    """Losses of compiled training, with checkpointing, beside those of eager training."""
    steps = 3 if setting.tiny else 200
    ways: dict[str, tuple[str, ...]] = {
        "compiled": ("--run.compute.compile", "true"),
        "compiled, checkpointing": (
            "--run.compute.compile", "true",
            "--model.transformer.activation_checkpointing", "true",
        ),
    }  # fmt: skip
    kinds = {"local 2-D": LOCAL, "relative": RELATIVE}
    if setting.tiny:
        del kinds["relative"], ways["compiled"]
    with Workplace.of(setting) as place:
        for kind, system in kinds.items():
            place.train(f"{kind} eager", system, steps)
            eager = torch.tensor(place.losses(f"{kind} eager"))
            for name, words in ways.items():
                place.train(f"{kind} {name}", system, steps, *words)
                other = torch.tensor(place.losses(f"{kind} {name}"))
                tenth = max(1, steps // 10)
                first = difference(other[:tenth], eager[:tenth])
                last = float(other[-tenth:].mean() - eager[-tenth:].mean())
                yield {"case": f"{kind}, {name}", "first losses apart": first,
                       "last losses apart": last,
                       "passed": first <= 0.02 and abs(last) <= 0.05 * float(eager[0])}  # fmt: skip


def one_process_of_ddp(setting: Setting) -> Iterator[Row]:
    """DDP and FSDP of one process; DDP compiled, with checkpointing and low-rank adapters."""
    steps = 2 if setting.tiny else 20
    ddp = ("--trainer.strategy", "ddp", "--trainer.devices", "1")
    with Workplace.of(setting) as place:
        alone = place.train("alone", LOCAL, steps)
        both = place.train("ddp", LOCAL, steps, *ddp)
        apart = largest_difference(alone, both)
        yield {"case": "DDP of one", "weights apart": apart, "passed": apart <= 1e-3}
        parts = place.train("fsdp", LOCAL, steps, "--trainer.strategy", "fsdp", *ddp[2:])
        apart = largest_difference(alone, parts)
        yield {"case": "FSDP of one", "weights apart": apart, "passed": apart <= 1e-3}
        if setting.tiny:
            return
        for name, words in {
            "compiled": ("--run.compute.compile", "true"),
            "checkpointing": ("--model.transformer.activation_checkpointing", "true"),
            "adapters, compiled": (
                "--run.start.init_from", str(alone), "--run.finetune.lora_rank", "2",
                "--run.compute.compile", "true",
            ),
        }.items():  # fmt: skip
            place.train(name, LOCAL, steps, *ddp, *words)
            loss = place.losses(name)[-1]
            yield {"case": f"DDP of one, {name}", "loss": loss, "passed": loss == loss}


def through_lightning(setting: Setting) -> Iterator[Row]:
    """Steps per second of `triptych train` beside a plain loop over the same loader."""
    from gpu.training import Loop

    steps = 5 if setting.tiny else 200
    loop = Loop.of(setting, "image/copied-rows.yaml")
    batches = loop.batches()

    def run() -> None:
        for batch in itertools.islice(batches, steps):
            loop.step(batch)

    plain = setting.seconds(run, 1)
    with Workplace.of(setting) as place:
        seconds = []
        for length in (steps, 2 * steps):  # the difference has neither start nor validation
            started = time.perf_counter()
            place.train(f"run{length}", System("image/copied-rows"), length,
                        "--trainer.log_every_n_steps", 50)  # fmt: skip
            seconds.append(time.perf_counter() - started)
    ratio = (seconds[1] - seconds[0]) / plain
    yield {"case": f"{steps} steps", "plain loop s": plain, "triptych train over it": ratio,
           "passed": setting.tiny or ratio <= 1.1}  # fmt: skip


def graphs_of_decoding(setting: Setting) -> Iterator[Row]:
    """Decoding with CUDA graphs: none is skipped, and tokens are those of eager steps."""
    from benchmarks import models
    from benchmarks.models import Shape

    from triptych.decoding.execution import CompiledSteps
    from triptych.decoding.generate import generate
    from triptych.decoding.sampling import SampleRequest

    shape = Shape(24, 16, 32, 1, 2) if setting.tiny else Shape(512, 256, 256, 4, 8)
    model = models.decoder_only(shape).to(setting.device).eval()
    steps = CompiledSteps(model) if setting.on_cuda else None
    request = SampleRequest(count=4, length=shape.length, seed=1)
    eager = generate(model, request)
    graph = generate(model, replace(request, compiled=steps))
    same = float((eager == graph).double().mean())
    skips = int(torch._dynamo.utils.counters["inductor"]["cudagraph_skips"])
    yield {"case": str(shape), "equal tokens": same, "graphs skipped": skips,
           "passed": skips == 0 and same > 0.99}  # fmt: skip
