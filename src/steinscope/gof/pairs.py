r"""All pairs of points at once: U-statistics of the critics `mean`, `linear` and `kernel`, with the wild bootstrap.

The critic of a block is the average over earlier points x' of a field, and its Stein value at x the average of a Stein
kernel $u(x', x)$. A U-statistic is the average of u over all pairs, which no order divides into earlier and later ones.
It needs $n^2$ numbers, and has no central limit theorem: where the model is right its law is that of the same sum with
random signs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from steinscope.chains import Chains
from steinscope.errors import InputError
from steinscope.kernels.bootstrap import bootstrap_pvalue, random_signs
from steinscope.kernels.stein_kernel import Sample, combine, products
from steinscope.maps.radial import median_distance, radial
from steinscope.metric import Metric
from steinscope.points import ScoredPoints
from steinscope.portfolio.choice import CriticChoice
from steinscope.results import PairResult, TestResult, check_finite
from steinscope.support.randomness import make_generator

__all__ = ["LEAST_POINTS", "MOST_POINTS", "PAIR_CRITICS", "few_points_test", "fitted_note", "pair_tests"]

PAIR_CRITICS = ("mean", "linear", "kernel")
LEAST_POINTS, MOST_POINTS = 20, 2048
_DRAWS = 500
_FEW_POINTS_DRAWS = 2000
_FEW_POINTS = 200


def few_points_test(points: ScoredPoints, critics: Sequence[CriticChoice], alpha: float, seed: int) -> TestResult:
    """The test of points that are too few for a central limit theorem.

    Arguments:
        points: The points and the model's scores.
        critics: The critics that were asked for, of which those of `PAIR_CRITICS` are used.
        alpha: The level.
        seed: The source of the signs.
    """
    if len(points) < LEAST_POINTS:
        raise InputError("x", f"{len(points)} rows are too few for a test, which needs {LEAST_POINTS}")
    # Products of scores and coordinates are skewed, and the bootstrap of few of them rejects too often: of 20 points
    # from a skewed density in the plane .15 at level 5%. So the linear critic is used where it is all there is.
    names = [name for name in reversed(PAIR_CRITICS) if name in critics][:1]
    if not names:
        which = ", ".join(map(repr, PAIR_CRITICS))
        raise InputError("critics", f"of {len(points)} points, which are few, only {which} can test all pairs")
    (pair,) = pairs = pair_tests(points, names, seed)
    return TestResult(
        pair.statistic,
        pair.pvalue,
        alpha,
        "Stein test of all pairs",
        len(points),
        points.dim,
        notes=("for so few points critics do not learn: all pairs are tested, with the wild bootstrap",),
        pairs=pairs,
    )


def fitted_note(pairs: Sequence[PairResult]) -> str | None:
    """A note where the mean score is nearer to zero than with any of the random signs, as it is after a fit.

    That of new points is so once in as many cases as there are draws of signs, 500 at least, whatever the model.
    """
    if not any(pair.name == "mean" and pair.pvalue == 1 for pair in pairs):
        return None
    return (
        "the scores add up to zero more closely than at new points: if the model was fitted to these, the test is too "
        "lenient, and points that the model has not seen tell more"
    )


def pair_tests(
    points: ScoredPoints, critics: Sequence[str], seed: int, chains: Chains | None = None
) -> tuple[PairResult, ...]:
    """The test of each of these critics over all pairs.

    Arguments:
        points: The points and the model's scores, at most a few thousand.
        critics: Some of `PAIR_CRITICS`.
        seed: The source of the signs.
        chains: How the points are arranged in chains, where they are draws of them: then batches take the place of
            points, and those that follow each other make no pair.
    """
    # Units come from the points that are tested. By Stein's identity no score is correlated with the square of its
    # centred coordinate. It is with its own square: units of scores would bias the sum where scores are skewed.
    metric = Metric.scaled(*points.take(slice(None)))
    x, score = points.in_metric(metric).take(slice(None))
    sample = Sample(x, score)
    parts = products(sample, sample)
    draws = _DRAWS if len(sample) > _FEW_POINTS else _FEW_POINTS_DRAWS
    count = len(sample) if chains is None else chains.count * chains.slots
    signs = random_signs(count, draws, make_generator(seed, x.device, purpose="pairs"), x.dtype)
    matrices = {"mean": _mean_matrix, "linear": _linear_matrix, "kernel": _kernel_matrix}
    return tuple(_pair_test(name, _between(matrices[name](sample, *parts), chains), signs) for name in critics)


def _between(matrix: Tensor, chains: Chains | None) -> Tensor:
    """The matrix between different points, or the sums between batches that do not follow each other."""
    if chains is None:
        return matrix.fill_diagonal_(0.0)
    rows, places = chains.batches.to(matrix.device), chains.places.to(matrix.device)
    sums = matrix[rows.flatten()][:, rows.flatten()].reshape(*rows.shape, *rows.shape).sum((1, 3))
    return sums.masked_fill_((places[:, None] - places).abs() <= 1, 0.0)


def _pair_test(name: str, matrix: Tensor, signs: Tensor) -> PairResult:
    sums = torch.linalg.vecdot(matrix @ signs, signs, dim=0).double()
    # Where the model is right the sum has mean zero, and this variance.
    size = (2 * matrix.square().sum(dtype=torch.float64)).sqrt().clamp_min(1e-300)
    statistic = check_finite("Stein test of all pairs", f"statistic of {name}", float(sums[0] / size))
    return PairResult(name, statistic, bootstrap_pvalue(sums))


def _mean_matrix(sample: Sample, squared: Tensor, score_product: Tensor, cross: Tensor) -> Tensor:
    """The Stein kernel of the constant kernel, whose critic is the mean score."""
    return score_product.clone()


def _kernel_matrix(sample: Sample, squared: Tensor, score_product: Tensor, cross: Tensor) -> Tensor:
    return combine(radial("gaussian", median_distance(sample.x)), squared, score_product, cross, sample.x.shape[1])


def _linear_matrix(sample: Sample, squared: Tensor, score_product: Tensor, cross: Tensor) -> Tensor:
    r"""The Stein kernel of $k(x, y) = x \cdot y / \tau^2 + 1$, which is that of the critic $A x / \tau^2 + b$."""
    lengths, d = sample.x.square().sum(1), sample.x.shape[1]
    # Points that are all the same have no scale of their own; their coordinates are of unit scale.
    scale = float(lengths.mean() / d) or 1.0
    inner = (lengths[:, None] + lengths - squared) / (2 * scale)
    own = torch.linalg.vecdot(sample.x, sample.score)
    return score_product * (1 + inner) + (own[:, None] + own + d) / scale
