"""Batches for training: from an array, a memmap, a torch Dataset, or a function that draws fresh points.

Every batch has a number, and its points depend on the seed and that number alone. So a run that was stopped needs to
know only how many batches it has used.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from steinscope.errors import InputError, first_line
from steinscope.points import Rows, check_rows, read_rows, row_blocks, rows_dtype
from steinscope.scoring import unconstrained_rows
from steinscope.support.description import digest_tensors
from steinscope.support.randomness import derive_generator
from steinscope.training.distributed import ONE_PROCESS, Processes
from steinscope.training.loaders import LoaderBatches, first_part
from steinscope.unconstrained import Unconstrained

__all__ = ["LEAST_HELD_OUT", "Batches", "in_coordinates", "make_batches"]

# Streams of random numbers that must not meet.
_ORDER, _FRESH, _LOOK, _HELD_OUT = 101, 102, 103, 104
# More than this many held-out points cost more than they tell, and fewer than so many points spare none.
_MOST_HELD_OUT, _LEAST_POINTS = 1000, 40
LEAST_HELD_OUT = 4
# How many points tell one function or Dataset from another.
_PROBES = 64


@runtime_checkable
class Batches(Protocol):
    """Numbered batches of points."""

    def look(self, n: int) -> Tensor:
        """About n points to take scales and sizes from before training, the same in every process."""
        ...

    def batch(self, number: int) -> Tensor:
        """This process's part of a batch."""
        ...

    def is_first_pass(self, number: int) -> bool:
        """Whether no batch up to this one has points that an earlier one has."""
        ...

    @property
    def count(self) -> int | None:
        """How many points come again and again; None where none has come twice."""
        ...

    def held_out(self) -> Tensor | None:
        """The points that no batch has, if there are any."""
        ...

    def identity(self) -> dict[str, str | None]:
        """What tells these points from others: `points`, how many of what, and `digest`, of all rows of an array. The
        digest of a function or Dataset is of some points, and None where they are not the same when asked again."""
        ...


def make_batches(
    x: Any,
    batch_size: int,
    seed: int,
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    shared: Processes = ONE_PROCESS,
    held_out: float | None = 0.0,
) -> Batches:
    """Batches from whatever the user holds, or an `InputError` that says what it may be.

    Arguments:
        x: The points.
        batch_size: Points in each batch; where there are fewer, all of them.
        seed: The source of the order.
        dtype: The floating type of the points.
        device: Where they go.
        shared: The processes that share each batch.
        held_out: The share of the points that no batch has; None for a tenth, or 100 where a fifth allows it. It is
            1000 points at most.
    """
    if batch_size < 1:
        raise InputError("batch_size", f"expected at least 1, got {batch_size}")
    shared.check_batch(batch_size)
    place = torch.device(device or "cpu")
    if isinstance(x, DataLoader | IterableDataset):
        if held_out:
            problem = f"expected points, because no share of a DataLoader can be held out, got {held_out:g}"
            raise InputError("validation", problem)
        return LoaderBatches(x, batch_size, dtype, place, shared)
    if isinstance(x, Dataset):
        return _DatasetBatches(x, batch_size, seed, dtype, place, shared, held_out)
    if callable(x) and not isinstance(x, Tensor | np.ndarray):
        return _FreshBatches(x, batch_size, seed, dtype, place, shared, held_out)
    rows = check_rows(x, "x", dtype=dtype, device=device)
    return _ArrayBatches(rows, batch_size, seed, dtype, device, shared, held_out)


def in_coordinates(batches: Batches, coordinates: Unconstrained) -> Batches:
    """The same batches in unconstrained coordinates. Points of an array are looked at at once, others as they come."""
    if not isinstance(batches, _ArrayBatches):
        return _UnconstrainedBatches(batches, coordinates)
    moved = copy.copy(batches)
    moved.rows = unconstrained_rows(batches.rows, coordinates, dtype=batches.dtype, device=batches.device)
    return moved


