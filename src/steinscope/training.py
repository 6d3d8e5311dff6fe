"""Train a model: one loop for every objective."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steinscope.batches import Batches, make_batches
from steinscope.checkpoint import load_checkpoint, newest_step, save_checkpoint
from steinscope.distributed import Processes, processes
from steinscope.errors import InputError, NonFiniteError
from steinscope.objectives.likelihood import ContrastiveDivergence, MaximumLikelihood
from steinscope.objectives.noise_contrast import ConditionalNoiseContrast, NoiseContrast
from steinscope.objectives.objective import TrainingObjective
from steinscope.objectives.score_matching import DenoisingScoreMatching, ScoreMatching
from steinscope.objectives.stein import LearnedStein
from steinscope.progress import progress_bar
from steinscope.randomness import derive_generator

__all__ = ["OBJECTIVES", "TrainHistory", "TrainResult", "TrainState", "train"]

OBJECTIVES: dict[str, Callable[[], TrainingObjective]] = {
    "lsd": LearnedStein,
    "score-matching": ScoreMatching,
    "sliced-score-matching": lambda: ScoreMatching("sliced"),
    "denoising-score-matching": DenoisingScoreMatching,
    "nce": NoiseContrast,
    "cnce": ConditionalNoiseContrast,
    "likelihood": MaximumLikelihood,
    "contrastive-divergence": ContrastiveDivergence,
    "short-run": lambda: ContrastiveDivergence(steps=30, start="noise"),
}

_LOOK_ROWS = 100_000
# Streams of random numbers that must not meet.
_BEGIN, _AUXILIARY, _MODEL = 1, 2, 3


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

    def to_dict(self) -> dict[str, list[float]]:
        """Lists of numbers, ready for JSON."""
        return {
            name: getattr(self, name).tolist() for name in ("step", "model_loss", "auxiliary_loss", "gradient_norm")
        }


@dataclass
class TrainState:
    """All that a run needs to go on, and all that a checkpoint saves. Random state is not part of it: the numbers of a
    step depend on the seed and the step alone.

    Arguments:
        step: How many steps of the model have been made.
        settings: The settings that must stay the same.
        model: The model's parameters and buffers.
        auxiliary: Those of the objective, or None.
        optimisers: The state of the model's optimiser and of the auxiliary one.
        average: The averaged parameters, or None.
        history: The rows of the history.
    """

    step: int
    settings: dict[str, Any]
    model: dict[str, Tensor] = field(repr=False)
    auxiliary: dict[str, Tensor] | None = field(repr=False)
    optimisers: list[dict[str, Any]] = field(repr=False)
    average: dict[str, Tensor] | None = field(repr=False)
    history: list[list[float]] = field(repr=False)


@dataclass(frozen=True)
class TrainResult:
    """A trained model.

    Arguments:
        model: The model, the same object that was given.
        averaged: A copy of it with averaged parameters, where averaging was asked for.
        objective: The objective, with its critic or other auxiliary part.
        history: What happened.
        state: What `train` needs to go on: give it as `start`.
    """

    model: Any
    averaged: Any
    objective: TrainingObjective = field(repr=False)
    history: TrainHistory = field(repr=False)
    state: TrainState = field(repr=False)

    def plot(self, axes: Any = None) -> Any:
        """Draw the losses against steps; returns the matplotlib figure."""
        from steinscope.plots import plot_training

        return plot_training(self, axes)

    def __str__(self) -> str:
        last = f", loss {self.history.model_loss[-1]:.4g}" if len(self.history.step) else ""
        return f"{type(self.model).__name__} after {self.state.step} steps of {type(self.objective).__name__}{last}"


Callback = Callable[[int, nn.Module, dict[str, float]], None]


def train(
    model: nn.Module,
    x: Any,
    *,
    objective: str | TrainingObjective = "lsd",
    steps: int,
    batch_size: int = 128,
    lr: float = 1e-3,
    auxiliary_lr: float | None = None,
    betas: tuple[float, float] = (0.5, 0.9),
    lr_decay: bool = False,
    weight_decay: float = 0.0,
    average: float | None = None,
    seed: int = 0,
    start: TrainState | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1000,
    keep: int | None = 2,
    resume: bool = True,
    log_every: int = 50,
    callbacks: Sequence[Callback] = (),
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> TrainResult:
    """Train a model on points by the learned Stein discrepancy (Algorithm 3 of the paper) or another objective.

    Under torchrun each process takes its part of every batch, the gradients are averaged, and only the first process
    writes.

    Arguments:
        model: A module with `log_prob(x)` or `score(x)`. It is trained in place.
        x: The points: an array, a memmap, a torch Dataset, or a function (n, generator) → n fresh points.
        objective: `"lsd"`, `"score-matching"`, `"sliced-score-matching"`, `"denoising-score-matching"`, `"nce"`,
            `"cnce"`, `"likelihood"`, `"contrastive-divergence"`, `"short-run"`, or an objective of
            `steinscope.objectives` with settings of your own.
        steps: Steps of the model in all, those before a resumed checkpoint included.
        batch_size: Points in each batch. Steps of the critic take batches of their own.
        lr: The learning rate of Adam.
        auxiliary_lr: That of the critic or log-normaliser; by default the same.
        betas: Adam's coefficients.
        lr_decay: Whether both learning rates fall to zero along half a cosine over `steps`.
        weight_decay: Added to the model's gradient as weight_decay times the weights.
        average: Keep an exponential average of the model's parameters with this coefficient, such as 0.999.
        seed: A whole number: the order of the points, the first critic, and all noise.
        start: The `state` of an earlier result, to go on from there.
        checkpoint: A directory for checkpoints.
        checkpoint_every: Steps between two checkpoints. There is one at the end, too.
        keep: How many of the newest checkpoints stay; None for all.
        resume: Whether to go on from the newest checkpoint in that directory. If not, the directory must hold none.
        log_every: Steps between two log points.
        callbacks: Called at each log point with the step, the model and the numbers of the history.
        dtype: The floating type of the points; by default that of the model's parameters.
        device: Where to compute; by default where the model is.
        progress: Whether to show a progress bar; by default on a terminal.

    Example:
        >>> from steinscope.models.gaussian import Gaussian
        >>> x = 3.0 + Gaussian(torch.zeros(2)).sample(1000)
        >>> result = train(Gaussian(torch.zeros(2)), x, steps=200, lr=0.05)
        >>> bool((result.model.mean - 3.0).abs().max() < 0.3)
        True
    """
    parameters = _check_model(model)
    _check_numbers(
        steps=steps, lr=lr, auxiliary_lr=auxiliary_lr, checkpoint_every=checkpoint_every, log_every=log_every
    )
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise InputError(f"seed: expected a whole number from 0 on, got {seed!r}")
    if average is not None and not 0 < average < 1:
        raise InputError(f"average: expected a number between 0 and 1, got {average}")
    dtype, device = dtype or parameters[0].dtype, device or parameters[0].device
    with processes() as shared:
        batches = make_batches(x, batch_size, seed, dtype=dtype, device=device, shared=shared)
        name = objective if isinstance(objective, str) else type(objective).__name__
        if isinstance(objective, str):
            if objective not in OBJECTIVES:
                raise InputError(f"objective: expected one of {', '.join(OBJECTIVES)}, got {objective!r}")
            objective = OBJECTIVES[objective]()
        settings = {
            "objective": name,
            "batch_size": batch_size,
            "lr": lr,
            "auxiliary_lr": lr if auxiliary_lr is None else auxiliary_lr,
            "betas": list(betas),
            "lr_decay": steps if lr_decay else False,
            "weight_decay": weight_decay,
            "average": average,
            "seed": seed,
        }
        loop = _Loop(model, parameters, objective, batches, settings, shared)
        if checkpoint is not None:
            start = _read_checkpoint(Path(checkpoint), resume) or start
        if start is not None:
            loop.restore(start)
        if loop.step > steps:
            raise InputError(f"steps: expected at least the {loop.step} that have been made, got {steps}")
        with progress_bar("training", steps, progress if shared.writes else False) as advance:
            while loop.step < steps:
                loop.make_step()
                is_last = loop.step == steps
                is_saved = checkpoint is not None and (is_last or loop.step % checkpoint_every == 0)
                if is_last or is_saved or loop.step % log_every == 0:
                    row = loop.log(checkpoint)
                    if shared.writes:
                        advance(loop.step, f"loss {row['model_loss']:.4g}")
                        for callback in callbacks:
                            callback(loop.step, model, row)
                if is_saved and checkpoint is not None:
                    if shared.writes:
                        save_checkpoint(checkpoint, loop.step, vars(loop.state()), keep=keep)
                    shared.wait()
        return loop.finish()


class _Loop:
    """One run: what changes from step to step."""

    def __init__(
        self,
        model: nn.Module,
        parameters: list[Tensor],
        objective: TrainingObjective,
        batches: Batches,
        settings: dict[str, Any],
        shared: Processes,
    ) -> None:
        self.model, self.parameters, self.objective = model, parameters, objective
        self.batches, self.settings, self.shared = batches, settings, shared
        self.device = parameters[0].device
        shared.copy_from_first(parameters)
        objective.begin(model, batches.look(_LOOK_ROWS), derive_generator(settings["seed"], _BEGIN, device=self.device))
        auxiliary = objective.auxiliary
        if shared.count > 1 and isinstance(objective, ContrastiveDivergence) and objective.start == "persistent":
            raise InputError("objective: persistent chains cannot be shared by several processes")
        self.auxiliary_parameters: list[Tensor] = (
            [] if auxiliary is None else [parameter for parameter in auxiliary.parameters() if parameter.requires_grad]
        )
        self.optimisers = [_adam(parameters, settings["lr"], settings, settings["weight_decay"])]
        if self.auxiliary_parameters:
            self.optimisers.append(_adam(self.auxiliary_parameters, settings["auxiliary_lr"], settings, 0.0))
        is_averaged = settings["average"] is not None
        self.average = (
            {name: value.detach().clone() for name, value in model.named_parameters()} if is_averaged else None
        )
        self.step = 0
        self.rows: list[list[float]] = []
        self._reset_sums()

    def _reset_sums(self) -> None:
        """Sums since the last log point, and the first step at which each quantity was not finite. Both stay on the
        device until a log point looks at them."""
        self.sums = torch.zeros(4, dtype=torch.float64, device=self.device)
        self.bad = torch.full((4,), -1, device=self.device)

    def make_step(self) -> None:
        """Steps of the auxiliary part, then one of the model."""
        self.step += 1
        self._set_learning_rates()
        count = self.objective.auxiliary_steps if self.auxiliary_parameters else 0
        for number in range(count):
            draw = (self.step - 1) * (count + 1) + number
            loss = self.objective.auxiliary_loss(self.model, self.batches.batch(draw), self._noise(_AUXILIARY, draw))
            norm = self._descend(loss, self.auxiliary_parameters, self.optimisers[1:])
            self._add(2, loss.detach() / count)
            self._watch(3, norm)
        draw = (self.step - 1) * (count + 1) + count
        loss = self.objective.model_loss(self.model, self.batches.batch(draw), self._noise(_MODEL, draw))
        together = self.auxiliary_parameters if count == 0 else []
        optimisers = self.optimisers if count == 0 else self.optimisers[:1]
        norm = self._descend(loss, self.parameters + together, optimisers)
        self._add(0, loss.detach())
        self._add(1, norm)
        if self.average is not None:
            share = 1 - self.settings["average"]
            for average, value in zip(self.average.values(), self.model.parameters(), strict=True):
                average.lerp_(value.detach(), share)

    def _noise(self, stream: int, draw: int) -> torch.Generator:
        shared = self.shared
        return derive_generator(
            self.settings["seed"], stream, draw, device=self.device, part=shared.rank, parts=shared.count
        )

    def _descend(self, loss: Tensor, parameters: list[Tensor], optimisers: list[torch.optim.Optimizer]) -> Tensor:
        if not loss.requires_grad:
            raise InputError("model: the loss does not depend on its parameters")
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = torch.zeros_like(parameter) if gradient is None else gradient
        present = [parameter.grad for parameter in parameters if parameter.grad is not None]
        self.shared.average(present)
        for optimiser in optimisers:
            optimiser.step()
        norm = nn.utils.get_total_norm(present)
        for parameter in parameters:
            parameter.grad = None
        return norm

    def _add(self, which: int, value: Tensor) -> None:
        self.sums[which] += value
        self._watch(which, value)

    def _watch(self, which: int, value: Tensor) -> None:
        is_first = ~value.isfinite() & (self.bad[which] < 0)
        self.bad[which] = torch.where(is_first, self.step, self.bad[which])

    def _set_learning_rates(self) -> None:
        decay = self.settings["lr_decay"]
        factor = 0.5 * (1 + math.cos(math.pi * min(1.0, (self.step - 1) / decay))) if decay else 1.0
        for optimiser, name in zip(self.optimisers, ("lr", "auxiliary_lr"), strict=False):
            optimiser.param_groups[0]["lr"] = factor * self.settings[name]

    def log(self, checkpoint: str | Path | None) -> dict[str, float]:
        """Look at the sums, stop if something is not finite, and write a row of the history."""
        self._check_finite(checkpoint)
        last = int(self.rows[-1][0]) if self.rows else 0
        self.shared.average([self.sums])
        loss, norm, auxiliary, _ = (self.sums / max(1, self.step - last)).tolist()
        has_auxiliary = bool(self.auxiliary_parameters) and self.objective.auxiliary_steps > 0
        row = [float(self.step), loss, auxiliary if has_auxiliary else math.nan, norm]
        self.rows.append(row)
        self._reset_sums()
        return dict(zip(("step", "model_loss", "auxiliary_loss", "gradient_norm"), row, strict=True))

    def _check_finite(self, checkpoint: str | Path | None) -> None:
        steps = self.bad.tolist()
        names = ("the model's loss", "the model's gradient", "the auxiliary loss", "the auxiliary gradient")
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
        """A copy of all that is needed to go on."""
        auxiliary = self.objective.auxiliary
        return TrainState(
            step=self.step,
            settings=self.settings,
            model=_copied(self.model.state_dict()),
            auxiliary=None if auxiliary is None else _copied(auxiliary.state_dict()),
            optimisers=copy.deepcopy([optimiser.state_dict() for optimiser in self.optimisers]),
            average=None if self.average is None else _copied(self.average),
            history=[list(row) for row in self.rows],
        )

    def restore(self, state: TrainState) -> None:
        """Go on from a state, after looking whether it belongs to this model and these settings."""
        for key, value in self.settings.items():
            if state.settings.get(key) != value:
                raise InputError(
                    f"{key}: the run to go on with was made with {state.settings.get(key)!r}, got {value!r}; "
                    "use the same settings or another directory"
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

    def finish(self) -> TrainResult:
        averaged = None
        if self.average is not None:
            averaged = copy.deepcopy(self.model)
            averaged.load_state_dict({**self.model.state_dict(), **self.average})
        columns = np.array(self.rows, dtype=np.float64).reshape(-1, 4).T
        history = TrainHistory(columns[0].astype(np.int64), columns[1], columns[2], columns[3])
        return TrainResult(self.model, averaged, self.objective, history, self.state())


def _adam(parameters: list[Tensor], lr: float, settings: dict[str, Any], weight_decay: float) -> torch.optim.Optimizer:
    betas = (settings["betas"][0], settings["betas"][1])
    return torch.optim.Adam(parameters, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)


def _read_checkpoint(directory: Path, resume: bool) -> TrainState | None:
    if not resume:
        if (step := newest_step(directory)) is not None:
            raise InputError(
                f"checkpoint: {directory} holds a run at step {step}; use resume=True to go on, or another directory"
            )
        return None
    found = load_checkpoint(directory)
    if found is None:
        return None
    try:
        return TrainState(**found[1])
    except TypeError:
        raise InputError(f"checkpoint: {directory} holds something else than a training run") from None


def _check_same(here: dict[str, Tensor], there: dict[str, Tensor], what: str) -> None:
    shapes = [{name: tuple(value.shape) for name, value in state.items()} for state in (here, there)]
    if shapes[0] != shapes[1]:
        name = next(name for name in [*shapes[0], *shapes[1]] if shapes[0].get(name) != shapes[1].get(name))
        raise InputError(
            f"checkpoint: it belongs to another {what}: {name} is {shapes[1].get(name, 'missing')} there "
            f"and {shapes[0].get(name, 'missing')} here"
        )


def _copied(state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in state.items()}


def _check_model(model: Any) -> list[Tensor]:
    if not isinstance(model, nn.Module):
        raise InputError(f"model: expected a torch.nn.Module with log_prob(x) or score(x), got {type(model).__name__}")
    if not any(callable(getattr(model, name, None)) for name in ("log_prob", "score")):
        raise InputError(f"model: expected log_prob(x) or score(x), and {type(model).__name__} has neither")
    parameters: list[Tensor] = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError("model: it has no parameters to train")
    return parameters


def _check_numbers(**values: float | None) -> None:
    for name, value in values.items():
        if value is not None and not value > 0:
            raise InputError(f"{name}: expected a positive number, got {value}")
