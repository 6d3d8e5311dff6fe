"""Langevin dynamics in the paper's two forms, and MALA with acceptance."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from steinscope.densities import as_density
from steinscope.samplers.acceptance import accept, evaluated, known_log_prob, squared, with_log_prob
from steinscope.samplers.chains import Info, State, state_at
from steinscope.shapes import Points
from steinscope.support.checks import check_number
from steinscope.support.randomness import normal_rows
from steinscope.unconstrained import unconstrained_model

__all__ = ["MALA", "SGLD", "TemperedSGLD"]


@dataclass(frozen=True)
class TemperedSGLD:
    r"""The paper's tempered Langevin dynamics, $x + \epsilon s(x) + \sigma \cdot$ noise.

    It samples from the model only in the limit of small ε and with $\sigma^2 = 2\epsilon$. With smaller noise it looks
    for high density: at stationarity roughly from the density to the power $2\epsilon / \sigma^2$.

    Arguments:
        model: An object with `score(x)` or `log_prob(x)`.
        epsilon: The step size ε.
        sigma: The standard deviation σ of the noise.
        support: Where the model's density is positive, as in `gof_test`; by default what the model says. The chains
            then move in unconstrained coordinates, in which steps are measured, and never leave the support.
    """

    model: Any
    epsilon: float = 1.0
    sigma: float = 0.01
    support: Any = None

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, over=0)
        check_number("sigma", self.sigma, least=0)

    def begin(self, x: Points) -> State:
        """The state of chains at x."""
        return state_at(x, self.model, self.support)

    def __call__(self, state: State, generator: torch.Generator) -> tuple[State, Info]:
        """The next state."""
        x = state.x
        with torch.no_grad():
            score = as_density(unconstrained_model(self.model, state.coordinates)).score(x).detach()
        return replace(state, x=x + self.epsilon * score + self.sigma * normal_rows(x, generator)), Info()


@dataclass(frozen=True)
class SGLD:
    r"""Langevin dynamics without temperature, $x + \frac{\epsilon}{2} s(x) + \sqrt{\epsilon} \cdot$ noise.

    Its stationary distribution is the model's in the limit of small ε.

    Arguments:
        model: An object with `score(x)` or `log_prob(x)`.
        epsilon: The step size ε.
        support: Where the model's density is positive, as in `gof_test`; by default what the model says. The chains
            then move in unconstrained coordinates, in which steps are measured, and never leave the support.
    """

    model: Any
    epsilon: float = 0.01
    support: Any = None

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, over=0)

    def begin(self, x: Points) -> State:
        """The state of chains at x."""
        return state_at(x, self.model, self.support)

    def __call__(self, state: State, generator: torch.Generator) -> tuple[State, Info]:
        """The next state."""
        return TemperedSGLD(self.model, 0.5 * self.epsilon, math.sqrt(self.epsilon))(state, generator)


@dataclass(frozen=True)
class MALA:
    """Langevin dynamics with acceptance, whose stationary distribution is the model's whatever the step size.

    Arguments:
        model: An object with `log_prob(x)`, differentiable or beside `score(x)`.
        epsilon: The step size ε of the proposal, that of `SGLD`. Acceptance near 0.57 is a good choice.
        support: Where the model's density is positive, as in `gof_test`; by default what the model says. The chains
            then move in unconstrained coordinates, in which steps are measured, and never leave the support.
    """

    model: Any
    epsilon: float = 0.1
    support: Any = None

    def __post_init__(self) -> None:
        check_number("epsilon", self.epsilon, over=0)
        object.__setattr__(self, "model", with_log_prob(self.model))

    def begin(self, x: Points) -> State:
        """The state of chains at x."""
        return evaluated(self.model, state_at(x, self.model, self.support))

    def __call__(self, state: State, generator: torch.Generator) -> tuple[State, Info]:
        """The next state."""
        noise = normal_rows(state.x, generator)
        proposal = evaluated(self.model, replace(state, x=self._drift(state) + math.sqrt(self.epsilon) * noise))
        backward = squared(state.x - self._drift(proposal)) / (2 * self.epsilon)
        change = known_log_prob(proposal) - known_log_prob(state) + 0.5 * squared(noise) - backward
        return accept(state, proposal, change, generator)

    def _drift(self, state: State) -> Tensor:
        assert state.score is not None
        return state.x + 0.5 * self.epsilon * state.score
