"""Noise-contrastive estimation (Gutmann and Hyvärinen 2010) and its conditional form (Ceylan and Gutmann 2018)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from steinscope.densities import log_prob_at
from steinscope.models.gaussian import Gaussian
from steinscope.objectives.base import TrainingObjective
from steinscope.shapes import Points, Scalar, flattened
from steinscope.support.checks import check_count, check_number
from steinscope.support.randomness import normal_rows

__all__ = ["ConditionalNoiseContrast", "NoiseContrast"]


class NoiseContrast(TrainingObjective):
    r"""Tell data from noise by $\log q(x) - c - \log p_{noise}(x) - \log \nu$, with c the learned log-normaliser.

    The noise is a Gaussian with the data's mean and covariance, of which there are ν points for each data point.

    Arguments:
        ratio: How many noise points there are for each data point, ν.
    """

    def __init__(self, ratio: int = 1) -> None:
        check_count("ratio", ratio)
        self.ratio = ratio
        self.auxiliary: nn.Module | None = None

    def begin(self, model: Any, x: Points, generator: torch.Generator) -> None:
        """Fit the noise, and start the log-normaliser where data and noise are balanced."""
        noise = _Noise(x, self.ratio)
        with torch.no_grad():
            noise.log_normaliser.copy_((log_prob_at(model, x) - noise.log_prob(x)).mean())
        self.auxiliary = noise

    def model_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """The logistic loss of data against noise."""
        noise = self.auxiliary
        assert isinstance(noise, _Noise)
        loss = functional.softplus(-noise.log_odds(model, x)).mean()
        for _ in range(self.ratio):
            loss = loss + functional.softplus(noise.log_odds(model, noise.draw(x, generator))).mean()
        return loss


class _Noise(nn.Module):
    """A Gaussian fitted to the data, which is not trained, and the log-normaliser, which is."""

    def __init__(self, x: Points, ratio: int) -> None:
        super().__init__()
        self.log_ratio = math.log(ratio)
        flat = flattened(x).double()
        covariance = torch.atleast_2d(torch.cov(flat.T))
        covariance.diagonal().add_(1e-6 * covariance.diagonal().mean())
        gaussian = Gaussian(flat.mean(0), covariance).to(x)
        self.gaussian = gaussian.requires_grad_(False)
        self.log_normaliser = nn.Parameter(x.new_zeros(()))

    def log_prob(self, x: Points) -> torch.Tensor:
        return self.gaussian.log_prob(flattened(x))

    def log_odds(self, model: Any, x: Points) -> torch.Tensor:
        """The logarithm of how much more likely it is that points are data than that they are noise."""
        return log_prob_at(model, x) - self.log_normaliser - self.log_prob(x) - self.log_ratio

    def draw(self, like: Points, generator: torch.Generator) -> Points:
        noise = normal_rows(flattened(like), generator) @ self.gaussian.cholesky.T + self.gaussian.mean
        return noise.view(like.shape)


class ConditionalNoiseContrast(TrainingObjective):
    r"""Tell each point from itself with noise added, by $\log q(x) - \log q(x + \sigma\varepsilon)$.

    Arguments:
        sigma: The standard deviation σ of the noise.
        ratio: Noisy copies of each point.
    """

    def __init__(self, sigma: float = 1.0, ratio: int = 1) -> None:
        check_number("sigma", sigma, over=0)
        check_count("ratio", ratio)
        self.sigma, self.ratio = sigma, ratio

    def model_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """Twice the mean logistic loss of points against their noisy copies."""
        own = log_prob_at(model, x)
        losses = [
            functional.softplus(log_prob_at(model, x + self.sigma * normal_rows(x, generator)) - own).mean()
            for _ in range(self.ratio)
        ]
        return 2 * torch.stack(losses).mean()
