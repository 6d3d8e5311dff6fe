"""Fit a critic: the one loop that every discrepancy, ranking and split test uses."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.critics.base import Critic, trainable_parameters
from steinscope.critics.network import as_critic
from steinscope.errors import InputError, NonFiniteError, first_line
from steinscope.points import ScoredPoints
from steinscope.scoring import pair_points
from steinscope.settings import FitSettings, Validation
from steinscope.stein import Objective, PenalisedLSD, mean_and_std, objective_value, penalty_of
from steinscope.support.files import json_ready
from steinscope.support.progress import progress_bar
from steinscope.support.randomness import Seed, make_generator
from steinscope.unconstrained import Unconstrained

__all__ = ["DEFAULT_FIT", "Fit", "History", "default_batch_size", "default_lr", "evaluate", "fit_critic", "fit_points"]

FULL_BATCH_LIMIT = 1024
SMALL_BATCH, LARGE_BATCH = 256, 1024
SMALL_BATCH_LIMIT = 16_384
RIDGES = tuple(10.0**k for k in range(-6, 5))
_EVALUATION_ROWS = 2048
DEFAULT_FIT = FitSettings()


@dataclass(frozen=True)
class History:
    """What happened while a critic was fitted, at each of its validations.

    Arguments:
        step: The step, or for a solved critic the position on the path of ridges.
        train_mean: Mean Stein value of the batch of that step.
        train_std: Their standard deviation; NaN for a single point.
        validation_mean: Mean Stein value of the validation points; NaN where there are none.
        validation_std: Their standard deviation; NaN for a single point.
        validation_norm: Mean squared norm of the critic at the validation points.
        selected: The step whose critic was kept.
    """

    step: np.ndarray
    train_mean: np.ndarray
    train_std: np.ndarray
    validation_mean: np.ndarray
    validation_std: np.ndarray
    validation_norm: np.ndarray
    selected: int

    def to_dict(self) -> dict[str, Any]:
        """Lists and numbers, ready for JSON, in which NaN is None."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return json_ready(
            {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in values.items()}
        )


@dataclass(frozen=True)
class Fit:
    """A fitted critic, in evaluation mode, and how it came about.

    Arguments:
        critic: The critic.
        history: How it came about.
        coordinates: The unconstrained coordinates that it takes, where there is a support.
    """

    critic: Critic
    history: History
    coordinates: Unconstrained | None = None


@torch.inference_mode(False)
def fit_critic(
    critic: Critic | torch.nn.Module,
    x: Any,
    score: Any,
    *,
    support: Any = None,
    objective: Objective | None = None,
    validation: tuple[Any, Any] | None = None,
    settings: FitSettings = DEFAULT_FIT,
    seed: Seed = 0,
    progress: bool | None = None,
    callback: Callable[[int, Critic], None] | None = None,
) -> Fit:
    r"""A critic that is trained to tell the data from the model, or solved if it is linear in its parameters.

    Arguments:
        critic: The critic to start from. It is copied, not changed.
        x: The points, an array (n, ...) or a memmap, which may be larger than memory.
        score: The model's score at each of them.
        support: Where the model's density is positive, as in `gof_test`. The critic then takes unconstrained
            coordinates: `fit.coordinates.points(x)` are those of x.
        objective: What is maximised; by default `PenalisedLSD(l2=0.5)`. A critic that is solved is always solved for
            the penalised LSD with the `l2` of the objective.
        validation: Points and scores that choose among the critics along the way. Without them the last critic is kept.
        settings: Steps, batches, learning rate, and how validation points choose; see `FitSettings`.
        seed: A whole number or a torch generator: batches, dropout and probes.
        progress: Whether to show a progress bar; by default on a terminal.
        callback: Called with the step and the critic, in evaluation mode, at each validation.

    Example:
        >>> from steinscope import FitSettings
        >>> from steinscope.critics import MLP
        >>> x = torch.randn(500, 2, generator=torch.Generator().manual_seed(0))
        >>> fit = fit_critic(MLP(2, width=32), x, 1.0 - x, settings=FitSettings(steps=200))
        >>> error = fit.critic(x).mean(0) - 1.0  # the best critic is 1 everywhere
        >>> bool(error.abs().max() < 0.1)
        True
    """
    if callback is not None and not callable(callback):
        raise InputError("callback", f"expected a function, got {type(callback).__name__}")
    points = pair_points(x, score, support=support)
    kept = None
    if validation is not None:
        if not isinstance(validation, tuple | list) or len(validation) != 2:
            raise InputError("validation", f"expected points and their scores, got {type(validation).__name__}")
        kept = pair_points(*validation, support=support, names=("validation[0]", "validation[1]"), like=points)
        if kept.x.shape[1:] != points.x.shape[1:]:
            shape, came = tuple(points.x.shape[1:]), tuple(kept.x.shape[1:])
            raise InputError("validation[0]", f"expected points of the shape of those in x, {shape}, got {came}")
    objective = PenalisedLSD() if objective is None else objective
    if not callable(objective):
        raise InputError("objective", f"expected an objective such as PenalisedLSD(), got {objective!r}")
    if not isinstance(settings, FitSettings):
        raise InputError("settings", f"expected FitSettings(...), got {type(settings).__name__}")
    fit = fit_points(critic, points, kept, objective, settings, seed=seed, progress=progress, callback=callback)
    return replace(fit, coordinates=points.coordinates)


