"""Linear independent component analysis: a normalised model whose normaliser can be left out."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from steinscope.errors import InputError
from steinscope.support.checks import check_count, check_number, check_sample_size
from steinscope.support.randomness import Seed, make_generator
from steinscope.support.tensors import check_coordinates, check_numbers

__all__ = ["ICA", "UnnormalisedICA"]

Source = Literal["logistic", "laplace"]


class ICA(nn.Module):
    r"""The density of $x = W^{-1} z$ with independent sources: $\log q(x) = \sum_j \log p(w_j \cdot x) + \log|\det W|$.

    With Laplace sources the score jumps where a source is zero. The gradient in W of anything built on the score then
    misses what the jumps contribute, and training by scores goes wrong. So logistic sources are the default, and
    "laplace" is $p(z) \propto \exp(-\sqrt{z^2 + \varepsilon^2})$, which has no jump.

    Arguments:
        dim: The number of coordinates, and of sources.
        source: `"logistic"` or `"laplace"`.
        weights: The unmixing matrix W, (d, d). By default that of the paper: the mixing matrix is Gaussian, drawn again
            until its condition number is below `dim`.
        smoothing: ε of the smoothed Laplace density.
        seed: The source of the random matrix.
    """

    def __init__(
        self, dim: int, source: Source = "logistic", *, weights: Any = None, smoothing: float = 0.1, seed: Seed = 0
    ) -> None:
        super().__init__()
        dim, smoothing = check_count("dim", dim), check_number("smoothing", smoothing, over=0)
        weights = _random_unmixing(dim, seed) if weights is None else check_numbers("weights", weights)
        if weights.shape != (dim, dim):
            raise InputError("weights", f"expected a matrix of shape {(dim, dim)}, got {tuple(weights.shape)}")
        if not bool(torch.linalg.slogdet(weights.double()).logabsdet.isfinite()):
            raise InputError("weights", "expected a matrix that can be inverted, and it is singular")
        if source not in ("logistic", "laplace"):
            raise InputError("source", f'expected "logistic" or "laplace", got {source!r}')
        # An inverse comes column by column, and safetensors wants rows.
        self.weights = nn.Parameter(weights.clone(memory_format=torch.contiguous_format))
        self.source, self.smoothing = source, smoothing
        # The normaliser of the smoothed Laplace density is 2 ε K₁(ε), with K₁ a modified Bessel function.
        k1 = torch.special.modified_bessel_k1(torch.tensor(smoothing, dtype=torch.float64))
        self._log_normaliser = 0.0 if source == "logistic" else math.log(2 * smoothing * float(k1))

    def _sources(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        return check_coordinates(x, len(self.weights), "this model") @ self.weights.T

    def log_potential(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        r"""The log-density at each point without $\log|\det W|$, as an unnormalised model has it."""
        z = self._sources(x)
        if self.source == "logistic":
            values = -z - 2 * functional.softplus(-z)
        else:
            values = -(z.square() + self.smoothing**2).sqrt()
        return values.sum(1) - len(self.weights) * self._log_normaliser

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The log-density at each point, normalised."""
        return self.log_potential(x) + torch.linalg.slogdet(self.weights).logabsdet

    def score(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The gradient of the log-density at each point."""
        z = self._sources(x)
        if self.source == "logistic":
            return -torch.tanh(0.5 * z) @ self.weights
        return -(z * (z.square() + self.smoothing**2).rsqrt()) @ self.weights

    @torch.no_grad()
    def sample(self, n: int, seed: Seed = 0) -> Float[Tensor, "n d"]:
        """n independent points. Smoothed Laplace sources are drawn by rejection from Laplace ones."""
        n, generator = check_sample_size("n", n), make_generator(seed, self.weights.device, purpose="sample")
        like = {"generator": generator, "dtype": torch.float64, "device": self.weights.device}
        shape = (n, len(self.weights))
        if self.source == "logistic":
            z = torch.logit(torch.rand(shape, **like).clamp(1e-12, 1 - 1e-12))
        else:
            z = torch.empty(shape, dtype=torch.float64, device=self.weights.device)
            missing = torch.ones(shape, dtype=torch.bool, device=z.device)
            while bool(missing.any()):
                # A Laplace draw is kept with probability exp(|z| - √(z² + ε²)), which is at least exp(-ε).
                centred = torch.rand(shape, **like) - 0.5
                draw = -torch.sign(centred) * torch.log1p(-2 * centred.abs()).clamp_min(-700.0)
                kept = torch.rand(shape, **like).log() <= draw.abs() - (draw.square() + self.smoothing**2).sqrt()
                z = torch.where(missing & kept, draw, z)
                missing &= ~kept
        return torch.linalg.solve(self.weights.double(), z.T).T.to(self.weights.dtype)


def _random_unmixing(dim: int, seed: Seed) -> Tensor:
    generator = make_generator(seed)
    while True:
        mixing = torch.randn(dim, dim, generator=generator, dtype=torch.float64)
        if dim == 1 or float(torch.linalg.cond(mixing)) < dim:
            return torch.linalg.inv(mixing).float()


class UnnormalisedICA(nn.Module):
    r"""An ICA model whose `log_prob` leaves out $\log|\det W|$, for objectives that must not use it.

    Arguments:
        model: The model; its parameters are shared.
    """

    def __init__(self, model: ICA) -> None:
        super().__init__()
        self.model = model

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The log-density at each point, without the normalising constant."""
        return self.model.log_potential(x)

    def score(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The gradient of the log-density at each point."""
        return self.model.score(x)
