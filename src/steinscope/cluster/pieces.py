"""Pieces of .npy and Parquet files, which are opened where they are needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from steinscope.errors import InputError, first_line
from steinscope.shards import Shards, open_npy, parquet_numbers, shard_paths

__all__ = ["FileRows", "Pieces"]

_PIECE_BYTES = 2**28


@dataclass(frozen=True)
class Pieces:
    """Some rows of files, which stay on the disk until they are opened.

    Arguments:
        parts: The path of each file, and the first and last but one of its rows.
        dtype: The type of the numbers.
    """

    parts: tuple[tuple[str, int, int], ...]
    dtype: np.dtype

    def open(self, name: str) -> Shards:
        """The rows. Those of .npy files are read when they are asked for.

        Arguments:
            name: What the user calls them, for messages.
        """
        return Shards([self._opened(*part, name) for part in self.parts])

    def _opened(self, path: str, start: int, stop: int, name: str) -> np.ndarray:
        if _is_npy(path):
            (rows,) = open_npy([path], name)
            rows = rows[start:stop]
        else:
            rows = _parquet_rows(path, start, stop, name)
        if len(rows) != stop - start or rows.dtype != self.dtype:
            raise InputError(name, f"{path} is another file here than where the test was called")
        return rows

    def __str__(self) -> str:
        return self.parts[0][0]


@dataclass(frozen=True)
class FileRows:
    """The rows of shards, none of which is read.

    Arguments:
        files: The path of each shard and its number of rows.
        shape: The shape of all rows.
        dtype: The type of the numbers.
    """

    files: tuple[tuple[str, int], ...]
    shape: tuple[int, ...]
    dtype: np.dtype

    @classmethod
    def of(cls, value: Any, name: str) -> FileRows:
        """The shards of a directory, or of a list.

        Arguments:
            value: A path, or a list of paths.
            name: What the user calls it, for messages.
        """
        paths = [str(path.resolve()) for path in shard_paths(value, name)]
        if _is_npy(paths[0]):
            parts = open_npy(paths, name)
            counts, tail, dtype = [len(part) for part in parts], parts[0].shape[1:], parts[0].dtype
        else:
            counts, tail, dtype = _parquet_sizes(paths, name)
        return cls(tuple(zip(paths, counts, strict=True)), (sum(counts), *tail), dtype)

    def bounds(self) -> list[tuple[int, int]]:
        """Where pieces of a moderate size begin and end, each within one file."""
        row_bytes = max(1, int(np.prod(self.shape[1:]))) * self.dtype.itemsize
        most, found, first = max(1, _PIECE_BYTES // row_bytes), [], 0
        for _, count in self.files:
            found += [(first + start, first + min(start + most, count)) for start in range(0, count, most)]
            first += count
        return found

    def cut(self, start: int, stop: int) -> Pieces:
        """The rows from one number on to another."""
        found, first = [], 0
        for path, count in self.files:
            low, high = max(start - first, 0), min(stop - first, count)
            if low < high:
                found.append((path, low, high))
            first += count
        return Pieces(tuple(found), self.dtype)


def _is_npy(path: str) -> bool:
    return path.lower().endswith(".npy")


def _parquet_sizes(paths: Sequence[str], name: str) -> tuple[list[int], tuple[int, ...], np.dtype]:
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        files = [ParquetFile(path) for path in paths]
        dtypes = [parquet_numbers(file.schema_arrow, path, name) for path, file in zip(paths, files, strict=True)]
        for path, file in zip(paths, files, strict=True):
            if not file.schema_arrow.equals(files[0].schema_arrow):
                raise InputError(name, f"{path} has other columns than {paths[0]}")
        return [file.metadata.num_rows for file in files], (len(files[0].schema_arrow),), dtypes[0]
    except FileNotFoundError as error:
        raise InputError(name, f"there is no file {error.filename or first_line(error)}") from None
    except (ArrowException, OSError) as error:
        raise InputError(name, f"cannot be read: {first_line(error)}") from None


def _parquet_rows(path: str, start: int, stop: int, name: str) -> np.ndarray:
    """Rows of a Parquet file, from those of its groups of rows that hold them."""
    from pyarrow import ArrowException
    from pyarrow.parquet import ParquetFile

    try:
        file = ParquetFile(path)
        dtype = parquet_numbers(file.schema_arrow, path, name)
        sizes = [file.metadata.row_group(number).num_rows for number in range(file.metadata.num_row_groups)]
        ends = np.cumsum(sizes)
        chosen = [number for number, end in enumerate(ends) if end > start and end - sizes[number] < stop]
        table = file.read_row_groups(chosen)
        rows = np.stack([column.to_numpy() for column in table.columns], 1).astype(dtype, copy=False)
    except (ArrowException, OSError) as error:
        raise InputError(name, f"{path} cannot be read: {first_line(error)}") from None
    first = ends[chosen[0]] - sizes[chosen[0]]
    return rows[start - first : stop - first]
