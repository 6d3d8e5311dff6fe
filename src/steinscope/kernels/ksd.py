"""The kernelised Stein discrepancy test (Liu et al. 2016; Chwialkowski et al. 2016), quadratic and linear in n."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from steinscope.chains import batch_scores
from steinscope.errors import InputError
from steinscope.kernels.bootstrap import bootstrap_pvalue, random_signs, u_statistics
from steinscope.kernels.stein_kernel import TILE_ROWS, Sample, make_sample, stein_kernel, stein_tiles
from steinscope.maps.radial import KernelName, median_distance, radial
from steinscope.metric import Coordinates
from steinscope.results import TestResult
from steinscope.support.checks import check_choice, check_count, check_level, check_number
from steinscope.support.jobs import run_jobs
from steinscope.support.normal import upper_tail
from steinscope.support.randomness import make_generator

__all__ = ["KSDEstimate", "choose_bandwidth", "ksd_estimate", "ksd_test", "linear_ksd_test"]

Bandwidth = float | str
_FACTORS = tuple(2.0**k for k in range(-5, 4))
_LEARNING_SHARE = 0.2


def ksd_test(
    x: Any,
    model: Any,
    *,
    support: Any = None,
    chains: bool | None = None,
    kernel: KernelName = "gaussian",
    bandwidth: Bandwidth = "median",
    metric: Coordinates = "scaled",
    draws: int = 1000,
    alpha: float = 0.05,
    seed: int = 0,
    jobs: int | None = None,
) -> TestResult:
    """The quadratic KSD test: a U-statistic with the wild bootstrap.

    Arguments:
        x: The points.
        model: An object with `score(x)` or `log_prob(x)`, or an array of scores at x.
        support: As in `gof_test`.
        chains: As in `gof_test`. The bootstrap then has one sign for each batch of draws, and pairs of draws from
            the same batch, or from two neighbouring batches, are left out.
        kernel: `"gaussian"` or `"imq"`, the inverse multiquadric of exponent one half.
        bandwidth: A number in the units of the metric, `"median"` for the median distance, or `"learned"`: the multiple
            of it with the most power on a fifth of the points, which are then left out of the test.
        metric: The coordinates in which distances are measured: `"scaled"`, each in units of its standard deviation;
            `"whitened"`, all of them uncorrelated; `"identity"`, as they are; or `"scores"`, each in units of one over
            its root mean square score. The last units are taken from the tested scores, so that the test rejects too
            often if scores are skewed and points are few.
        draws: How many bootstrap draws.
        alpha: The level.
        seed: The source of signs and of the split.
        jobs: The number of strips of 2048 rows of the matrix that run at once, as in `gof_test`; by default one after
            the other.

    Example:
        >>> from steinscope.models import Gaussian
        >>> x = Gaussian(torch.zeros(2)).sample(500)
        >>> right, wrong = Gaussian(torch.zeros(2)), Gaussian(torch.ones(2))
        >>> ksd_test(x, right).rejected, ksd_test(x, wrong).rejected
        (False, True)
    """
    alpha = check_level("alpha", alpha)
    if jobs is not None:
        jobs = check_count("jobs", jobs)
    sample = make_sample(x, model, metric, support, chains=chains)
    generator = make_generator(seed, sample.x.device)
    used, width = choose_bandwidth(sample, kernel, bandwidth, generator)
    signs = random_signs(len(used), draws, generator, used.x.dtype, used.batch)
    strips = [partial(_strip, kernel, width, used, signs, start) for start in range(0, len(used), TILE_ROWS)]
    statistics = torch.stack(run_jobs(strips, jobs)).sum(0)
    return TestResult(
        float(statistics[0]),
        bootstrap_pvalue(statistics),
        alpha,
        f"KSD test, {kernel} kernel of width {width:.3g}",
        len(sample),
        sample.dim,
        notes=sample.notes,
    )


def _strip(kernel: KernelName, width: float, sample: Sample, signs: Tensor, start: int) -> Tensor:
    """What the pairs of some rows with later ones add to the U-statistics."""
    return u_statistics(stein_tiles(radial(kernel, width), sample, starts=[start]), signs)


def linear_ksd_test(
    x: Any,
    model: Any,
    *,
    support: Any = None,
    chains: bool | None = None,
    kernel: KernelName = "gaussian",
    bandwidth: Bandwidth = "median",
    metric: Coordinates = "scaled",
    alpha: float = 0.05,
    seed: int = 0,
) -> TestResult:
    """The KSD test in linear time: the Stein kernel of disjoint pairs, whose mean is asymptotically normal.

    Arguments:
        x: The points.
        model: An object with `score(x)` or `log_prob(x)`, or an array of scores at x.
        support: As in `gof_test`.
        chains: As in `gof_test`. Pairs are then half of all draws apart, and sums of batches take the place of single
            values.
        kernel: `"gaussian"` or `"imq"`.
        bandwidth: As in `ksd_test`.
        metric: As in `ksd_test`.
        alpha: The level.
        seed: The source of the pairs and of the split.

    Example:
        >>> from steinscope.models import Gaussian
        >>> x = Gaussian(torch.zeros(2)).sample(500)
        >>> right, wrong = Gaussian(torch.zeros(2)), Gaussian(torch.ones(2))
        >>> linear_ksd_test(x, right).rejected, linear_ksd_test(x, wrong).rejected
        (False, True)
    """
    alpha = check_level("alpha", alpha)
    sample = make_sample(x, model, metric, support, chains=chains)
    generator = make_generator(seed, sample.x.device)
    used, width = choose_bandwidth(sample, kernel, bandwidth, generator)
    if used.places is None:
        used = used.rows(torch.randperm(len(used), generator=generator, device=generator.device))
    half = len(used) // (2 * used.batch) * used.batch
    pairs = pair_values(radial(kernel, width), used.rows(slice(half)), used.rows(slice(half, 2 * half))).double()
    if float(pairs.std()) == 0.0:
        raise InputError("x", f"the Stein kernel is the same for all {half} pairs of points, so that it has no error")
    if used.places is None:
        statistic = float(math.sqrt(half) * pairs.mean() / pairs.std())
    else:
        statistic = float(batch_scores(pairs[None].cpu().numpy(), used.batch)[0][0])
    return TestResult(
        statistic,
        upper_tail(statistic),
        alpha,
        f"Linear KSD test, {kernel} kernel of width {width:.3g}",
        len(sample),
        sample.dim,
        notes=sample.notes,
    )


@dataclass(frozen=True)
class KSDEstimate:
    """An estimate of the squared kernelised Stein discrepancy.

    Arguments:
        value: The estimate.
        stderr: Its standard error if the model is wrong; if it is right, the U-statistic is not normal.
        bandwidth: The width of the kernel.
    """

    value: float
    stderr: float
    bandwidth: float


def ksd_estimate(
    x: Any,
    model: Any,
    *,
    support: Any = None,
    estimator: Literal["quadratic", "linear"] = "quadratic",
    kernel: KernelName = "gaussian",
    bandwidth: Bandwidth = "largest",
    metric: Coordinates = "identity",
    seed: int = 0,
) -> KSDEstimate:
    """An estimate of the kernelised Stein discrepancy, for comparing models.

    Arguments:
        x: The points.
        model: An object with `score(x)` or `log_prob(x)`, or an array of scores at x.
        support: As in `gof_test`.
        estimator: `"quadratic"`, the U-statistic, or `"linear"`, the mean over disjoint pairs.
        kernel: `"gaussian"` or `"imq"`.
        bandwidth: A number in the units of the metric, `"median"`, or `"learned"` and `"largest"`: the multiple of it
            with the most power, or with the largest discrepancy, on a fifth of the points, which are then left out.
        metric: As in `ksd_test`. The discrepancy depends on the coordinates, and those of `"scores"` depend on the
            model, so that the default is `"identity"` here.
        seed: The source of the pairs and of the split.

    Example:
        >>> from steinscope.models import Gaussian
        >>> x = Gaussian(torch.zeros(2)).sample(500)
        >>> near, far = (ksd_estimate(x, Gaussian(torch.full((2,), shift))).value for shift in (0.2, 1.0))
        >>> near < far
        True
    """
    check_choice("estimator", estimator, ("quadratic", "linear"))
    sample = make_sample(x, model, metric, support)
    generator = make_generator(seed, sample.x.device)
    used, width = choose_bandwidth(sample, kernel, bandwidth, generator)
    phi = radial(kernel, width)
    if estimator == "linear":
        used = used.rows(torch.randperm(len(used), generator=generator, device=generator.device))
        half = len(used) // 2
        pairs = pair_values(phi, used.rows(slice(half)), used.rows(slice(half, 2 * half))).double()
        return KSDEstimate(float(pairs.mean()), float(pairs.std() / math.sqrt(half)), width)
    rows = torch.zeros(len(used), dtype=torch.float64, device=used.x.device)
    for a, b, tile in stein_tiles(phi, used):
        rows[a] += tile.sum(1).double()
        if a != b:
            rows[b] += tile.sum(0).double()
    rows /= len(used) - 1
    return KSDEstimate(float(rows.mean()), 2 * float(rows.std()) / math.sqrt(len(used)), width)


def pair_values(phi: Any, a: Sample, b: Sample) -> Tensor:
    """The Stein kernel of the first points of both samples, of the second points, and so on."""
    difference = a.x - b.x
    squared = difference.square().sum(1)
    value, first, second = phi(squared)
    cross = (difference * (b.score - a.score)).sum(1)
    products = (a.score * b.score).sum(1)
    return value * products + 2 * first * (cross - a.x.shape[1]) - 4 * second * squared


def choose_bandwidth(
    sample: Sample, kernel: KernelName, bandwidth: Bandwidth, generator: torch.Generator
) -> tuple[Sample, float]:
    """The points to test with, and the bandwidth."""
    if not isinstance(bandwidth, str):
        return sample, check_number("bandwidth", bandwidth, over=0)
    if bandwidth == "median":
        return sample, median_distance(sample.x)
    if bandwidth not in ("learned", "largest"):
        raise InputError("bandwidth", f'expected a number, "median", "learned" or "largest", got {bandwidth!r}')
    learning, testing = sample.split(_LEARNING_SHARE, 2, generator)
    base = median_distance(sample.x)
    widths = [base * factor for factor in _FACTORS]
    return testing, max(widths, key=lambda width: _quality(learning, kernel, width, bandwidth == "learned"))


def _quality(sample: Sample, kernel: KernelName, width: float, by_power: bool) -> float:
    """The U-statistic, or its power: the mean over its standard deviation under the alternative."""
    matrix = stein_kernel(radial(kernel, width), sample, sample).double()
    matrix.fill_diagonal_(0.0)
    rows = matrix.sum(1) / (len(sample) - 1)
    return float(rows.mean() / (rows.std() + 1e-12) if by_power else rows.mean())
