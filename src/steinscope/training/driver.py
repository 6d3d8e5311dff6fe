"""Train a model: one loop for every objective."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from steinscope.errors import InputError
from steinscope.objectives.base import TrainingObjective
from steinscope.points import check_device, check_dtype
from steinscope.registries import OBJECTIVES
from steinscope.settings import TrainSettings
from steinscope.support.checks import check_count, check_flag, check_kind, check_path
from steinscope.support.files import check_directory
from steinscope.support.progress import progress_bar
from steinscope.supports import find_region
from steinscope.training.batches import in_coordinates, make_batches
from steinscope.training.checkpoint import load_checkpoint, newest_step, save_checkpoint
from steinscope.training.distributed import processes
from steinscope.training.loop import Loop, TrainState
from steinscope.training.results import TrainHistory, TrainResult
from steinscope.unconstrained import Unconstrained

__all__ = ["train"]

Callback = Callable[[int, nn.Module, dict[str, float]], None]


@torch.inference_mode(False)
def train(
    model: nn.Module,
    x: Any,
    *,
    support: Any = None,
    objective: str | TrainingObjective = "lsd",
    steps: int,
    batch_size: int = 128,
    lr: float = 1e-3,
    auxiliary_lr: float | None = None,
    betas: tuple[float, float] = (0.5, 0.9),
    lr_decay: bool = False,
    weight_decay: float = 0.0,
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
    """Train a model on points by the learned Stein discrepancy (Algorithm 3 of the paper) or another objective.

    Under torchrun each process takes its part of every batch, the gradients are averaged, and only the first process
    writes.

    Arguments:
        model: A module with `log_prob(x)` or `score(x)`. It is trained in place.
        x: The points: an array, a memmap, a torch Dataset, or a function (n, generator) → n fresh points.
        support: Where the model's density is positive, as in `gof_test`; by default what the model says. Objective and
            `noise` are then those of unconstrained coordinates; the model stays one of x.
        objective: A name in `steinscope.registries.OBJECTIVES`, such as `"score-matching"`, or an objective of
            `steinscope.objectives` with settings of your own.
        steps: Steps of the model in all, those before a resumed checkpoint included.
        batch_size: Points in each batch. Steps of the critic take batches of their own.
        lr: The learning rate of Adam.
        auxiliary_lr: That of the critic or log-normaliser; by default the same.
        betas: Adam's coefficients.
        lr_decay: Whether both learning rates fall to zero along half a cosine over `steps`.
        weight_decay: Added to the model's gradient as weight_decay times the weights.
        average: Keep an exponential average of the model's parameters with this coefficient, such as 0.999. At step t
            the coefficient is at most (1 + t) / (10 + t), so that the first parameters are soon forgotten.
        noise: Add Gaussian noise of this standard deviation to the points at first. It falls to zero over the first 80%
            of the steps. Modes that lie apart overlap while there is noise, so that objectives that see only scores
            learn how much mass each of them has.
        seed: A whole number: the order of the points, the first critic, and all noise.
        start: The `state` of an earlier result, to resume from there.
        checkpoint: A directory for checkpoints.
        checkpoint_every: Steps between two checkpoints. There is always one at the end.
        keep: How many of the newest checkpoints stay; None for all.
        resume: Whether to resume from the newest checkpoint in that directory, which must have been made with the same
            points, objective and settings. If not, the directory must hold none.
        log_every: Steps between two log points.
        callbacks: Called at each log point with the step, the model and the numbers of the history. The model is a copy
            with averaged parameters where averaging was asked for.
        dtype: The floating type of the points; by default that of the model's parameters.
        device: Where to compute; by default where the model is.
        progress: Whether to show a progress bar; by default on a terminal.

    Example:
        >>> from steinscope.models import Gaussian
        >>> x = 3.0 + Gaussian(torch.zeros(2)).sample(1000)
        >>> result = train(Gaussian(torch.zeros(2)), x, steps=200, lr=0.05)
        >>> bool((result.model.mean - 3.0).abs().max() < 0.3)
        True
    """
    parameters = _check_model(model)
    settings = TrainSettings(
        steps=steps,
        batch_size=batch_size,
        lr=lr,
        auxiliary_lr=auxiliary_lr,
        betas=betas,
        lr_decay=lr_decay,
        weight_decay=weight_decay,
        average=average,
        noise=noise,
        seed=seed,
    )
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
        batches = make_batches(x, batch_size, seed, dtype=dtype, device=device, shared=shared)
        # The points are identified only where a later run could take others for them.
        data = None if directory is None else batches.identity()
        coordinates = None
        if support is not None or getattr(model, "support", None) is not None:
            region = find_region(support, model, batches.look(1).shape[1:])
            coordinates = None if region is None else Unconstrained(region)
        batches = batches if coordinates is None else in_coordinates(batches, coordinates)
        name, objective = _find_objective(objective)
        loop = Loop(model, parameters, objective, batches, name, settings, shared, data, coordinates)
        if directory is not None:
            start = _read_checkpoint(directory, resume, data) or start
        if start is not None:
            loop.restore(start)
        if loop.step > steps:
            raise InputError("steps", f"expected at least the {loop.step} that have been made, got {steps}")
        with progress_bar("training", steps, progress if shared.writes else False) as advance:
            while loop.step < steps:
                loop.make_step()
                is_last = loop.step == steps
                is_saved = directory is not None and (is_last or loop.step % checkpoint_every == 0)
                if is_last or is_saved or loop.step % log_every == 0:
                    row = loop.log(directory)
                    if shared.writes:
                        advance(loop.step, f"loss {row['model_loss']:.4g}")
                        shown = (loop.averaged_model() or model) if callbacks else model
                        for callback in callbacks:
                            callback(loop.step, shown, row)
                if is_saved and directory is not None:
                    if shared.writes:
                        save_checkpoint(directory, loop.step, vars(loop.state()), keep=keep)
                    shared.wait()
        columns = np.array(loop.rows, dtype=np.float64).reshape(-1, 4).T
        history = TrainHistory(columns[0].astype(np.int64), columns[1], columns[2], columns[3])
        return TrainResult(model, loop.averaged_model(), objective, history, loop.state())


def _find_objective(objective: Any) -> tuple[str, TrainingObjective]:
    """An objective and its name."""
    if not isinstance(objective, str):
        check_kind("objective", objective, TrainingObjective)
        return type(objective).__name__, objective
    if objective not in OBJECTIVES:
        raise InputError("objective", f"expected one of {', '.join(OBJECTIVES)}, got {objective!r}")
    return objective, OBJECTIVES[objective].make()


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
        raise InputError(
            "model", f"expected a torch.nn.Module with log_prob(x) or score(x), got {type(model).__name__}"
        )
    if not any(callable(getattr(model, name, None)) for name in ("log_prob", "score")):
        raise InputError("model", f"expected log_prob(x) or score(x), and {type(model).__name__} has neither")
    parameters: list[Tensor] = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if not parameters:
        raise InputError("model", "it has no parameters to train")
    if any(parameter.is_inference() for parameter in parameters):
        raise InputError("model", "it was made under torch.inference_mode, where nothing can be trained")
    return parameters
