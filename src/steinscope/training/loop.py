"""The training loop: what changes from step to step, and what a checkpoint saves of it."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steinscope.errors import InputError, NonFiniteError
from steinscope.objectives.base import AuxiliaryObjective, TrainingObjective
from steinscope.settings import TrainSettings
from steinscope.support.randomness import derive_generator, normal_rows
from steinscope.training.batches import Batches
from steinscope.training.checkpoint import newest_step
from steinscope.training.distributed import Processes
from steinscope.unconstrained import Unconstrained, unconstrained_model

__all__ = ["Loop", "TrainState"]

_LOOK_ROWS = 100_000
# Streams of random numbers that must not meet.
_BEGIN, _AUXILIARY, _MODEL, _SMOOTHING = 1, 2, 3, 4
_SMOOTHING_SHARE = 0.8


@dataclass
class TrainState:
    """All that a run needs to resume, and all that a checkpoint saves. Random state is not part of it: the numbers of a
    step depend on the seed and the step alone.

    Arguments:
        step: How many steps of the model have been made.
        settings: The settings that must stay the same.
        model: The model's parameters and buffers.
        auxiliary: Those of the objective, or None.
        optimisers: The state of the model's optimiser and of the auxiliary one.
        average: The averaged parameters, or None.
        history: The rows of the history.
        data: What tells its points from others, or None where there are no checkpoints.
    """

    step: int
    settings: dict[str, Any]
    model: dict[str, Tensor] = field(repr=False)
    auxiliary: dict[str, Tensor] | None = field(repr=False)
    optimisers: list[dict[str, Any]] = field(repr=False)
    average: dict[str, Tensor] | None = field(repr=False)
    history: list[list[float]] = field(repr=False)
    data: dict[str, str | None] | None = None


class Loop:
    """One run: what changes from step to step."""

    def __init__(
        self,
        model: nn.Module,
        parameters: list[Tensor],
        objective: TrainingObjective,
        batches: Batches,
        objective_name: str,
        settings: TrainSettings,
        shared: Processes,
        data: dict[str, str | None] | None = None,
        coordinates: Unconstrained | None = None,
    ) -> None:
        if shared.count > 1 and objective.unshareable:
            raise InputError("objective", objective.unshareable)
        self.model, self.parameters, self.objective, self.objective_name = model, parameters, objective, objective_name
        self.batches, self.settings, self.shared, self.data = batches, settings, shared, data
        # Objectives see the model in the coordinates of the batches. What is saved and returned is the model itself.
        self.coordinates, self.seen_model = coordinates, unconstrained_model(model, coordinates)
        self.device = parameters[0].device
        shared.copy_from_first(parameters)
        self.objective_settings = {f"objective.{name}": value for name, value in objective.settings().items()}
        objective.begin(
            self.seen_model, batches.look(_LOOK_ROWS), derive_generator(settings.seed, _BEGIN, device=self.device)
        )
        auxiliary = objective.auxiliary
        self.auxiliary_parameters: list[Tensor] = (
            [] if auxiliary is None else [parameter for parameter in auxiliary.parameters() if parameter.requires_grad]
        )
        # How many steps on a loss of its own the auxiliary part makes. With none it is trained with the model.
        self.auxiliary_steps = 0
        if isinstance(objective, AuxiliaryObjective) and self.auxiliary_parameters:
            self.auxiliary_steps = objective.auxiliary_steps
        self.rates = [settings.lr, settings.lr if settings.auxiliary_lr is None else settings.auxiliary_lr]
        self.optimisers = [_adam(parameters, settings, settings.weight_decay)]
        if self.auxiliary_parameters:
            self.optimisers.append(_adam(self.auxiliary_parameters, settings, 0.0))
        is_averaged = settings.average is not None
        self.average = (
            {name: value.detach().clone() for name, value in model.named_parameters()} if is_averaged else None
        )
        self.step = 0
        self.rows: list[list[float]] = []
        self._reset_sums()

    def _reset_sums(self) -> None:
        """Sums since the last log point, and the first step at which each quantity was not finite. Both stay on the
        device until a log point looks at them."""
        self.sums = torch.zeros(3, dtype=torch.float64, device=self.device)
        self.bad = torch.full((3,), -1, device=self.device)

    @torch.enable_grad()
    def make_step(self) -> None:
        """Steps of the auxiliary part, then one of the model."""
        self.step += 1
        self._set_learning_rates()
        count = self.auxiliary_steps
        for number in range(count):
            assert isinstance(self.objective, AuxiliaryObjective)
            draw = (self.step - 1) * (count + 1) + number
            loss = self.objective.auxiliary_loss(self.seen_model, self._batch(draw), self._generator(_AUXILIARY, draw))
            self._descend(loss, self.auxiliary_parameters, self.optimisers[1:])
            self._add(2, loss.detach() / count)
        draw = (self.step - 1) * (count + 1) + count
        loss = self.objective.model_loss(self.seen_model, self._batch(draw), self._generator(_MODEL, draw))
        together = self.auxiliary_parameters if count == 0 else []
        optimisers = self.optimisers if count == 0 else self.optimisers[:1]
        gradients = self._descend(loss, self.parameters + together, optimisers)
        self._add(0, loss.detach())
        self._add(1, nn.utils.get_total_norm(gradients))
        if self.average is not None:
            # Young averages are short, so that the first parameters do not weigh on them.
            share = max(1 - (self.settings.average or 0.0), 9 / (10 + self.step))
            for average, value in zip(self.average.values(), self.model.parameters(), strict=True):
                average.lerp_(value.detach(), share)

    def _batch(self, draw: int) -> Tensor:
        """The points of a draw, smoothed by what is left of the noise at this step."""
        x = self.batches.batch(draw)
        noise = self.settings.noise
        if noise is None:
            return x
        left = max(0.0, 1 - (self.step - 1) / (_SMOOTHING_SHARE * self.settings.steps))
        return x + noise * left**2 * normal_rows(x, self._generator(_SMOOTHING, draw)) if left else x

    def _generator(self, stream: int, draw: int) -> torch.Generator:
        shared = self.shared
        return derive_generator(
            self.settings.seed, stream, draw, device=self.device, part=shared.rank, parts=shared.count
        )

    def _descend(self, loss: Tensor, parameters: list[Tensor], optimisers: list[torch.optim.Optimizer]) -> list[Tensor]:
        """Make one step along the gradients, and return them."""
        if not loss.requires_grad:
            raise InputError("model", "the loss does not depend on its parameters")
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.zeros_like(parameter) if gradient is None else gradient
        present = [parameter.grad for parameter in parameters if parameter.grad is not None]
        self.shared.average(present)
        for optimiser in optimisers:
            optimiser.step()
        for parameter in parameters:
            parameter.grad = None
        return present

    def _add(self, which: int, value: Tensor) -> None:
        self.sums[which] += value
        is_first = ~value.isfinite() & (self.bad[which] < 0)
        self.bad[which] = torch.where(is_first, self.step, self.bad[which])

    def _set_learning_rates(self) -> None:
        done = min(1.0, (self.step - 1) / self.settings.steps)
        factor = 0.5 * (1 + math.cos(math.pi * done)) if self.settings.lr_decay else 1.0
        for optimiser, rate in zip(self.optimisers, self.rates, strict=False):
            optimiser.param_groups[0]["lr"] = factor * rate

    def log(self, checkpoint: str | Path | None) -> dict[str, float]:
        """Look at the sums, stop if something is not finite, and write a row of the history."""
        self._check_finite(checkpoint)
        last = int(self.rows[-1][0]) if self.rows else 0
        self.shared.average([self.sums])
        loss, norm, auxiliary = (self.sums / max(1, self.step - last)).tolist()
        row = [float(self.step), loss, auxiliary if self.auxiliary_steps else math.nan, norm]
        self.rows.append(row)
        self._reset_sums()
        return dict(zip(("step", "model_loss", "auxiliary_loss", "gradient_norm"), row, strict=True))

    def _check_finite(self, checkpoint: str | Path | None) -> None:
        steps = self.bad.tolist()
        # A bad gradient of the auxiliary part shows in its next loss, or in its parameters.
        names = ("the model's loss", "the model's gradient", "the auxiliary loss")
        found = [(step, name) for step, name in zip(steps, names, strict=True) if step >= 0]
        every = [*self.parameters, *self.auxiliary_parameters]
        if not found and not bool(torch.stack([value.detach().isfinite().all() for value in every]).all()):
            found = [(self.step, "a parameter")]
        if found:
            step, name = min(found, key=lambda item: item[0])
            good = newest_step(checkpoint) if checkpoint is not None else None
            where = f"the last good checkpoint is step {good} in {checkpoint}" if good else "there is no checkpoint"
            raise NonFiniteError(f"training: {name} turned non-finite at step {step}; {where}; a smaller lr may help")

    def state(self) -> TrainState:
        """A copy of all that is needed to resume."""
        auxiliary = self.objective.auxiliary
        return TrainState(
            step=self.step,
            settings=self._fixed(),
            model=_copied(self.model.state_dict()),
            auxiliary=None if auxiliary is None else _copied(auxiliary.state_dict()),
            optimisers=copy.deepcopy([optimiser.state_dict() for optimiser in self.optimisers]),
            average=None if self.average is None else _copied(self.average),
            history=[list(row) for row in self.rows],
            data=self.data,
        )

    def _fixed(self) -> dict[str, Any]:
        support = None if self.coordinates is None else str(self.coordinates)
        fixed = {"objective": self.objective_name, "support": support}
        return {**fixed, **self.objective_settings, **self.settings.fixed()}

    def restore(self, state: TrainState) -> None:
        """Resume from a state, after looking whether it belongs to this model and these settings."""
        here, there = self._fixed(), state.settings
        for key in (*here, *there):
            if here.get(key) != there.get(key):
                raise InputError(
                    key,
                    f"the run to resume was made with {there.get(key)!r}, got {here.get(key)!r}; "
                    "use the same settings or another directory",
                )
        _check_same(self.model.state_dict(), state.model, "model")
        auxiliary = self.objective.auxiliary
        _check_same({} if auxiliary is None else auxiliary.state_dict(), state.auxiliary or {}, "objective")
        self.model.load_state_dict(state.model)
        if auxiliary is not None and state.auxiliary is not None:
            auxiliary.load_state_dict(state.auxiliary)
        for optimiser, saved in zip(self.optimisers, state.optimisers, strict=True):
            optimiser.load_state_dict(copy.deepcopy(saved))
        if self.average is not None and state.average is not None:
            for name, value in self.average.items():
                value.copy_(state.average[name])
        self.step, self.rows = state.step, [list(row) for row in state.history]

    def averaged_model(self) -> nn.Module | None:
        """A copy of the model with averaged parameters, where averaging was asked for."""
        if self.average is None:
            return None
        averaged = copy.deepcopy(self.model)
        averaged.load_state_dict({**self.model.state_dict(), **self.average})
        return averaged


def _adam(parameters: list[Tensor], settings: TrainSettings, weight_decay: float) -> torch.optim.Optimizer:
    """Adam, whose learning rate is set at each step."""
    betas = (settings.betas[0], settings.betas[1])
    return torch.optim.Adam(parameters, lr=settings.lr, betas=betas, weight_decay=weight_decay, fused=True)


def _check_same(here: dict[str, Tensor], there: dict[str, Tensor], what: str) -> None:
    shapes = [{name: tuple(value.shape) for name, value in state.items()} for state in (here, there)]
    if shapes[0] != shapes[1]:
        name = next(name for name in [*shapes[0], *shapes[1]] if shapes[0].get(name) != shapes[1].get(name))
        raise InputError(
            "checkpoint",
            f"it belongs to another {what}: {name} is {shapes[1].get(name, 'missing')} there "
            f"and {shapes[0].get(name, 'missing')} here",
        )


def _copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}
