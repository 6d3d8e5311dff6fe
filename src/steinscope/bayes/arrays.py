"""Draws and scores that are arrays already."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from steinscope.bayes.checks import check_log_prob, check_score_signs, check_scores, log_prob_of, some_rows
from steinscope.bayes.labels import entry_labels
from steinscope.densities import model_of
from steinscope.draws import Draws
from steinscope.errors import InputError, first_line
from steinscope.frames import check_names

__all__ = ["check_dims", "from_arrays"]


def from_arrays(
    draws: Any,
    scores: Any,
    *,
    dims: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    log_prob: Any = None,
    density: Any = None,
    diverging: Any = None,
) -> Draws:
    """`Draws` from arrays of draws and scores, or from dictionaries of arrays.

    Arguments:
        draws: The draws in unconstrained coordinates: an array, or a dictionary with an array for each variable.
        scores: The gradient of the log-density at each draw, in the same form.
        dims: What the first axes are: `("chain", "draw")`, `("draw", "chain")` or `("draw",)`; those after them are
            coordinates. By default an array with two axes is one chain, `("draw",)`, and one with more has
            `("chain", "draw")`. Needed for dictionaries.
        names: What the coordinates are called; by default `x[0]`, `x[1]` and so on, and in dictionaries after the
            variable, `theta[0]`.
        log_prob: The log-density at each draw, up to a constant, if known. Scores that point downhill are then refused.
        density: The posterior itself, an object with `score(x)` and `log_prob(x)`, if known. The scores, and the
            log-densities if there are any, are compared with it at ten draws.
        diverging: Which draws end a divergent trajectory, if known.

    Example:
        >>> draws = {"mu": np.zeros((4, 100)), "theta": np.ones((4, 100, 2))}
        >>> scores = {"mu": np.ones((4, 100)), "theta": np.ones((4, 100, 2))}
        >>> from_arrays(draws, scores, dims=("chain", "draw"))
        Draws(4 chains of 100 draws, 3 coordinates: mu, theta[0], theta[1])
    """
    x, labels, axes = _joined(draws, dims, "draws")
    slopes, other_labels, _ = _joined(scores, axes, "scores")
    if labels != other_labels and x.shape == slopes.shape:
        raise InputError("scores", f"expected the variables of the draws in their order, {labels}, got {other_labels}")
    values = None if log_prob is None else _in_chains(np.asarray(log_prob), axes, "log_prob")
    marks = None if diverging is None else _in_chains(np.asarray(diverging), axes, "diverging")
    known = None if density is None else model_of(None, density)
    called = tuple(labels or ()) if names is None else check_names(names, x.shape[2])
    made = Draws(x, slopes, called, values, known, marks)
    if known is not None:
        check_scores(known, made.x, made.scores)
    if made.log_prob is not None:
        check_score_signs(made.x, made.scores, made.log_prob)
        if callable(getattr(known, "log_prob", None)):
            _check_values(known, made, made.log_prob)
    return made


def _check_values(density: Any, draws: Draws, theirs: np.ndarray) -> None:
    rows = some_rows(draws.x)
    check_log_prob(log_prob_of(density, draws.to_numpy()[rows]), theirs.reshape(-1)[rows], "log_prob")


def check_dims(dims: Any, argument: str = "dims") -> tuple[str, ...]:
    """What the first axes of arrays of draws are."""
    axes = tuple(dims) if isinstance(dims, tuple | list) else (dims,)
    if axes not in (("chain", "draw"), ("draw", "chain"), ("draw",)):
        raise InputError(argument, f"expected ('chain', 'draw'), ('draw', 'chain') or ('draw',), got {dims!r}")
    return axes


def _joined(value: Any, dims: Any, argument: str) -> tuple[np.ndarray, list[str] | None, tuple[str, ...]]:
    """An array (chains, draws, d), the labels of its coordinates where there are any, and what its axes were."""
    if not isinstance(value, Mapping):
        try:
            array = np.asarray(value)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(
                argument, f"expected an array, got {type(value).__name__} ({first_line(error)})"
            ) from error
        if array.ndim < 2:
            raise InputError(argument, f"expected (draws, coordinates) or (chains, draws, ...), got {array.shape}")
        axes = check_dims(dims) if dims is not None else (("draw",) if array.ndim == 2 else ("chain", "draw"))
        return _flat(_in_chains(array, axes, argument)), None, axes
    if dims is None:
        raise InputError("dims", "needed for a dictionary of arrays: ('chain', 'draw'), ('draw', 'chain') or ('draw',)")
    if not value:
        raise InputError(argument, "expected at least one variable, got none")
    axes = check_dims(dims)
    parts = {str(name): _in_chains(np.asarray(array), axes, f"{argument}[{name!r}]") for name, array in value.items()}
    shapes = {part.shape[:2] for part in parts.values()}
    if len(shapes) > 1:
        raise InputError(argument, f"variables have different numbers of chains and draws: {sorted(shapes)}")
    labels = [label for name, part in parts.items() for label in entry_labels(name, part.shape[2:])]
    return np.concatenate([_flat(part) for part in parts.values()], axis=2), labels, axes


def _in_chains(array: np.ndarray, axes: tuple[str, ...], argument: str) -> np.ndarray:
    """Chains first, then draws."""
    if array.ndim < len(axes):
        raise InputError(argument, f"expected the axes {axes} first, got shape {array.shape}")
    if axes == ("draw",):
        return array[None]
    return array if axes == ("chain", "draw") else np.swapaxes(array, 0, 1)


def _flat(array: np.ndarray) -> np.ndarray:
    return array.reshape(*array.shape[:2], -1)
