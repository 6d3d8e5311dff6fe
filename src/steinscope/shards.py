"""Rows that lie in several places: .npy and Parquet shards and the partitions of Dask, as if they were one array."""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steinscope.errors import InputError, first_line
from steinscope.frames import frame_numbers

__all__ = [
    "Shards",
    "dask_dtype",
    "is_dask",
    "is_shards",
    "open_dask",
    "open_npy",
    "open_shards",
    "parquet_numbers",
    "rows_of",
    "shard_paths",
]

_SUFFIXES = (".npy", ".parquet")
_BATCH_ROWS = 2**16
# A row that is read from a mapped file brings its surroundings with it, 64 KiB as a rule.
_GATHERED_ROWS = 512


class Shards:
    """Arrays one below the other, of which rows are read when they are asked for.

    It has the length, shape and type of one array, and gives rows by a slice or by numbers in ascending order.

    Arguments:
        parts: The arrays, memmaps as a rule. All have the same columns and type.

    Example:
        >>> rows = Shards([np.zeros((2, 3)), np.ones((4, 3))])
        >>> rows.shape, rows[1:3].tolist()
        ((6, 3), [[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    """

    def __init__(self, parts: Sequence[np.ndarray]) -> None:
        self.parts = tuple(parts)
        self.starts = np.cumsum([0, *map(len, self.parts)])
        self.dtype = self.parts[0].dtype
        self.shape = (int(self.starts[-1]), *self.parts[0].shape[1:])
        self.ndim = len(self.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: slice | np.ndarray) -> np.ndarray:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step != 1:
                return self[np.arange(start, stop, step)]
            bounds = [(max(start, a), min(stop, b)) for a, b in zip(self.starts, self.starts[1:], strict=False)]
            chosen = [
                rows_of(part, slice(low - begin, high - begin))
                for part, begin, (low, high) in zip(self.parts, self.starts, bounds, strict=False)
                if low < high
            ]
            return np.concatenate(chosen) if chosen else np.empty((0, *self.shape[1:]), self.dtype)
        ends = np.searchsorted(index, self.starts[1:])
        found = np.empty((len(index), *self.shape[1:]), self.dtype)
        for part, begin, low, high in zip(self.parts, self.starts, [0, *ends], ends, strict=False):
            if low < high:
                found[low:high] = rows_of(part, index[low:high] - begin)
        return found


def rows_of(part: np.ndarray, index: slice | np.ndarray) -> np.ndarray:
    """A copy of some rows of an array. What a mapped file brought into memory for them is given back."""
    # A slice of a memmap has the same map.
    mapped = getattr(part, "_mmap", None)
    # Changes of a private copy of a file exist nowhere else.
    if not isinstance(mapped, mmap.mmap) or not hasattr(mapped, "madvise") or part.mode == "c":  # pyright: ignore
        return np.array(part[index])
    if isinstance(index, slice):
        found = np.array(part[index])
        mapped.madvise(mmap.MADV_DONTNEED)
        return found
    found = np.empty((len(index), *part.shape[1:]), part.dtype)
    for start in range(0, len(index), _GATHERED_ROWS):
        rows = slice(start, start + _GATHERED_ROWS)
        found[rows] = part[index[rows]]
        mapped.madvise(mmap.MADV_DONTNEED)
    return found


def is_shards(value: Any) -> bool:
    """Whether a value names files: a path, or a list of paths."""
    is_list = isinstance(value, list | tuple) and bool(value)
    return all(isinstance(item, str | os.PathLike) for item in (value if is_list else [value]))


def open_shards(value: Any, name: str) -> Shards:
    """The rows of a directory of shards, in the order of their names, or of a list of files, in its order.

    .npy files stay where they are. Parquet files are read once, by pyarrow's dataset reader, into a temporary file.

    Arguments:
        value: A path, or a list of paths.
        name: What the user calls it, for messages.
    """
    paths = shard_paths(value, name)
    is_parquet = paths[0].suffix.lower() == ".parquet"
    return Shards([_from_parquet(paths, name)] if is_parquet else open_npy(paths, name))


def shard_paths(value: Any, name: str) -> list[Path]:
    """The files that a value names, which are all of one kind.

    Arguments:
        value: A path, or a list of paths.
        name: What the user calls it, for messages.
    """
    given = value if isinstance(value, list | tuple) else [value]
    if "" in given:
        # As a path it would be the current directory, which nobody means by it.
        raise InputError(name, "expected an array, or the path of a directory or file, got ''")
    paths = [Path(item) for item in given]
    if len(paths) == 1 and paths[0].is_dir():
        folder = paths[0]
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
        if not paths:
            raise InputError(name, f"{folder} holds no {' or '.join(_SUFFIXES)} files")
    suffixes = {path.suffix.lower() for path in paths}
    if suffixes == {""} and not paths[0].exists():
        raise InputError(name, f"got {given[0]!r}, which is no directory or file; texts are paths of arrays")
    if len(suffixes) > 1 or not suffixes <= set(_SUFFIXES):
        came = ", ".join(sorted(suffix or "no suffix" for suffix in suffixes))
        raise InputError(name, f"expected {' or '.join(_SUFFIXES)} files, all of one kind, got {came}")
    return paths


