"""The maximum mean discrepancy test between points and samples of the model (Gretton et al. 2012)."""

from __future__ import annotations

from typing import Any, get_args

import torch
from torch import Tensor

from steinscope.errors import InputError
from steinscope.kernels.bootstrap import MOST_DRAWS
from steinscope.maps.radial import median_distance
from steinscope.metric import Metric, MetricName
from steinscope.points import check_rows, read_rows
from steinscope.results import TestResult
from steinscope.shapes import flattened
from steinscope.support.checks import check_choice, check_count, check_level, check_number
from steinscope.support.randomness import make_generator

__all__ = ["mmd_test"]

_TILE_ROWS = 2048


def mmd_test(
    x: Any,
    samples: Any,
    *,
    bandwidth: float | str = "median",
    metric: MetricName = "scaled",
    draws: int = 1000,
    alpha: float = 0.05,
    seed: int = 0,
) -> TestResult:
    """The quadratic MMD test with a Gaussian kernel and permutations. It needs samples from the model.

    Arguments:
        x: The points.
        samples: Samples from the model.
        bandwidth: A number in the units of the metric, or `"median"` for the median distance of both together.
        metric: The coordinates in which distances are measured: `"scaled"`, each in units of its standard deviation in
            both together; `"whitened"`, all of them uncorrelated; or `"identity"`, as they are.
        draws: How many permutations.
        alpha: The level.
        seed: The source of the permutations.

    Example:
        >>> from steinscope.models import Gaussian
        >>> x, others = (Gaussian(torch.zeros(2)).sample(300, seed) for seed in (0, 1))
        >>> mmd_test(x, others).rejected, mmd_test(x, others + 1.0).rejected
        (False, True)
    """
    alpha = check_level("alpha", alpha)
    check_count("draws", draws, most=MOST_DRAWS)
    check_choice("metric", metric, get_args(MetricName))
    first, second = (
        flattened(read_rows(check_rows(rows, name), slice(None))) for rows, name in ((x, "x"), (samples, "samples"))
    )
    if first.shape[1] != second.shape[1]:
        raise InputError("samples", f"expected {first.shape[1]} coordinates, as x has, got {second.shape[1]}")
    if min(len(first), len(second)) < 2:
        raise InputError("samples", "x and samples need at least 2 rows each")
    # In the wider of the two types, until they are in coordinates of unit scale.
    pooled = torch.cat([first, second.to(first.device)])
    pooled = Metric.named(metric, pooled, torch.zeros_like(pooled)).points(pooled)
    generator = make_generator(seed, pooled.device)
    # Shuffled before the median is taken, so that both samples have their share in it.
    if isinstance(bandwidth, str):
        check_choice("bandwidth", bandwidth, ("median",))
        bandwidth = median_distance(pooled[torch.randperm(len(pooled), generator=generator, device=pooled.device)])
    bandwidth = check_number("bandwidth", bandwidth, over=0)
    n, total = len(first), len(pooled)
    members = torch.zeros(total, draws + 1, dtype=pooled.dtype, device=pooled.device)
    members[:n, 0] = 1.0
    for column in range(1, draws + 1):
        members[torch.randperm(total, generator=generator, device=pooled.device)[:n], column] = 1.0
    statistics = _mmd(pooled, members, n, 0.5 / bandwidth**2)
    return TestResult(
        float(statistics[0]),
        float((statistics >= statistics[0]).double().mean()),
        alpha,
        f"MMD test, gaussian kernel of width {bandwidth:.3g}, {len(second)} samples of the model",
        n,
        first.shape[1],
    )


def _mmd(pooled: Tensor, members: Tensor, n: int, rate: float) -> Tensor:
    """The unbiased MMD² for each column of memberships, the kernel matrix taken in tiles of rows."""
    m = len(pooled) - n
    within = torch.zeros(members.shape[1], dtype=torch.float64, device=members.device)
    between, everything = torch.zeros_like(within), 0.0
    squares = pooled.square().sum(1)
    for start in range(0, len(pooled), _TILE_ROWS):
        rows = slice(start, start + _TILE_ROWS)
        kernel = torch.addmm(squares[rows, None], pooled[rows], pooled.T, alpha=-2).add_(squares).clamp_min_(0)
        kernel.mul_(-rate).exp_()
        kernel[torch.arange(len(kernel)), start + torch.arange(len(kernel))] = 0.0
        sums = (kernel @ members).double()
        inside = members[rows].double()
        within += (sums * inside).sum(0)
        between += (sums * (1 - inside)).sum(0)
        everything += float(kernel.double().sum())
    outside = everything - within - 2 * between
    return within / (n * (n - 1)) + outside / (m * (m - 1)) - 2 * between / (n * m)