class _UnconstrainedBatches:
    def __init__(self, batches: Batches, coordinates: Unconstrained) -> None:
        self.batches, self.coordinates = batches, coordinates

    def look(self, n: int) -> Tensor:
        return self._moved(self.batches.look(n))

    def batch(self, number: int) -> Tensor:
        return self._moved(self.batches.batch(number))

    def is_first_pass(self, number: int) -> bool:
        return self.batches.is_first_pass(number)

    @property
    def count(self) -> int | None:
        return self.batches.count

    def held_out(self) -> Tensor | None:
        points = self.batches.held_out()
        return None if points is None else self._moved(points)

    def identity(self) -> dict[str, str | None]:
        return self.batches.identity()

    def _moved(self, x: Tensor) -> Tensor:
        self.coordinates.region.check(x, "x (a batch)")
        return self.coordinates.points(x)


class _Passes:
    """Which rows a batch has: a new random order at each pass; what is left over at the end of a pass is dropped."""

    def __init__(self, n: int, batch_size: int, seed: int, shared: Processes, held_out: float | None = 0.0) -> None:
        apart = min(_wanted(n, held_out), _MOST_HELD_OUT)
        order = torch.randperm(n, generator=derive_generator(seed, _HELD_OUT)) if apart else torch.arange(n)
        self.apart, self.known = order[:apart].sort().values, order[apart:].sort().values
        self.n, self.seed, self.shared = len(self.known), seed, shared
        self.batch_size = shared.whole_batch(min(batch_size, self.n))
        self.pass_number, self.order = -1, torch.empty(0)

    def rows(self, number: int) -> Tensor:
        per_pass = self.n // self.batch_size
        pass_number, position = divmod(number, per_pass)
        if pass_number != self.pass_number:
            self.order = torch.randperm(self.n, generator=derive_generator(self.seed, _ORDER, pass_number))
            self.pass_number = pass_number
        chosen = self.order[position * self.batch_size : (position + 1) * self.batch_size]
        return self.known[self.shared.take_part(chosen)]

    def is_first(self, number: int) -> bool:
        return number < self.n // self.batch_size

    def look(self, n: int) -> Tensor:
        return self.known[torch.randperm(self.n, generator=derive_generator(self.seed, _LOOK))[:n]]


def _wanted(n: int, share: float | None) -> int:
    """How many of n points to hold out, before there are too many of them."""
    if share is None:
        return max(round(0.1 * n), min(100, round(0.2 * n))) if n >= _LEAST_POINTS else 0
    wanted = round(share * n)
    if share and wanted < LEAST_HELD_OUT:
        problem = f"expected at least {LEAST_HELD_OUT} held-out points, or 0 for none, got {share:g} of {n} points"
        raise InputError("validation", problem)
    return wanted


class _ArrayBatches:
    def __init__(
        self,
        rows: Rows,
        batch_size: int,
        seed: int,
        dtype: torch.dtype | None,
        device: torch.device | str | None,
        shared: Processes,
        held_out: float | None = 0.0,
    ) -> None:
        self.rows = rows
        self.dtype = dtype or rows_dtype(rows)
        self.device = rows.device if isinstance(rows, Tensor) else torch.device(device or "cpu")
        self.passes = _Passes(len(rows), batch_size, seed, shared, held_out)

    def look(self, n: int) -> Tensor:
        return read_rows(self.rows, self.passes.look(n), dtype=self.dtype, device=self.device)

    def batch(self, number: int) -> Tensor:
        return read_rows(self.rows, self.passes.rows(number), dtype=self.dtype, device=self.device)

    def is_first_pass(self, number: int) -> bool:
        return self.passes.is_first(number)

    @property
    def count(self) -> int | None:
        return self.passes.n

    def held_out(self) -> Tensor | None:
        apart = self.passes.apart
        return read_rows(self.rows, apart, dtype=self.dtype, device=self.device) if len(apart) else None

    def identity(self) -> dict[str, str | None]:
        # In the type that batches have, so that a memmap and an array of the same numbers are the same.
        blocks = (read_rows(self.rows, slice(*ends), dtype=self.dtype) for ends in row_blocks(self.rows))
        return {"points": f"of shape {tuple(self.rows.shape)}", "digest": digest_tensors(blocks)}


