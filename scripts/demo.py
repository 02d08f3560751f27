"""Run the shipped models, train one model per domain, and write one page with the results.

    .venv/bin/python scripts/demo.py --minutes 7.5 --out runs/demo

Each training ends after its steps or after its share of the time, 2 : 3 : 2.5 : 0.7 for
translation, images, music and super-resolution of images; time that one leaves or overdraws counts
for the next. Everything is written to
--out; an existing folder is moved to runs/demo-1, runs/demo-2, ... A step that fails is named at
the end, the other steps still run, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from demo_page import write_page

import triptych
from triptych import pretrained
from triptych.cli.main import main as command
from triptych.domains.files import json_bytes
from triptych.domains.image.render import to_bytes, write_png
from triptych.domains.image.sources import Digits
from triptych.errors import UserError
from triptych.training.checkpoint import read_checkpoint
from triptych.training.files import write_atomically

ROOT = Path(__file__).resolve().parents[1]
TRAININGS = {
    "translation": ("numbers-en-de", 2.0),
    "image": ("digits", 3.0),
    "music": ("chorales-demo", 2.5),
}
"""Domain -> name of its config and its share of the training time."""
SUPER_RESOLUTION = ("digits-super-resolution", 0.7)
"""Config of the fourth training and its share of the time."""
N_PICTURES = 6
"""Test digits that are completed and upscaled."""
SAMPLES = {"image": ["--count", "60"], "music": ["--count", "2"]}
SHIPPED_SAMPLES = {"image": ["--count", "20"], "music": ["--count", "1", "--seconds", "20"]}
HARMONISED = 64
"""Sixteenths of the melody that is harmonised: the four bars that the model sees at once."""
SENTENCES = (
    "A man plays the guitar.",
    "Two dogs are running across a green field.",
    "A little girl in a red dress is eating ice cream.",
    "An old woman rides her bicycle through the rain.",
    "Several people are waiting for the train, and a boy waves at them.",
    # Not the caption of an image: shows the limits of the model.
    "The minister will resign if parliament rejects the new budget.",
)


class StepFailed(Exception):  # noqa: N818
    """A step of the demo that did not succeed."""


class Demo:
    """The steps of the demo, which of them failed, and what the page shows."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.failed: list[str] = []
        self.results: dict[str, Any] = {"shipped": [], "trained": {}}

    def step(self, name: str, work: Callable[[], None]) -> None:
        """Run one step; a failure is printed and remembered."""
        print(f"\n== {name}", flush=True)
        started = time.monotonic()
        try:
            work()
        except Exception as error:
            self.failed.append(name)
            if isinstance(error, UserError):
                print(error, file=sys.stderr)
            elif not isinstance(error, StepFailed):
                traceback.print_exc()
        print(f"   ({time.monotonic() - started:.0f} s)", flush=True)
        write_atomically(self.out / "demo.json", json_bytes(self.results))

    def shipped(self, name: str) -> None:
        """Translate or sample with a shipped model."""
        facts = json.loads(pretrained.find(name).with_suffix(".json").read_text(encoding="utf-8"))
        domain, checkpoint = facts["triptych"]["domain"], pretrained.PREFIX + name
        found: dict[str, Any] = {"name": name, "domain": domain, **facts["card"]}
        if domain == "translation":
            texts = triptych.load(checkpoint).translate(list(SENTENCES))
            found["samples"] = [
                {"source": source, "translation": text}
                for source, text in zip(SENTENCES, texts, strict=True)
            ]
            print(
                "\n".join(f"{row['source']}\n    {row['translation']}" for row in found["samples"])
            )
        else:
            folder = str(self.out / "shipped" / name)
            options = ["--checkpoint", checkpoint, "--out", folder, *SHIPPED_SAMPLES[domain]]
            run("sample", domain, *options)
        self.results["shipped"].append(found)

    def train(self, domain: str, config: str, seconds: float, name: str | None = None) -> None:
        """Train the model of one domain; name: of the run, else that of the domain."""
        name = name or domain
        path = ROOT / "configs" / domain / f"{config}.yaml"
        steps = yaml.safe_load(path.read_text(encoding="utf-8"))["trainer"]["max_steps"]
        run(
            *("train", domain, "--config", str(path), "--run.directory", str(self.out)),
            *("--run.name", name, "--run.wandb", "off"),
            *("--trainer.max_time", f"00:{int(seconds) // 3600:02}:{int(seconds) // 60 % 60:02}:"
              f"{int(seconds) % 60:02}"),
        )  # fmt: skip
        checkpoints = self.out / name / "checkpoints"
        done = read_checkpoint(checkpoints / "last.ckpt")["triptych"]["step"]
        stopped = f"all {steps} steps" if done >= steps else f"{done} of {steps} steps, in "
        if done < steps:
            stopped += f"its share of the time, {seconds:.0f} s"
        print(f"trained for {stopped}")
        self.results["trained"][name] = {"config": config, "stopped": stopped}

    def use(self, domain: str) -> None:
        """Score and sample the trained model of one domain."""
        checkpoint = ["--checkpoint", str(self.out / domain / "checkpoints" / "best.ckpt")]
        score = self.out / f"{domain}.json"
        run("evaluate", domain, *checkpoint, "--json", str(score))
        self.results["trained"][domain]["score"] = json.loads(score.read_text(encoding="utf-8"))
        if domain in SAMPLES:
            folder = self.out / "samples" / domain
            run("sample", domain, *checkpoint, "--out", str(folder), *SAMPLES[domain])
        if domain == "music":
            self.harmonise(checkpoint)

    def harmonise(self, checkpoint: list[str]) -> None:
        """Fill in the three lower voices of a test chorale, given its soprano."""
        music = triptych.load(checkpoint[1])
        chorale = music.config.data.source.load("test")[0].content[:HARMONISED]
        midi = music.tokenizer.to_midi(music.tokenizer.encode(chorale))
        del midi.instruments[1:]
        melody = self.out / "soprano.mid"
        midi.write(str(melody))
        folder = str(self.out / "samples" / "harmony")
        given = ["--given", str(melody), "--keep", "soprano", "--count", "1"]
        run("sample", "music", *checkpoint, "--out", folder, *given)

    def complete(self) -> None:
        """Fill the lower halves of test digits."""
        self.sample_from_pictures("image", "completion", "--complete", ["--mask", "bottom"])

    def upscale(self, seconds: float) -> None:
        """Train super-resolution of digits and sample test digits from small ones."""
        name = "super-resolution"
        self.train("image", SUPER_RESOLUTION[0], seconds, name)
        self.sample_from_pictures(name, name, "--upscale", [])

    def sample_from_pictures(self, model: str, name: str, option: str, more: list[str]) -> None:
        """Sample five images from each of some test digits, which are written into a folder."""
        digits = Digits().load("test").first(N_PICTURES)
        pictures = self.out / "pictures"
        for index, image in enumerate(to_bytes(digits.pixels, digits.levels)):
            label = digits.class_names[int(digits.labels[index])]
            write_png(pictures / label / f"{index}.png", image)
        checkpoint = self.out / model / "checkpoints" / "best.ckpt"
        folder = self.out / "samples" / name
        run(
            *("sample", "image", "--checkpoint", str(checkpoint), option, str(pictures)),
            *("--count", "5", "--out", str(folder), *more),
        )


