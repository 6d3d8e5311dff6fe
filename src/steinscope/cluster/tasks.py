"""What workers of a cluster do: they check partitions, and show their rows to visitors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.cluster.pieces import Pieces
from steinscope.errors import InputError
from steinscope.frames import frame_numbers
from steinscope.points import VISIT_ROWS, Extent, Rows, ScoredPoints, SumVisitor, check_rows, read_rows
from steinscope.scoring import score_points
from steinscope.shards import Shards
from steinscope.unconstrained import Unconstrained

__all__ = ["SCORES", "Setting", "Survey", "added", "look", "packed", "read", "survey", "written"]

SCORES = "model (array of scores)"


@dataclass(frozen=True)
class Setting:
    """What workers know about all points.

    Arguments:
        model: The model; None where there are scores.
        coordinates: The unconstrained coordinates, if there are any.
        tail: The shape of a point.
        dtype: The floating type of scores.
        x_dtype: The type of the numbers of x.
    """

    model: Any
    coordinates: Unconstrained | None
    tail: tuple[int, ...]
    dtype: torch.dtype
    x_dtype: np.dtype

    def opened(self, source: Any, name: str) -> Shards:
        """The rows of a partition."""
        if isinstance(source, Pieces):
            return source.open(name)
        numbers = frame_numbers(source, name) if hasattr(source, "columns") else np.asarray(source)
        return Shards([numbers.astype(self.x_dtype, copy=False) if name == "x" else numbers])

    def scored(self, x: Rows, score: Rows | None) -> ScoredPoints:
        """Points of a partition, with their scores or those of the model."""
        model = self.model if score is None else score
        return score_points(model, x, self.coordinates, dtype=self.dtype, device=torch.device("cpu"), is_part=True)


@dataclass(frozen=True)
class Survey:
    """What a worker says about a partition.

    Arguments:
        count: How many rows it has.
        extent: How far they reach.
        first: The first of them.
    """

    count: int
    extent: Extent
    first: Tensor


def survey(x: Any, score: Any, setting: bytes) -> bytes:
    """Check a partition, on a worker; None for one without rows.

    Errors are returned, because only the client knows what to call the partition.
    """
    known = _known(setting)
    try:
        rows = known.opened(x, "x")
        if not len(rows):
            return written(None)
        if rows.shape[1:] != known.tail:
            raise InputError("x", f"its rows have the shape {rows.shape[1:]}, expected {known.tail}")
        points = known.scored(
            check_rows(rows, "x"), None if score is None else check_rows(known.opened(score, SCORES), SCORES)
        )
        first = read_rows(points.x, slice(1))
        return written(Survey(len(rows), Extent.of(points), first))
    except InputError as error:
        return written(InputError(error.argument, error.problem))


def look(x: Any, score: Any, start: int, places: tuple[bytes, bool], setting: bytes, orders: bytes) -> SumVisitor:
    """Show rows of a partition to a visitor, on a worker."""
    # As for all work that is shared out: workers are as many as there are processors.
    torch.set_num_threads(1)
    known = _known(setting)
    visitor, metric, dtype = read(orders)
    points, scores = known.opened(x, "x"), None if score is None else known.opened(score, SCORES)
    for index in torch.from_numpy(_unpacked(*places, len(points))).split(VISIT_ROWS):
        batch = known.scored(read_rows(points, index), None if scores is None else read_rows(scores, index))
        taken = replace(batch, dtype=dtype, metric=metric).take(slice(None))
        visitor(index + start, *(rows.reshape(len(index), -1) for rows in taken))
    return visitor.brought()


def added(visitors: Sequence[SumVisitor]) -> SumVisitor:
    """What several visitors have seen, on a worker. None of them is changed, because it may be wanted again."""
    total = visitors[0].apart()
    for visitor in visitors:
        total.join(visitor)
    return total


def written(value: Any) -> bytes:
    import cloudpickle

    return cloudpickle.dumps(value)


def read(content: bytes) -> Any:
    import cloudpickle

    return cloudpickle.loads(content)


@lru_cache(maxsize=4)
def _known(content: bytes) -> Setting:
    """What a worker knows, which it reads once."""
    return read(content)


def packed(places: np.ndarray, count: int) -> tuple[bytes, bool]:
    """Numbers of rows in ascending order, as bits where there are many of them."""
    if len(places) * 32 < count:
        return places.astype(np.uint32 if count < 2**32 else np.uint64).tobytes(), False
    mask = np.zeros(count, dtype=bool)
    mask[places] = True
    return np.packbits(mask).tobytes(), True


def _unpacked(content: bytes, is_bits: bool, count: int) -> np.ndarray:
    if is_bits:
        return np.flatnonzero(np.unpackbits(np.frombuffer(content, np.uint8), count=count))
    return np.frombuffer(content, np.uint32 if count < 2**32 else np.uint64).astype(np.int64)
