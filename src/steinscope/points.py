"""From what users hold to tensors, and the checks on the way.

Arrays in memory become tensors at once. A NumPy memmap stays where it is, and so
do shards: their rows are read when they are needed. What Dask holds is written to the disk first.
"""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.errors import InputError, first_line
from steinscope.frames import Names, frame_numbers, is_frame
from steinscope.metric import Metric
from steinscope.shapes import flattened
from steinscope.shards import Shards, is_dask, is_shards, open_dask, open_shards, rows_of
from steinscope.unconstrained import Unconstrained

__all__ = [
    "VISIT_ROWS",
    "Extent",
    "Rows",
    "ScoredPoints",
    "SumVisitor",
    "Visitor",
    "check_device",
    "check_dtype",
    "check_rows",
    "joined",
    "read_rows",
    "row_blocks",
    "rows_device",
    "rows_dtype",
    "temporary_rows",
]

Rows = Tensor | np.memmap | Shards
"""Rows of numbers: a tensor, or a memmap or shards, which are read block by block."""

VISIT_ROWS = 8192
_BLOCK_BYTES = 2**25
# The largest product of a distance and a score whose fourth power float32 still holds, with room for sums.
_MOST_NARROW = 1e8


def check_rows(
    value: Any, name: str, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
) -> Rows:
    """`value` as rows of finite numbers, or an `InputError` that names it.

    Arguments:
        value: A tensor, a NumPy array or memmap, a data frame, nested lists, the path of shards or a list of their
            paths, or an array or data frame of Dask; the first axis is the sample.
        name: What the user calls it.
        dtype: The floating type to compute in; by default that of `value`, float32 where it has none or a narrower one.
        device: Where to compute; by default where `value` is.
    """
    dtype, device = check_dtype(dtype), check_device(device)
    if is_shards(value):
        rows: Rows = open_shards(value, name)
    elif is_dask(value):
        rows = open_dask(value, name)
    elif isinstance(value, np.memmap | Shards):
        if value.dtype.kind not in "fiu":
            raise InputError(name, f"expected real numbers, got a memmap of {value.dtype}")
        rows = value
    else:
        tensor = _plain(value.detach(), name) if isinstance(value, Tensor) else _from_array(value, name)
        rows = tensor.to(device=device, dtype=dtype or rows_dtype(tensor))
    if rows.ndim == 0:
        raise InputError(name, "expected rows of points, got a single number")
    if len(rows) == 0 or 0 in rows.shape:
        raise InputError(name, f"expected at least one row and one column, got shape {tuple(rows.shape)}")
    _check_finite(rows, name)
    return rows


def rows_dtype(rows: Rows) -> torch.dtype:
    """The floating type to compute in: float32 for all numbers that it holds exactly, otherwise float64."""
    if isinstance(rows, Tensor):
        is_narrow = rows.is_floating_point() or rows.dtype == torch.bool
        return torch.float32 if rows.itemsize <= (4 if is_narrow else 2) else torch.float64
    return torch.float32 if rows.dtype.itemsize <= (4 if rows.dtype.kind == "f" else 2) else torch.float64


def check_dtype(dtype: Any) -> torch.dtype | None:
    """A floating type to compute in, or None."""
    if dtype is not None and not (isinstance(dtype, torch.dtype) and dtype in (torch.float32, torch.float64)):
        raise InputError("dtype", f"expected torch.float32 or torch.float64, got {dtype!r}")
    return dtype


def check_device(device: Any) -> torch.device | None:
    """A device that is there, or None."""
    if device is None:
        return None
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (AssertionError, NotImplementedError, RuntimeError, TypeError, ValueError) as error:
        raise InputError("device", f"{device!r} cannot be used here: {first_line(error)}") from error
    if found.type == "meta":
        raise InputError("device", "a meta device holds no numbers")
    return found


def rows_device(rows: Rows, device: torch.device | str | None = None) -> torch.device:
    """Where rows are computed with: where a tensor is, and for a memmap on `device`, by default the CPU."""
    return rows.device if isinstance(rows, Tensor) else torch.device(device or "cpu")


