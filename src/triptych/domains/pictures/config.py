"""Settings of the images of a run."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from triptych.domains.pictures.data import SPLITS, ImageDataset, read_pack
from triptych.domains.pictures.sources import Digits, ImageSource
from triptych.errors import UserError
from triptych.files.splits import ALL
from triptych.types import Checked, NonNegativeInt, PositiveInt


@dataclass(frozen=True)
class DataConfig(Checked):
    """Source, levels and batch sizes of the images."""

    source: ImageSource = field(default_factory=Digits)
    """Source of the images: Digits, MNIST, CIFAR10, ImageFolder or CopiedRows."""
    packed: str | None = None
    """Folder that `triptych pack image` has written, from which training and validation images are
    read in place of the source, with the bits of the pack; null for none."""
    bits: int | None = None
    """Bits kept of each 8-bit value, 1 to 7; null keeps all levels of the source."""
    batch_size: PositiveInt = 64
    """Images per training batch of one process."""
    evaluation_batch_size: PositiveInt = 64
    """Images per validation batch; no effect on the result."""
    validation_limit: PositiveInt | None = None
    """Number of validation images scored in training; null scores all."""
    samples: NonNegativeInt = 20
    """Images sampled after each validation, 0 for none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bits is not None and not 1 <= self.bits <= 7:
            raise ValueError(f"bits must be from 1 to 7, or null for all levels, got {self.bits}")

    def stream(self, split: str) -> Iterator[ImageDataset]:
        """Yield the images of train or validation in parts, from the source."""
        for images in self.source.stream(split):
            yield images if self.bits is None else images.quantize(self.bits)

    def read(self, split: str) -> ImageDataset:
        """Return the images of a split, or of all splits, with the configured number of levels.

        Raises UserError for an unknown split and for missing or damaged data.
        """
        if split not in (ALL, *SPLITS):
            raise UserError(
                f"images have the splits train, validation and test, and all for a folder given "
                f"with --data; got {split!r}"
            )
        if self.packed is not None and split in ("train", "validation"):
            return read_pack(self.packed, split)
        images = self.source.load_all() if split == ALL else self.source.load(split)
        return images if self.bits is None else images.quantize(self.bits)
