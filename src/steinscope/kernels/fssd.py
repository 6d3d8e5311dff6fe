"""The finite-set Stein discrepancy test (Jitkrittum et al. 2017)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from steinscope.kernels.bootstrap import MOST_DRAWS
from steinscope.kernels.stein_kernel import Sample, make_sample
from steinscope.maps.radial import median_distance
from steinscope.metric import Coordinates
from steinscope.results import TestResult, check_finite
from steinscope.support.checks import check_count, check_level, check_number, check_steps
from steinscope.support.randomness import make_generator

__all__ = ["fssd_test"]

MOST_LOCATIONS = 1000


@torch.inference_mode(False)
def fssd_test(
    x: Any,
    model: Any,
    *,
    support: Any = None,
    chains: bool | None = None,
    locations: int = 5,
    train_share: float = 0.2,
    steps: int = 100,
    lr: float = 0.05,
    metric: Coordinates = "scaled",
    draws: int = 3000,
    alpha: float = 0.05,
    seed: int = 0,
) -> TestResult:
    """The FSSD test: the Stein witness at a few locations, linear in n.

    Locations and the width of the Gaussian kernel are optimised for power on a part of the points; the others are
    tested. The null distribution is the weighted sum of chi-squares that the covariance of the features gives.

    Arguments:
        x: The points.
        model: An object with `score(x)` or `log_prob(x)`, or an array of scores at x.
        support: As in `gof_test`.
        chains: As in `gof_test`. Means of batches then take the place of single points.
        locations: How many locations.
        train_share: The share of the points that locations and width are optimised on.
        steps: How many steps of Adam.
        lr: The learning rate.
        metric: The coordinates in which distances are measured, as in `ksd_test`.
        draws: How many draws from the null distribution.
        alpha: The level.
        seed: The source of split, first locations and draws.

    Example:
        >>> from steinscope.models import Gaussian
        >>> x = Gaussian(torch.zeros(2)).sample(500)
        >>> right, wrong = Gaussian(torch.zeros(2)), Gaussian(torch.ones(2))
        >>> fssd_test(x, right).rejected, fssd_test(x, wrong).rejected
        (False, True)
    """
    alpha, train_share = check_level("alpha", alpha), check_level("train_share", train_share)
    check_count("locations", locations, most=MOST_LOCATIONS)
    check_steps("steps", steps)
    check_count("draws", draws, most=MOST_DRAWS)
    check_number("lr", lr, over=0)
    sample = make_sample(x, model, metric, support, least=10, chains=chains)
    generator = make_generator(seed, sample.x.device)
    train, test = sample.split(train_share, 5, generator)
    width, sites = _optimise(train, locations, steps, lr, generator)
    with torch.no_grad():
        features = _features(test, sites, width).double()
    features = features.reshape(-1, test.batch, features.shape[1]).mean(1)
    n, count = features.shape
    mean = features.mean(0)
    # The U-statistic: all pairs of different points.
    statistic = float((n * mean.square().sum() - features.square().sum(1).mean()) / ((n - 1) * count) * n)
    check_finite("FSSD test", "statistic", statistic)
    weights = torch.linalg.eigvalsh(torch.atleast_2d(torch.cov(features.T))).clamp_min(0.0) / count
    normals = torch.randn(draws, count, generator=generator, dtype=torch.float64, device=generator.device)
    null = (normals.square() - 1) @ weights
    return TestResult(
        statistic,
        float((1 + int((null >= statistic).sum())) / (1 + draws)),
        alpha,
        f"FSSD test, {locations} locations, {len(test)} of the points tested",
        len(sample),
        sample.dim,
        notes=sample.notes,
    )


def _features(sample: Sample, sites: Tensor, width: Tensor) -> Tensor:
    """The Stein features s(x) k(x, v) + ∇k(x, v) at all locations, as rows of d·J numbers."""
    difference = sample.x[:, None] - sites
    kernel = torch.exp(-0.5 * difference.square().sum(2) / width.square())
    return ((sample.score[:, None] - difference / width.square()) * kernel[..., None]).flatten(1)


def _power(features: Tensor) -> Tensor:
    n = len(features)
    mean = features.mean(0)
    value = (n * mean.square().sum() - features.square().sum(1).mean()) / (n - 1)
    spread = 2 * (features @ mean).std()
    return value / (spread + 1e-4)


def _optimise(
    sample: Sample, locations: int, steps: int, lr: float, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Width and locations: the best width of a grid at points drawn from a fitted Gaussian, then gradient steps."""
    n, d = sample.x.shape
    covariance = torch.cov(sample.x.T).reshape(d, d).double()
    # A coordinate that does not vary must not be without width.
    covariance.diagonal().add_(1e-3 * (float(covariance.diagonal().mean()) or 1.0))
    noise = torch.randn(locations, d, generator=generator, dtype=sample.x.dtype, device=generator.device)
    sites = noise @ torch.linalg.cholesky(covariance).T.to(noise) + sample.x.mean(0)
    base = median_distance(sample.x)
    widths = [torch.tensor(base * 2.0**k, dtype=sample.x.dtype, device=sample.x.device) for k in range(-3, 4)]
    width = max(widths, key=lambda width: float(_power(_features(sample, sites, width))))
    log_width, sites = width.log().requires_grad_(), sites.requires_grad_()
    optimiser = torch.optim.Adam([log_width, sites], lr=lr)
    for _ in range(steps):
        with torch.enable_grad():
            loss = -_power(_features(sample, sites, log_width.exp()))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    return log_width.detach().exp(), sites.detach()
