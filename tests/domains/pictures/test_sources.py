"""Reading images: integers unchanged, splits fixed, damage told in one sentence."""

from __future__ import annotations

import gzip
import lzma
import pickle
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from triptych.domains.pictures.data import ImageDataset, split_by_seed
from triptych.domains.pictures.sources import CIFAR10, MNIST, Digits
from triptych.errors import UserError

SPLITS = ("train", "validation", "test")


def write_idx(path: Path, values: np.ndarray) -> None:
    header = bytes([0, 0, 8, values.ndim]) + struct.pack(f">{values.ndim}I", *values.shape)
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wb") as file:
        file.write(header + values.tobytes())


def write_mnist(folder: Path, *, suffix: str = "", count: int = 24) -> np.ndarray:
    """A small MNIST that holds all 256 levels; returns the training pixels [N, 28, 28]."""
    folder.mkdir(parents=True, exist_ok=True)
    pixels = (np.arange(count * 784) % 256).astype(np.uint8).reshape(count, 28, 28)
    labels = (np.arange(count) % 10).astype(np.uint8)
    for part in ("train", "t10k"):
        write_idx(folder / f"{part}-images-idx3-ubyte{suffix}", pixels)
        write_idx(folder / f"{part}-labels-idx1-ubyte{suffix}", labels)
    return pixels


def write_cifar_batch(path: Path, *, seed: int, count: int = 6) -> dict[bytes, object]:
    generator = np.random.default_rng(seed)
    batch = {
        b"data": generator.integers(0, 256, (count, 3072)).astype(np.uint8),
        b"labels": [int(label) for label in generator.integers(0, 10, count)],
    }
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "wb") as file:
        pickle.dump(batch, file, protocol=4)
    return batch


def damaged(packed: bytes) -> bytes:
    """The same with three bytes of the middle overwritten: the stream of zlib is no longer one."""
    middle = len(packed) // 2
    return packed[:middle] + b"\xff\xff\xff" + packed[middle + 3 :]


def test_a_damaged_packed_file_is_named(tmp_path: Path) -> None:
    write_mnist(tmp_path, suffix=".gz")
    packed = tmp_path / "train-images-idx3-ubyte.gz"
    noise = np.random.default_rng(0).integers(0, 256, 9000, dtype=np.uint8).tobytes()
    for content in (damaged(packed.read_bytes()), damaged(gzip.compress(noise * 4))):
        packed.write_bytes(content)
        with pytest.raises(UserError, match=r"train-images-idx3-ubyte\.gz cannot be read"):
            MNIST(str(tmp_path)).load("train")


# --- splits ---------------------------------------------------------------------------------


def test_digits_are_whole_numbers_on_17_levels_and_every_one_lies_in_one_split() -> None:
    pytest.importorskip("sklearn")
    parts = [Digits().load(split) for split in SPLITS]
    assert [len(part) for part in parts] == [1437, 180, 180]
    for part in parts:
        assert part.pixels.dtype == torch.uint8
        assert part.pixels.shape[1:] == (8, 8, 1)
        assert part.levels == 17
        assert int(part.pixels.max()) == 16
        assert part.labels is not None
        assert set(part.labels.tolist()) == set(range(10))
    rows = [row.numpy().tobytes() for part in parts for row in part.pixels]
    assert len(set(rows)) == 1797


