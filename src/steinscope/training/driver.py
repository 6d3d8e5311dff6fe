"""Train a model: one loop for every objective."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steinscope.densities import is_of_function
from steinscope.errors import InputError
from steinscope.flows import FlowDensity, as_flow
from steinscope.models import EBM, RBM, UnnormalisedICA
from steinscope.objectives.base import TrainingObjective
from steinscope.objectives.likelihood import MaximumLikelihood
from steinscope.points import check_device, check_dtype, check_rows, read_rows
from steinscope.registries import OBJECTIVES
from steinscope.settings import TrainSettings
from steinscope.support.checks import check_count, check_flag, check_kind, check_number, check_path
from steinscope.support.files import check_directory
from steinscope.support.progress import progress_bar
from steinscope.supports import find_region
from steinscope.training.batches import LEAST_HELD_OUT, Batches, in_coordinates, make_batches
from steinscope.training.checkpoint import load_checkpoint, newest_step, save_checkpoint
from steinscope.training.distributed import processes
from steinscope.training.loaders import LoaderBatches
from steinscope.training.loop import COLUMNS, Loop, TrainState
from steinscope.training.optimisers import Optimisers
from steinscope.training.results import TrainHistory, TrainResult, run_notes
from steinscope.unconstrained import Unconstrained

__all__ = ["train"]

Callback = Callable[[int, nn.Module, dict[str, float]], Any]

# A run without a number of steps: the most that it makes, and the looks without a better one after which it stops.
_MOST_STEPS, _PATIENCE = 50_000, 20


@torch.inference_mode(False)
def train(
    model: nn.Module,
    x: Any,
    *,
    support: Any = None,
    objective: str | TrainingObjective = "lsd",
    steps: int | None,
    batch_size: int = 128,
    validation: Any = None,
    lr: float | None = None,
    auxiliary_lr: float | None = None,
    betas: tuple[float, float] = (0.5, 0.9),
    lr_decay: bool | None = None,
    weight_decay: float = 0.0,
    optimiser: Any = None,
    scheduler: Any = None,
    clip: float | None = None,
    average: float | None = None,
    noise: float | None = None,
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
    """Training of a model on points by the learned Stein discrepancy (Algorithm 3 of the paper) or another objective.

    Under torchrun each process takes its part of every batch, the gradients are averaged, and only the first process
    writes files.

    Arguments:
        model: A module with `log_prob(x)`, `energy(x)` or `score(x)`, or a flow of zuko. It is trained in place.
        x: The points: an array, a memmap, a torch Dataset or DataLoader, or a function (n, generator) → n fresh points.
            A DataLoader makes its own batches, so that such a run cannot be resumed bit for bit.
        support: Where the model's density is positive, as in `gof_test`; by default what the model declares. Objective
            and `noise` are then in unconstrained coordinates; the model stays a model of x.
        objective: A name in `steinscope.registries.OBJECTIVES`, such as `"score-matching"`, or an objective of
            `steinscope.objectives` with settings of your own.
        steps: The total number of steps of the model, including those before a resumed checkpoint. None to stop when
            20 log points have brought no improvement on held-out points, after 50 000 at most; learning rates then do
            not fall.
        batch_size: Points in each batch; all of them if there are fewer. Steps of the critic draw their own batches.
        validation: Held-out points that choose the best model of the run: an array, or the share of x to hold out, 0
            for none. By default a tenth for `lsd`, or 100 points where that is at most a fifth, 1000 at most, and none
            for other objectives or below 40 points. At each log point the model is judged on them by score matching,
            which needs no critic, and the best model is returned.
        lr: The learning rate; by default what the objective suggests: 0.005 for `lsd`, otherwise 0.001.
        auxiliary_lr: The learning rate of the critic or log-normaliser; by default 0.001 for `lsd`, otherwise `lr`.
        betas: Adam's coefficients.
        lr_decay: Whether both learning rates fall to zero along half a cosine over `steps`; by default they do for
            `lsd`.
        weight_decay: Added to the model's gradient as weight_decay times the weights.
        optimiser: In place of Adam, a function of the model's parameters such as `torch.optim.SGD`, or an optimiser of
            them. It has its own learning rate and weight decay.
        scheduler: A function of that optimiser that makes a schedule of `torch.optim.lr_scheduler`. It is stepped after
            each step of the model.
        clip: The largest norm of the model's gradient; a longer one is shortened to it.
        average: Keep an exponential average of the model's parameters with this coefficient, such as 0.999. At step t
            the coefficient is at most (1 + t) / (10 + t), so that the first parameters are soon forgotten.
        noise: The standard deviation of Gaussian noise that is added to the points at first, and falls to zero over the
            first 80% of the steps. With noise separated modes overlap, so that objectives that see only scores learn
            how much mass each mode has. By default `lsd` adds noise with the covariance of the points times 20 over
            their number, a quarter at most, to points that come again, so that few of them are not learned by heart; it
            falls with the learning rates, or over 1600 steps where they do not. 0 for none.
        seed: A whole number: the order of the points, the first critic, and all noise.
        start: The `state` of an earlier result, to continue from there, with other rates, noise or steps if you like.
        checkpoint: A directory for checkpoints.
        checkpoint_every: Steps between two checkpoints. There is always one at the end.
        keep: How many of the newest checkpoints are kept; None for all.
        resume: Whether to resume from the newest checkpoint in that directory, which must have been made with the same
            points, objective and settings. If not, the directory must hold none.
        log_every: Steps between two log points.
        callbacks: Called at each log point with the step, the model and the numbers of the history as a dictionary.
            With `average` the model is a copy with averaged parameters. A callback that returns True stops the run, and
            the result is kept.
        dtype: The floating type of the points; by default that of the model's parameters.
        device: Where to compute; by default where the model is.
        progress: Whether to show a progress bar; by default on a terminal.

    Returns:
        The model, which was trained in place, with the history of the run and the state to continue from.

    Example:
        >>> from steinscope.models import Gaussian
        >>> x = 3.0 + Gaussian(torch.zeros(2)).sample(1000)
        >>> result = train(Gaussian(torch.zeros(2)), x, steps=200, lr=0.05)
        >>> bool((result.model.mean - 3.0).abs().max() < 0.3)
        True
    """
    given, model = model, as_flow(model) or model
    parameters = _check_model(model)
    name, objective = _find_objective(objective)
    _check_normalised(model, name, objective)
    if optimiser is not None and (lr is not None or weight_decay):
        raise InputError(
            "lr" if lr is not None else "weight_decay", "it is that of the optimiser, which was given, too"
        )
    if scheduler is not None and lr_decay:
        raise InputError("lr_decay", "a scheduler was given, too; take one of them")
    settings = TrainSettings(
        steps=_MOST_STEPS if steps is None else steps,
        batch_size=batch_size,
        lr=lr,
        auxiliary_lr=auxiliary_lr,
        betas=betas,
        # Without an end there is nothing to fall over.
        lr_decay=False if lr_decay is None and (steps is None or scheduler is not None) else lr_decay,
        weight_decay=weight_decay,
        average=average,
        noise=noise,
        clip=clip,
        seed=seed,
    ).with_suggestions(objective.suggestions)
    if steps is None and (settings.lr_decay or noise):
        raise InputError("steps", f"expected a number of them, over which {'noise' if noise else 'rates'} can fall")
    share, points = _check_validation(validation, objective)
    check_count("checkpoint_every", checkpoint_every)
    check_count("log_every", log_every)
    if keep is not None:
        check_count("keep", keep)
    directory = None if checkpoint is None else check_path("checkpoint", checkpoint)
    check_directory(directory, "checkpoint")
    if not isinstance(callbacks, Sequence) or not all(map(callable, callbacks)):
        raise InputError("callbacks", f"expected a list of functions, got {callbacks!r}")
    check_flag("resume", resume)
    if start is not None:
        check_kind("start", start, TrainState)
    dtype, device = check_dtype(dtype) or parameters[0].dtype, check_device(device) or parameters[0].device
    with processes() as shared:
        batches = make_batches(x, batch_size, seed, dtype=dtype, device=device, shared=shared, held_out=share)
        # The points are identified only where a later run could take others for them.
        data = None if directory is None else batches.identity()
        if data is not None and isinstance(batches, LoaderBatches):
            warnings.warn("x is a DataLoader: a run that is resumed goes on with other batches", stacklevel=2)
        held_out = batches.held_out() if points is None else _held_out(points, batches, dtype, device)
        coordinates = None
        if support is not None or getattr(model, "support", None) is not None:
            region = find_region(support, model, batches.look(1).shape[1:])
            coordinates = None if region is None else Unconstrained(region)
        if coordinates is not None:
            batches = in_coordinates(batches, coordinates)
            if points is None:
                held_out = batches.held_out()
            elif held_out is not None:
                coordinates.region.check(held_out, "validation")
                held_out = coordinates.points(held_out)
        if steps is None and held_out is None:
            raise InputError("steps", "expected a number of them: no points are held out that could say when to stop")
        made = Optimisers(optimiser, scheduler)
        loop = Loop(
            *(model, parameters, objective, batches, name, settings, shared, data, coordinates, held_out),
            optimisers=made,
            log_every=log_every,
        )
        saved = None if directory is None else _read_checkpoint(directory, resume, data)
        if saved is not None:
            loop.restore(saved)
        elif start is not None:
            loop.restore(start, may_differ=True)
        if loop.step > settings.steps:
            raise InputError("steps", f"expected at least the {loop.step} that have been made, got {steps}")
        stopped = _run(loop, steps is None, directory, checkpoint_every, log_every, keep, callbacks, progress)
        state = loop.state()
        averaged, best = loop.choose_best()
        history = TrainHistory(*np.array(loop.rows, dtype=np.float64).reshape(-1, len(COLUMNS)).T)
        notes = (*run_notes(history, best, stopped), *loop.jitter_notes())
        averaged = averaged.flow if isinstance(averaged, FlowDensity) else averaged
        return TrainResult(given, averaged, objective, history, state, best, notes)


def _run(
    loop: Loop,
    is_open: bool,
    directory: Path | None,
    checkpoint_every: int,
    log_every: int,
    keep: int | None,
    callbacks: Sequence[Callback],
    progress: bool | None,
) -> str | None:
    """Make all steps, and say why it ended before them if it did."""
    shared, steps, watchman = loop.shared, loop.settings.steps, loop.watchman

    def is_over() -> bool:
        return is_open and watchman is not None and watchman.looks_since >= _PATIENCE

    # A run that has been stopped stays so.
    stopped = "held-out points" if is_over() else None
    with progress_bar("training", steps, progress if shared.writes else False) as advance:
        while loop.step < steps and stopped is None:
            loop.make_step()
            is_last = loop.step == steps
            is_saved = directory is not None and (is_last or loop.step % checkpoint_every == 0)
            if is_last or is_saved or loop.step % log_every == 0:
                row = loop.log(directory)
                if shared.writes:
                    advance(loop.step, _progress_note(row))
                    shown = (loop.averaged_model() or loop.model) if callbacks else loop.model
                    for callback in callbacks:
                        if _is_true(callback(loop.step, shown, row)):
                            stopped = "a callback"
                if is_over():
                    stopped = "held-out points"
                stopped = shared.agree(stopped)
            if directory is not None and (is_saved or stopped is not None):
                if shared.writes:
                    save_checkpoint(directory, loop.step, vars(loop.state()), keep=keep)
                shared.wait()
    return stopped


def _is_true(answer: Any) -> bool:
    """Whether a callback said True, be it a boolean of Python, NumPy or torch."""
    is_boolean = isinstance(answer, bool | np.bool_) or (
        isinstance(answer, np.ndarray | Tensor) and answer.dtype in (bool, torch.bool) and answer.ndim == 0
    )
    return is_boolean and bool(answer)


def _progress_note(row: dict[str, float]) -> str:
    found = row["discrepancy"], row["held_out"]
    names = ("held-out discrepancy", "held-out score matching")
    notes = [f"{name} {value:.4g}" for name, value in zip(names, found, strict=True) if math.isfinite(value)]
    return ", ".join(notes) or f"loss {row['model_loss']:.4g}"


def _check_validation(validation: Any, objective: TrainingObjective) -> tuple[float | None, Any]:
    """The share of x to hold out, None for the default share, or held-out points that choose the model."""
    if validation is None:
        return (None if objective.suggestions["validation"] else 0.0), None
    if isinstance(validation, bool | int | float | str):
        return check_number("validation", validation, least=0, under=1), None
    return 0.0, validation


def _held_out(points: Any, batches: Batches, dtype: torch.dtype, device: torch.device) -> Tensor:
    rows, shape = check_rows(points, "validation", dtype=dtype, device=device), batches.look(1).shape[1:]
    if rows.shape[1:] != shape or len(rows) < LEAST_HELD_OUT:
        expected = f"at least {LEAST_HELD_OUT} points of shape {tuple(shape)}, as those of x are"
        raise InputError("validation", f"expected {expected}, got an array of shape {tuple(rows.shape)}")
    return read_rows(rows, slice(None), dtype=dtype, device=device)


def _find_objective(objective: Any) -> tuple[str, TrainingObjective]:
    """An objective and its name."""
    if not isinstance(objective, str):
        check_kind("objective", objective, TrainingObjective)
        return type(objective).__name__, objective
    if objective not in OBJECTIVES:
        raise InputError("objective", f"expected one of {', '.join(OBJECTIVES)}, got {objective!r}")
    return objective, OBJECTIVES[objective].make()


def _check_normalised(model: nn.Module, name: str, objective: TrainingObjective) -> None:
    """Refuse likelihood for a model that is known to be unnormalised: it would become as large as one likes."""
    is_for_normalised = name in OBJECTIVES and OBJECTIVES[name].is_for_normalised
    if not is_for_normalised and not isinstance(objective, MaximumLikelihood):
        return
    has_energy_alone = callable(getattr(model, "energy", None)) and not callable(getattr(model, "log_prob", None))
    if has_energy_alone or isinstance(model, EBM | RBM | UnnormalisedICA):
        raise InputError(
            "objective",
            f"{name} is for normalised models, and {type(model).__name__} is not one; take another objective, such as "
            "contrastive-divergence, or a model whose log_prob is normalised",
        )


def _read_checkpoint(directory: Path, resume: bool, data: dict[str, str | None] | None) -> TrainState | None:
    """The state to resume from, if there is one, after looking whether it was made with these points."""
    if not resume:
        if (step := newest_step(directory)) is not None:
            raise InputError(
                "checkpoint",
                f"{directory} holds a run at step {step}; use resume=True to resume it, or another directory",
            )
        return None
    found = load_checkpoint(directory)
    if found is None:
        return None
    try:
        state = TrainState(**found[1])
    except TypeError:
        raise InputError("checkpoint", f"{directory} holds something else than a training run") from None
    _check_data(state.data or {}, data or {}, directory)
    return state


def _check_data(there: dict[str, str | None], here: dict[str, str | None], directory: Path) -> None:
    problem = None
    old, new = there.get("digest"), here.get("digest")
    if there.get("points") != here.get("points"):
        problem = f"points {there.get('points')}, got points {here.get('points')}"
    elif old and new and old != new:
        problem = f"other points {here.get('points')}, whose digest begins with {old[:8]}, got {new[:8]}"
    if problem:
        raise InputError("x", f"the run in {directory} was made with {problem}; use the same or another directory")


def _check_model(model: Any) -> list[Tensor]:
    if not isinstance(model, nn.Module):
        came = (
            "what from_log_prob, from_energy or from_score returns, whose parameters are not known"
            if is_of_function(model)
            else f"the class {model.__name__}"
            if isinstance(model, type)
            else type(model).__name__
        )
        raise InputError("model", f"expected a torch.nn.Module with log_prob(x), energy(x) or score(x), got {came}")
    if not any(callable(getattr(model, name, None)) for name in ("log_prob", "score", "energy")):
        raise InputError("model", f"expected log_prob(x), energy(x) or score(x), and {type(model).__name__} has none")
    parameters: list[Tensor] = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError("model", "it has no parameters to train")
    if any(parameter.is_inference() for parameter in parameters):
        raise InputError("model", "it was made under torch.inference_mode, where nothing can be trained")
    return parameters
