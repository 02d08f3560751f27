"""Lets the models that come with Triptych do their work, before anything is trained.

    .venv/bin/python scripts/demo_shipped.py runs/demo/shipped

Each model NAME gets a folder NAME: `about.json` (its domain and its card's texts), and
`translations.csv`, pictures, or a piece as MIDI, sound and piano roll.
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path

import triptych
from triptych import pretrained
from triptych.cli import main as cli
from triptych.domains.files import write_json

SENTENCES = (
    "A man plays the guitar.",
    "Two dogs are running across a green field.",
    "A little girl in a red dress is eating ice cream.",
    "An old woman rides her bicycle through the rain.",
    "Several people are waiting for the train, and a boy waves at them.",
    # No caption: what such a model does not know should be seen as well.
    "The minister will resign if parliament rejects the new budget.",
)


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("usage: demo_shipped.py FOLDER   (made where it is missing)")
    for name in pretrained.names():
        facts = pretrained.read_facts(pretrained.find(name))
        domain, out = facts["triptych"]["domain"], Path(sys.argv[1]) / name
        {"translation": translate, "image": draw, "music": play}[domain](name, out)
        write_json(out / "about.json", {"name": name, "domain": domain, **facts["card"]})


def translate(name: str, out: Path) -> None:
    """The sentences into whatever language the model writes; they are printed too."""
    texts = triptych.load(pretrained.PREFIX + name).translate(list(SENTENCES))
    out.mkdir(parents=True, exist_ok=True)
    with (out / "translations.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "translation"])
        for source, text in zip(SENTENCES, texts, strict=True):
            writer.writerow([source, text])
            print(f"{source}\n    {text}")


def draw(name: str, out: Path) -> None:
    sample("image", name, out, "--count", "20")


def play(name: str, out: Path) -> None:
    sample("music", name, out, "--count", "1", "--seconds", "20")


def sample(domain: str, name: str, out: Path, *options: str) -> None:
    """`triptych sample`, in this process, since starting another takes longer than the work."""
    command = ["sample", domain, "--checkpoint", pretrained.PREFIX + name, "--out", str(out)]
    if code := cli.main([*command, *options]):
        sys.exit(code)


if __name__ == "__main__":
    main()
