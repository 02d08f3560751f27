"""Domain of images that are classified: the options of its commands."""

from dataclasses import dataclass
from typing import Any

from triptych.domains.base import Domain
from triptych.domains.options import EvaluateOptions, FolderOptions

LABELS = "labels.tsv"
"""Name of the file with the classes of pictures."""


@dataclass(frozen=True, kw_only=True)
class VisionEvaluateOptions(EvaluateOptions):
    """Score a classifier of images on a split of its data."""

    def report(self, result: dict[str, Any]) -> list[str]:
        simple = result["details"].get("simple_models", {}).items()
        scores = ", ".join(f"{name} {accuracy:.4f}" for name, accuracy in simple)
        return [f"accuracy of simple models: {scores}"] if scores else []


@dataclass(frozen=True, kw_only=True)
class VisionSampleOptions(FolderOptions):
    """Classify pictures."""

    out: str
    """Folder for labels.tsv, with the file, the class and its probability of each picture; created
    if missing."""
    pictures: str
    """A picture, or a folder of pictures, of the size of the training images."""

    def output_names(self) -> list[str]:
        return [LABELS]


class VisionDomain(Domain):
    """Classes of images by an encoder of their patches (ViT)."""

    name = "vision"
    packing = "triptych.domains.pictures.config"
    evaluate_options = VisionEvaluateOptions
    sample_options = VisionSampleOptions
    limits = "Pictures unlike its data, to which it gives one of its classes all the same."


DOMAIN = VisionDomain()
