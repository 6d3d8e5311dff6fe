import gzip
import inspect
import math
import tracemalloc

import numpy as np
import pytest
import torch

from steinscope import InputError
from steinscope.data import (
    bits_per_dim,
    find_images,
    from_logits,
    load_images,
    load_labels,
    read_idx,
    synthetic_images,
    to_logits,
    write_idx,
)
from steinscope.data import images as module
from steinscope.data.images import logit_log_det

from helpers import generator

IDX = bytes([0, 0, 8, 1, 0, 0, 3, 232])
NOISE = np.random.default_rng(0).bytes(1000)


def pixels(n=20, size=6):
    return torch.randint(256, (n, size, size), generator=generator(0)).to(torch.uint8)


@pytest.mark.parametrize("name", ["images-idx3-ubyte", "images-idx3-ubyte.gz"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.int32, np.float32, np.float64])
def test_idx_files_go_there_and_back(name, dtype, tmp_path):
    array = np.arange(-12, 12).astype(dtype).reshape(2, 3, 4)
    write_idx(tmp_path / name, array)
    back = read_idx(tmp_path / name)
    assert back.dtype == dtype and np.array_equal(back, array)


def test_the_idx_header_is_that_of_the_format(tmp_path):
    write_idx(tmp_path / "a", np.zeros((2, 3), np.uint8))
    assert (tmp_path / "a").read_bytes() == bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + bytes(6)


@pytest.mark.parametrize(
    "content, message",
    [
        (b"", "not an idx file: it starts with nothing"),
        (b"\x89PNG....", "not an idx file: it starts with 89 50 4e 47"),
        (bytes([0, 0, 8, 3, 0, 0]), "ends within its header"),
        (bytes([0, 0, 8, 1, 0, 0, 0, 5, 1, 2]), r"expected 5 bytes for shape \(5,\), got 2"),
        (gzip.compress(IDX + NOISE, mtime=0)[:60], "cannot be read: Compressed file ended before"),
        (gzip.compress(IDX + bytes(999), mtime=0), r"expected 1000 bytes for shape \(1000,\), got 999"),
        (gzip.compress(IDX + bytes(1001), mtime=0), r"expected 1000 bytes for shape \(1000,\), got more"),
        (b"\x1f\x8b\x08" + bytes(7) + b"\xff" * 50, "cannot be read: Error -3 while decompressing"),
        (bytes([0, 0, 8, 65]) + bytes([0, 0, 0, 1]) * 65 + b"0", "expected an array of at most 64 dimensions, got 65"),
        (bytes([0, 0, 14, 8]) + b"\xff" * 32, "expected [0-9]{70,} bytes for shape"),
    ],
)
def test_damaged_idx_files(content, message, tmp_path):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_idx(tmp_path / "file")


@pytest.mark.parametrize("compress", [gzip.compress, bytes])
def test_a_file_that_would_fill_the_memory_is_refused_by_its_header(compress, tmp_path):
    """It declares 3 GB, and is not unpacked: the rest of it is missing, which nobody finds out."""
    (tmp_path / "bomb").write_bytes(compress(bytes([0, 0, 8, 1]) + (3 * 10**9).to_bytes(4) + bytes(3_000_000)))
    tracemalloc.start()
    with pytest.raises(InputError, match="would unpack from .* to 3000000000 bytes|expected 3000000000 bytes"):
        read_idx(tmp_path / "bomb")
    assert tracemalloc.get_traced_memory()[1] < 2**20
    tracemalloc.stop()


def test_where_images_are_looked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_SYSTEM_DIRECTORY", tmp_path / "system")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("STEINSCOPE_DATA", raising=False)
    with pytest.raises(InputError) as error:
        find_images("fashion-mnist")
    for way in ("steinscope data fashion-mnist", "STEINSCOPE_DATA", "dataset-fashion-mnist", "give the directory"):
        assert way in str(error.value)
    order = [
        tmp_path / "cache" / "steinscope" / "fashion-mnist",
        tmp_path / "system" / "fashion-mnist",
        tmp_path / "variable",
        tmp_path / "option",
    ]
    for number, place in enumerate(order):
        place.mkdir(parents=True)
        write_idx(place / "train-images-idx3-ubyte.gz", np.full((1, 2, 2), number, np.uint8))
        if place.name == "variable":
            monkeypatch.setenv("STEINSCOPE_DATA", str(place))
        directory = place if place.name == "option" else None
        assert int(load_images("fashion-mnist", directory=directory)[0, 0, 0]) == number
    with pytest.raises(InputError, match="directory: .* is not a directory"):
        find_images("mnist", directory=tmp_path / "nowhere")
    with pytest.raises(InputError, match='split: expected "train" or "test"'):
        inspect.unwrap(find_images)("mnist", "validation")


