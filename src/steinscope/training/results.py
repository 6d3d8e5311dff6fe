"""What training returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from steinscope.objectives.base import TrainingObjective
from steinscope.support.files import json_ready
from steinscope.training.loop import COLUMNS, TrainState

__all__ = ["TrainHistory", "TrainResult", "run_notes"]


@dataclass(frozen=True)
class TrainHistory:
    """What happened in training, averaged between one log point and the next.

    Arguments:
        step: The step of each log point.
        model_loss: The mean loss of the model.
        auxiliary_loss: The mean auxiliary loss, for LSD minus the penalised discrepancy; NaN where there is none.
        gradient_norm: The mean norm of the gradient of the model's loss.
        held_out: Score matching at held-out points, smaller is better; NaN where there are none.
        held_out_error: Its standard error.
        discrepancy: What the critic finds at held-out points, the penalised discrepancy; NaN where there is neither.
        discrepancy_error: Its standard error.
    """

    step: np.ndarray
    model_loss: np.ndarray
    auxiliary_loss: np.ndarray
    gradient_norm: np.ndarray
    held_out: np.ndarray
    held_out_error: np.ndarray
    discrepancy: np.ndarray
    discrepancy_error: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "step", self.step.astype(np.int64))

    def to_dict(self) -> dict[str, list[float | None]]:
        """Lists of numbers, ready for JSON, in which NaN is None."""
        return json_ready({name: getattr(self, name).tolist() for name in COLUMNS})


@dataclass(frozen=True)
class TrainResult:
    """A trained model.

    Arguments:
        model: The model, the same object that was given.
        averaged: A copy of it with averaged parameters, if `average` was set.
        objective: The objective, with its critic or other auxiliary part.
        history: What happened.
        state: What `train` needs to continue from its last step: give it as `start`.
        best_step: The step of the model that is best on held-out points, which is the one returned; None if no points
            were held out.
        notes: What a reader should know of the run.
    """

    model: Any
    averaged: Any
    objective: TrainingObjective = field(repr=False)
    history: TrainHistory = field(repr=False)
    state: TrainState = field(repr=False)
    best_step: int | None = None
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists, ready for JSON. Parameters are left out."""
        return {
            "model": type(self.model).__name__,
            "objective": type(self.objective).__name__,
            "step": self.state.step,
            "best_step": self.best_step,
            "notes": list(self.notes),
            "settings": self.state.settings,
            "history": self.history.to_dict(),
        }

    def plot(self, axes: Any = None) -> Any:
        """Draw the losses against steps; returns the matplotlib figure."""
        from steinscope.plots import plot_training

        return plot_training(self, axes)

    def __str__(self) -> str:
        history, kind = self.history, f"{type(self.model).__name__} after {self.state.step} steps"
        last = f", loss {history.model_loss[-1]:.4g}" if len(history.step) else ""
        if self.best_step is not None:
            row = int(np.flatnonzero(history.step == self.best_step)[-1])
            value, error = history.held_out[row], history.held_out_error[row]
            last = f", held-out score matching {value:.4g} ± {error:.2g} at step {self.best_step}"
        return "\n".join([f"{kind} of {type(self.objective).__name__}{last}", *self.notes])


def run_notes(history: TrainHistory, best_step: int | None, stopped: str | None) -> tuple[str, ...]:
    """What a reader should know of a run.

    Arguments:
        history: What happened.
        best_step: The step of the model that is returned, where held-out points chose it.
        stopped: What ended the run before its last step, if anything did.
    """
    notes = []
    if stopped is not None:
        notes.append(f"The run was stopped by {stopped} at step {history.step[-1]}.")
    if best_step is None:
        if len(history.step) and np.isfinite(history.discrepancy[-1]) and not np.isfinite(history.held_out[-1]):
            notes.append(
                "The model's score has no derivative, so that held-out points cannot judge it: smooth activations, "
                "such as SiLU, are better here than ReLU."
            )
        return tuple(notes)
    best = int(np.flatnonzero(history.step == best_step)[-1])
    rise = history.held_out[-1] - history.held_out[best]
    if rise > 2 * history.held_out_error[best]:
        since = f"Held-out score matching was best at step {best_step}, whose model is returned, and rose by {rise:.3g}"
        notes.append(f"{since} until the end: more steps do not help.")
        if history.discrepancy[-1] < history.discrepancy[best]:
            notes.append("The critic did not see it: the discrepancy that it finds fell meanwhile.")
    return tuple(notes)