def fit_points(
    critic: Critic | torch.nn.Module,
    points: ScoredPoints,
    validation: ScoredPoints | None,
    objective: Objective,
    settings: FitSettings,
    *,
    seed: Seed = 0,
    progress: bool | None = None,
    callback: Callable[[int, Critic], None] | None = None,
    title: str = "critic",
    give_up_after: int | None = None,
) -> Fit:
    """`fit_critic` for points that have been checked already.

    `give_up_after` ends a fit that has not found anything after so many validations: no critic with a positive
    penalised mean.
    """
    steps, l2 = settings.steps, penalty_of(objective)
    critic = as_critic(critic)
    if l2 is None and (critic.is_solvable or (validation is not None and settings.select == "objective")):
        raise InputError(
            "objective", "a critic in closed form and select='objective' need its penalty λ as `l2`, and it has none"
        )
    batch_size = default_batch_size(len(points)) if settings.batch_size is None else settings.batch_size
    lr = default_lr(len(points), batch_size) if settings.lr is None else settings.lr
    if not 1 <= batch_size <= len(points):
        raise InputError(
            "batch_size", f"expected a number from 1 to the {len(points)} training points, got {batch_size}"
        )
    critic = copy.deepcopy(critic).to(dtype=points.dtype, device=points.device)
    generator = make_generator(seed, points.device)
    recorder = _Recorder(critic, validation, settings.choose, l2, generator)

    if l2 is not None and critic.is_solvable:
        _solve(critic, points, recorder, l2)
        return recorder.finish()

    parameters = trainable_parameters(critic)
    optimiser = torch.optim.Adam(parameters, lr=lr, weight_decay=settings.weight_decay, fused=True)
    batches = _full_batches(points) if batch_size == len(points) else _mini_batches(points, batch_size, seed)
    # The first step whose objective is not finite. It stays on the device until somebody looks at it.
    bad_step = torch.full((), -1, device=points.device)
    with progress_bar(title, steps, progress) as advance:
        critic.train()
        for step in range(1, steps + 1):
            if settings.lr_decay:
                optimiser.param_groups[0]["lr"] = lr * 0.5 * (1 + math.cos(math.pi * (step - 1) / steps))
            with torch.enable_grad():
                values, squared_norm = critic.stein(*next(batches), generator)
                loss = -objective_value(objective, values, squared_norm)
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            bad_step = torch.where((bad_step < 0) & ~loss.detach().isfinite(), step, bad_step)
            if step % settings.every == 0 or step == steps:
                if int(bad_step) >= 0:
                    raise NonFiniteError(
                        f"critic: the objective turned non-finite at step {int(bad_step)}; "
                        "a smaller lr or a larger l2 may help"
                    )
                recorder.record(step, values)
                if callback is not None:
                    callback(step, critic)
                critic.train()
                advance(step, recorder.note)
                if settings.patience is not None and recorder.since_best >= settings.patience:
                    break
                if give_up_after is not None and len(recorder.rows) >= give_up_after and recorder.best_penalised <= 0:
                    break
    return recorder.finish()


def default_batch_size(n: int) -> int:
    """All points at once while they are few, as in the paper; otherwise batches, larger ones for many points.

    At 4000 points batches of 256 give the same discrepancy as all points at once, in a tenth of the time.
    """
    if n <= FULL_BATCH_LIMIT:
        return n
    return SMALL_BATCH if n <= SMALL_BATCH_LIMIT else LARGE_BATCH