def test_images_must_be_images(tmp_path):
    write_idx(tmp_path / "train-images-idx3-ubyte", np.zeros(5, np.uint8))
    with pytest.raises(InputError, match=r"expected images of bytes, got uint8 of shape \(5,\)"):
        load_images("mnist", directory=tmp_path)


def test_logits_go_there_and_back():
    x = pixels()
    logits = to_logits(x, seed=1)
    assert logits.dtype == torch.float32 and bool(logits.isfinite().all())
    assert torch.equal(from_logits(logits), x)
    assert torch.equal(logits, to_logits(x, seed=1)) and not torch.equal(logits, to_logits(x, seed=2))


def test_the_noise_is_uniform_within_a_pixel():
    logits = to_logits(torch.full((1, 200, 200), 37, dtype=torch.uint8))
    noise = torch.sigmoid(logits.double()) * 256 - 37
    assert noise.min() >= -1e-4 and noise.max() <= 1 + 1e-4
    assert abs(noise.mean() - 0.5) < 5 * math.sqrt(1 / 12 / noise.numel())
    assert abs(noise.var() - 1 / 12) < 5 * math.sqrt(1 / 180 / noise.numel())


def test_the_log_determinant_is_that_of_the_map():
    y = torch.linspace(-6, 6, 12, dtype=torch.float64).view(2, 6)
    slopes = torch.autograd.functional.jacobian(lambda v: (256 * torch.sigmoid(v)).sum(0), y.flatten()[:, None])
    expected = slopes.flatten().log().view(2, 6).sum(1)
    torch.testing.assert_close(logit_log_det(y), expected)


def test_bits_of_uniform_pixels():
    """A model under which every pixel is uniform on [0, 256) needs 8 bits for each."""
    y = to_logits(pixels()).double()
    logistic = (torch.nn.functional.logsigmoid(y) + torch.nn.functional.logsigmoid(-y)).flatten(1).sum(1)
    torch.testing.assert_close(bits_per_dim(logistic, y), torch.full((20,), 8.0, dtype=torch.float64))


def test_only_bytes_are_pixels():
    with pytest.raises(InputError, match="images: expected a tensor of uint8, got a tensor of float32"):
        inspect.unwrap(to_logits)(torch.zeros(1, 2))


def test_synthetic_images_are_dark_with_something_bright():
    images = synthetic_images(50, 12, seed=3)
    assert images.shape == (50, 12, 12) and images.dtype == torch.uint8
    assert torch.equal(images, synthetic_images(50, 12, seed=3))
    assert (images.flatten(1).amax(1) > 150).all() and 0.4 < float((images < 50).double().mean()) < 0.95


@pytest.mark.parametrize("n, size", [(2**62, 1), (10**6, 4096), (1, 10**6)])
def test_images_that_would_fill_the_memory_are_refused(n, size):
    with pytest.raises(InputError, match="(n|size): expected a whole number from 1 to "):
        synthetic_images(n, size)


def test_where_no_file_can_be_written_it_is_said(tmp_path):
    with pytest.raises(InputError, match=f"path: cannot write {tmp_path}: Is a directory"):
        write_idx(tmp_path, np.zeros((2, 3), np.uint8))


def test_labels_lie_beside_the_images(tmp_path):
    labels = np.array([3, 1, 4], dtype=np.uint8)
    (tmp_path / "mnist").mkdir()
    write_idx(tmp_path / "mnist" / "t10k-labels-idx1-ubyte.gz", labels)
    assert load_labels("mnist", "test", tmp_path).tolist() == [3, 1, 4]
    with pytest.raises(InputError, match="mnist: found in none of .*steinscope data mnist"):
        load_labels("mnist", "train", tmp_path)
    write_idx(tmp_path / "mnist" / "train-labels-idx1-ubyte", labels[:, None])
    with pytest.raises(InputError, match="expected a row of bytes, got uint8 of shape"):
        load_labels("mnist", "train", tmp_path)
