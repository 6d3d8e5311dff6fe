"""Whether draws, scores and log-densities belong together."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from steinscope.densities import evaluating, log_prob_at, placement
from steinscope.errors import InputError
from steinscope.scoring import score_rows

__all__ = ["check_log_prob", "check_score_signs", "check_scores", "log_prob_of", "scores_of", "some_rows"]

_CHECKED = 10
# Pairs of near draws that say whether scores point uphill.
_PAIRED = 400


def scores_of(density: Any, points: np.ndarray) -> np.ndarray:
    """The scores of a density at points (n, d), in their type, whatever type the density computes in."""
    x = torch.from_numpy(points)
    return torch.as_tensor(score_rows(density, x, dtype=x.dtype, device=x.device, is_part=True)).numpy()


def log_prob_of(density: Any, points: np.ndarray) -> np.ndarray:
    """The log-density at points (n, d), in float64."""
    x = torch.from_numpy(points)
    dtype, device = placement(density, x.dtype, x.device)
    with evaluating(density), torch.no_grad():
        return log_prob_at(density, x.to(dtype=dtype, device=device)).detach().double().cpu().numpy()


def some_rows(x: np.ndarray) -> np.ndarray:
    """The places of ten draws among all of (chains, draws), spread evenly."""
    n = x.shape[0] * x.shape[1]
    return np.unique(np.linspace(0, n - 1, min(n, _CHECKED)).astype(int))


def check_log_prob(ours: np.ndarray, theirs: np.ndarray, argument: str = "model") -> None:
    """Two log-densities at the same draws are equal up to a constant, or an `InputError` says that they are not.

    Arguments:
        ours: The log-density of the model at some draws.
        theirs: What the sampler has recorded there.
        argument: What the user calls the model.
    """
    ours, theirs = np.asarray(ours, dtype=np.float64), np.asarray(theirs, dtype=np.float64)
    if _is_constant(ours - theirs, theirs):
        return
    if _is_constant(ours + theirs, theirs):
        raise InputError(argument, "its log-density has the opposite sign of the sampler's: was the energy given?")
    difference = ours - theirs
    raise InputError(
        argument,
        f"its log-density differs from the sampler's by {difference.min():.4g} at one draw and by "
        f"{difference.max():.4g} at another, expected one constant: is it the model, with the data, that was sampled?",
    )


def _is_constant(difference: np.ndarray, values: np.ndarray) -> bool:
    # Files with six digits and samplers that compute in float32 know a log-density to some 1e-6 of its size.
    return bool(np.ptp(difference) <= 1e-2 + 1e-5 * np.abs(values).max())


def check_scores(density: Any, x: np.ndarray, scores: np.ndarray, argument: str = "scores") -> None:
    """Scores are those of the density at ten of the draws, or an `InputError` says how they differ."""
    rows = some_rows(x)
    points, given = x.reshape(-1, x.shape[2])[rows], scores.reshape(-1, x.shape[2])[rows]
    expected = scores_of(density, points)
    size = np.abs(expected).max() + np.abs(given).max()
    if np.abs(given - expected).max() <= 1e-3 * size:
        return
    if np.abs(given + expected).max() <= 1e-3 * size:
        raise InputError(argument, _WRONG_SIGN)
    row, place = np.unravel_index(np.abs(given - expected).argmax(), given.shape)
    raise InputError(
        argument,
        f"at draw {rows[row]} the score of coordinate {place} is {given[row, place]:.4g}, and the gradient of the "
        f"log-density is {expected[row, place]:.4g}",
    )


_WRONG_SIGN = (
    "they point downhill: these are gradients of the energy (the potential energy, minus log-density), expected those "
    "of the log-density"
)


def check_score_signs(x: np.ndarray, scores: np.ndarray, log_prob: np.ndarray) -> None:
    """Scores point uphill, as far as values of the log-density at the draws can tell, or an `InputError`.

    Between two draws the log-density rises by about the mean of their scores along the way from one to the other,
    exactly so for a Gaussian.
    """
    flat, slope, height = x.reshape(-1, x.shape[2]), scores.reshape(-1, x.shape[2]), log_prob.reshape(-1)
    rows = np.linspace(0, len(flat) - 1, min(len(flat), _PAIRED)).astype(int)
    flat, slope, height = (values[rows].astype(np.float64) for values in (flat, slope, height))
    scaled = flat / np.maximum(flat.std(0), np.finfo(np.float64).tiny)
    squares = (scaled**2).sum(1)
    distance = squares[:, None] + squares - 2 * scaled @ scaled.T
    # Draws that a sampler has repeated say nothing.
    distance[distance <= 1e-9 * squares.max()] = np.inf
    near = distance.argmin(1)
    rise = height[near] - height
    expected = (0.5 * (slope + slope[near]) * (flat[near] - flat)).sum(1)
    size = np.sqrt((rise**2).sum() * (expected**2).sum())
    if size > 0 and (rise * expected).sum() < -0.5 * size:
        raise InputError("scores", _WRONG_SIGN)
