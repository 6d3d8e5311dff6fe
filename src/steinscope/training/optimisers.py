"""Optimisers and schedules: Adam, or what the user makes of the model's parameters."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from steinscope.errors import InputError, first_line
from steinscope.settings import TrainSettings

__all__ = ["Optimisers"]


@dataclass(frozen=True)
class Optimisers:
    """How the optimisers of a run are made.

    Arguments:
        optimiser: A function of the model's parameters, such as `torch.optim.SGD` or a `functools.partial` of it, or an
            optimiser of these parameters; None for Adam.
        scheduler: A function of the optimiser that makes a schedule of `torch.optim.lr_scheduler`, or such a schedule;
            None for none.
    """

    optimiser: Any = None
    scheduler: Any = None

    def of_model(self, parameters: list[Tensor], settings: TrainSettings) -> torch.optim.Optimizer:
        """The optimiser of the model."""
        if self.optimiser is None:
            return _adam(parameters, settings, settings.lr, settings.weight_decay)
        made = self.optimiser
        if not isinstance(made, torch.optim.Optimizer):
            if not callable(made):
                raise InputError("optimiser", f"expected an optimiser or a function of parameters, got {made!r}")
            try:
                made = made(parameters)
            except Exception as error:
                raise InputError("optimiser", f"it cannot be made: {first_line(error)}") from error
            if not isinstance(made, torch.optim.Optimizer):
                raise InputError("optimiser", f"expected a torch optimiser, got {type(made).__name__}")
        if _needs_closure(made):
            problem = f"expected one whose step() needs no function of the loss, got {type(made).__name__}"
            raise InputError("optimiser", problem)
        held = {id(parameter) for group in made.param_groups for parameter in group["params"]}
        if held != {id(parameter) for parameter in parameters}:
            raise InputError("optimiser", "it was made for other parameters than those of the model")
        return made

    def of_auxiliary(self, parameters: list[Tensor], settings: TrainSettings) -> torch.optim.Optimizer:
        """The optimiser of the critic, which is always Adam."""
        rate = settings.lr if settings.auxiliary_lr is None else settings.auxiliary_lr
        return _adam(parameters, settings, rate, 0.0)

    def schedule(self, optimiser: torch.optim.Optimizer) -> Any:
        """The schedule of the model's learning rate, or None."""
        if self.scheduler is None:
            return None
        kind = torch.optim.lr_scheduler.LRScheduler
        made = self.scheduler if isinstance(self.scheduler, kind) else None
        if made is None:
            if not callable(self.scheduler):
                raise InputError(
                    "scheduler", f"expected a schedule or a function of the optimiser, got {self.scheduler!r}"
                )
            try:
                made = self.scheduler(optimiser)
            except Exception as error:
                raise InputError("scheduler", f"it cannot be made: {first_line(error)}") from error
        if not isinstance(made, kind) or isinstance(made, torch.optim.lr_scheduler.ReduceLROnPlateau):
            raise InputError("scheduler", f"expected a schedule that counts steps, got {type(made).__name__}")
        if made.optimizer is not optimiser:
            raise InputError("scheduler", "it was made for another optimiser than that of the run")
        return made

    def step_schedule(self, schedule: Any) -> None:
        """Let a schedule of the user's make a step."""
        try:
            schedule.step()
        except Exception as error:
            raise InputError("scheduler", f"it cannot make a step: {first_line(error)}") from error

    def settings(self) -> dict[str, str | None]:
        """What must stay the same when a run is resumed."""
        return {"optimiser": _name(self.optimiser), "scheduler": _name(self.scheduler)}


def _needs_closure(optimiser: torch.optim.Optimizer) -> bool:
    """Whether it must compute the loss itself, as LBFGS does."""
    parameters = inspect.signature(optimiser.step).parameters.values()
    return any(one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD for one in parameters)


def _name(made: Any) -> str | None:
    if made is None:
        return None
    made = getattr(made, "func", made)
    return getattr(made, "__qualname__", type(made).__qualname__)


def _adam(
    parameters: list[Tensor], settings: TrainSettings, lr: float | None, weight_decay: float
) -> torch.optim.Optimizer:
    betas = (settings.betas[0], settings.betas[1])
    rate = 1e-3 if lr is None else lr
    return torch.optim.Adam(parameters, lr=rate, betas=betas, weight_decay=weight_decay, fused=True)
