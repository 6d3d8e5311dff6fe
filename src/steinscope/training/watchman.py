"""Who judges a model in training: score matching at points that no batch has, without any critic."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steinscope.densities import differentiable_score
from steinscope.maps.divergence import value_and_hutchinson
from steinscope.objectives.base import TrainingObjective
from steinscope.shapes import flattened
from steinscope.support.description import digest_tensors
from steinscope.support.randomness import derive_generator

__all__ = ["Look", "Watchman", "best_of"]

# The same random directions at every look, so that looks differ by what the model has learned alone.
_DIRECTIONS = 201
_PROBES = 4
_NOTHING = math.nan, math.nan
# Where rows of the history have the value at held-out points.
_HELD_OUT = 4


@dataclass(frozen=True)
class Look:
    """What held-out points say at a log point.

    Arguments:
        score_matching: Their score matching objective; smaller is better. NaN where the score has no derivative.
        score_matching_error: Its standard error.
        discrepancy: What the critic finds there, the penalised discrepancy; NaN where there is no critic.
        discrepancy_error: Its standard error.
    """

    score_matching: float
    score_matching_error: float
    discrepancy: float
    discrepancy_error: float


class Watchman:
    """Looks at a model now and then, and remembers the best that it has seen.

    Arguments:
        x: The held-out points.
        seed: The source of random directions.
    """

    def __init__(self, x: Tensor, seed: int) -> None:
        self.x, self.seed = x, seed
        self.best: dict[str, Tensor] | None = None
        self.best_step, self.best_value, self.looks_since = 0, math.inf, 0

    def identity(self) -> str:
        """What tells the held-out points from others."""
        return f"{len(self.x)} points with digest {digest_tensors([self.x])[:8]}"

    def look(self, model: Any, objective: TrainingObjective) -> Look:
        """Judge a model as it is."""

        def generator() -> torch.Generator:
            return derive_generator(self.seed, _DIRECTIONS, device=self.x.device)

        score, divergence = value_and_hutchinson(
            lambda y: differentiable_score(model, y), self.x, _PROBES, "rademacher", generator()
        )
        values = 0.5 * flattened(score.detach()).square().sum(1).double() + divergence.detach().double()
        # Where the divergence is nought everywhere, as in networks of ReLUs, score matching says nothing.
        matched = _mean_and_error(values) if bool(divergence.any()) else _NOTHING
        found = objective.held_out_discrepancy(model, self.x, generator())
        return Look(*matched, *(_NOTHING if found is None else _mean_and_error(found.detach().double())))

    def remember(self, step: int, value: float, state: dict[str, Tensor]) -> None:
        """Keep the parameters of a step if they are the best so far."""
        self.looks_since += 1
        if math.isfinite(value) and value < self.best_value:
            self.best_step, self.best_value, self.looks_since = step, value, 0
            self.best = {name: tensor.detach().clone() for name, tensor in state.items()}

    def state(self) -> dict[str, Any]:
        """What a checkpoint saves of it."""
        value = self.best_value if math.isfinite(self.best_value) else None
        return {"step": self.best_step, "value": value, "looks_since": self.looks_since, "best": self.best}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from what a checkpoint saved."""
        self.best_step, self.looks_since, self.best = state["step"], state["looks_since"], state["best"]
        self.best_value = math.inf if state["value"] is None else state["value"]


def best_of(watched: dict[str, Any] | None, history: list[list[float]]) -> tuple[int | None, dict[str, Tensor]]:
    """The best step of a run and its parameters; none where they are the last ones.

    The last step is a candidate wherever the run ends, but is not remembered, so that a run that goes on does not
    depend on where it was stopped.

    Arguments:
        watched: What the watchman saved, or None.
        history: The rows of the history.
    """
    if watched is None or not history or not math.isfinite(history[-1][_HELD_OUT]):
        return None, {}
    if watched["value"] is None or history[-1][_HELD_OUT] <= watched["value"]:
        return int(history[-1][0]), {}
    return watched["step"], watched["best"]


def _mean_and_error(values: Tensor) -> tuple[float, float]:
    error = float(values.std()) / math.sqrt(len(values)) if len(values) > 1 else math.nan
    return float(values.mean()), error