def default_lr(n: int, batch_size: int | None) -> float:
    """0.001 for all points at once, as in the paper, 0.002 for small batches and 0.003 for large ones."""
    batch_size = batch_size or default_batch_size(n)
    if batch_size >= n:
        return 1e-3
    return 2e-3 if batch_size < LARGE_BATCH else 3e-3


@torch.no_grad()
def evaluate(critic: Critic, points: ScoredPoints, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]:
    """Stein values and squared norms of f at all points, without dropout.

    The generator is for critics that were told to estimate their divergence; all others are exact here.
    """
    critic.eval()
    values, norms = [], []
    for x, score in points.batches(_EVALUATION_ROWS):
        value, norm = critic.stein(x, score, generator)
        values.append(value)
        norms.append(norm)
    return torch.cat(values), torch.cat(norms)


class _Recorder:
    """Validates, keeps the best critic so far, and writes the history."""

    def __init__(
        self,
        critic: Critic,
        validation: ScoredPoints | None,
        choose: Callable[[Validation], float],
        l2: float | None,
        generator: torch.Generator,
    ) -> None:
        self.critic, self.validation, self.choose, self.l2 = critic, validation, choose, l2
        self.generator = generator
        self.rows: list[tuple[float, ...]] = []
        self.best, self.best_step, self.since_best = -math.inf, 0, 0
        self.best_penalised = -math.inf
        self.best_state: dict[str, Tensor] = {}
        self.note = ""

    def record(self, step: int, train_values: Tensor) -> None:
        mean = std = norm = math.nan
        self.critic.eval()
        if self.validation is not None:
            values, norms = evaluate(self.critic, self.validation, self.generator)
            (mean, std), norm = mean_and_std(values), float(norms.double().mean())
            if not math.isfinite(mean):
                raise NonFiniteError(f"critic: the validation mean turned non-finite at step {step}")
            self.note = f"validation {mean:.4g} ± {std / math.sqrt(len(values)):.2g}"
        self.rows.append((*mean_and_std(train_values), mean, std, norm, step))
        if self.validation is not None and self.l2 is not None:
            self.best_penalised = max(self.best_penalised, mean - self.l2 * norm)
        quality = (
            step
            if self.validation is None
            else _quality(self.choose, Validation(mean, std, norm, math.nan if self.l2 is None else self.l2))
        )
        if quality > self.best or not self.best_state:
            self.best, self.best_step, self.since_best = quality, step, 0
            self.best_state = {name: value.detach().clone() for name, value in self.critic.state_dict().items()}
        else:
            self.since_best += 1

    def finish(self) -> Fit:
        self.critic.load_state_dict(self.best_state)
        self.critic.eval()
        train_mean, train_std, mean, std, norm, step = np.array(self.rows, dtype=np.float64).T
        history = History(step.astype(np.int64), train_mean, train_std, mean, std, norm, self.best_step)
        return Fit(self.critic, history)


def _quality(choose: Callable[[Validation], float], seen: Validation) -> float:
    """How good a critic is by a rule, which may be a function of the user's."""
    try:
        return float(choose(seen))
    except Exception as error:
        raise InputError("select", f"failed at {seen}: {first_line(error)}") from error


def _solve(critic: Critic, points: ScoredPoints, recorder: _Recorder, l2: float) -> None:
    """Solve for a path of ridges and let the validation points choose among them."""
    sample = points.subset(torch.arange(min(len(points), FULL_BATCH_LIMIT)))
    ridges = RIDGES if recorder.validation is not None else RIDGES[:1]
    path = critic.solve_path(points.batches(_EVALUATION_ROWS), l2, ridges)
    for position, _ in enumerate(path, start=1):
        recorder.record(position, evaluate(critic, sample)[0])


def _full_batches(points: ScoredPoints) -> Iterator[tuple[Tensor, Tensor]]:
    batch = points.take(slice(None))
    while True:
        yield batch


def _mini_batches(points: ScoredPoints, size: int, seed: Seed) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of a new random order at each pass; what is left over at the end of a pass is dropped."""
    generator = make_generator(seed)
    while True:
        order = torch.randperm(len(points), generator=generator)
        for start in range(0, len(points) - size + 1, size):
            yield points.take(order[start : start + size])
