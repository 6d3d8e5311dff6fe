"""The aggregated KSD test over many bandwidths (Schrab, Guedj and Gretton 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from steinscope.errors import InputError
from steinscope.kernels.bootstrap import MOST_DRAWS, random_signs, u_statistics
from steinscope.kernels.stein_kernel import Sample, make_sample, stein_tiles
from steinscope.maps.radial import KernelName, median_distance, radial
from steinscope.metric import Coordinates
from steinscope.results import TestResult, check_finite
from steinscope.support.checks import check_count, check_level, check_number
from steinscope.support.jobs import run_jobs
from steinscope.support.randomness import make_generator

__all__ = ["ksdagg_test"]

FACTORS = tuple(2.0**k for k in range(-10, 3))


def ksdagg_test(
    x: Any,
    model: Any,
    *,
    support: Any = None,
    chains: bool | None = None,
    kernel: KernelName = "imq",
    factors: Sequence[float] = FACTORS,
    metric: Coordinates = "scaled",
    draws: int = 1000,
    alpha: float = 0.05,
    seed: int = 0,
    jobs: int | None = None,
) -> TestResult:
    """The KSD test over a collection of bandwidths, with its level corrected by the same wild bootstrap.

    Each bandwidth has its own bootstrap p-value. The statistic is the smallest of them, and its null distribution is
    that of the smallest p-value among the bootstrap draws, each ranked among all draws. With equal weights this is the
    correction of KSDAgg with one set of draws for quantiles and level, and it gives a p-value.

    Arguments:
        x: The points.
        model: An object with `score(x)` or `log_prob(x)`, or an array of scores at x.
        support: As in `gof_test`.
        chains: As in `ksd_test`.
        kernel: `"imq"` or `"gaussian"`.
        factors: The bandwidths, as multiples of the median distance.
        metric: The coordinates in which distances are measured, as in `ksd_test`.
        draws: How many bootstrap draws.
        alpha: The level.
        seed: The source of the signs.
        jobs: How many bandwidths run at once, as in `gof_test`; by default one after the other.

    Example:
        >>> from steinscope.models import Gaussian
        >>> x = Gaussian(torch.zeros(2)).sample(500)
        >>> right, wrong = Gaussian(torch.zeros(2)), Gaussian(torch.ones(2))
        >>> ksdagg_test(x, right).rejected, ksdagg_test(x, wrong).rejected
        (False, True)
    """
    alpha = check_level("alpha", alpha)
    if jobs is not None:
        jobs = check_count("jobs", jobs)
    if isinstance(factors, str) or not isinstance(factors, Sequence) or not factors:
        raise InputError("factors", f"expected one positive number or several, got {factors!r}")
    for factor in factors:
        check_number("factors", factor, over=0)
    check_count("draws", draws, most=MOST_DRAWS)
    sample = make_sample(x, model, metric, support, chains=chains)
    signs = random_signs(len(sample), draws, make_generator(seed, sample.x.device), sample.x.dtype, sample.batch)
    base = median_distance(sample.x)
    statistics = torch.stack(
        run_jobs([partial(_of_width, kernel, base * factor, sample, signs) for factor in factors], jobs)
    )
    check_finite("KSDAgg test", "statistic", float(statistics.sum()))
    ordered = statistics.sort(1).values
    # The share of draws at least as large, for the statistic and for each draw alike.
    shares = (draws + 1 - torch.searchsorted(ordered, statistics)).double() / (draws + 1)
    smallest = shares.min(0)
    best = factors[int(smallest.indices[0])]
    return TestResult(
        -float(smallest.values[0].log()),
        float((smallest.values <= smallest.values[0]).double().mean()),
        alpha,
        f"KSDAgg test, {kernel} kernel, {len(factors)} widths, smallest p-value at {best:g} median distances",
        len(sample),
        sample.dim,
        notes=sample.notes,
    )


def _of_width(kernel: KernelName, width: float, sample: Sample, signs: Tensor) -> Tensor:
    """The U-statistics of a bandwidth."""
    return u_statistics(stein_tiles(radial(kernel, width), sample), signs)
