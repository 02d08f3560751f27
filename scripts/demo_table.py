"""Writes the demo's table of translated held-out sentences: source, reference, translation.

    .venv/bin/python scripts/demo_table.py \
        --checkpoint runs/demo/translation/checkpoints/best.ckpt --out runs/demo/translations.csv

The sentences are the first ones of the test split, which the model has never seen; nothing is
picked out. The column "match" says yes where translation and reference agree letter for letter.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import triptych


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--checkpoint", required=True, help="translation checkpoint (.ckpt)")
    parser.add_argument("--out", required=True, type=Path, help="CSV file to write")
    parser.add_argument("--count", type=int, default=200, help="sentences (default: %(default)s)")
    options = parser.parse_args()

    model = triptych.load(options.checkpoint)
    pairs = model.config.data.source.pairs("test")[: options.count]
    translations = model.translate([source for source, _ in pairs])
    matches = 0
    with options.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["source", "reference", "translation", "match"])
        for (source, reference), translation in zip(pairs, translations, strict=True):
            match = translation == reference
            matches += match
            writer.writerow([source, reference, translation, "yes" if match else "no"])
    print(f"{matches} of {len(pairs)} translations are exact; {options.out}", file=sys.stderr)


if __name__ == "__main__":
    main()
