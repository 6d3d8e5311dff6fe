"""Which critics of the portfolio are used: by name from the registry, or a critic of the user's."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Literal

from torch import nn

from steinscope.critics.base import Critic
from steinscope.critics.network import as_critic
from steinscope.critics.rescaled import Rescaled
from steinscope.critics.solved import Features
from steinscope.errors import InputError
from steinscope.maps.features import InCoordinates
from steinscope.portfolio.features import FeatureLearner
from steinscope.portfolio.learner import Context, Learner, ValueLearner
from steinscope.portfolio.trained import CriticLearner
from steinscope.registries import CRITICS

__all__ = [
    "CLOSED_FORM",
    "CriticChoice",
    "Critics",
    "Purpose",
    "choose_critics",
    "critic_name",
    "estimate_learners",
    "is_closed_form",
    "is_made_of_sums",
    "make_learner",
    "may_be_absent",
]

CriticChoice = str | Critic


CLOSED_FORM = "closed form"
Purpose = Literal["test", "estimate", "ranking"]
Critics = str | Critic | nn.Module | Sequence[str | Critic | nn.Module]


def choose_critics(critics: Critics, model: Any, n: int, purpose: Purpose) -> list[CriticChoice]:
    """The critics that were asked for.

    Arguments:
        critics: `"auto"` for all that apply, `"closed form"` for those of them that are solved, a name of `CRITICS`, a
            critic or network, or several of them.
        model: The model, or its scores.
        n: How many points there are.
        purpose: What they are for.
    """
    if not isinstance(critics, str | nn.Module | Sequence):
        raise InputError("critics", f"expected names or critics of steinscope.critics, got {type(critics).__name__}")
    given = [critics] if isinstance(critics, str | nn.Module) else list(critics)
    if given in (["auto"], [CLOSED_FORM]):
        applying = [name for name, entry in CRITICS.items() if entry.applies(model, n, purpose)]
        return [name for name in applying if given == ["auto"] or CRITICS[name].is_closed_form]
    chosen = [as_critic(critic) if isinstance(critic, nn.Module) else critic for critic in given]
    if not chosen:
        raise InputError("critics", "expected at least one, got none")
    for critic in chosen:
        if isinstance(critic, Critic):
            continue
        if not isinstance(critic, str):
            raise InputError("critics", f"expected names or critics of steinscope.critics, got {type(critic).__name__}")
        if critic not in CRITICS:
            names = ", ".join(map(repr, CRITICS))
            raise InputError("critics", f"expected 'auto', {CLOSED_FORM!r} or some of {names}, got {critic!r}")
        entry = CRITICS[critic]
        if not entry.suits(model):
            raise InputError("critics", f"{critic!r} needs a model with {entry.needs}(x), and this one has none")
        if purpose != "test" and not issubclass(entry.load(), Learner):
            raise InputError("critics", f"{critic!r} is no vector field, so it is for tests alone")
    return chosen


def critic_name(critic: CriticChoice) -> str:
    """What results call it."""
    return critic if isinstance(critic, str) else type(critic).__name__


def is_closed_form(critic: CriticChoice) -> bool:
    """Whether it takes milliseconds, and so runs first."""
    return isinstance(critic, str) and CRITICS[critic].is_closed_form


def is_made_of_sums(critic: CriticChoice) -> bool:
    """Whether a test can learn it, after the first points, from sums over points alone."""
    if isinstance(critic, Critic):
        return isinstance(critic, Features)
    return CRITICS[critic].load().totals is not None


def may_be_absent(critic: CriticChoice) -> bool:
    """Whether it may turn out to have nothing to test."""
    return isinstance(critic, str) and CRITICS[critic].may_be_absent


def make_learner(critic: CriticChoice, context: Context) -> ValueLearner:
    """A fresh learner for a test."""
    if isinstance(critic, Critic):
        return _own_learner(critic, context)
    return CRITICS[critic].load().for_test(context)


def estimate_learners(critic: CriticChoice, context: Context) -> Sequence[Learner]:
    """Fresh learners for an estimate."""
    if isinstance(critic, Critic):
        return (_own_learner(critic, context),)
    return CRITICS[critic].load().for_estimate(context)


def _own_learner(critic: Critic, context: Context) -> Learner:
    """A critic of the user's takes points as the user knows them."""
    name = type(critic).__name__
    if isinstance(critic, Features):
        # A copy of the type of the points, as of critics that are trained.
        own = copy.deepcopy(critic.feature_map).to(dtype=context.dtype, device=context.metric.centre.device)
        learner = FeatureLearner(InCoordinates(own, context.metric))
        learner.name = name
        return learner
    return CriticLearner(Rescaled(critic, context.metric, context.shape), name, seed=context.seed)
