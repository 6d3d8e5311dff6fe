"""Which critics of the portfolio are used: by name from the registry, or a critic of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steinscope.critics.base import Critic
from steinscope.errors import InputError
from steinscope.portfolio.learner import Learner
from steinscope.portfolio.trained import CriticLearner
from steinscope.registries import CRITICS

__all__ = ["CriticChoice", "choose_critics", "critic_name", "is_closed_form", "make_learner"]

CriticChoice = str | Critic


def choose_critics(critics: str | Critic | Sequence[CriticChoice], model: Any, n: int) -> list[CriticChoice]:
    """The critics that were asked for.

    Arguments:
        critics: `"auto"`, a name of `CRITICS`, a critic, or several of them.
        model: The model, or its scores.
        n: How many points there are.
    """
    chosen: list[CriticChoice] = [critics] if isinstance(critics, str | Critic) else list(critics)
    if chosen == ["auto"]:
        return [name for name, entry in CRITICS.items() if entry.applies(model, n)]
    if not chosen:
        raise InputError("critics", "expected at least one, got none")
    for critic in chosen:
        if isinstance(critic, Critic):
            continue
        if not isinstance(critic, str):
            raise InputError("critics", f"expected names or critics of steinscope.critics, got {type(critic).__name__}")
        if critic not in CRITICS:
            raise InputError("critics", f"expected 'auto' or some of {', '.join(map(repr, CRITICS))}, got {critic!r}")
        entry = CRITICS[critic]
        if not entry.suits(model):
            raise InputError("critics", f"{critic!r} needs a model with {entry.needs}(x), and this one has none")
    return chosen


def critic_name(critic: CriticChoice) -> str:
    """What results call it."""
    return critic if isinstance(critic, str) else type(critic).__name__


def is_closed_form(critic: CriticChoice) -> bool:
    """Whether it takes milliseconds, and so runs first."""
    return isinstance(critic, str) and CRITICS[critic].is_closed_form


def make_learner(critic: CriticChoice, model: Any, seed: int) -> Learner:
    """A fresh learner."""
    if isinstance(critic, Critic):
        return CriticLearner(critic, seed=seed)
    return CRITICS[critic].load().for_model(model, seed)
