"""Run the shipped models, train one model per domain, and write one page with the results.

    .venv/bin/python scripts/demo.py --minutes 7.5 --out runs/demo

Each training has as many steps as fit into its share of the time (`train --minutes`),
2 : 3 : 2.5 : 0.7 for translation, images, music and super-resolution of images; time that one
leaves or overdraws counts for the next. Everything is written to
--out; an existing folder is moved to runs/demo-1, runs/demo-2, ... A step that fails is named at
the end, the other steps still run, and the exit code is 1.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import in_venv

import triptych
from triptych import pretrained
from triptych.cli.main import main as command
from triptych.domains.music.frame import Made
from triptych.domains.music.notes import SILENT
from triptych.domains.pictures.render import to_bytes, write_png
from triptych.domains.pictures.sources import Digits
from triptych.errors import UserError
from triptych.files.results import json_bytes, write_atomically
from triptych.tools.report.page import Exhibit, report
from triptych.tools.report.run import check_is_run, read_run
from triptych.tools.report.samples import Table, read_items
from triptych.training.run.checkpoint import read_checkpoint

ROOT = Path(__file__).resolve().parents[1]
TRAININGS = {
    "translation": ("numbers-en-de", 2.0),
    "image": ("digits", 3.0),
    "music": ("chorales-demo", 2.5),
}
"""Domain -> name of its config and its share of the training time."""
RECIPES = {"translation": "numbers", "music": "bach"}
"""Domain -> recipe of its data."""
SUPER_RESOLUTION = ("digits-super-resolution", 0.7)
"""Config of the fourth training and its share of the time."""
LEAST_SECONDS = 90.0
"""Time of a training with the reading of its data, at least."""
N_PICTURES = 6
"""Test digits that are completed and upscaled."""
SAMPLES = {"image": ["--count", "60"], "music": ["--count", "2"]}
SHIPPED_SAMPLES = {"image": ["--count", "20"], "music": ["--count", "1", "--seconds", "20"]}
HARMONISED = 64
"""Sixteenths of the melody that is harmonised: the four bars that the model sees at once."""
SENTENCES = {
    "multi30k-en-de": (
        "A man plays the guitar.",
        "Two dogs are running across a green field.",
        "A little girl in a red dress is eating ice cream.",
        "An old woman rides her bicycle through the rain.",
        "Several people are waiting for the train, and a boy waves at them.",
        # Not the caption of an image: shows the limits of the model.
        "The minister will resign if parliament rejects the new budget.",
    ),
    # The second sentence of each language shows the limits of the model.
    "ko-zh-en": ("저는 학생입니다.", "정부는 새 예산안을 발표했다.", "我在學習。", "機器學習"),
}
"""Shipped translator -> sentences for it."""
METRIC = {
    "translation": ("exact_match", "numbers translated exactly"),
    "image": ("bits_per_dim", "bits per pixel of test digits"),
    "music": ("nats_per_token", "nats per token of test chorales"),
}
SHIPPED = {
    "image": "A column per class, 0 to 9.",
    "music": "A sample from the beginning of a piece.",
    "translation": "",
}
"""Domain -> what the samples of its shipped models are; the domains in the order of the page."""
DATA = {
    "translation": "Numbers in words. No value of the table was in the training data.",
    "image": "Handwritten digits, 8x8 with 17 levels, in generation order; one column per digit.",
    "music": "Chorales in four voices, in sixteenths.",
}
GIVEN = {
    "completion": "Test digits, their given upper halves, and five completions each.",
    "super-resolution": "Test digits averaged down to 4x4, five samples each, and the originals.",
    "harmony": "The first bars of the soprano of a test chorale, and the three other voices as the "
    "model fills them in.",
}
"""Folder of samples of which a part was given -> what they show."""
CARD = ("data", "time", "hardware", "figure", "terms")
"""Entries of a model card on the page."""


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
            texts = triptych.load(checkpoint).translate(list(SENTENCES[name]))
            found["samples"] = [
                {"source": source, "translation": text}
                for source, text in zip(SENTENCES[name], texts, strict=True)
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
        data: list[str] = []
        if domain in RECIPES:
            folder = str(self.out / RECIPES[domain])
            run("data", "make", RECIPES[domain], "--out", folder)
            data = ["--data.source.init_args.directory", folder]
        run(
            *("train", domain, "--config", str(path), "--run.directory", str(self.out), *data),
            *("--run.name", name, "--run.wandb", "off", "--minutes", f"{seconds / 60:.4f}"),
        )
        checkpoints = self.out / name / "checkpoints"
        done = read_checkpoint(checkpoints / "last.ckpt")["triptych"]["step"]
        stopped = f"{done} steps, which fit into {seconds:.0f} s"
        print(f"trained for {stopped}")
        self.results["trained"][name] = {"config": config, "stopped": stopped}

    def use(self, domain: str) -> None:
        """Score and sample the trained model of one domain."""
        checkpoint = ["--checkpoint", str(self.out / domain / "checkpoints" / "best.ckpt")]
        score = self.out / domain / "test.json"  # the report shows the scores of the folder
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
        source = music.data_settings.source
        chorale = source.load("test", music.tokenizer)[0].content[:HARMONISED].copy()
        chorale[:, 1:] = SILENT
        melody = self.out / "soprano.mid"
        Made.of(music.tokenizer.to_score(music.tokenizer.encode(chorale))).write(melody)
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


def write_page(folder: Path, results: dict[str, Any]) -> Path:
    """Write index.html with the results and the runs of the demo, and return its path.

    results: `shipped`, a list of models with their card, and `trained`, by the name of the run.
    """
    exhibits, failures = [], []
    for model in sorted(results["shipped"], key=place_on_page):
        items = read_items(folder / "shipped" / model["name"])
        if "samples" in model:
            items.tables.append(table_of(model["samples"]))
        card = {"model": pretrained.PREFIX + model["name"], **{key: model[key] for key in CARD}}
        text = SHIPPED[model["domain"]]
        exhibits.append(Exhibit(f"Shipped model: {model['what']}", text, items, card))
    for domain in SHIPPED:
        trained = results["trained"].get(domain, {})
        if "score" not in trained:
            failures.append(
                f"{domain.capitalize()}: training or evaluation failed; see the output of the demo."
            )
            continue
        items = read_items(folder / "samples" / domain)
        if rows := trained["score"]["details"].get("samples"):
            items.tables.append(table_of(rows))
        text = f"{headline(domain, trained['score'])} Trained for {trained['stopped']}."
        exhibits.append(Exhibit(f"Trained here: {domain}", f"{DATA[domain]} {text}", items))
    for name, text in GIVEN.items():
        if items := read_items(folder / "samples" / name):
            exhibits.append(Exhibit(f"Trained here: {name}", text, items))
    runs = []
    for name in results["trained"]:
        with suppress(UserError):  # the training failed before its first step
            check_is_run(folder / name)
            runs.append(read_run(folder / name, most=8))
    content = report(runs, title="Triptych: the demo", exhibits=exhibits, failures=failures)
    return write_atomically(folder / "index.html", content)


def place_on_page(model: dict[str, Any]) -> tuple[int, int]:
    """Return where a shipped model stands: images and music first, translators as in SENTENCES."""
    name = model["name"]
    return [*SHIPPED].index(model["domain"]), [*SENTENCES, name].index(name)


def table_of(rows: list[dict[str, str]]) -> Table:
    """Return translations with one column per key of the first row."""
    return Table(
        "translations", [*rows[0]], [[str(row.get(key, "")) for key in rows[0]] for row in rows]
    )


def headline(domain: str, score: dict[str, Any]) -> str:
    """Return the score of a trained model, and those of simple models."""
    name, unit = METRIC[domain]
    value, details = score["metrics"][name], score["details"]
    shown = f"{value:.1%}" if name == "exact_match" else f"{value:.3f}"
    simple = {
        key.removesuffix(f"_{name}"): figure
        for key, figure in details.items()
        if key.endswith(f"_{name}") and figure is not None
    } | (details.get(f"{name}_of") or {})
    others = "; ".join(f"{other} {figure:.3f}" for other, figure in simple.items())
    return f"{shown} {unit}" + (f" (simple models: {others})." if others else ".")


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
    parser = in_venv.parser_of(__doc__)
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
        seconds = max(LEAST_SECONDS, left + 60 * options.minutes * share / shares)
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
    seconds = max(LEAST_SECONDS, left + 60 * options.minutes * SUPER_RESOLUTION[1] / shares)
    demo.step(f"train super-resolution, at most {seconds:.0f} s", lambda: demo.upscale(seconds))
    page = write_page(demo.out, demo.results)
    print(f"\nthe demo took {time.monotonic() - started:.0f} s; results are in {page}")
    if demo.failed:
        print(f"these steps failed: {', '.join(demo.failed)}", file=sys.stderr)
    return 1 if demo.failed else 0


if __name__ == "__main__":
    sys.exit(main())