class _DatasetBatches:
    def __init__(
        self,
        dataset: Dataset[Any],
        batch_size: int,
        seed: int,
        dtype: torch.dtype | None,
        device: torch.device,
        shared: Processes,
        held_out: float | None = 0.0,
    ) -> None:
        if not hasattr(dataset, "__len__"):
            raise InputError("x", "expected a Dataset with a length; give a function that draws batches for a stream")
        is_bare = isinstance(dataset, TensorDataset) and not dataset.tensors
        n = 0 if is_bare else len(dataset)  # pyright: ignore[reportArgumentType]
        if n == 0:
            raise InputError("x", "expected at least one point, got an empty Dataset")
        self.dataset, self.dtype, self.device = dataset, dtype, device
        self.shape: torch.Size | None = None
        self.passes = _Passes(n, batch_size, seed, shared, held_out)

    def look(self, n: int) -> Tensor:
        return self._read(self.passes.look(n))

    def batch(self, number: int) -> Tensor:
        return self._read(self.passes.rows(number))

    def is_first_pass(self, number: int) -> bool:
        return self.passes.is_first(number)

    @property
    def count(self) -> int | None:
        return self.passes.n

    def held_out(self) -> Tensor | None:
        return self._read(self.passes.apart) if len(self.passes.apart) else None

    def identity(self) -> dict[str, str | None]:
        if isinstance(self.dataset, TensorDataset):
            rows = check_rows(self.dataset.tensors[0], "x", dtype=self.dtype)
            return _ArrayBatches(rows, 1, 0, self.dtype, None, self.passes.shared).identity()
        index = self.passes.look(_PROBES)
        digests = {digest_tensors([self._read(index)]) for _ in range(2)}
        name = f"from a {type(self.dataset).__name__} of length {self.passes.n}"
        return {"points": name, "digest": _only(digests)}

    def _read(self, index: Tensor) -> Tensor:
        points = torch.stack([self._point(i) for i in index.tolist()])
        return check_rows(points, "x", dtype=self.dtype, device=self.device)  # pyright: ignore[reportReturnType]

    def _point(self, i: int) -> Tensor:
        try:
            point = torch.as_tensor(first_part(self.dataset[i]))
        except Exception as error:
            raise InputError("x", f"item {i} of the Dataset cannot be read as an array: {first_line(error)}") from error
        self.shape = self.shape or point.shape
        if point.shape != self.shape:
            problem = f"has shape {tuple(point.shape)}, expected that of others, {tuple(self.shape)}"
            raise InputError("x", f"item {i} of the Dataset {problem}")
        return point


class _FreshBatches:
    def __init__(
        self,
        draw: Callable[[int, torch.Generator], Any],
        batch_size: int,
        seed: int,
        dtype: torch.dtype | None,
        device: torch.device,
        shared: Processes,
        held_out: float | None = 0.0,
    ) -> None:
        self.draw, self.batch_size, self.seed, self.is_held_out = draw, batch_size, seed, held_out != 0
        self.dtype, self.device, self.shared = dtype, device, shared

    def look(self, n: int) -> Tensor:
        return self._draw(n, derive_generator(self.seed, _LOOK))

    def is_first_pass(self, number: int) -> bool:
        return True

    def batch(self, number: int) -> Tensor:
        points = self._draw(self.batch_size, derive_generator(self.seed, _FRESH, number))
        return self.shared.take_part(points)

    @property
    def count(self) -> int | None:
        return None

    def held_out(self) -> Tensor | None:
        generator = derive_generator(self.seed, _HELD_OUT)
        return self._draw(_MOST_HELD_OUT, generator) if self.is_held_out else None

    def identity(self) -> dict[str, str | None]:
        return {
            "points": "drawn by a function",
            "digest": _only({digest_tensors([self.look(_PROBES)]) for _ in range(2)}),
        }

    def _draw(self, n: int, generator: torch.Generator) -> Tensor:
        try:
            drawn = self.draw(n, generator)
        except Exception as error:
            problem = f"the function failed when it was asked for {n} points with a generator: {first_line(error)}"
            raise InputError("x", problem) from error
        points = check_rows(drawn, "x", dtype=self.dtype, device=self.device)
        if len(points) != n or not isinstance(points, Tensor):
            raise InputError("x", f"the function was asked for {n} points and returned {len(points)}")
        return points


def _only(digests: set[str]) -> str | None:
    return digests.pop() if len(digests) == 1 else None
