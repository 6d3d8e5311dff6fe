"""Points with the model's scores at them, in unconstrained coordinates where the model has a support."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.densities import as_density, evaluating, model_of, placement
from steinscope.draws import Draws
from steinscope.errors import InputError
from steinscope.frames import Names, check_score_columns, coordinate_names, is_frame
from steinscope.points import (
    Rows,
    ScoredPoints,
    check_rows,
    read_rows,
    row_blocks,
    rows_device,
    rows_dtype,
    temporary_rows,
)
from steinscope.shapes import flattened
from steinscope.shards import Shards, is_dask, is_shards
from steinscope.supports import find_region
from steinscope.unconstrained import Unconstrained

__all__ = [
    "check_some_nonzero",
    "is_scores",
    "make_points",
    "pair_points",
    "score_points",
    "score_rows",
    "unconstrained_rows",
]

# The arrays of one batch stay within the processor's cache, or a few of them in memory.
_SCORE_BATCH_BYTES = 2**24


def make_points(
    x: Any,
    model: Any,
    *,
    support: Any = None,
    names: Sequence[str] | None = None,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    is_part: bool = False,
) -> ScoredPoints:
    """Checked points with the model's scores, each computed once, in unconstrained coordinates where it has a support.

    Arguments:
        x: The points, an array (n, ...), a data frame, a memmap, or `Draws`.
        model: An object with `score(x)` or `log_prob(x)`, or an array of scores at x; None for that of `Draws`.
        support: Where the density is positive; by default what the model says.
        names: What the coordinates are called; by default the columns of x where it is a data frame.
        dtype: The floating type to compute in; by default that of x.
        device: Where to compute; by default where x is.
        is_part: Whether there are more points than these, at all of which scores may be zero.
    """
    rows = check_rows(x, "x", dtype=dtype, device=device)
    dtype, place = dtype or rows_dtype(rows), rows_device(rows, device)
    # Draws have been scored already.
    model = x if isinstance(x, Draws) and model is x.density else model_of(x, model)
    region = find_region(support, model, rows.shape[1:])
    coordinates = None if region is None else Unconstrained(region)
    labels = coordinate_names(x, names, math.prod(rows.shape[1:]))
    return score_points(model, rows, coordinates, dtype=dtype, device=place, labels=labels, is_part=is_part)


def score_points(
    model: Any,
    x: Rows,
    coordinates: Unconstrained | None,
    *,
    dtype: torch.dtype,
    device: torch.device,
    name: str = "model",
    labels: Names = None,
    is_part: bool = False,
) -> ScoredPoints:
    """Points and scores from points that have been checked: the one place where both become unconstrained.

    Arguments:
        model: A model, or an array of scores at x.
        x: The points, as `check_rows` returns them.
        coordinates: The unconstrained coordinates, or None for those of x.
        dtype: The floating type to compute in.
        device: Where to compute.
        name: What the user calls the model.
        labels: What the user calls the coordinates, if anything.
        is_part: Whether there are more points than these, at all of which scores may be zero.
    """
    moved = x if coordinates is None else unconstrained_rows(x, coordinates, dtype=dtype, device=device)
    scores = score_rows(model, x, dtype=dtype, device=device, name=name, coordinates=coordinates, is_part=is_part)
    return ScoredPoints(moved, scores, dtype, device, names=labels, coordinates=coordinates)


def unconstrained_rows(x: Rows, coordinates: Unconstrained, *, dtype: torch.dtype, device: torch.device) -> Rows:
    """Points in unconstrained coordinates, on the disk where x is, or an `InputError` for the first one outside."""
    moved = _empty_rows(x, (len(x), *coordinates.shape), dtype, device)
    for start, stop in row_blocks(x):
        block = read_rows(x, slice(start, stop), device=device)
        coordinates.region.check(block, "x", start)
        _write(moved, start, coordinates.points(block.double()))
    return moved


def pair_points(
    x: Any,
    score: Any,
    *,
    support: Any = None,
    names: tuple[str, str] = ("x", "score"),
    like: ScoredPoints | None = None,
) -> ScoredPoints:
    """Checked points with scores that are there already.

    Arguments:
        x: The points.
        score: The model's score at each of them.
        support: Where the density is positive.
        names: What the user calls them.
        like: Points whose type and device these get.
    """
    rows = check_rows(x, names[0])
    dtype, device = (like.dtype, like.device) if like else (rows_dtype(rows), rows_device(rows))
    check_score_columns(x, score, names[1])
    scores = check_rows(score, names[1], dtype=dtype, device=device)
    if scores.shape != rows.shape:
        raise InputError(names[1], f"expected the shape of {names[0]}, {tuple(rows.shape)}, got {tuple(scores.shape)}")
    region = find_region(support, None, rows.shape[1:])
    if region is None:
        return ScoredPoints(rows, scores, dtype, device)
    coordinates = Unconstrained(region)
    try:
        moved = unconstrained_rows(rows, coordinates, dtype=dtype, device=device)
    except InputError as error:
        raise error.renamed(names[0]) from None
    return ScoredPoints(
        moved, _unconstrained_scores(scores, rows, coordinates, dtype), dtype, device, coordinates=coordinates
    )


def is_scores(model: Any) -> bool:
    """Whether a model was given by its scores: an array or a data frame of any library, shards, or `Draws`."""
    is_array = isinstance(model, Tensor | Shards | list | tuple) or hasattr(type(model), "__array__") or is_frame(model)
    return is_array or is_shards(model) or is_dask(model)


def score_rows(
    model: Any,
    x: Rows,
    *,
    dtype: torch.dtype,
    device: torch.device,
    batch_size: int | None = None,
    name: str = "model",
    coordinates: Unconstrained | None = None,
    is_part: bool = False,
) -> Rows:
    """The model's score at every row of x, computed once and batch by batch.

    Arguments:
        model: A model, or an array of scores at x.
        x: The points, as `check_rows` returns them.
        dtype: The floating type of the scores.
        device: The device of the scores.
        batch_size: How many points are scored at once; by default as many as take 16 MiB.
        name: What the user calls the model.
        coordinates: Unconstrained coordinates that the scores are to be in; those of x if it is None.
        is_part: Whether there are more points than these, at all of which scores may be zero.

    Returns:
        Scores of the shape of the points: a tensor, or a memmap on a temporary file where x is a memmap.
    """
    if isinstance(model, Draws):
        model = _scores_of(model, x, name)
    if is_scores(model):
        scores = check_rows(model, f"{name} (array of scores)", dtype=dtype, device=device)
        if scores.shape != x.shape:
            raise InputError(
                name, f"an array of scores must have the shape of x, {tuple(x.shape)}, got {tuple(scores.shape)}"
            )
        if coordinates is not None:
            scores = _unconstrained_scores(scores, x, coordinates, dtype)
        check_some_nonzero(is_part or _any_nonzero(scores), name, len(x))
        return scores
    try:
        density = as_density(model)
        model_dtype, model_device = placement(model, dtype, device)
        shape = x.shape if coordinates is None else (len(x), *coordinates.shape)
        scores = _empty_rows(x, shape, dtype, device)
        any_nonzero = False
        with evaluating(model):
            for start, stop in row_blocks(x, _SCORE_BATCH_BYTES, batch_size):
                batch = read_rows(x, slice(start, stop), dtype=model_dtype, device=model_device)
                score = _checked_score(density.score(batch), batch, start)
                if coordinates is not None:
                    score = coordinates.scores(coordinates.points(batch.double()), score)
                any_nonzero = any_nonzero or bool(score.any())
                _write(scores, start, score)
    except InputError as error:
        # A model does not know what the user calls it.
        raise error.renamed(name) from error.__cause__
    check_some_nonzero(is_part or any_nonzero, name, len(x))
    return scores


def _unconstrained_scores(scores: Rows, x: Rows, coordinates: Unconstrained, dtype: torch.dtype) -> Rows:
    """Scores at x that users hold, by the chain rule."""
    device = rows_device(scores)
    moved = _empty_rows(x, (len(x), *coordinates.shape), dtype, device)
    for start, stop in row_blocks(x):
        block, score = (read_rows(rows, slice(start, stop), device=device) for rows in (x, scores))
        _write(moved, start, coordinates.scores(coordinates.points(block.double()), score))
    return moved


def _empty_rows(x: Rows, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor | np.memmap:
    """Rows to write to: on the disk where x is, otherwise in memory."""
    return temporary_rows(shape, dtype) if not isinstance(x, Tensor) else torch.empty(shape, dtype=dtype, device=device)


def _write(rows: Tensor | np.memmap, start: int, block: Tensor) -> None:
    if isinstance(rows, Tensor):
        rows[start : start + len(block)] = block
    else:
        rows[start : start + len(block)] = block.cpu().numpy()


def _scores_of(draws: Draws, x: Rows, name: str) -> np.ndarray:
    """The scores of draws, which must be those at x."""
    points = draws.to_numpy()
    is_same = points.shape == tuple(x.shape) and np.allclose(points, np.asarray(torch.as_tensor(x).cpu()))
    if not is_same:
        raise InputError(name, "these draws are not x: their scores were computed at other points")
    return draws.score_rows


def _checked_score(score: Tensor, x: Tensor, start: int) -> Tensor:
    """A finite score of the shape of x, whose first row is row `start` of the user's points."""
    if score.shape != x.shape:
        raise InputError(
            "model",
            f"score(x) must be a tensor of the shape of x, {tuple(x.shape)}, got {tuple(score.shape)}; "
            "the score is the gradient of the log-density in x",
        )
    score = score.detach()
    finite = flattened(score.isfinite()).all(1)
    if not bool(finite.all()):
        row = int((~finite).nonzero()[0, 0])
        bad = score[row].flatten()
        value = float(bad[~bad.isfinite()][0])
        raise InputError("model", f"the score at row {start + row} of x is {value}; every score must be finite")
    return score


def _any_nonzero(scores: Rows) -> bool:
    return any(bool(read_rows(scores, slice(start, stop)).any()) for start, stop in row_blocks(scores))


def check_some_nonzero(any_nonzero: bool, name: str, n: int) -> None:
    """An `InputError` for a model whose score is zero everywhere.

    Arguments:
        any_nonzero: Whether any of its scores is not.
        name: What the user calls the model.
        n: How many points it was looked at.
    """
    if not any_nonzero:
        raise InputError(
            name,
            f"does not depend on x: its score is zero at all {n} points; if its density is constant on a bounded set, "
            "say which with support=",
        )
