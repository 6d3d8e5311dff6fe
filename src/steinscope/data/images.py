r"""MNIST and Fashion-MNIST: where they are found, the idx format, and the paper's preprocessing.

A pixel k of 0, …, 255 becomes $z = (k + u) / 256$ with u uniform on (0, 1), and $y = \log z - \log(1 - z)$.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float, UInt8
from torch import Tensor
from torch.nn import functional

from steinscope.data.unpacking import check_unpacked
from steinscope.errors import InputError
from steinscope.support.checks import check_choice, check_count, check_path
from steinscope.support.files import write_output
from steinscope.support.randomness import Seed, make_generator
from steinscope.support.tensors import check_tensor

__all__ = [
    "bits_per_dim",
    "cache_directory",
    "find_images",
    "from_logits",
    "load_images",
    "load_labels",
    "logit_log_det",
    "read_idx",
    "synthetic_images",
    "to_logits",
    "write_idx",
]

DataSet = Literal["mnist", "fashion-mnist"]
DATA_SETS = ("mnist", "fashion-mnist")
FILES = {"train": "train-images-idx3-ubyte", "test": "t10k-images-idx3-ubyte"}
LABEL_FILES = {"train": "train-labels-idx1-ubyte", "test": "t10k-labels-idx1-ubyte"}
_SYSTEM_DIRECTORY = Path("/usr/share/datasets")  # where Debian's dataset-fashion-mnist is installed
_LEVELS = 256
# Their intermediate numbers fit into memory.
_MOST_SIDE, _MOST_PIXELS = 4096, 10**9
_MOST_DIMENSIONS = 64  # of a NumPy array
_IDX_TYPES = {8: "u1", 9: "i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def cache_directory() -> Path:
    """The user's cache, where downloads go."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "steinscope"


def find_images(
    data_set: DataSet = "mnist", split: Literal["train", "test"] = "train", directory: str | Path | None = None
) -> Path:
    """The idx file of a data set.

    It is searched for in this order: `directory`, the directory named by the environment variable
    `STEINSCOPE_DATA`, the place where Debian installs data sets, the user's cache. In each of them either directly
    or in a subdirectory with the name of the data set, plain or compressed.
    """
    return _find(FILES, data_set, split, directory)


def _find(files: Mapping[str, str], data_set: str, split: str, directory: str | Path | None) -> Path:
    check_choice("data_set", data_set, DATA_SETS)
    check_choice("split", split, tuple(files))
    named = os.environ.get("STEINSCOPE_DATA") if directory is None else check_path("directory", directory)
    if directory is not None and not Path(directory).is_dir():
        raise InputError("directory", f"{directory} is not a directory")
    places = [_SYSTEM_DIRECTORY / data_set, cache_directory() / data_set]
    if named:
        places = [Path(named) / data_set, Path(named), *places]
    for place in places:
        for suffix in ("", ".gz"):
            path = place / (files[split] + suffix)
            if path.is_file():
                return path
    debian = ", install Debian's dataset-fashion-mnist" if data_set == "fashion-mnist" else ""
    raise InputError(
        data_set,
        f"found in none of {', '.join(map(str, places))}; run `steinscope data {data_set}` to download it, "
        f"set STEINSCOPE_DATA to a directory with its idx files{debian}, or give the directory",
    )


def load_images(
    data_set: DataSet = "mnist", split: Literal["train", "test"] = "train", directory: str | Path | None = None
) -> UInt8[Tensor, "n height width"]:
    """All images of a data set, as pixels 0 to 255; see `find_images`."""
    path = find_images(data_set, split, directory)
    array = read_idx(path)
    if array.ndim != 3 or array.dtype != np.uint8:
        raise InputError(str(path), f"expected images of bytes, got {array.dtype} of shape {array.shape}")
    return torch.from_numpy(array)


