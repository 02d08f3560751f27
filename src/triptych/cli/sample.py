"""`triptych sample DOMAIN` and `triptych attention DOMAIN`: files that a trained model writes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

from jsonargparse import ArgumentParser

from triptych.cli.options import open_model, options_parser, read_folder_options
from triptych.domains.base import Domain
from triptych.files.progress import ProgressLine


@dataclass(frozen=True)
class FolderCommand:
    """A command whose work is one method of a `TrainedModel`."""

    name: str
    method: str
    """Takes the options, the folder and a factory of progress displays; returns a sentence."""
    advice: str
    """What to do where memory runs out."""

    def parser(self, domain: Domain) -> ArgumentParser:
        """Return the parser of the options."""
        return options_parser(self.name, domain)

    def run(self, domain: Domain, arguments: Sequence[str]) -> int:
        """Write the files and print one sentence about them; raises UserError for bad input."""
        options, out = read_folder_options(self.name, domain, arguments)
        write = getattr(open_model(domain, options), self.method)

        from triptych.training.engine.devices import out_of_memory_advice

        with out_of_memory_advice(self.advice):
            print(write(options, out, ProgressLine), file=sys.stderr)
        return 0


SAMPLE = FolderCommand("sample", "write_samples", "lower --count or use --device cpu")
ATTENTION = FolderCommand("attention", "write_attention", "use --device cpu")
