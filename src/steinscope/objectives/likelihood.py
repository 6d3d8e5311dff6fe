"""Maximum likelihood: for normalised models, and by samples of the model for others."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from steinscope.densities import log_prob_at
from steinscope.errors import InputError
from steinscope.objectives.base import TrainingObjective
from steinscope.samplers.chains import mirrored_inside
from steinscope.samplers.langevin import TemperedSGLD
from steinscope.shapes import Points, Scalar
from steinscope.support.checks import check_choice, check_count, check_number, check_steps
from steinscope.support.randomness import normal_rows
from steinscope.support.tensors import check_tensor

__all__ = ["ContrastiveDivergence", "GridLikelihood", "MaximumLikelihood", "grid_log_normaliser"]


_MOST_CELLS = 20_000


class MaximumLikelihood(TrainingObjective):
    """Minus the mean log-density. Only for models whose `log_prob` is normalised: nothing can check that."""

    def model_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """Minus the mean log-density."""
        return -log_prob_at(model, x).mean()


class GridLikelihood(TrainingObjective):
    """Maximum likelihood in two dimensions, with the normaliser summed over a grid.

    The grid is shifted at random at each step, so that its sum is an unbiased estimate of the normaliser.

    Arguments:
        low: The lower end of both axes.
        high: The upper end.
        size: Cells along each axis.
    """

    def __init__(self, low: float = -6.0, high: float = 6.0, size: int = 80) -> None:
        if not low < high or size < 2:
            raise InputError(
                "GridLikelihood", f"expected low < high and at least 2 cells, got {low}, {high} and {size}"
            )
        self.low, self.high, self.size = low, high, size

    def model_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """Minus the mean log-density plus the log of the normaliser."""
        shift = torch.rand(2, generator=generator, dtype=x.dtype, device=x.device)
        log_normaliser = grid_log_normaliser(model, self.low, self.high, self.size, like=x, shift=shift)
        return log_normaliser - log_prob_at(model, x).mean()


def grid_log_normaliser(
    model: Any,
    low: float = -8.0,
    high: float = 8.0,
    size: int = 500,
    *,
    like: Tensor | None = None,
    shift: Tensor | None = None,
) -> Scalar:
    """The log of the normaliser of a two-dimensional density, summed over the middles of the cells of a grid.

    Arguments:
        model: An object with `log_prob(x)`.
        low: The lower end of both axes.
        high: The upper end.
        size: Cells along each axis.
        like: A tensor whose type and device the grid has.
        shift: Where in its cell each point lies, from 0 to 1 along each axis; by default in the middle.

    Example:
        >>> from steinscope import from_log_prob
        >>> round(float(grid_log_normaliser(from_log_prob(lambda x: -0.5 * (x**2).sum(1))).exp()), 3)  # 2π
        6.283
    """
    low = check_number("low", low)
    high, size = check_number("high", high, over=low), check_count("size", size, 1, _MOST_CELLS)
    width = (high - low) / size
    like = torch.zeros((), dtype=torch.float32) if like is None else check_tensor("like", like)
    offsets = like.new_tensor([0.5, 0.5]) if shift is None else check_tensor("shift", shift)
    if offsets.shape != (2,):
        raise InputError("shift", f"expected two numbers, got shape {tuple(offsets.shape)}")
    axis = low + width * torch.arange(size, dtype=like.dtype, device=like.device)
    first, second = torch.meshgrid(axis + width * offsets[0], axis + width * offsets[1], indexing="ij")
    points = torch.stack([first.flatten(), second.flatten()], 1)
    values = torch.cat([log_prob_at(model, part) for part in points.split(2**16)])
    return values.logsumexp(0) + 2 * math.log(width)


class ContrastiveDivergence(TrainingObjective):
    """The gradient of the likelihood with the model's samples from a short Markov chain.

    The chain is `TemperedSGLD`: x + ε s(x) + σ noise. Started at the data it is contrastive divergence; started
    at noise it is short-run MCMC, as in figure 1 of the paper, whose samples look right while the density need not be;
    started where the last step's chains ended it is persistent.

    Arguments:
        steps: Steps of the chain.
        epsilon: The step size ε.
        sigma: The standard deviation σ of the noise; by default √(2ε), which is Langevin dynamics at temperature 1.
        start: `"data"`, `"noise"` (the Gaussian of the data's mean and standard deviations) or `"persistent"`.
        chains: How many persistent chains there are.
    """

    def __init__(
        self,
        steps: int = 10,
        epsilon: float = 0.01,
        *,
        sigma: float | None = None,
        start: Literal["data", "noise", "persistent"] = "data",
        chains: int = 1024,
    ) -> None:
        check_steps("steps", steps)
        check_number("epsilon", epsilon, over=0)
        check_choice("start", start, ("data", "noise", "persistent"))
        check_count("chains", chains)
        self.steps, self.epsilon, self.start, self.chains = steps, epsilon, start, chains
        self.sigma = math.sqrt(2 * epsilon) if sigma is None else check_number("sigma", sigma, least=0)
        self.auxiliary: nn.Module | None = None

    @property
    def unshareable(self) -> str:
        """Persistent chains belong to one process."""
        return "persistent chains cannot be shared by several processes" if self.start == "persistent" else ""

    def begin(self, model: Any, x: Points, generator: torch.Generator) -> None:
        """Keep the data's mean and scale, and start the persistent chains."""
        self.auxiliary = chains = _Chains(x, self.chains if self.start == "persistent" else 0, generator)
        if self.start == "persistent":
            chains.ends = mirrored_inside(chains.ends, model)

    def model_loss(self, model: Any, x: Points, generator: torch.Generator) -> Scalar:
        """Minus the mean log-density of the data plus that of the chains' ends."""
        return log_prob_at(model, self.sample(model, x, generator)).mean() - log_prob_at(model, x).mean()

    def sample(self, model: Any, x: Points, generator: torch.Generator) -> Points:
        """The ends of the chains, one for each point of x."""
        chains = self.auxiliary
        assert isinstance(chains, _Chains)
        if self.start == "data":
            return self._run(model, x, generator)
        if self.start == "noise":
            noise = chains.mean + chains.std * normal_rows(x, generator)
            return self._run(model, mirrored_inside(noise, model), generator)
        index = torch.randint(len(chains.ends), (len(x),), generator=generator, device=x.device)
        ends = self._run(model, chains.ends[index], generator)
        chains.ends[index] = ends
        return ends

    def _run(self, model: Any, x: Tensor, generator: torch.Generator) -> Tensor:
        sampler = TemperedSGLD(model, self.epsilon, self.sigma)
        state = sampler.begin(x)
        for _ in range(self.steps):
            state, _ = sampler(state, generator)
        # Where the model has a support, chains move in unconstrained coordinates.
        return state.original


class _Chains(nn.Module):
    """What a chain starts from. It has no parameters, but is saved with the rest."""

    def __init__(self, x: Tensor, count: int, generator: torch.Generator) -> None:
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.ends: Tensor
        self.register_buffer("mean", x.mean(0))
        self.register_buffer("std", x.std(0))
        self.register_buffer("ends", self.mean + self.std * normal_rows(x.new_empty(count, *x.shape[1:]), generator))
