"""What training returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steinscope.objectives.base import TrainingObjective
from steinscope.support.files import json_ready
from steinscope.training.loop import TrainState

__all__ = ["TrainHistory", "TrainResult"]


@dataclass(frozen=True)
class TrainHistory:
    """What happened in training, averaged between one log point and the next.

    Arguments:
        step: The step of each log point.
        model_loss: The mean loss of the model.
        auxiliary_loss: The mean auxiliary loss, for LSD minus the penalised discrepancy; NaN where there is none.
        gradient_norm: The mean norm of the gradient of the model's loss.
    """

    step: np.ndarray
    model_loss: np.ndarray
    auxiliary_loss: np.ndarray
    gradient_norm: np.ndarray

    def to_dict(self) -> dict[str, list[float | None]]:
        """Lists of numbers, ready for JSON, in which NaN is None."""
        names = ("step", "model_loss", "auxiliary_loss", "gradient_norm")
        return json_ready({name: getattr(self, name).tolist() for name in names})


@dataclass(frozen=True)
class TrainResult:
    """A trained model.

    Arguments:
        model: The model, the same object that was given.
        averaged: A copy of it with averaged parameters, where averaging was asked for.
        objective: The objective, with its critic or other auxiliary part.
        history: What happened.
        state: What `train` needs to resume: give it as `start`.
    """

    model: Any
    averaged: Any
    objective: TrainingObjective = field(repr=False)
    history: TrainHistory = field(repr=False)
    state: TrainState = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists, ready for JSON. Parameters are left out."""
        return {
            "model": type(self.model).__name__,
            "objective": type(self.objective).__name__,
            "step": self.state.step,
            "settings": self.state.settings,
            "history": self.history.to_dict(),
        }

    def plot(self, axes: Any = None) -> Any:
        """Draw the losses against steps; returns the matplotlib figure."""
        from steinscope.plots import plot_training

        return plot_training(self, axes)

    def __str__(self) -> str:
        last = f", loss {self.history.model_loss[-1]:.4g}" if len(self.history.step) else ""
        return f"{type(self.model).__name__} after {self.state.step} steps of {type(self.objective).__name__}{last}"
