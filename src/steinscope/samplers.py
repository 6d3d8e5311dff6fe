r"""Markov chains: Langevin dynamics in the paper's two forms, MALA and HMC with acceptance, and block Gibbs.

A sampler takes a state and a generator to the next state and what there is to say about the step. n chains run at once:
each row of x is one. `run_chains` runs them and keeps the trajectory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from steinscope.densities import as_density
from steinscope.errors import InputError, NonFiniteError
from steinscope.models.rbm import RBM
from steinscope.progress import progress_bar
from steinscope.randomness import Seed, make_generator, normal_rows, uniform_rows

__all__ = ["HMC", "MALA", "SGLD", "Chains", "Gibbs", "Sampler", "State", "TemperedSGLD", "run_chains"]

Points = Float[Tensor, "n *shape"]
PerChain = Float[Tensor, " n"]


@dataclass(frozen=True)
class State:
    """Where the chains are, and what the next step would otherwise compute again.

    Arguments:
        x: One row for each chain.
        log_prob: The log-density there, where the sampler needs it.
        score: The score there, where the sampler needs it.
    """

    x: Points
    log_prob: PerChain | None = None
    score: Points | None = None


@dataclass(frozen=True)
class Info:
    """What there is to say about a step.

    Arguments:
        accepted: Which chains moved; None for samplers that always move.
    """

    accepted: Bool[Tensor, " n"] | None = None


@runtime_checkable
class Sampler(Protocol):
    """One step of n chains."""

    def begin(self, x: Points) -> State:
        """The state of chains at x."""
        ...

    def __call__(self, state: State, generator: torch.Generator) -> tuple[State, Info]:
        """The next state."""
        ...


@dataclass(frozen=True)
class TemperedSGLD:
    r"""The paper's tempered Langevin dynamics, $x + \epsilon s(x) + \sigma \cdot$ noise.

    It samples from the model only in the limit of small ε and with $\sigma^2 = 2\epsilon$. With smaller noise it looks
    for high density: at stationarity roughly from the density to the power $2\epsilon / \sigma^2$.

    Arguments:
        model: An object with `score(x)` or `log_prob(x)`.
        epsilon: The step size ε.
        sigma: The standard deviation σ of the noise.
    """

    model: Any
    epsilon: float = 1.0
    sigma: float = 0.01

    def __post_init__(self) -> None:
        _check_positive(epsilon=self.epsilon)
        if self.sigma < 0:
            raise InputError(f"sigma: expected a number from 0 on, got {self.sigma}")

    def begin(self, x: Points) -> State:
        """The state of chains at x."""
        return State(x)

    def __call__(self, state: State, generator: torch.Generator) -> tuple[State, Info]:
        """The next state."""
        x = state.x
        with torch.no_grad():
            score = as_density(self.model).score(x).detach()
        return State(x + self.epsilon * score + self.sigma * normal_rows(x, generator)), Info()


@dataclass(frozen=True)
class SGLD:
    r"""Langevin dynamics without temperature, $x + \frac{\epsilon}{2} s(x) + \sqrt{\epsilon} \cdot$ noise.

    Its stationary distribution is the model's in the limit of small ε.

    Arguments:
        model: An object with `score(x)` or `log_prob(x)`.
        epsilon: The step size ε.
    """

    model: Any
    epsilon: float = 0.01

    def __post_init__(self) -> None:
        _check_positive(epsilon=self.epsilon)

    def begin(self, x: Points) -> State:
        """The state of chains at x."""
        return State(x)

    def __call__(self, state: State, generator: torch.Generator) -> tuple[State, Info]:
        """The next state."""
        return TemperedSGLD(self.model, 0.5 * self.epsilon, math.sqrt(self.epsilon))(state, generator)


@dataclass(frozen=True)
class MALA:
    """Langevin dynamics with acceptance, whose stationary distribution is the model's whatever the step size.

    Arguments:
        model: An object with `log_prob(x)`, differentiable or beside `score(x)`.
        epsilon: The step size ε of the proposal, that of `SGLD`. Acceptance near 0.57 is a good choice.
    """

    model: Any
    epsilon: float = 0.1

    def __post_init__(self) -> None:
        _check_positive(epsilon=self.epsilon)
        _check_log_prob(self.model)

    def begin(self, x: Points) -> State:
        """The state of chains at x."""
        return _evaluated(self.model, x)

    def __call__(self, state: State, generator: torch.Generator) -> tuple[State, Info]:
        """The next state."""
        noise = normal_rows(state.x, generator)
        proposal = _evaluated(self.model, self._drift(state) + math.sqrt(self.epsilon) * noise)
        backward = _squared(state.x - self._drift(proposal)) / (2 * self.epsilon)
        change = _log_prob(proposal) - _log_prob(state) + 0.5 * _squared(noise) - backward
        return _accept(state, proposal, change, generator)

    def _drift(self, state: State) -> Tensor:
        assert state.score is not None
        return state.x + 0.5 * self.epsilon * state.score


@dataclass(frozen=True)
class HMC:
    """Hamiltonian Monte Carlo with the identity as mass matrix.

    Arguments:
        model: An object with `log_prob(x)`, differentiable or beside `score(x)`.
        step_size: The size of a leapfrog step. Acceptance near 0.65 is a good choice.
        leapfrogs: Leapfrog steps in each step of the chain.
    """

    model: Any
    step_size: float = 0.1
    leapfrogs: int = 10

    def __post_init__(self) -> None:
        _check_positive(step_size=self.step_size, leapfrogs=self.leapfrogs)
        _check_log_prob(self.model)

    def begin(self, x: Points) -> State:
        """The state of chains at x."""
        return _evaluated(self.model, x)

    def __call__(self, state: State, generator: torch.Generator) -> tuple[State, Info]:
        """The next state."""
        start = momentum = normal_rows(state.x, generator)
        proposal = state
        for _ in range(self.leapfrogs):
            assert proposal.score is not None
            momentum = momentum + 0.5 * self.step_size * proposal.score
            proposal = _evaluated(self.model, proposal.x + self.step_size * momentum)
            assert proposal.score is not None
            momentum = momentum + 0.5 * self.step_size * proposal.score
        change = _log_prob(proposal) - _log_prob(state) + 0.5 * (_squared(start) - _squared(momentum))
        return _accept(state, proposal, change, generator)


@dataclass(frozen=True)
class Gibbs:
    """Block Gibbs for an RBM: all hidden units given x, then x given them.

    Arguments:
        model: The RBM.
    """

    model: RBM

    def begin(self, x: Points) -> State:
        """The state of chains at x."""
        return State(x)

    def __call__(self, state: State, generator: torch.Generator) -> tuple[State, Info]:
        """The next state."""
        return State(self.model.gibbs_step(state.x, generator)), Info()


@dataclass(frozen=True)
class Chains:
    """What chains went through.

    Arguments:
        trajectory: The kept states, (kept, n, ...), on the CPU.
        steps: The step of each of them.
        state: The last state, to go on from.
        acceptance: The share of steps that each chain accepted; NaN for samplers that always move.
    """

    trajectory: np.ndarray = field(repr=False)
    steps: np.ndarray
    state: State = field(repr=False)
    acceptance: np.ndarray = field(repr=False)

    @property
    def x(self) -> Tensor:
        """Where the chains ended."""
        return self.state.x


def run_chains(
    sampler: Sampler,
    x: Points | State,
    steps: int,
    *,
    every: int | None = None,
    burn_in: int = 0,
    seed: Seed = 0,
    progress: bool | None = None,
) -> Chains:
    """Run n chains at once.

    Arguments:
        sampler: One of this module, or your own.
        x: Where the chains start, one in each row; or the `state` of earlier chains.
        steps: How many steps.
        every: Keep every so many-th state; by default only the last one.
        burn_in: Keep nothing of the first so many steps.
        seed: The source of all noise.
        progress: Whether to show a progress bar; by default on a terminal.

    Example:
        >>> from steinscope.models.gaussian import Gaussian
        >>> chains = run_chains(MALA(Gaussian(torch.zeros(2)), 1.0), torch.zeros(500, 2), 50)
        >>> bool((chains.x.std(0) - 1).abs().max() < 0.15)
        True
    """
    _check_positive(steps=steps, every=every or 1)
    if not 0 <= burn_in < steps:
        raise InputError(f"burn_in: expected a number from 0 to below the {steps} steps, got {burn_in}")
    state = x if isinstance(x, State) else sampler.begin(x.detach())
    generator = make_generator(seed, state.x.device)
    kept, numbers = [], []
    accepted = torch.zeros(len(state.x), dtype=torch.float64, device=state.x.device)
    always_moves = False
    with progress_bar("sampling", steps, progress) as advance:
        for step in range(1, steps + 1):
            state, info = sampler(state, generator)
            always_moves = info.accepted is None
            if info.accepted is not None:
                accepted += info.accepted
            if step == steps or (every is not None and step > burn_in and (step - burn_in) % every == 0):
                if not bool(state.x.isfinite().all()):
                    raise NonFiniteError(f"sampling: the chains left all bounds by step {step}; take smaller steps")
                kept.append(state.x.cpu().numpy())
                numbers.append(step)
                advance(step, "")
    share = accepted / (math.nan if always_moves else steps)
    return Chains(np.stack(kept), np.array(numbers), state, share.cpu().numpy())


def _evaluated(model: Any, x: Tensor) -> State:
    if callable(getattr(model, "score", None)):
        with torch.no_grad():
            return State(x, model.log_prob(x).detach(), model.score(x).detach())
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        log_prob = model.log_prob(x)
        (score,) = torch.autograd.grad(log_prob.sum(), x)
    return State(x.detach(), log_prob.detach(), score)


def _accept(state: State, proposal: State, change: Tensor, generator: torch.Generator) -> tuple[State, Info]:
    """Metropolis and Hastings: accept each chain with probability min(1, exp(change)). A NaN is not accepted."""
    accepted = uniform_rows(change, generator).log() < change
    wide = accepted.view(-1, *[1] * (state.x.ndim - 1))
    assert proposal.score is not None and state.score is not None
    return (
        State(
            torch.where(wide, proposal.x, state.x),
            torch.where(accepted, _log_prob(proposal), _log_prob(state)),
            torch.where(wide, proposal.score, state.score),
        ),
        Info(accepted),
    )


def _log_prob(state: State) -> Tensor:
    assert state.log_prob is not None
    return state.log_prob


def _squared(x: Tensor) -> Tensor:
    return x.flatten(1).square().sum(1)


def _check_log_prob(model: Any) -> None:
    if not callable(getattr(model, "log_prob", None)):
        raise InputError(f"model: acceptance needs log_prob(x), and {type(model).__name__} has none")


def _check_positive(**values: float) -> None:
    for name, value in values.items():
        if not value > 0:
            raise InputError(f"{name}: expected a positive number, got {value}")
