"""Image datasets as integers, and their batches."""

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from triptych.config.schema import from_plain, to_plain
from triptych.decoding.sampling import check_count
from triptych.domains.pictures.options import Reading
from triptych.errors import UserError
from triptych.files.leaks import TRAIN, Digests, Leak, find_leaks
from triptych.training.loading.batches import Items, cut
from triptych.training.loading.loader import FixedBatches
from triptych.training.loading.packed import Pack

SPLITS = ("train", "validation", "test")


class Batch(NamedTuple):
    """A batch of images, as integers."""

    pixels: Tensor  # uint8 [B, H, W, C]
    labels: Tensor | None  # int64 [B]; None for images without classes
    transformation: Tensor | None = None  # int64 [B], how they were augmented; None for not


@dataclass(frozen=True)
class ImageDataset:
    """The images of one split, all of one size, with sub-pixel values from 0 to levels - 1."""

    pixels: Tensor
    """uint8 [N, H, W, C]"""
    labels: Tensor | None
    """Class index of each image, int64 [N]; None for images without classes."""
    levels: int
    """Number of values that a sub-pixel can take."""
    class_names: tuple[str, ...] = ()
    """Name of each class; empty for images without classes."""
    reading: Reading = field(default_factory=Reading)
    """How the values of files became these, for files of a user's later."""

    def __len__(self) -> int:
        return len(self.pixels)

    def select(self, indices: Tensor | slice) -> "ImageDataset":
        """Return the images at these indices (int64 [M]), in that order."""
        labels = None if self.labels is None else self.labels[indices]
        return replace(self, pixels=self.pixels[indices], labels=labels)

    def first(self, count: int | None) -> "ImageDataset":
        """Return the first `count` images; all for None."""
        return self.select(slice(count))

    def batch(self, indices: Items, generator: torch.Generator | None = None) -> Batch:
        """Return the images at these indices as a batch; nothing is augmented."""
        chosen = self.select(torch.as_tensor(indices))
        return Batch(chosen.pixels, chosen.labels)

    def fixed_batches(self, batch_size: int) -> FixedBatches:
        """Return a loader of every image once, in order, last batch included."""
        return FixedBatches(cut(range(len(self)), batch_size), self.batch)

    def quantize(self, bits: int) -> "ImageDataset":
        """Return the images with 2**bits levels, by an integer shift; bits from 1 to 7.

        Raises UserError for images that do not have 256 levels.
        """
        if self.levels != 256:
            raise UserError(f"data.bits = {bits} needs images of 256 levels, not {self.levels}")
        return replace(self, pixels=self.pixels >> (8 - bits), levels=2**bits)

    def vocabulary(self) -> dict[str, Any]:
        """Return what a checkpoint stores of the data: shape [H, W, C], levels, class_names.

        Also how files were read, where a setting changed it.
        """
        changed = self.reading != Reading()
        return {
            "shape": list(self.pixels.shape[1:]),
            "levels": self.levels,
            "class_names": list(self.class_names),
            **({"reading": to_plain(self.reading)} if changed else {}),
        }


def concatenate(parts: list[ImageDataset]) -> ImageDataset:
    """Return the images of parts of one kind as one dataset."""
    labels = [part.labels for part in parts if part.labels is not None]
    pixels = torch.cat([part.pixels for part in parts])  # [N, H, W, C]
    return replace(parts[0], pixels=pixels, labels=torch.cat(labels) if labels else None)


def leaks(train: ImageDataset, held_out: dict[str, ImageDataset]) -> list[Leak]:
    """Return which images of held-out splits are training images, pixel by pixel."""
    digests = {
        split: Digests.of(pixels.tobytes() for pixels in images.pixels.numpy())
        for split, images in {TRAIN: train, **held_out}.items()
    }
    return find_leaks(digests, "images")


def read_pack(folder: str, split: str) -> ImageDataset:
    """Return the packed images of a split; UserError for a folder without a pack of images."""
    pack = Pack(folder, "image")
    labels, vocabulary = f"{split}.labels", pack.about["vocabulary"]
    return ImageDataset(
        torch.from_numpy(pack.array(f"{split}.pixels")),
        torch.from_numpy(pack.array(labels)) if labels in pack else None,
        vocabulary["levels"],
        tuple(vocabulary["class_names"]),
        reading_of(vocabulary),
    )


def reading_of(vocabulary: dict[str, Any]) -> Reading:
    """Return how the files were read, from what a checkpoint or a pack stores."""
    return from_plain(Reading, vocabulary.get("reading", {}))


def split_by_seed(images: ImageDataset, split: str, seed: int, **held_out: int) -> ImageDataset:
    """Return the images of a split in their order; train is what the held-out splits leave.

    held_out: number of images of each other split. A split is the same on every machine: the images
    are sorted by a hash of (seed, index). Generators of libraries may change between versions,
    which would move images from the training to the test split.
    """
    keys = [hashlib.sha256(f"{seed}:{index}".encode()).digest() for index in range(len(images))]
    order = torch.tensor(sorted(range(len(images)), key=keys.__getitem__))
    parts = order.split([*held_out.values(), len(images) - sum(held_out.values())])
    chosen = dict(zip([*held_out, "train"], parts, strict=True))[split]
    return images.select(chosen.sort().values)


def check_same_images(
    images: dict[str, Any], trained: dict[str, Any], *further: str, hint: str = ""
) -> None:
    """Raise UserError unless images have the shape of those of the training.

    images, trained: as in `ImageDataset.vocabulary`. further: its other entries that must be equal
    too. hint: end of the message about these.
    """
    for name in ("shape", *further):
        if images[name] != trained[name]:
            raise UserError(
                f"the model was trained on images with {name} {trained[name]}, these have "
                f"{images[name]}{hint if name in further else ''}"
            )


def labels_of(count: int, label: int | None, n_classes: int) -> Tensor | None:
    """Return the class of each of `count` images, int64 [count]: `label`, or for None all in turn.

    None for a model without classes. Raises UserError for a class that the model does not have, and
    for a count below 1.
    """
    check_count(count)
    if label is None:
        return torch.arange(count) % n_classes if n_classes else None
    if not 0 <= label < n_classes:
        raise UserError(
            f"label is {label}, but this model has {n_classes} classes, counted from 0"
            f"{'' if n_classes else ' (model.class_conditional is false)'}"
        )
    return torch.full((count,), label)
