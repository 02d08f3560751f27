"""The model that is exported, with what its card says, and the result of a format's writer."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from string import Template
from typing import Any

import triptych
from triptych import pretrained
from triptych.domains.base import TrainedModel
from triptych.errors import UserError
from triptych.tools.export.card import TEXTS, portable_header
from triptych.training.run.checkpoint import StoredAs

UNKNOWN = "not recorded in the checkpoint"


@dataclass(frozen=True)
class Original:
    """Model to export."""

    name: str
    """Heading of the card."""
    model: TrainedModel
    """The model on the CPU, in float32."""
    header: dict[str, Any]
    """Header of its checkpoint, without paths of this machine."""
    card: dict[str, str]
    """Texts of the card, see `card.TEXTS`."""
    metrics: dict[str, Any]
    """Scores by split, see `pretrained.read_metadata`."""

    @property
    def domain(self) -> str:
        """Name of the domain."""
        return str(self.header["domain"])

    @property
    def parameters(self) -> int:
        """Number of parameters; shared ones count once."""
        return sum(parameter.numel() for parameter in self.model.full_model.parameters())

    def metadata(
        self,
        weights: bytes,
        *,
        tied: Mapping[str, str] | None = None,
        stored: Mapping[str, StoredAs] | None = None,
    ) -> dict[str, Any]:
        """Return the metadata of a weights file, JSON types; see `pretrained.read_metadata`.

        tied: of `to_safetensors`. stored: for weights under the names of another library.
        """
        content = {
            "format": pretrained.FORMAT,
            "name": self.name,
            "sha256": hashlib.sha256(weights).hexdigest(),
            "parameters": self.parameters,
            "card": self.card,
            "metrics": self.metrics,
            "tied": dict(tied or {}),
            "triptych": self.header,
        }
        if stored is not None:
            content["stored_as"] = {key: asdict(how) for key, how in stored.items()}
        return content


@dataclass(frozen=True)
class Written:
    """What a format's writer says about the files that it wrote."""

    weights: str
    """Size and number format of the weights."""
    use: str
    """How to use the folder, Markdown."""
    checks: list[str] = field(default_factory=list)
    """What was compared with Triptych, a sentence each."""


def usage(name: str, **values: str) -> str:
    """Return how to use an export, Markdown: a text of the folder `use`, filled with values."""
    text = Path(__file__).with_name("use").joinpath(f"{name}.md").read_text(encoding="utf-8")
    return Template(text.rstrip("\n")).substitute(values)


def open_original(checkpoint: str, path: Path, texts: Mapping[str, str]) -> Original:
    """Open the model of a checkpoint.

    checkpoint: as in `triptych.load`; path: of its file or folder. texts: of the card, in place of
    those that the checkpoint has. Raises UserError as `triptych.load` does, and for a text that
    cards do not have.
    """
    if unknown := sorted(texts.keys() - {*TEXTS, "limits"}):
        raise UserError(f"--card has no text {unknown[0]}; expected {', '.join(TEXTS)} or limits")
    known: dict[str, Any] = {}
    weights = pretrained.weights_in(path) if path.is_dir() else path
    if weights.suffix == pretrained.WEIGHTS:
        known = pretrained.read_metadata(weights)
    model = triptych.load(checkpoint, device="cpu")
    header = portable_header(model.header, strict=False)
    scores = {"validation, in training": {"fp32": header["metrics"]}}
    run = str(header["run"]["name"])
    return Original(
        name=known.get("name", run.rpartition("/")[2]),
        model=model,
        header=header,
        card={**_default_texts(header), **known.get("card", {}), **texts},
        metrics=known.get("metrics", scores),
    )


def _default_texts(header: dict[str, Any]) -> dict[str, str]:
    """Return the texts of a card as far as a checkpoint knows them."""
    # A domain outside Triptych may have other settings of its data.
    found = header["data"].get("source") if isinstance(header["data"], dict) else None
    source = found if isinstance(found, dict) else {}
    settings = source.get("init_args") or {}
    listed = ", ".join(f"{key} {value}" for key, value in settings.items())
    data = source.get("class_path", UNKNOWN).rpartition(".")[2]
    metrics = ", ".join(f"{key} {value:.4g}" for key, value in header["metrics"].items())
    return {
        "what": f"A model of the domain {header['domain']}, trained with Triptych.",
        "data": f"{data} ({listed})" if listed else data,
        "terms": f"{UNKNOWN}.",
        "time": f"a time {UNKNOWN}",
        "hardware": f"hardware {UNKNOWN}",
        "figure": f"{metrics} on validation, in training" if metrics else UNKNOWN,
    }