def run(*words: str) -> None:
    """Run a command of `triptych` in this process; raises StepFailed where it does not end in 0."""
    print(f"triptych {' '.join(words)}", flush=True)
    code = command(list(words))
    if code in (130, 143):  # interrupted
        sys.exit(code)
    if code:
        raise StepFailed(words[0])


def free_folder(out: Path) -> Path:
    """Move an existing folder aside and return the path."""
    number = 1
    while out.with_name(f"{out.name}-{number}").exists():
        number += 1
    if out.exists():
        aside = out.with_name(f"{out.name}-{number}")
        out.rename(aside)
        print(f"moved the existing {out} to {aside}")
    out.mkdir(parents=True)
    return out


def main() -> int:
    about, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=7.5, help="of training (default: 7.5)")
    parser.add_argument("--out", type=Path, default=ROOT / "runs/demo", help="(default: runs/demo)")
    options = parser.parse_args()
    if not options.minutes > 0:
        parser.error(f"--minutes must be above 0, got {options.minutes}")
    started = time.monotonic()
    demo = Demo(free_folder(options.out))
    for name in pretrained.names():
        demo.step(f"shipped model {name}", lambda name=name: demo.shipped(name))
    shares = sum(share for _, share in (*TRAININGS.values(), SUPER_RESOLUTION))
    left = 0.0
    for domain, (config, share) in TRAININGS.items():
        seconds = max(2.0, left + 60 * options.minutes * share / shares)
        begun = time.monotonic()
        demo.step(
            f"train {domain}, at most {seconds:.0f} s",
            lambda domain=domain, config=config, seconds=seconds: demo.train(
                domain, config, seconds
            ),
        )
        left = seconds - (time.monotonic() - begun)
        if domain in demo.results["trained"]:
            demo.step(f"evaluate and sample {domain}", lambda domain=domain: demo.use(domain))
    if "image" in demo.results["trained"]:
        demo.step("complete test digits", demo.complete)
    seconds = max(2.0, left + 60 * options.minutes * SUPER_RESOLUTION[1] / shares)
    demo.step(f"train super-resolution, at most {seconds:.0f} s", lambda: demo.upscale(seconds))
    page = write_page(demo.out, demo.results)
    print(f"\nthe demo took {time.monotonic() - started:.0f} s; results are in {page}")
    if demo.failed:
        print(f"these steps failed: {', '.join(demo.failed)}", file=sys.stderr)
    return 1 if demo.failed else 0


if __name__ == "__main__":
    sys.exit(main())
