"""From what users hold to tensors, and the checks on the way.

Arrays in memory become tensors at once. A NumPy memmap stays where it is: its rows are read when they are needed.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.errors import InputError

__all__ = ["Points", "Rows", "check_rows", "read_rows", "row_blocks", "rows_dtype", "temporary_rows"]

Rows = Tensor | np.memmap
"""Rows of numbers: a tensor, or a memmap that is read block by block."""

_BLOCK_BYTES = 2**25


def check_rows(
    value: Any, name: str, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Rows:
    """`value` as rows of finite numbers, or an `InputError` that names it.

    Arguments:
        value: A tensor, a NumPy array or memmap, or nested lists; the first axis is the sample.
        name: What the user calls it.
        dtype: The floating type to compute in; by default that of `value`, float32 where it has none or a narrower one.
        device: Where to compute; by default where `value` is.
    """
    if isinstance(value, Tensor):
        rows: Rows = value.detach()
    elif isinstance(value, np.memmap):
        rows = value
    else:
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise InputError(f"{name}: expected an array, got {type(value).__name__} ({error})") from None
        if array.dtype.kind not in "fiub":
            raise InputError(f"{name}: expected real numbers, got {_describe(value, array)}")
        rows = torch.from_numpy(np.array(array, order="C", ndmin=array.ndim, copy=None))
    if isinstance(rows, Tensor):
        if rows.is_complex():
            raise InputError(f"{name}: expected real numbers, got {rows.dtype}")
        rows = rows.to(device=device, dtype=dtype or rows_dtype(rows))
    elif rows.dtype.kind not in "fiu":
        raise InputError(f"{name}: expected real numbers, got a memmap of {rows.dtype}")
    if rows.ndim == 0:
        raise InputError(f"{name}: expected rows of points, got a single number")
    if len(rows) == 0 or 0 in rows.shape:
        raise InputError(f"{name}: expected at least one row and one column, got shape {tuple(rows.shape)}")
    _check_finite(rows, name)
    return rows


def rows_dtype(rows: Rows) -> torch.dtype:
    """The floating type to compute in: float64 for rows of float64, otherwise float32."""
    return torch.float64 if rows.dtype in (torch.float64, np.float64) else torch.float32


def row_blocks(rows: Rows, block_bytes: int = _BLOCK_BYTES) -> Iterator[tuple[int, int]]:
    """Start and stop of blocks of rows that take about `block_bytes` each."""
    row_bytes = max(1, int(np.prod(rows.shape[1:]))) * 8
    size = max(1, block_bytes // row_bytes)
    for start in range(0, len(rows), size):
        yield start, min(start + size, len(rows))


def read_rows(
    rows: Rows,
    index: slice | Tensor,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> Tensor:
    """The chosen rows as a tensor. Rows of a memmap are read from the disk in ascending order."""
    if isinstance(rows, Tensor):
        chosen = rows[index] if isinstance(index, slice) else rows.index_select(0, index.to(rows.device))
        return chosen.to(dtype=dtype, device=device)
    if isinstance(index, slice):
        block = np.array(rows[index])
    else:
        wanted = index.cpu().numpy()
        order = np.argsort(wanted, kind="stable")
        block = np.empty((len(wanted), *rows.shape[1:]), dtype=rows.dtype)
        block[order] = rows[wanted[order]]
    tensor = torch.from_numpy(block.astype(block.dtype.newbyteorder("="), copy=False))
    return tensor.to(dtype=dtype or rows_dtype(tensor), device=device)


def temporary_rows(shape: tuple[int, ...], dtype: torch.dtype) -> np.memmap:
    """A memmap on an unnamed temporary file, which goes away with it."""
    numpy_dtype = torch.empty(0, dtype=dtype).numpy().dtype
    with tempfile.TemporaryFile(prefix="steinscope-") as file:
        return np.memmap(file, dtype=numpy_dtype, mode="w+", shape=shape)


@dataclass(frozen=True)
class Points:
    """Points and the model's scores at them, in memory or on the disk.

    Arguments:
        x: The points.
        score: The model's score at each of them, of the same shape.
        index: Which rows are meant; all of them if it is None.
        dtype: The floating type of the batches.
        device: The device of the batches.
    """

    x: Rows
    score: Rows
    dtype: torch.dtype
    device: torch.device
    index: Tensor | None = None

    def __len__(self) -> int:
        return len(self.x) if self.index is None else len(self.index)

    @property
    def dim(self) -> int:
        """The number of coordinates of a point."""
        return int(np.prod(self.x.shape[1:], dtype=np.int64))

    @property
    def in_memory(self) -> bool:
        """Whether points and scores are both in memory."""
        return isinstance(self.x, Tensor) and isinstance(self.score, Tensor)

    def subset(self, index: Tensor) -> Points:
        """The points of these rows. Points in memory are copied; points on the disk are not read yet."""
        if self.index is not None:
            index = self.index[index]
        if self.in_memory:
            x, score = (read_rows(rows, index) for rows in (self.x, self.score))
            return Points(x, score, self.dtype, self.device)
        return Points(self.x, self.score, self.dtype, self.device, index)

    def take(self, index: slice | Tensor) -> tuple[Float[Tensor, "n *shape"], Float[Tensor, "n *shape"]]:
        """A batch: points and scores of these rows."""
        if self.index is not None:
            index = self.index[index]
        x, score = (read_rows(rows, index, dtype=self.dtype, device=self.device) for rows in (self.x, self.score))
        return x, score

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All points in order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))


def _check_finite(rows: Rows, name: str) -> None:
    for start, stop in row_blocks(rows):
        block = read_rows(rows, slice(start, stop))
        finite = block.isfinite().flatten(1).all(1) if block.ndim > 1 else block.isfinite()
        if not bool(finite.all()):
            row = start + int((~finite).nonzero()[0, 0])
            bad = block[row - start].flatten()
            value = float(bad[~bad.isfinite()][0])
            raise InputError(f"{name}: row {row} holds {value}; every value must be finite")


def _describe(value: Any, array: np.ndarray) -> str:
    if array.ndim == 0 and array.dtype.kind == "O":
        return f"an object of type {type(value).__name__}"
    return f"an array of {array.dtype}"