def row_blocks(rows: Rows, block_bytes: int = _BLOCK_BYTES, size: int | None = None) -> Iterator[tuple[int, int]]:
    """Start and stop of blocks of `size` rows, by default as many as take about `block_bytes`."""
    row_bytes = max(1, int(np.prod(rows.shape[1:]))) * 8
    size = size or max(1, block_bytes // row_bytes)
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
        block = rows[index] if isinstance(rows, Shards) else rows_of(rows, index)
    else:
        wanted = index.cpu().numpy()
        order = np.argsort(wanted, kind="stable")
        block = np.empty((len(wanted), *rows.shape[1:]), dtype=rows.dtype)
        block[order] = rows[wanted[order]] if isinstance(rows, Shards) else rows_of(rows, wanted[order])
    tensor = torch.from_numpy(_native(block))
    return tensor.to(dtype=dtype or rows_dtype(tensor), device=device)


def temporary_rows(shape: tuple[int, ...], dtype: torch.dtype) -> np.memmap:
    """A memmap on an unnamed temporary file, which goes away with it."""
    numpy_dtype = torch.empty(0, dtype=dtype).numpy().dtype
    with tempfile.TemporaryFile(prefix="steinscope-") as file:
        return np.memmap(file, dtype=numpy_dtype, mode="w+", shape=shape)


@dataclass(frozen=True)
class Extent:
    """How far points and scores reach in each coordinate.

    Arguments:
        lowest: The smallest value of each coordinate.
        highest: The largest.
        largest: The largest size of each score.
    """

    lowest: Float[Tensor, " d"]
    highest: Float[Tensor, " d"]
    largest: Float[Tensor, " d"]

    @classmethod
    def of(cls, points: ScoredPoints) -> Extent:
        """That of points."""
        found = []
        for start, stop in row_blocks(points.x):
            x, score = (flattened(rows).double() for rows in points.take(slice(start, stop)))
            found.append(cls(x.amin(0), x.amax(0), score.abs().amax(0)))
        return cls.over(found)

    @classmethod
    def over(cls, parts: Sequence[Extent]) -> Extent:
        """That of all parts together."""
        lowest, highest, largest = (
            torch.stack([getattr(part, key) for part in parts]) for key in ("lowest", "highest", "largest")
        )
        return cls(lowest.amin(0), highest.amax(0), largest.amax(0))

    def is_wide(self, first: Float[Tensor, "1 ..."]) -> bool:
        """Whether products of scores and distances from the first point are too large for float32."""
        centre = flattened(first).double()[0]
        farthest = torch.maximum(self.highest - centre, centre - self.lowest)
        return float((farthest * self.largest).max()) > _MOST_NARROW


class Visitor(ABC):
    """What looks at points batch by batch, and remembers something of them."""

    @abstractmethod
    def __call__(self, rows: Tensor, x: Float[Tensor, "n d"], score: Float[Tensor, "n d"]) -> None:
        """Look at a batch: the numbers of its rows, and its points and scores as vectors."""


class SumVisitor(Visitor):
    """A visitor that remembers sums, so that several of its kind can look at points in several places."""

    @abstractmethod
    def apart(self) -> SumVisitor:
        """A copy that has seen nothing yet, for points elsewhere."""

    @abstractmethod
    def brought(self) -> SumVisitor:
        """What such a copy brings back: itself, without what it took to look."""

    @abstractmethod
    def join(self, other: Any) -> None:
        """Add what such a copy has seen."""


@dataclass(frozen=True)
class ScoredPoints:
    """Points and the model's scores at them, in memory or on the disk.

    Arguments:
        x: The points.
        score: The model's score at each of them, of the same shape.
        dtype: The floating type of the batches.
        device: The device of the batches.
        index: Which rows are meant; all of them if it is None.
        metric: The coordinates that batches are in; those of x if it is None.
        names: What the user calls the coordinates, if anything.
        coordinates: The unconstrained coordinates that x and score are in; the user's own if it is None.
    """

    x: Rows
    score: Rows
    dtype: torch.dtype
    device: torch.device
    index: Tensor | None = None
    metric: Metric | None = None
    names: Names = None
    coordinates: Unconstrained | None = None

    def __len__(self) -> int:
        return len(self.x) if self.index is None else len(self.index)

    @property
    def dim(self) -> int:
        """The number of coordinates of a point."""
        return int(np.prod(self.x.shape[1:], dtype=np.int64))

    @property
    def outer_dim(self) -> int:
        """The number of coordinates of a point as the user knows it."""
        return self.dim if self.coordinates is None else self.coordinates.outer_dim

    def original(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, "n d"]:
        """Points of a batch as the user knows them, as vectors."""
        return (x if self.coordinates is None else self.coordinates.original(x)).reshape(len(x), -1)

    @property
    def in_memory(self) -> bool:
        """Whether points and scores are both in memory."""
        return isinstance(self.x, Tensor) and isinstance(self.score, Tensor)

    @property
    def is_afar(self) -> bool:
        """Whether the points stay on other machines, where visitors go to see them."""
        return False

    def subset(self, index: Tensor) -> ScoredPoints:
        """The points of these rows. Points in memory are copied; points on the disk are not read yet."""
        if self.index is not None:
            index = self.index[index]
        if self.in_memory:
            x, score = (read_rows(rows, index) for rows in (self.x, self.score))
            return ScoredPoints(x, score, self.dtype, self.device, names=self.names, coordinates=self.coordinates)
        return replace(self, index=index)

    def in_metric(self, metric: Metric) -> ScoredPoints:
        """The same points in other coordinates, as vectors. Those on the disk are changed when they are read."""
        if self.in_memory:
            x, score = self.take(slice(None))
            return ScoredPoints(metric.points(x), metric.scores(score), self.dtype, self.device, names=self.names)
        return replace(self, metric=metric)

    def with_room(self) -> ScoredPoints:
        """The same points in float64 where products of points and scores are so large that float32 is too narrow.

        Critics and kernels are made of powers of such products, which no unit of a coordinate changes.
        """
        if self.dtype == torch.float64:
            return self
        if not Extent.of(self).is_wide(read_rows(self.x, slice(1), device=self.device)):
            return self
        x, score = (rows.double() if isinstance(rows, Tensor) else rows for rows in (self.x, self.score))
        return replace(self, x=x, score=score, dtype=torch.float64)

    def take(self, index: slice | Tensor) -> tuple[Float[Tensor, "n *shape"], Float[Tensor, "n *shape"]]:
        """A batch: points and scores of these rows."""
        if self.index is not None:
            index = self.index[index]
        x, score = (read_rows(rows, index, dtype=self.dtype, device=self.device) for rows in (self.x, self.score))
        if self.metric is not None:
            return self.metric.points(x), self.metric.scores(score)
        return x, score

    def batches(self, size: int) -> Iterator[tuple[Tensor, Tensor]]:
        """All points in order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self.take(slice(start, start + size))

    def visit(self, rows: Tensor, visitor: Visitor) -> None:
        """Show the points of these rows to a visitor, batch by batch."""
        for index in rows.split(VISIT_ROWS):
            if len(index):
                visitor(index, *(part.reshape(len(index), -1) for part in self.take(index)))


def joined(parts: Sequence[ScoredPoints]) -> ScoredPoints:
    """Points of several parts, in memory, in their order."""
    x, score = (torch.cat(rows) for rows in zip(*(part.take(slice(None)) for part in parts), strict=True))
    return ScoredPoints(x, score, parts[0].dtype, parts[0].device)


def _check_finite(rows: Rows, name: str) -> None:
    for start, stop in row_blocks(rows):
        block = read_rows(rows, slice(start, stop))
        finite = flattened(block.isfinite()).all(1)
        if not bool(finite.all()):
            row = start + int((~finite).nonzero()[0, 0])
            bad = block[row - start].flatten()
            value = float(bad[~bad.isfinite()][0])
            raise InputError(name, f"row {row} holds {value}; every value must be finite")


def _plain(tensor: Tensor, name: str) -> Tensor:
    """A tensor that torch can compute with."""
    kinds = {
        "a sparse tensor": tensor.layout != torch.strided,
        "a quantised tensor": tensor.is_quantized,
        "a nested tensor": tensor.is_nested,
        "a meta tensor, which holds no numbers": tensor.is_meta,
        f"numbers of {tensor.dtype}": tensor.is_complex(),
    }
    for kind, came in kinds.items():
        if came:
            raise InputError(name, f"expected a dense tensor of real numbers, got {kind}")
    # Autograd refuses tensors of inference mode.
    return tensor.clone() if tensor.is_inference() else tensor


def _from_array(value: Any, name: str) -> Tensor:
    """A NumPy array, or nested lists, as a tensor."""
    try:
        array = frame_numbers(value, name) if is_frame(value) else np.asarray(value)
    except InputError:
        raise
    except (TypeError, ValueError, RuntimeError) as error:
        problem = f"expected an array, got {type(value).__name__} ({first_line(error)})"
        raise InputError(name, problem) from None
    if array.dtype.kind not in "fiub":
        raise InputError(name, f"expected real numbers, got {_describe(value, array)}")
    if np.ma.is_masked(value):
        row = int(np.argwhere(np.ma.getmaskarray(value))[0, 0]) if array.ndim else 0
        raise InputError(name, f"row {row} holds a masked value; leave out rows with masked values, or fill them")
    return torch.from_numpy(_native(array))


def _native(array: np.ndarray) -> np.ndarray:
    """Contiguous numbers in the order of bytes and of a type that torch knows, not marked as read-only."""
    kind = np.float64 if array.dtype.kind == "f" and array.itemsize > 8 else array.dtype.newbyteorder("=")
    array = np.ascontiguousarray(array, dtype=kind).reshape(array.shape)
    return array if array.flags.writeable else array.copy()


def _describe(value: Any, array: np.ndarray) -> str:
    if array.ndim == 0 and array.dtype.kind == "O":
        return f"an object of type {type(value).__name__}"
    return f"an array of {array.dtype}"
