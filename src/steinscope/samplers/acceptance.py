"""What samplers with acceptance share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from steinscope.densities import as_density, log_prob_at, model_of
from steinscope.errors import InputError
from steinscope.samplers.chains import Info, State
from steinscope.shapes import flattened
from steinscope.support.randomness import uniform_rows
from steinscope.unconstrained import unconstrained_model

__all__ = ["accept", "evaluated", "known_log_prob", "squared", "with_log_prob"]


def evaluated(model: Any, state: State) -> State:
    """The state with log-density and score, in the coordinates of the state."""
    model, x = unconstrained_model(model, state.coordinates), state.x
    if callable(getattr(model, "score", None)):
        with torch.no_grad():
            return replace(state, log_prob=log_prob_at(model, x).detach(), score=as_density(model).score(x).detach())
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        log_prob = log_prob_at(model, x)
        (score,) = torch.autograd.grad(log_prob.sum(), x)
    return replace(state, x=x.detach(), log_prob=log_prob.detach(), score=score)


def accept(state: State, proposal: State, change: Tensor, generator: torch.Generator) -> tuple[State, Info]:
    """Metropolis and Hastings: accept each chain with probability min(1, exp(change)). A NaN is not accepted."""
    accepted = uniform_rows(change, generator).log() < change
    wide = accepted.view(-1, *[1] * (state.x.ndim - 1))
    assert proposal.score is not None and state.score is not None
    return (
        replace(
            state,
            x=torch.where(wide, proposal.x, state.x),
            log_prob=torch.where(accepted, known_log_prob(proposal), known_log_prob(state)),
            score=torch.where(wide, proposal.score, state.score),
        ),
        Info(accepted),
    )


def known_log_prob(state: State) -> Tensor:
    assert state.log_prob is not None
    return state.log_prob


def squared(x: Tensor) -> Tensor:
    return flattened(x).square().sum(1)


def with_log_prob(model: Any) -> Any:
    """A model that knows its log-density; one of another library is wrapped."""
    model = model_of(None, model)
    if not callable(getattr(model, "log_prob", None)):
        raise InputError("model", f"acceptance needs log_prob(x), and {type(model).__name__} has none")
    return model