def test_digits_split_is_the_same_again_and_moves_with_the_seed() -> None:
    pytest.importorskip("sklearn")
    first, again, other = (Digits(seed=seed).load("test").pixels for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_digits_without_scikit_learn_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(UserError, match=r"triptych\[demo\]"):
        Digits().load("train")


def test_a_split_by_seed_is_fixed() -> None:
    images = ImageDataset(torch.arange(8, dtype=torch.uint8).view(8, 1, 1, 1), None, 8)
    sizes = {"test": 3, "validation": 1}  # the order is 7, 4, 3, 2, 6, 0, 5, 1
    expected = {"test": [3, 4, 7], "validation": [2], "train": [0, 1, 5, 6]}
    for split, values in expected.items():
        assert split_by_seed(images, split, 0, **sizes).pixels.flatten().tolist() == values


def test_holding_out_loses_no_image_and_shares_none(tmp_path: Path) -> None:
    written = write_mnist(tmp_path, count=50)
    written[:, 0, 0] = np.arange(50)
    write_idx(tmp_path / "train-images-idx3-ubyte", written)
    source = MNIST(str(tmp_path), validation_size=7, seed=1)
    train, validation = (
        source.load(split).pixels[:, 0, 0, 0].tolist() for split in ("train", "validation")
    )
    assert len(validation) == 7
    assert sorted(train + validation) == list(range(50))
    with pytest.raises(UserError, match=r"between 1 and 49, .* 50 images; got 50"):
        MNIST(str(tmp_path), validation_size=50).load("train")


def test_quantising_shifts_and_refuses_other_levels() -> None:
    images = ImageDataset(torch.arange(256, dtype=torch.uint8).view(1, 16, 16, 1), None, 256)
    coarse = images.quantize(3)
    assert coarse.levels == 8
    assert torch.bincount(coarse.pixels.flatten()).tolist() == [32] * 8
    with pytest.raises(UserError, match="256 levels, not 8"):
        coarse.quantize(2)


# --- MNIST ----------------------------------------------------------------------------------


@pytest.mark.parametrize("layout", ["plain", "packed", "torchvision"])
def test_mnist_reads_every_layout_without_changing_a_level(tmp_path: Path, layout: str) -> None:
    folder = tmp_path / "MNIST" / "raw" if layout == "torchvision" else tmp_path
    written = write_mnist(folder, suffix=".gz" if layout == "packed" else "")
    source = MNIST(directory=str(tmp_path), validation_size=4)
    test = source.load("test")
    assert torch.equal(test.pixels[..., 0], torch.from_numpy(written))
    assert test.levels == 256
    assert test.labels is not None
    assert test.labels.dtype == torch.int64
    train, validation = source.load("train"), source.load("validation")
    assert (len(train), len(validation)) == (20, 4)
    rows = {row.numpy().tobytes() for part in (train, validation) for row in part.pixels}
    assert rows == {row.tobytes() for row in written}


def test_mnist_missing_cut_and_foreign_files_are_named(tmp_path: Path) -> None:
    source = MNIST(directory=str(tmp_path), validation_size=4)
    with pytest.raises(UserError, match="holds none of train-images-idx3-ubyte"):
        source.load("train")
    with pytest.raises(UserError, match="does not exist"):
        MNIST(directory=str(tmp_path / "nowhere")).load("train")

    write_mnist(tmp_path)
    images = tmp_path / "train-images-idx3-ubyte"
    whole = images.read_bytes()
    images.write_bytes(whole[:-1])
    with pytest.raises(UserError, match="array of size 18815 into shape"):
        source.load("train")
    images.write_bytes(b"GIF89a")
    with pytest.raises(UserError, match="begins with 47 49 46 38, expected 00 00 08 03"):
        source.load("train")
    images.unlink()
    packed = tmp_path / "train-images-idx3-ubyte.gz"
    packed.write_bytes(gzip.compress(whole)[:200])
    with pytest.raises(UserError, match=r"train-images-idx3-ubyte\.gz cannot be read"):
        source.load("train")


def test_mnist_with_other_labels_than_images_is_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path)
    labels = tmp_path / "t10k-labels-idx1-ubyte"
    write_idx(labels, np.zeros(3, dtype=np.uint8))
    with pytest.raises(UserError, match="24 images and 3 labels"):
        MNIST(directory=str(tmp_path)).load("test")
    write_idx(labels, np.full(24, 11, dtype=np.uint8))
    with pytest.raises(UserError, match="24 labels, from 11 to 11"):
        MNIST(directory=str(tmp_path)).load("test")


