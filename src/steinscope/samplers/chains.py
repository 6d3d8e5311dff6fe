r"""Markov chains: Langevin dynamics in the paper's two forms, MALA and HMC with acceptance, and block Gibbs.

A sampler takes a state and a generator to the next state and to information about the step. n chains run at once:
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

from steinscope.errors import InputError, NonFiniteError
from steinscope.shapes import Points
from steinscope.support.checks import check_count, check_steps
from steinscope.support.progress import progress_bar
from steinscope.support.randomness import Seed, make_generator
from steinscope.supports import find_region
from steinscope.unconstrained import Unconstrained

__all__ = ["Chains", "Info", "Sampler", "State", "mirrored_inside", "run_chains", "state_at"]

PerChain = Float[Tensor, " n"]


@dataclass(frozen=True)
class State:
    """The present points of the chains, with what the next step would otherwise compute again.

    Arguments:
        x: One row for each chain.
        log_prob: The log-density there, where the sampler needs it.
        score: The score there, where the sampler needs it.
        coordinates: The unconstrained coordinates that all of these are in, where the model has a support.
    """

    x: Points
    log_prob: PerChain | None = None
    score: Points | None = None
    coordinates: Unconstrained | None = None

    @property
    def original(self) -> Points:
        """Where the chains are as the user knows it."""
        return self.x if self.coordinates is None else self.coordinates.original(self.x)


def state_at(x: Points, model: Any, support: Any) -> State:
    """Chains at x, in unconstrained coordinates where the model has a support."""
    region = find_region(support, model, x.shape[1:])
    if region is None:
        return State(x)
    region.check(x, "x")
    coordinates = Unconstrained(region)
    return State(coordinates.points(x), coordinates=coordinates)


def mirrored_inside(x: Points, model: Any) -> Points:
    """Points that were drawn without regard to the model's support, mirrored at its edges where they lie outside."""
    region = find_region(None, model, x.shape[1:])
    return x if region is None else region.mirrored(x)


@dataclass(frozen=True)
class Info:
    """Information about a step.

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
class Chains:
    """The states of Markov chains after a run.

    Arguments:
        trajectory: The kept states, (kept, n, ...), on the CPU.
        steps: The step of each of them.
        state: The last state, to continue from; in unconstrained coordinates where the model has a support.
        acceptance: The share of steps that each chain accepted; NaN for samplers that always move.
    """

    trajectory: np.ndarray = field(repr=False)
    steps: np.ndarray
    state: State = field(repr=False)
    acceptance: np.ndarray = field(repr=False)

    @property
    def x(self) -> Tensor:
        """Where the chains ended."""
        return self.state.original


@torch.inference_mode(False)
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
    """A run of n Markov chains at once.

    Arguments:
        sampler: One of this module, or your own.
        x: Where the chains start, one in each row; or the `state` of earlier chains.
        steps: How many steps.
        every: Steps between two states that are kept; by default only the last one is kept.
        burn_in: Steps at the beginning that are not kept.
        seed: The source of all noise.
        progress: Whether to show a progress bar; by default on a terminal.

    Example:
        >>> from steinscope.models import Gaussian
        >>> from steinscope.samplers import MALA
        >>> chains = run_chains(MALA(Gaussian(torch.zeros(2)), 1.0), torch.zeros(500, 2), 50)
        >>> bool((chains.x.std(0) - 1).abs().max() < 0.15)
        True
    """
    check_steps("steps", steps)
    check_count("burn_in", burn_in, 0, steps - 1)
    if every is not None:
        check_count("every", every)
    if isinstance(sampler, type) or not callable(getattr(sampler, "begin", None)):
        raise InputError("sampler", f"expected a sampler such as MALA(model, step_size), got {sampler!r}")
    if not isinstance(x, State):
        if not isinstance(x, Tensor) or not x.is_floating_point() or x.ndim == 0 or not x.numel():
            came = f"shape {tuple(x.shape)} of {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
            raise InputError("x", f"expected a tensor with the start of a chain in each row, got {came}")
        # A clone, because autograd refuses tensors of inference mode.
        x = sampler.begin(x.detach().clone())
    state = x
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
                kept.append(state.original.cpu().numpy())
                numbers.append(step)
                advance(step, "")
    share = accepted / (math.nan if always_moves else steps)
    return Chains(np.stack(kept), np.array(numbers), state, share.cpu().numpy())
