"""The Gaussian–Bernoulli restricted Boltzmann machine."""

from __future__ import annotations

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from steinscope.errors import InputError
from steinscope.maps.features import FeatureMap
from steinscope.support.checks import check_count, check_sample_size, check_steps
from steinscope.support.randomness import Seed, make_generator, normal_rows, uniform_rows
from steinscope.support.tensors import check_coordinates, check_numbers

__all__ = ["RBM", "TanhFeatures"]

MOST_ENUMERATED = 16


class RBM(nn.Module):
    r"""The density of x under a joint density with hidden signs h.

    $p(x, h) \propto \exp(\frac12 x^\top B h + b^\top x + c^\top h - \frac12\|x\|^2)$, with each h either -1 or 1.
    Summed over h it is $\exp(b^\top x - \frac12\|x\|^2) \prod_j 2\cosh(\frac12 B_j^\top x + c_j)$, so that the score is
    $b - x + \frac12 B \tanh(\frac12 B^\top x + c)$. The paper writes it without the halves.

    Arguments:
        weights: The matrix B, visible by hidden.
        visible: The vector b.
        hidden: The vector c.
    """

    def __init__(self, weights: Any, visible: Any, hidden: Any) -> None:
        super().__init__()
        weights, visible, hidden = (
            check_numbers(name, part).clone()
            for name, part in (("weights", weights), ("visible", visible), ("hidden", hidden))
        )
        if weights.ndim != 2 or visible.shape != weights.shape[:1] or hidden.shape != weights.shape[1:]:
            raise InputError(
                "RBM",
                "expected weights (d, h), visible (d) and hidden (h), "
                f"got {tuple(weights.shape)}, {tuple(visible.shape)} and {tuple(hidden.shape)}",
            )
        self.weights, self.visible, self.hidden = (
            nn.Parameter(part.to(weights)) for part in (weights, visible, hidden)
        )

    @classmethod
    def random(cls, dim: int, hidden: int, seed: Seed = 0) -> RBM:
        """The paper's random RBM: B of signs, b and c standard normal."""
        dim, hidden = check_count("dim", dim), check_count("hidden", hidden)
        generator = make_generator(seed)
        signs = torch.randint(2, (dim, hidden), generator=generator).float() * 2 - 1
        return cls(
            signs,
            torch.randn(dim, generator=generator, dtype=torch.float32),
            torch.randn(hidden, generator=generator, dtype=torch.float32),
        )

    def perturbed(self, scale: float, seed: Seed = 0) -> RBM:
        """The same RBM with Gaussian noise of this standard deviation added to B."""
        noise = torch.randn(self.weights.shape, generator=make_generator(seed), dtype=torch.float32).to(self.weights)
        return RBM(self.weights + scale * noise, self.visible, self.hidden)

    def _activation(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n h"]:
        x = check_coordinates(x, len(self.visible), "this model")
        return torch.addmm(self.hidden, x, self.weights, alpha=0.5)

    def log_prob(self, x: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """The log-density at each point, without the normalising constant."""
        activation = self._activation(x)
        # log 2 cosh a, without overflow.
        log_cosh = (functional.softplus(2 * activation) - activation).sum(1)
        return x @ self.visible - 0.5 * x.square().sum(1) + log_cosh

    def score(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """The gradient of the log-density at each point."""
        return torch.addmm(self.visible, torch.tanh(self._activation(x)), self.weights.T, alpha=0.5) - x

    @property
    def features(self) -> TanhFeatures:
        """The hidden units' means, tanh(½Bᵀx + c), as a feature map."""
        return TanhFeatures(0.5 * self.weights.detach().T, self.hidden.detach())

    @torch.no_grad()
    def gibbs(self, n: int, steps: int = 2000, seed: Seed = 0, start: Tensor | None = None) -> Float[Tensor, "n d"]:
        """The ends of n independent block-Gibbs chains.

        The chains need not mix: with strong weights they stay near where they started for very long.
        """
        n, steps = check_sample_size("n", n), check_steps("steps", steps, least=0)
        generator = make_generator(seed, self.weights.device, purpose="sample")
        like = {"generator": generator, "dtype": self.weights.dtype, "device": self.weights.device}
        x = torch.randn(n, len(self.visible), **like) if start is None else start
        for _ in range(steps):
            x = self.gibbs_step(x, generator)
        return x

    @torch.no_grad()
    def gibbs_step(self, x: Float[Tensor, "n d"], generator: torch.Generator) -> Float[Tensor, "n d"]:
        """One step of block Gibbs for each row of x: all hidden units given x, then x given them."""
        mean = torch.sigmoid(2 * self._activation(x))
        h = torch.where(uniform_rows(mean, generator) < mean, 1.0, -1.0).to(x.dtype)
        return torch.addmm(self.visible, h, self.weights.T, alpha=0.5) + normal_rows(x, generator)

    def _enumerate(self) -> tuple[Float[Tensor, "states h"], Float[Tensor, " states"]]:
        """All hidden states, and the log of p(h) times the normalising constant, in float64."""
        count = len(self.hidden)
        if count > MOST_ENUMERATED:
            raise InputError("RBM", f"{count} hidden units are too many to enumerate, at most {MOST_ENUMERATED}")
        numbers = torch.arange(2**count, device=self.weights.device)
        states = ((numbers[:, None] >> torch.arange(count, device=numbers.device)) & 1).double() * 2 - 1
        means = self.visible.double() + 0.5 * states @ self.weights.double().T
        constant = 0.5 * len(self.visible) * math.log(2 * math.pi)
        return states, states @ self.hidden.double() + 0.5 * means.square().sum(1) + constant

    def log_normaliser(self) -> Float[Tensor, ""]:
        """The log of the normalising constant of `log_prob`, by enumeration of the hidden states."""
        return self._enumerate()[1].logsumexp(0)

    @torch.no_grad()
    def sample(self, n: int, seed: Seed = 0) -> Float[Tensor, "n d"]:
        """n exact, independent points: h from its enumerated distribution, then x given h."""
        n, (states, log_weights) = check_sample_size("n", n), self._enumerate()
        generator = make_generator(seed, self.weights.device, purpose="sample")
        probabilities = log_weights.softmax(0).cumsum(0)
        uniform = torch.rand(n, generator=generator, dtype=torch.float64, device=self.weights.device)
        chosen = states[torch.searchsorted(probabilities, uniform).clamp_max(len(states) - 1)].to(self.weights.dtype)
        noise = torch.randn(
            n, len(self.visible), generator=generator, dtype=self.weights.dtype, device=self.weights.device
        )
        return torch.addmm(self.visible, chosen, self.weights.T, alpha=0.5) + noise


class TanhFeatures(FeatureMap):
    """Features tanh(a_k · x + c_k).

    Arguments:
        directions: The vectors a, one in each row.
        offsets: The numbers c.
    """

    def __init__(self, directions: Float[Tensor, "k d"], offsets: Float[Tensor, " k"]) -> None:
        super().__init__()
        self.directions: Tensor
        self.offsets: Tensor
        self.register_buffer("directions", directions)
        self.register_buffer("offsets", offsets)

    def forward(self, x: Float[Tensor, "n d"]) -> Float[Tensor, "n k"]:
        """The features of each point."""
        return torch.tanh(torch.addmm(self.offsets, x, self.directions.T))

    def value_and_divergence(
        self, x: Float[Tensor, "n d"], weights: Float[Tensor, "d k"]
    ) -> tuple[Float[Tensor, "n d"], Float[Tensor, " n"]]:
        """Value and divergence of x ↦ W φ(x)."""
        features = self(x)
        return features @ weights.T, (1 - features.square()) @ (self.directions * weights.T).sum(1)

    def sum_jacobian(self, x: Float[Tensor, "n d"]) -> tuple[Float[Tensor, "n k"], Float[Tensor, "d k"]]:
        """The features, and the sum of their derivatives."""
        features = self(x)
        return features, (1 - features.square()).sum(0) * self.directions.T
