"""Where rows lie together: pieces of files, and partitions of Dask."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from steinscope.cluster.pieces import FileRows
from steinscope.cluster.tasks import SCORES
from steinscope.errors import InputError
from steinscope.shards import dask_dtype

__all__ = ["Part", "Sources", "dask_parts", "file_parts"]


@dataclass(frozen=True)
class Part:
    """Rows that lie together.

    Arguments:
        x: Where the points are: `Pieces` of files, or a partition of Dask.
        score: Where the scores are, if there are any.
        label: What it is called in messages.
        start: The number of its first row.
        stop: The number after that of its last row.
    """

    x: Any
    score: Any
    label: str
    start: int = 0
    stop: int = 0


@dataclass(frozen=True)
class Sources:
    """Where rows are: their parts, the shape and type of a row, and how many there are, if that is known."""

    parts: list[Part]
    tail: tuple[int, ...]
    dtype: np.dtype
    count: int | None


def file_parts(x: Any, score: Any) -> Sources:
    rows = FileRows.of(x, "x")
    scores = None if score is None else FileRows.of(score, SCORES)
    if scores is not None and scores.shape != rows.shape:
        raise InputError("model", f"an array of scores must have the shape of x, {rows.shape}, got {scores.shape}")
    parts = [
        Part(piece := rows.cut(*bounds), None if scores is None else scores.cut(*bounds), str(piece), *bounds)
        for bounds in rows.bounds()
    ]
    if not parts or 0 in rows.shape:
        raise InputError("x", f"expected at least one row and one column, got shape {rows.shape}")
    return Sources(parts, rows.shape[1:], rows.dtype, rows.shape[0])


def dask_parts(x: Any, model: Any, has_scores: bool) -> Sources:
    dtype = dask_dtype(x, "x")
    points = _partitions(x)
    scores: list[Any] = [None] * len(points)
    if has_scores:
        dask_dtype(model, SCORES)
        # Arrays of known lengths may be divided in different ways.
        is_known = all(hasattr(rows, "numblocks") and not any(map(math.isnan, rows.shape)) for rows in (x, model))
        if is_known and x.shape != model.shape:
            raise InputError("model", f"an array of scores must have the shape of x, {x.shape}, got {model.shape}")
        scores = _partitions(model.rechunk({0: x.chunks[0]}) if is_known else model)
        if len(scores) != len(points):
            raise InputError("model", f"expected scores in {len(points)} partitions, as x is, got {len(scores)}")
    is_array = hasattr(x, "numblocks")
    tail = x.shape[1:] if is_array else (len(x.columns),) if x.ndim > 1 else ()
    parts = [Part(*sources, f"partition {number}") for number, sources in enumerate(zip(points, scores, strict=True))]
    count = x.shape[0] if is_array and not math.isnan(x.shape[0]) else None
    return Sources(parts, tuple(map(int, tail)), dtype, count)


def _partitions(value: Any) -> list[Any]:
    """The partitions of Dask, each with all columns of its rows, and none of them computed yet."""
    if not hasattr(value, "numblocks"):
        return list(value.to_delayed())
    return list(value.rechunk(dict.fromkeys(range(1, value.ndim), -1)).to_delayed().ravel())
