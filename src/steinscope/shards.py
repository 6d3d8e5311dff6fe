"""Rows that lie in several files: .npy and Parquet shards, read block by block as if they were one array."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steinscope.errors import InputError, first_line

__all__ = ["Shards", "is_shards", "open_shards"]

_SUFFIXES = (".npy", ".parquet")
_BATCH_ROWS = 2**16


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
                part[low - begin : high - begin]
                for part, begin, (low, high) in zip(self.parts, self.starts, bounds, strict=False)
                if low < high
            ]
            return np.concatenate(chosen) if chosen else np.empty((0, *self.shape[1:]), self.dtype)
        ends = np.searchsorted(index, self.starts[1:])
        found = np.empty((len(index), *self.shape[1:]), self.dtype)
        for part, begin, low, high in zip(self.parts, self.starts, [0, *ends], ends, strict=False):
            if low < high:
                found[low:high] = part[index[low:high] - begin]
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
    paths = [Path(item) for item in (value if isinstance(value, list | tuple) else [value])]
    if len(paths) == 1 and paths[0].is_dir():
        folder = paths[0]
        paths = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
        if not paths:
            raise InputError(name, f"{folder} holds no {' or '.join(_SUFFIXES)} files")
    suffixes = {path.suffix.lower() for path in paths}
    if len(suffixes) > 1 or not suffixes <= set(_SUFFIXES):
        came = ", ".join(sorted(suffix or "no suffix" for suffix in suffixes))
        raise InputError(name, f"expected {' or '.join(_SUFFIXES)} files, all of one kind, got {came}")
    try:
        if suffixes == {".parquet"}:
            return Shards([_from_parquet(paths, name)])
        parts = [np.load(path, mmap_mode="r", allow_pickle=False) for path in paths]
    except FileNotFoundError as error:
        raise InputError(name, f"there is no file {error.filename}") from None
    except (OSError, ValueError, EOFError) as error:
        raise InputError(name, f"cannot be read: {first_line(error)}") from None
    for path, part in zip(paths, parts, strict=True):
        if part.dtype.kind not in "fiu" or part.ndim == 0:
            raise InputError(name, f"{path} holds {part.dtype} of shape {part.shape}, expected rows of real numbers")
        if part.shape[1:] != parts[0].shape[1:] or part.dtype != parts[0].dtype:
            raise InputError(
                name,
                f"{path} has rows of shape {part.shape[1:]} and type {part.dtype}, expected those of {paths[0]}, "
                f"{parts[0].shape[1:]} and {parts[0].dtype}",
            )
    return Shards(parts)


def _from_parquet(paths: list[Path], name: str) -> np.memmap:
    try:
        from pyarrow import ArrowException, dataset, types
    except ModuleNotFoundError:
        raise InputError(
            name, "reading Parquet needs pyarrow; install it by: pip install 'steinscope[parquet]'"
        ) from None
    try:
        table = dataset.dataset([str(path) for path in paths], format="parquet")
        for column in table.schema:
            if not (types.is_integer(column.type) or types.is_floating(column.type)):
                raise InputError(name, f"column {column.name!r} of {paths[0]} holds {column.type}, expected numbers")
        is_narrow = all(types.is_float32(column.type) for column in table.schema)
        shape = table.count_rows(), len(table.schema)
        if 0 in shape:
            raise InputError(name, f"expected at least one row and one column, got shape {shape}")
        with tempfile.TemporaryFile(prefix="steinscope-") as file:
            rows = np.memmap(file, dtype=np.float32 if is_narrow else np.float64, mode="w+", shape=shape)
        start = 0
        for batch in table.to_batches(batch_size=_BATCH_ROWS):
            for number, column in enumerate(batch.columns):
                # Without a value a cell is NaN here, and the check of the points names its row.
                rows[start : start + len(batch), number] = column.to_numpy(zero_copy_only=False)
            start += len(batch)
        return rows
    except ArrowException as error:
        raise InputError(name, f"cannot be read: {first_line(error)}") from None
