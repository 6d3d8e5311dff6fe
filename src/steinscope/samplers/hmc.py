"""Hamiltonian Monte Carlo."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from steinscope.samplers.acceptance import accept, evaluated, known_log_prob, squared, with_log_prob
from steinscope.samplers.chains import Info, State, state_at
from steinscope.shapes import Points, flattened
from steinscope.support.checks import check_count, check_number
from steinscope.support.randomness import normal_rows, uniform_rows

__all__ = ["HMC"]

# The share by which the size of a step varies from trajectory to trajectory.
_JITTER = 0.2


@dataclass(frozen=True)
class HMC:
    """Hamiltonian Monte Carlo with the identity as mass matrix.

    Each chain draws its own step size for each trajectory, because trajectories of one length may be periodic: they
    come back to where they began and are always accepted (Neal 2011, section 3.2).

    Arguments:
        model: An object with `log_prob(x)`, differentiable or beside `score(x)`.
        step_size: The size of a leapfrog step; it is drawn from 0.8 to 1.2 times this. Acceptance near 0.65 is a good
            choice.
        leapfrogs: Leapfrog steps in each step of the chain.
        support: Where the model's density is positive, as in `gof_test`; by default what the model says. The chains
            then move in unconstrained coordinates, in which steps are measured, and never leave the support.
    """

    model: Any
    step_size: float = 0.1
    leapfrogs: int = 10
    support: Any = None

    def __post_init__(self) -> None:
        check_number("step_size", self.step_size, over=0)
        check_count("leapfrogs", self.leapfrogs)
        object.__setattr__(self, "model", with_log_prob(self.model))

    def begin(self, x: Points) -> State:
        """The state of chains at x."""
        return evaluated(self.model, state_at(x, self.model, self.support))

    def __call__(self, state: State, generator: torch.Generator) -> tuple[State, Info]:
        """The next state."""
        start = momentum = normal_rows(state.x, generator)
        each = uniform_rows(flattened(state.x)[:, 0], generator).view(-1, *[1] * (state.x.ndim - 1))
        size = self.step_size * (1 + _JITTER * (2 * each - 1))
        proposal = state
        for _ in range(self.leapfrogs):
            assert proposal.score is not None
            momentum = momentum + 0.5 * size * proposal.score
            proposal = evaluated(self.model, replace(proposal, x=proposal.x + size * momentum))
            assert proposal.score is not None
            momentum = momentum + 0.5 * size * proposal.score
        change = known_log_prob(proposal) - known_log_prob(state) + 0.5 * (squared(start) - squared(momentum))
        return accept(state, proposal, change, generator)
