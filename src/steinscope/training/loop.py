"""The training loop: what changes from step to step, and what a checkpoint saves of it."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from steinscope.densities import evaluating
from steinscope.errors import InputError, NonFiniteError
from steinscope.objectives.base import AuxiliaryObjective, TrainingObjective
from steinscope.settings import TrainSettings
from steinscope.support.randomness import derive_generator, normal_rows
from steinscope.training.batches import Batches
from steinscope.training.checkpoint import newest_step
from steinscope.training.distributed import Processes
from steinscope.training.jitter import OPEN_STEPS, Jitter, noise_left
from steinscope.training.optimisers import Optimisers
from steinscope.training.watchman import Watchman, best_of
from steinscope.unconstrained import Unconstrained, unconstrained_model

__all__ = ["COLUMNS", "Loop", "TrainState"]

COLUMNS = (
    *("step", "model_loss", "auxiliary_loss", "gradient_norm"),
    *("held_out", "held_out_error", "discrepancy", "discrepancy_error"),
)

_LOOK_ROWS = 100_000
# Streams of random numbers that must not meet.
_BEGIN, _AUXILIARY, _MODEL, _SMOOTHING, _WATCHED, _WATCHED_NOISE, _JITTER = 1, 2, 3, 4, 5, 6, 7
# Steps between two looks of the objective at held-out points.
_WATCH_EVERY = 25


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
        watched: What the held-out points said, with the best parameters so far, or None where there are none.
    """

    step: int
    settings: dict[str, Any]
    model: dict[str, Tensor] = field(repr=False)
    auxiliary: dict[str, Tensor] | None = field(repr=False)
    optimisers: list[dict[str, Any]] = field(repr=False)
    average: dict[str, Tensor] | None = field(repr=False)
    history: list[list[float]] = field(repr=False)
    data: dict[str, str | None] | None = None
    watched: dict[str, Any] | None = field(default=None, repr=False)


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
        held_out: Tensor | None = None,
        *,
        optimisers: Optimisers | None = None,
        log_every: int = 50,
    ) -> None:
        if shared.count > 1 and objective.unshareable:
            raise InputError("objective", objective.unshareable)
        self.model, self.parameters, self.objective, self.objective_name = model, parameters, objective, objective_name
        self.batches, self.settings, self.shared, self.data = batches, settings, shared, data
        # Objectives see the model in the coordinates of the batches. What is saved and returned is the model itself.
        self.coordinates, self.seen_model = coordinates, unconstrained_model(model, coordinates)
        self.device = parameters[0].device
        # With whatever random numbers each process has made them, all go on from one model and one critic.
        shared.copy_from_first(model.state_dict().values())
        self.objective_settings = {f"objective.{name}": value for name, value in objective.settings().items()}
        look = batches.look(_LOOK_ROWS)
        objective.begin(self.seen_model, look, derive_generator(settings.seed, _BEGIN, device=self.device))
        is_jittered = settings.noise is None and objective.suggestions["jitter"]
        self.jitter = Jitter(look) if is_jittered else None
        auxiliary = objective.auxiliary
        shared.copy_from_first([] if auxiliary is None else auxiliary.state_dict().values())
        self.auxiliary_parameters: list[Tensor] = (
            [] if auxiliary is None else [parameter for parameter in auxiliary.parameters() if parameter.requires_grad]
        )
        # How many steps on a loss of its own the auxiliary part makes. With none it is trained with the model.
        self.auxiliary_steps = 0
        if isinstance(objective, AuxiliaryObjective) and self.auxiliary_parameters:
            self.auxiliary_steps = objective.auxiliary_steps
        made = optimisers or Optimisers()
        self.made = made
        self.optimisers = [made.of_model(parameters, settings)]
        if self.auxiliary_parameters:
            self.optimisers.append(made.of_auxiliary(self.auxiliary_parameters, settings))
        self.rates = [[group["lr"] for group in optimiser.param_groups] for optimiser in self.optimisers]
        self.scheduler = made.schedule(self.optimisers[0])
        self.watchman = None if held_out is None else Watchman(held_out, settings.seed)
        self.log_every = log_every
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
        if self.watchman is not None and self.step % _WATCH_EVERY == 0:
            x = self._smoothed(self.watchman.x, self.step, _WATCHED_NOISE)
            generator = derive_generator(self.settings.seed, _WATCHED, self.step, device=self.device)
            last = (self.step + _WATCH_EVERY) * (self.auxiliary_steps + 1) - 1
            is_first_pass = self.batches.is_first_pass(last)
            # As at log points: without dropout, and without a trace in the running means of batch normalisation.
            with evaluating(self.model):
                self.objective.watch(self.seen_model, x, generator, is_first_pass=is_first_pass)
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
        gradients = self._descend(loss, self.parameters + together, optimisers, self.settings.clip)
        if self.scheduler is not None:
            self.made.step_schedule(self.scheduler)
        self._add(0, loss.detach())
        self._add(1, nn.utils.get_total_norm(gradients))
        if self.average is not None:
            # Young averages are short, so that the first parameters do not weigh on them.
            share = max(1 - (self.settings.average or 0.0), 9 / (10 + self.step))
            for average, value in zip(self.average.values(), self.model.parameters(), strict=True):
                average.lerp_(value.detach(), share)

    def _batch(self, draw: int) -> Tensor:
        """The points of a draw, smoothed by what is left of the noise at this step."""
        x = self._smoothed(self.batches.batch(draw), draw, _SMOOTHING)
        # Without an end it falls to zero all the same, because points with noise spread too far.
        left = noise_left(self.step, self.settings.steps if self.settings.lr_decay else OPEN_STEPS)
        count = self.batches.count
        if self.jitter is None or not left or count is None or self.batches.is_first_pass(draw):
            return x
        return self.jitter.added_to(x, left, count, self._generator(_JITTER, draw))

    def jitter_notes(self) -> tuple[str, ...]:
        """What a reader should know of it, where points came again and moved by more than a little."""
        draws, count = self.step * (self.auxiliary_steps + 1), self.batches.count
        if self.jitter is None or count is None or self.batches.is_first_pass(draws - 1):
            return ()
        return self.jitter.notes(count)

    def _smoothed(self, x: Tensor, draw: int, stream: int) -> Tensor:
        noise = self.settings.noise
        if not noise:
            return x
        left = noise_left(self.step, self.settings.steps)
        # Held-out points are the same in all processes, and so is their noise.
        generator = (
            self._generator(stream, draw)
            if stream == _SMOOTHING
            else derive_generator(self.settings.seed, stream, draw, device=self.device)
        )
        return x + noise * left * normal_rows(x, generator) if left else x

    def _generator(self, stream: int, draw: int) -> torch.Generator:
        shared = self.shared
        return derive_generator(
            self.settings.seed, stream, draw, device=self.device, part=shared.rank, parts=shared.count
        )

    def _descend(
        self,
        loss: Tensor,
        parameters: list[Tensor],
        optimisers: list[torch.optim.Optimizer],
        clip: float | None = None,
    ) -> list[Tensor]:
        """Make one step along the gradients, and return them as they were before they were clipped."""
        if not loss.requires_grad:
            raise InputError("model", "the loss does not depend on its parameters")
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        if all(gradient is None for gradient in gradients):
            raise InputError("model", "the loss does not depend on its parameters")
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.zeros_like(parameter) if gradient is None else _laid_out_like(parameter, gradient)
        present = [parameter.grad for parameter in parameters if parameter.grad is not None]
        self.shared.average(present)
        if clip is not None:
            norm = nn.utils.get_total_norm(present)
            present = [gradient.clone() for gradient in present]
            nn.utils.clip_grads_with_norm_(parameters, clip, norm)
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
        for number, (optimiser, rates) in enumerate(zip(self.optimisers, self.rates, strict=True)):
            if number == 0 and self.scheduler is not None:
                continue
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = factor * rate

    def log(self, checkpoint: str | Path | None) -> dict[str, float]:
        """Look at the sums, stop if something is not finite, and write a row of the history."""
        self._check_finite(checkpoint)
        last = int(self.rows[-1][0]) if self.rows else 0
        self.shared.average([self.sums])
        loss, norm, auxiliary = (self.sums / max(1, self.step - last)).tolist()
        seen = self._look()
        row = [float(self.step), loss, auxiliary if self.auxiliary_steps else math.nan, norm, *seen]
        self.rows.append(row)
        self._reset_sums()
        return dict(zip(COLUMNS, row, strict=True))

    def _look(self) -> list[float]:
        """What held-out points say of the model, or of its average where there is one."""
        if self.watchman is None:
            return [math.nan] * 4
        shown = self.averaged_model() or self.model
        with evaluating(shown):
            look = self.watchman.look(unconstrained_model(shown, self.coordinates), self.objective)
        # What is remembered must not depend on when checkpoints are written.
        if self.step % self.log_every == 0:
            self.watchman.remember(self.step, look.score_matching, dict(shown.named_parameters()))
        return [look.score_matching, look.score_matching_error, look.discrepancy, look.discrepancy_error]

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
            # Nothing had been learned before the first step.
            hint = "a smaller lr may help" if step > 1 else "look at the model's log-density and score at these points"
            raise NonFiniteError(f"training: {name} turned non-finite at step {step}; {where}; {hint}")

    def state(self) -> TrainState:
        """A copy of all that is needed to resume."""
        auxiliary = self.objective.auxiliary
        return TrainState(
            step=self.step,
            settings=self._fixed(),
            model=_copied(self.model.state_dict()),
            auxiliary=None if auxiliary is None else _copied(auxiliary.state_dict()),
            optimisers=copy.deepcopy([part.state_dict() for part in self._moving_parts()]),
            average=None if self.average is None else _copied(self.average),
            history=[list(row) for row in self.rows],
            data=self.data,
            watched=None if self.watchman is None else copy.deepcopy(self.watchman.state()),
        )

    def _fixed(self) -> dict[str, Any]:
        support = None if self.coordinates is None else str(self.coordinates)
        held_out = None if self.watchman is None else self.watchman.identity()
        fixed = {
            "objective": self.objective_name,
            "support": support,
            **self.objective_settings,
            "validation": held_out,
        }
        # The best model is one of those at log points.
        fixed |= {"log_every": self.log_every} if held_out else {}
        return {**fixed, **self.made.settings(), **self.settings.fixed()}

    def _moving_parts(self) -> list[Any]:
        return [*self.optimisers, *([] if self.scheduler is None else [self.scheduler])]

    def restore(self, state: TrainState, *, may_differ: bool = False) -> None:
        """Resume from a state, after looking whether it belongs to this model and these settings.

        Arguments:
            state: The state.
            may_differ: Whether rates, noise and the like may be others than they were. Objective and support must be
                the same.
        """
        here, there = self._fixed(), state.settings
        for key in (*here, *there):
            is_free = may_differ and key.split(".")[0] not in ("objective", "support")
            if here.get(key) != there.get(key) and not is_free:
                if key == "lr_decay" and here.get(key) and there.get(key):
                    raise InputError(
                        "steps",
                        f"the rates of the run to resume fall to zero over {there[key]} steps, got {here[key]}; use "
                        f"{there[key]}, or another directory and lr_decay=False (--no-lr-decay)",
                    )
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
        rates = [[group["lr"] for group in optimiser.param_groups] for optimiser in self.optimisers]
        for part, saved in zip(self._moving_parts(), state.optimisers, strict=not may_differ):
            part.load_state_dict(copy.deepcopy(saved))
        if may_differ:
            for optimiser, own in zip(self.optimisers, rates, strict=True):
                for group, rate in zip(optimiser.param_groups, own, strict=True):
                    group["lr"] = rate
        # What was best on other held-out points is not compared with what these say.
        is_same = here.get("validation") == there.get("validation")
        if self.watchman is not None and state.watched is not None and is_same:
            self.watchman.restore(copy.deepcopy(state.watched))
            if may_differ:
                # Other rates may find what the old ones did not.
                self.watchman.looks_since = 0
        if self.average is not None and state.average is not None:
            for name, value in self.average.items():
                value.copy_(state.average[name])
        self.step, self.rows = state.step, [list(row) for row in state.history]

    def choose_best(self) -> tuple[nn.Module | None, int | None]:
        """Give the model the parameters that were best on held-out points, and say of which step they are.

        Where there is an average, it gets them, and is returned.
        """
        averaged = self.averaged_model()
        step, best = best_of(None if self.watchman is None else self.watchman.state(), self.rows)
        chosen = self.model if averaged is None else averaged
        chosen.load_state_dict({**chosen.state_dict(), **best})
        return averaged, step

    def averaged_model(self) -> nn.Module | None:
        """A copy of the model with averaged parameters, if `average` was set."""
        if self.average is None:
            return None
        averaged = copy.deepcopy(self.model)
        averaged.load_state_dict({**self.model.state_dict(), **self.average})
        return averaged


def _check_same(here: dict[str, Tensor], there: dict[str, Tensor], what: str) -> None:
    shapes = [{name: tuple(value.shape) for name, value in state.items()} for state in (here, there)]
    if shapes[0] != shapes[1]:
        name = next(name for name in [*shapes[0], *shapes[1]] if shapes[0].get(name) != shapes[1].get(name))
        raise InputError(
            "checkpoint",
            f"it belongs to another {what}: {name} is {shapes[1].get(name, 'missing')} there "
            f"and {shapes[0].get(name, 'missing')} here",
        )


def _laid_out_like(parameter: Tensor, gradient: Tensor) -> Tensor:
    """The gradient, with its numbers in memory as those of the parameter are.

    Fused optimisers go through both in the order of memory, so that the gradient of log|det W|, which comes column by
    column, would change the transposed entries of W.
    """
    if gradient.stride() == parameter.stride():
        return gradient
    return torch.empty_like(parameter).copy_(gradient)


def _copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}