def open_npy(paths: Sequence[str | Path], name: str) -> list[np.memmap]:
    """Memmaps of .npy files whose rows have one shape and type.

    Arguments:
        paths: The files.
        name: What the user calls them, for messages.
    """
    parts = [_mapped(path, name) for path in paths]
    for path, part in zip(paths, parts, strict=True):
        if part.dtype.kind not in "fiu" or part.ndim == 0:
            raise InputError(name, f"{path} holds {part.dtype} of shape {part.shape}, expected rows of real numbers")
        if part.shape[1:] != parts[0].shape[1:] or part.dtype != parts[0].dtype:
            raise InputError(
                name,
                f"{path} has rows of shape {part.shape[1:]} and type {part.dtype}, expected those of {paths[0]}, "
                f"{parts[0].shape[1:]} and {parts[0].dtype}",
            )
    return parts


def _mapped(path: str | Path, name: str) -> np.memmap:
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except FileNotFoundError:
        raise InputError(name, f"there is no file {path}") from None
    except (OSError, ValueError, EOFError) as error:
        # Of a file that is none of its own NumPy says that it is pickled.
        reason = "it is no .npy file of numbers" if "pickled" in str(error) else first_line(error)
        raise InputError(name, f"{path} cannot be read: {reason}") from None


def parquet_numbers(schema: Any, path: str | Path, name: str) -> np.dtype:
    """The type of the numbers of a Parquet file: float32 where all columns are, otherwise float64.

    Arguments:
        schema: The schema of pyarrow.
        path: The file, for messages.
        name: What the user calls it, for messages.
    """
    from pyarrow import types

    for column in schema:
        if not (types.is_integer(column.type) or types.is_floating(column.type)):
            raise InputError(name, f"column {column.name!r} of {path} holds {column.type}, expected numbers")
    return np.dtype(np.float32 if all(types.is_float32(column.type) for column in schema) else np.float64)


def _from_parquet(paths: list[Path], name: str) -> np.memmap:
    try:
        from pyarrow import ArrowException, dataset
    except ModuleNotFoundError:
        raise InputError(
            name, "reading Parquet needs pyarrow; install it by: pip install 'steinscope[parquet]'"
        ) from None
    try:
        table = dataset.dataset([str(path) for path in paths], format="parquet")
        dtype = parquet_numbers(table.schema, paths[0], name)
        # Without a value a cell is NaN here, and the check of the points names its row.
        blocks = (
            np.stack([column.to_numpy(zero_copy_only=False) for column in batch.columns], 1)
            for batch in table.to_batches(batch_size=_BATCH_ROWS)
            if batch.num_columns
        )
        return _on_disk(blocks, dtype, name)
    except FileNotFoundError as error:
        raise InputError(name, f"there is no file {error.filename or first_line(error)}") from None
    except (ArrowException, OSError) as error:
        raise InputError(name, f"cannot be read: {first_line(error)}") from None


def is_dask(value: Any) -> bool:
    """Whether a value is an array, data frame or series of Dask."""
    return hasattr(type(value), "__dask_graph__") and (hasattr(value, "numblocks") or hasattr(value, "npartitions"))


def open_dask(value: Any, name: str) -> Shards:
    """The rows of an array, data frame or series of Dask, which are computed once, one partition after the other.

    They are written to a temporary file, because rows are wanted in random order. No more than one partition is in the
    memory of this process.

    Arguments:
        value: The array, data frame or series.
        name: What the user calls it, for messages.
    """
    dtype, is_array = dask_dtype(value, name), hasattr(value, "numblocks")
    return Shards([_on_disk(_partitions(value, is_array, name), dtype, name)])


def dask_dtype(value: Any, name: str) -> np.dtype:
    """The type of the numbers of an array, data frame or series of Dask.

    Arguments:
        value: The array, data frame or series.
        name: What the user calls it, for messages.
    """
    if not value.ndim:
        raise InputError(name, "expected rows of points, got a single number")
    is_array = hasattr(value, "numblocks")
    dtypes = [value.dtype] if value.ndim == 1 or is_array else list(value.dtypes)
    is_plain = bool(dtypes) and all(isinstance(dtype, np.dtype) and dtype.kind in "fiub" for dtype in dtypes)
    if is_array and not is_plain:
        raise InputError(name, f"expected real numbers, got a Dask array of {value.dtype}")
    # A memmap of truth values would not be taken as numbers.
    return np.result_type(np.uint8, *dtypes) if is_plain else np.dtype(np.float64)


def _partitions(value: Any, is_array: bool, name: str) -> Iterator[np.ndarray]:
    for number in range(value.numblocks[0] if is_array else value.npartitions):
        try:
            part = (value.blocks if is_array else value.partitions)[number].compute()
        except Exception as error:
            problem = f"partition {number} cannot be computed: {type(error).__name__}: {first_line(error)}"
            raise InputError(name, problem) from error
        yield frame_numbers(part, name) if hasattr(part, "columns") else np.asarray(part)


def _on_disk(blocks: Iterable[np.ndarray], dtype: np.dtype, name: str) -> np.memmap:
    """Blocks of rows one below the other, in an unnamed temporary file, which goes away with the memmap."""
    count, shape = 0, (0,)
    with tempfile.TemporaryFile(prefix="steinscope-") as file:
        for number, block in enumerate(blocks):
            if number and block.shape[1:] != shape:
                raise InputError(name, f"partition {number} has rows of shape {block.shape[1:]}, expected {shape}")
            count, shape = count + len(block), block.shape[1:]
            file.write(np.ascontiguousarray(block, dtype).data)
        if 0 in (count, *shape):
            raise InputError(name, f"expected at least one row and one column, got shape {(count, *shape)}")
        return np.memmap(file, dtype, "r+", shape=(count, *shape))
