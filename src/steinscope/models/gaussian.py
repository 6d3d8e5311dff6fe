"""Gaussians with exact score, log-density and samples."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from steinscope.errors import InputError
from steinscope.shapes import Points
from steinscope.support.checks import check_sample_size
from steinscope.support.randomness import Seed, make_generator
from steinscope.support.tensors import check_coordinates, check_numbers

__all__ = ["Gaussian"]


class Gaussian(nn.Module):
    r"""The Gaussian density $N(\mu, \Sigma)$, normalised. Its parameters can be trained.

    Arguments:
        mean: The mean, d numbers.
        covariance: The covariance matrix (d, d). Give this or `std`.
        std: The standard deviation of each coordinate: one number, or d numbers. The default is 1.

    Example:
        >>> model = Gaussian(torch.zeros(2), std=2.0)
        >>> model.score(torch.tensor([[4.0, 8.0]]))
        tensor([[-1., -2.]], grad_fn=<ViewBackward0>)
    """

    def __init__(self, mean: Any, covariance: Any = None, *, std: Any = None) -> None:
        super().__init__()
        mean = check_numbers("mean", mean)
        if mean.ndim != 1 or len(mean) == 0:
            raise InputError("mean", f"expected a vector of d numbers, got shape {tuple(mean.shape)}")
        if covariance is not None and std is not None:
            raise InputError("std", "give either covariance or std, got both")
        if covariance is None:
            scale = check_numbers("std", 1.0 if std is None else std).to(mean)
            if scale.shape not in ((), mean.shape) or not bool((scale > 0).all()):
                raise InputError("std", f"expected one positive number or {len(mean)} of them, got {std}")
            cholesky = torch.diag(scale.expand(len(mean)))
        else:
            covariance = check_numbers("covariance", covariance).to(mean)
            if covariance.shape != (len(mean), len(mean)):
                expected = (len(mean), len(mean))
                raise InputError("covariance", f"expected shape {expected}, got {tuple(covariance.shape)}")
            cholesky, info = torch.linalg.cholesky_ex(covariance)
            if int(info) or not torch.allclose(covariance, covariance.T, rtol=1e-4, atol=1e-6):
                raise InputError("covariance", "expected a symmetric positive definite matrix, and it is not")
        self.mean = nn.Parameter(mean.clone())
        # Factors come column by column, and safetensors wants rows.
        self.cholesky = nn.Parameter(cholesky.clone(memory_format=torch.contiguous_format))

    @property
    def covariance(self) -> Float[Tensor, "d d"]:
        """The covariance matrix."""
        lower = self.cholesky.tril()
        return lower @ lower.T

    def _whitened(self, x: Points) -> Float[Tensor, "d n"]:
        flat = check_coordinates(x, len(self.mean), "this model")
        return torch.linalg.solve_triangular(self.cholesky.tril(), (flat - self.mean).T, upper=False)

    def log_prob(self, x: Points) -> Float[Tensor, " n"]:
        """The log-density at each point, normalised."""
        log_det = self.cholesky.diagonal().abs().log().sum()
        return -0.5 * self._whitened(x).square().sum(0) - log_det - 0.5 * len(self.mean) * math.log(2 * math.pi)

    def score(self, x: Points) -> Points:
        """The gradient of the log-density at each point."""
        score = -torch.linalg.solve_triangular(self.cholesky.tril().T, self._whitened(x), upper=True).T
        return score.reshape(x.shape)

    @torch.no_grad()
    def sample(self, n: int, seed: Seed = 0) -> Float[Tensor, "n d"]:
        """n independent points."""
        n, generator = check_sample_size("n", n), make_generator(seed, self.mean.device, purpose="sample")
        noise = torch.randn(n, len(self.mean), generator=generator, dtype=self.mean.dtype, device=self.mean.device)
        return noise @ self.cholesky.tril().T + self.mean