def load_labels(
    data_set: DataSet = "mnist", split: Literal["train", "test"] = "train", directory: str | Path | None = None
) -> UInt8[Tensor, " n"]:
    """The class of each image of a data set, 0 to 9. The files are looked for where `find_images` looks."""
    path = _find(LABEL_FILES, data_set, split, directory)
    array = read_idx(path)
    if array.ndim != 1 or array.dtype != np.uint8:
        raise InputError(str(path), f"expected a row of bytes, got {array.dtype} of shape {array.shape}")
    return torch.from_numpy(array)


def read_idx(path: str | Path) -> np.ndarray:
    """The array in an idx file, plain or compressed by gzip. Damaged files are refused."""
    path = check_path("path", path)
    try:
        with path.open("rb") as file:
            is_compressed = file.read(2) == b"\x1f\x8b"
        with gzip.open(path) if is_compressed else path.open("rb") as file:
            return _read_idx(file, path, is_compressed)
    except (EOFError, gzip.BadGzipFile, zlib.error, OSError) as error:
        raise InputError(str(path), f"cannot be read: {error}") from None


def _read_idx(file: Any, path: Path, is_compressed: bool) -> np.ndarray:
    """The array in an open file, of which no more is read than its header declares."""
    start = file.read(4)
    if len(start) < 4 or start[:2] != b"\0\0" or start[2] not in _IDX_TYPES:
        raise InputError(str(path), f"not an idx file: it starts with {start.hex(' ') or 'nothing'}")
    dtype, ndim = np.dtype(_IDX_TYPES[start[2]]), start[3]
    if ndim > _MOST_DIMENSIONS:
        raise InputError(str(path), f"expected an array of at most {_MOST_DIMENSIONS} dimensions, got {ndim}")
    sizes = file.read(4 * ndim)
    if len(sizes) < 4 * ndim:
        raise InputError(str(path), "ends within its header")
    shape = struct.unpack(f">{ndim}I", sizes)
    expected, size = math.prod(shape) * dtype.itemsize, path.stat().st_size
    if is_compressed:
        check_unpacked(str(path), path, unpacked=expected, packed=size)
    elif size - file.tell() != expected:
        raise InputError(str(path), f"expected {expected} bytes for shape {shape}, got {size - file.tell()}")
    content = file.read(expected + 1)
    if len(content) != expected:
        came = f"{len(content)}" if len(content) < expected else "more"
        raise InputError(str(path), f"expected {expected} bytes for shape {shape}, got {came}")
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def write_idx(path: str | Path, array: np.ndarray) -> None:
    """Write an array as an idx file, compressed where the name ends in .gz.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as place:
        ...     write_idx(f"{place}/numbers.gz", np.arange(3, dtype=np.uint8))
        ...     read_idx(f"{place}/numbers.gz")
        array([0, 1, 2], dtype=uint8)
    """
    path = check_path("path", path)
    if not isinstance(array, np.ndarray):
        raise InputError("array", f"expected a NumPy array, got an object of type {type(array).__name__}")
    codes = {np.dtype(text).newbyteorder("="): code for code, text in _IDX_TYPES.items()}
    if array.dtype not in codes:
        raise InputError("array", f"expected one of the types of idx, got {array.dtype}")
    code = codes[array.dtype]
    header = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    content = header + array.astype(_IDX_TYPES[code]).tobytes()
    write_output(path, gzip.compress(content, mtime=0) if path.suffix == ".gz" else content, "path")


