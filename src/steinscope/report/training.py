"""The report of a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup

from steinscope.errors import InputError
from steinscope.frames import Names, check_names, coordinate_label
from steinscope.report.charts import line_chart, number, scatter_chart
from steinscope.report.density import model_density
from steinscope.report.page import Cell, Table, render
from steinscope.report.rows import flat_rows
from steinscope.support.checks import check_kind, check_text
from steinscope.training.driver import TrainResult

__all__ = ["report_training"]

_TABLE_COORDINATES = 200
_DENSITY_TITLE = "The model's density, which need not be normalised, below points of the data"


def report_training(
    result: TrainResult,
    *,
    model: Any = None,
    data: str = "",
    settings: Mapping[str, Any] | None = None,
    points: np.ndarray | None = None,
    samples: np.ndarray | None = None,
    names: Sequence[str] | None = None,
) -> str:
    """The report of a training run as one HTML file.

    Arguments:
        result: What `train` returned.
        model: The model to draw; by default the averaged one, or where there is none the trained one.
        data: What the points are called.
        settings: Further settings to list, such as those of the model.
        points: Some of the points that it was trained on. In the plane the model's density is drawn below them.
        samples: Samples of the model, to be drawn beside the points.
        names: What the coordinates of the points are called.
    """
    check_kind("result", result, TrainResult)
    if settings is not None and not isinstance(settings, Mapping):
        raise InputError("settings", f"expected names with values, got {type(settings).__name__}")
    data = check_text("data", data)
    history = result.history
    if model is None:
        model = result.model if result.averaged is None else result.averaged
    flat = None if points is None else flat_rows(points, "points")
    drawn = None if samples is None else flat_rows(samples, "samples")
    if flat is not None and drawn is not None and flat.shape[1] != drawn.shape[1]:
        raise InputError("samples", f"expected {flat.shape[1]} coordinates, as points have, got {drawn.shape[1]}")
    labels = None if names is None or flat is None else check_names(names, flat.shape[1])
    listed = {**(settings or {}), **_readable(result.state.settings), "steps": result.state.step}
    curves = []
    if np.isfinite(history.held_out).any():
        title = "Score matching at held-out points (smaller is better)"
        curves.append(_curve(title, history.step, history.held_out, "at the log point"))
    if np.isfinite(history.discrepancy).any():
        title = "What the critic finds at held-out points (zero is a perfect fit)"
        curves.append(_curve(title, history.step, history.discrepancy, "at the log point"))
    curves.append(_curve("The model's loss", history.step, history.model_loss))
    if np.isfinite(history.auxiliary_loss).any():
        curves.append(_curve("The auxiliary loss", history.step, history.auxiliary_loss))
    curves.append(_curve("Norm of the model's gradient", history.step, history.gradient_norm))
    has_density = flat is not None and flat.shape[1] == 2 and callable(getattr(model, "log_prob", None))
    loss = f", and its loss was {number(float(history.model_loss[-1]))} at the end" if len(history.step) else ""
    if result.best_step is not None:
        loss = f". Held-out points liked the model of step {result.best_step} best, which is the one that was kept"
    where, notes = f" on {data}" if data else "", "".join(f" {note}" for note in result.notes)
    return render(
        "training.html",
        title="Training run",
        headline=f"{type(result.model).__name__}, {result.state.step} steps of {type(result.objective).__name__}",
        sentence=f"The model was trained{where} by {result.state.settings['objective']}{loss}.{notes}",
        facts=[(name, _setting(value)) for name, value in listed.items() if value is not None],
        curves=curves,
        hint=result.objective.loss_meaning,
        density=model_density(model, flat, _DENSITY_TITLE, labels) if has_density and flat is not None else "",
        samples=_samples(flat, drawn, labels) if flat is not None and drawn is not None else "",
        table=_moments(flat, drawn, labels) if flat is not None and drawn is not None else None,
    )


def _readable(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as a reader knows them: two of them are kept together with the number of steps that they refer to."""
    decay, noise = settings["lr_decay"], settings["noise"]
    return {
        **settings,
        "lr_decay": f"to zero over {decay} steps" if decay else False,
        # Without noise the setting is 0, and None where the objective has a default of its own.
        "noise": f"{number(noise[0])}, to zero over 80% of {noise[1]} steps" if noise else noise,
    }


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple):
        return ", ".join(map(_setting, value))
    return number(value) if isinstance(value, float) else str(value)


def _curve(title: str, step: np.ndarray, values: np.ndarray, meaning: str = "mean since the last log point") -> Markup:
    finite = values[np.isfinite(values)]
    description = (
        f"From {number(float(finite[0]), 3)} to {number(float(finite[-1]), 3)}" if len(finite) else "No values"
    )
    return line_chart(title, step, values, "step", meaning, description)


def _samples(points: np.ndarray, samples: np.ndarray, names: Names) -> Markup:
    if points.shape[1] == 1:
        levels = np.linspace(0.01, 0.99, 99)
        title = "Quantiles of the samples against those of the data"
        ours, theirs = np.quantile(points[:, 0], levels), np.quantile(samples[:, 0], levels)
        return line_chart(title, ours, theirs, "data", "samples", "On the diagonal both agree")
    # The two coordinates that spread most.
    first, second = sorted(int(i) for i in np.argsort(-points.std(0), kind="stable")[:2])
    columns = [first, second]
    description = f"{len(points)} points of the data and {len(samples)} samples"
    axes = (coordinate_label(names, first), coordinate_label(names, second))
    title = "Data (blue) and samples of the model (red)"
    if points.shape[1] > 2:
        title += ", in the two coordinates that spread most"
    return scatter_chart(title, points[:, columns], samples[:, columns], axes, description)


def _moments(points: np.ndarray, samples: np.ndarray, names: Names) -> Table:
    rows = [
        [
            Cell(coordinate_label(names, i), i),
            *(Cell.of(float(value)) for value in (points[:, i].mean(), samples[:, i].mean())),
            *(Cell.of(float(value)) for value in (points[:, i].std(), samples[:, i].std())),
        ]
        for i in range(min(points.shape[1], _TABLE_COORDINATES))
    ]
    columns = ("Coordinate", "Mean, data", "Mean, samples", "Std, data", "Std, samples")
    return Table("Data and samples, coordinate by coordinate", columns, rows)