def test_mnist_cut_in_torchvisions_layout_is_one_sentence(tmp_path: Path) -> None:
    write_mnist(tmp_path / "MNIST" / "raw")
    images = tmp_path / "MNIST" / "raw" / "t10k-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-5])
    with pytest.raises(UserError, match="array of size 18811 into shape"):
        MNIST(directory=str(tmp_path)).load("test")


def test_shared_mnist_is_whole(shared_data: Path) -> None:
    test = MNIST(directory=str(shared_data / "mnist")).load("test")
    assert test.pixels.shape == (10_000, 28, 28, 1)
    assert test.labels is not None
    assert test.labels[:5].tolist() == [7, 2, 1, 0, 4]


# --- CIFAR-10 -------------------------------------------------------------------------------


def test_cifar_batches_that_exist_are_read_packed_or_not(tmp_path: Path) -> None:
    first = write_cifar_batch(tmp_path / "data_batch_1.xz", seed=1)
    third = write_cifar_batch(tmp_path / "data_batch_3", seed=3)
    source = CIFAR10(directory=str(tmp_path), validation_size=2)
    train, validation = source.load("train"), source.load("validation")
    assert (len(train), len(validation)) == (10, 2)
    planes = np.concatenate([first[b"data"], third[b"data"]]).reshape(-1, 3, 32, 32)
    expected = {image.transpose(1, 2, 0).tobytes() for image in planes}
    found = {row.numpy().tobytes() for part in (train, validation) for row in part.pixels}
    assert found == expected  # red, green and blue of one pixel lie beside each other
    with pytest.raises(UserError, match="holds none of test_batch"):
        source.load("test")


def test_shared_cifar_is_read_from_its_python_2_pickles(shared_data: Path) -> None:
    test = CIFAR10(directory=str(shared_data / "cifar-10-subset")).load("test")
    assert test.pixels.shape == (10_000, 32, 32, 3)
    assert test.labels is not None
    assert [test.class_names[label] for label in test.labels[:4]] == [
        "cat",
        "ship",
        "ship",
        "airplane",
    ]
    assert torch.bincount(test.labels).tolist() == [1000] * 10


def test_cifar_refuses_a_pickle_that_runs_code(tmp_path: Path) -> None:
    marker = tmp_path / "it-ran"

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str, str]]:
            return Path.write_text, (marker, "x")  # type: ignore[return-value]

    (tmp_path / "test_batch").write_bytes(pickle.dumps({b"data": Evil()}))
    with pytest.raises(UserError, match="which no image needs"):
        CIFAR10(directory=str(tmp_path)).load("test")
    assert not marker.exists()


def test_cifar_damage_is_named(tmp_path: Path) -> None:
    source = CIFAR10(directory=str(tmp_path), validation_size=2)
    path = tmp_path / "test_batch"
    write_cifar_batch(path, seed=1)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(UserError, match="test_batch cannot be read"):
        source.load("test")
    path.write_bytes(pickle.dumps({b"data": np.zeros((2, 10)), b"labels": [0, 1]}))
    with pytest.raises(UserError, match="test_batch cannot be read"):
        source.load("test")
    path.write_bytes(pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": [0]}))
    with pytest.raises(UserError, match="2 images and 1 labels"):
        source.load("test")
    path.write_bytes(pickle.dumps({b"data": np.zeros((1, 3072), np.uint8), b"labels": [10]}))
    with pytest.raises(UserError, match="1 labels, from 10 to 10"):
        source.load("test")


def test_cifar_is_read_in_torchvisions_layout(tmp_path: Path) -> None:
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for name in [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]:
        write_cifar_batch(folder / name, seed=0)
    train = CIFAR10(directory=str(tmp_path), validation_size=2).load("train")
    assert train.pixels.shape == (28, 32, 32, 3)
    assert (len(train.class_names), train.class_names[3]) == (10, "cat")


def test_a_failed_download_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr("torchvision.datasets.CIFAR10", fails)
    with pytest.raises(UserError, match=r"CIFAR10 cannot be downloaded into .*: no network"):
        CIFAR10(str(tmp_path), download=True).load("test")