def synthetic_images(n: int, size: int = 28, seed: Seed = 0) -> UInt8[Tensor, "n size size"]:
    """Synthetic images for trials: a bright, blurred bar or ring on black, at a random place and angle.

    Example:
        >>> synthetic_images(3, size=8).shape
        torch.Size([3, 8, 8])
    """
    check_count("size", size, 1, _MOST_SIDE)
    check_count("n", n, 1, _MOST_PIXELS // size**2)
    generator = make_generator(seed, purpose="sample")
    grid = (torch.arange(size, dtype=torch.float32) + 0.5) / size - 0.5
    y, x = torch.meshgrid(grid, grid, indexing="ij")
    centre = 0.3 * torch.rand(n, 2, 1, 1, generator=generator, dtype=torch.float32) - 0.15
    x, y = x - centre[:, 0], y - centre[:, 1]
    angle = math.pi * torch.rand(n, 1, 1, generator=generator, dtype=torch.float32)
    along, across = x * torch.cos(angle) + y * torch.sin(angle), y * torch.cos(angle) - x * torch.sin(angle)
    bar = torch.maximum(across.abs(), (along.abs() - 0.25).clamp_min(0.0))
    ring = ((x.square() + y.square()).sqrt() - 0.2).abs()
    distance = torch.where(torch.rand(n, 1, 1, generator=generator, dtype=torch.float32) < 0.5, bar, ring)
    light = torch.sigmoid((0.06 - distance) / 0.02)
    return (255 * light).round().to(torch.uint8)


def to_logits(images: UInt8[Tensor, "n *shape"], seed: Seed = 0) -> Float[Tensor, "n *shape"]:
    """Pixels with uniform noise, scaled to (0, 1), as logits in float32.

    Example:
        >>> to_logits(synthetic_images(2)).shape
        torch.Size([2, 28, 28])
    """
    check_tensor("images", images, torch.uint8)
    generator = make_generator(seed, images.device, purpose="sample")
    result = torch.empty(images.shape, dtype=torch.float32, device=images.device)
    # Blocks, because double precision is needed near 0 and 1, and all images at once would take gigabytes.
    for start in range(0, len(images), 4096):
        block = images[start : start + 4096]
        # The middle of one of 2²⁴ equal parts: never 0 or 1, whose logits are infinite.
        part = torch.randint(2**24, block.shape, generator=generator, device=images.device)
        z = (block.double() + (part.double() + 0.5) / 2**24) / _LEVELS
        result[start : start + 4096] = torch.logit(z).float()
    return result


def from_logits(logits: Float[Tensor, "n *shape"]) -> UInt8[Tensor, "n *shape"]:
    """The pixels, 0 to 255, that these logits belong to. The inverse of `to_logits`, whatever its noise.

    Example:
        >>> images = synthetic_images(2)
        >>> bool((from_logits(to_logits(images)) == images).all())
        True
    """
    z = torch.sigmoid(check_tensor("logits", logits).double())
    return (z * _LEVELS).floor().clamp(0, _LEVELS - 1).to(torch.uint8)


def logit_log_det(logits: Float[Tensor, "n *shape"]) -> Float[Tensor, " n"]:
    r"""The log-determinant of the map from logits to pixels in [0, 256), $\sum \log (256\, z (1 - z))$, in float64."""
    y = logits.double().flatten(1)
    return (functional.logsigmoid(y) + functional.logsigmoid(-y)).sum(1) + y.shape[1] * math.log(_LEVELS)


def bits_per_dim(log_prob: Float[Tensor, " n"], logits: Float[Tensor, "n *shape"]) -> Float[Tensor, " n"]:
    """Bits per pixel, from log-densities of logits.

    The density of a pixel with its noise is that of the logits divided by the determinant. By Jensen's inequality its
    mean log over the noise is at most the log-probability of the pixel, so the bits are an upper bound.

    Example:
        >>> logits = to_logits(synthetic_images(1, size=2))
        >>> uniform = torch.nn.functional.logsigmoid(torch.stack([logits, -logits])).sum((0, 2, 3))
        >>> bits_per_dim(uniform, logits)  # of uniform pixels
        tensor([8.0000], dtype=torch.float64)
    """
    check_tensor("logits", logits)
    n = len(logits) if logits.ndim else 0
    if check_tensor("log_prob", log_prob).shape != (n,) or not logits.numel():
        raise InputError("log_prob", f"expected one number for each of the {n} images, got {tuple(log_prob.shape)}")
    in_pixels = log_prob.double() - logit_log_det(logits.reshape(n, -1))
    return -in_pixels / (logits[0].numel() * math.log(2))
