"""The ICA table and curves of the paper: test log-likelihood of linear ICA trained in five ways.

The model is normalised, so that maximum likelihood is the ceiling. The other four use it without its normaliser.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steinscope.critics.mlp import MLP
from steinscope.errors import NonFiniteError
from steinscope.experiments.rates import FIRST_SEED
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.experiments.search import SEARCH_SEED, best_points, grid_points
from steinscope.models.ica import ICA, UnnormalisedICA
from steinscope.objectives.base import TrainingObjective
from steinscope.objectives.learned_stein import LearnedStein
from steinscope.objectives.likelihood import MaximumLikelihood
from steinscope.objectives.matching import ScoreMatching
from steinscope.objectives.noise_contrast import ConditionalNoiseContrast, NoiseContrast
from steinscope.plots import PAGE_WIDTH, SERIES, legend_above, new_figure, save_figure
from steinscope.training.driver import train

__all__ = ["EXPERIMENT"]

TEST_POINTS = 10_000
NEAREST = 1e-3
GRID = ("lr", "sigma", "l2", "critic_steps")
# LSD with a critic that is a network for the field itself, as in the paper.
FIELD = "LSD-field"
# Nats below the truth within which a method has arrived.
ARRIVED = 0.5
# Test log-likelihoods of the paper's table. Its mixing matrices and sources are others, so only gaps to ML compare.
PAPER = {
    "ML": {10: -10.98, 20: -18.48, 30: -21.49, 40: -23.43, 50: -25.53},
    "LSD": {10: -10.95, 20: -18.37, 30: -21.23, 40: -25.14, 50: -25.36},
    "SM": {10: -11.13, 20: -27.20, 30: -21.48},
    "NCE": {10: -10.92, 20: -22.52, 30: -30.33, 40: -55.53, 50: -73.62},
    "CNCE": {10: -11.00, 20: -18.77, 30: -24.47, 40: -37.64, 50: -36.31},
}


def _objective(trial: Trial) -> TrainingObjective:
    method = trial["method"]
    if method == "ML":
        return MaximumLikelihood()
    if method == "SM":
        return ScoreMatching("sliced")
    if method == "NCE":
        return NoiseContrast()
    if method == "CNCE":
        return ConditionalNoiseContrast(trial["sigma"])
    if method == "LSD":
        return LearnedStein()
    critic = MLP(trial["dim"], trial["width"], skip=True)
    return LearnedStein(critic, l2=trial["l2"], critic_steps=trial["critic_steps"])


def _trial(settings: Mapping[str, Any], method: str, dim: int, seed: int, point: Trial) -> Trial:
    fixed = {key: settings[key] for key in ("steps", "batch_size", "width", "log_points", "betas")}
    return {"method": method, "dim": dim, "seed": seed, **point, **fixed}


def _search(settings: Mapping[str, Any]) -> list[Trial]:
    """Every method with every point of its small grid, unless there is only one."""
    return [
        _trial(settings, method, dim, SEARCH_SEED, point)
        for dim, (method, grid) in product(settings["dims"], settings["methods"].items())
        if len(points := grid_points(grid, GRID)) > 1
        for point in points
    ]


def _choose(settings: Mapping[str, Any], searched: Sequence[tuple[Trial, Trial]]) -> Mapping[str, Any]:
    """The settings with one point of each grid."""
    best = best_points(searched, GRID, lambda trial: (trial["dim"], trial["method"]), "final")
    methods = settings["methods"].items()
    first = {(dim, method): grid_points(grid, GRID)[0] for dim, (method, grid) in product(settings["dims"], methods)}
    return {**settings, "chosen": {**first, **best}}


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    """One trial for each method, dimension and mixing matrix."""
    return [
        _trial(settings, method, dim, FIRST_SEED + number, settings["chosen"][dim, method])
        for number in range(settings["repetitions"])
        for dim, method in product(settings["dims"], settings["methods"])
    ]


def _run(trial: Trial, out: Path) -> Trial:
    seed, dim = trial["seed"], trial["dim"]
    truth = ICA(dim, seed=seed)
    model = ICA(dim, seed=1000 + seed)
    test = truth.sample(TEST_POINTS, seed=20_000 + seed)
    curve: list[list[float]] = []
    begin = time.perf_counter()

    @torch.no_grad()
    def judge(step: int, trained: torch.nn.Module, row: dict[str, float]) -> None:
        curve.append([step, float(model.log_prob(test).mean()), time.perf_counter() - begin])

    final = None
    with suppress(NonFiniteError):
        train(
            model if trial["method"] == "ML" else UnnormalisedICA(model),
            lambda n, generator: truth.sample(n, seed=generator),
            objective=_objective(trial),
            steps=trial["steps"],
            batch_size=trial["batch_size"],
            lr=trial["lr"],
            # A critic that is a field of its own follows the model best when it learns faster.
            auxiliary_lr=5 * trial["lr"] if trial["method"] == FIELD else None,
            betas=tuple(trial["betas"]),
            lr_decay=True,
            log_every=max(1, trial["steps"] // trial["log_points"]),
            callbacks=[judge],
            seed=seed,
            progress=False,
        )
        with torch.no_grad():
            final = float(model.log_prob(test).mean())
    with torch.no_grad():
        ceiling = float(truth.log_prob(test).mean())
    return {"truth": ceiling, "final": final, "curve": curve}


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    dims = list(dict.fromkeys(trial["dim"] for trial, _ in results))
    methods = list(dict.fromkeys(trial["method"] for trial, _ in results))
    rows, curves = [], []
    for dim, method in product(dims, methods):
        own = [(t, r) for t, r in results if (t["dim"], t["method"]) == (dim, method)]
        runs = [result for _, result in own if result["final"] is not None]
        ceilings = {t["seed"]: r["final"] for t, r in results if (t["dim"], t["method"]) == (dim, methods[0])}
        below_ml = [
            ceilings[t["seed"]] - r["final"]
            for t, r in own
            if r["final"] is not None and ceilings[t["seed"]] is not None
        ]
        arrivals = [_arrival(result) for result in runs]
        arrived = [arrival for arrival in arrivals if arrival is not None]
        half = 2 * len(arrived) >= len(own) and arrived
        rows.append(
            {
                "dim": dim,
                "method": method,
                **{key: own[0][0][key] for key in GRID},
                "runs": len(own),
                "failed": len(own) - len(runs),
                **_mean_and_error("below_truth", [result["truth"] - result["final"] for result in runs]),
                **_mean_and_error("below_ml", below_ml),
                "arrived": len(arrived),
                "steps_to_arrive": float(np.median([steps for steps, _ in arrived])) if half else None,
                "seconds_to_arrive": round(float(np.median([s for _, s in arrived])), 2) if half else None,
            }
        )
        gaps = [[result["truth"] - value for _, value, _ in result["curve"]] for result in runs]
        curves += [
            {"dim": dim, "method": method, "step": point[0], "below_truth": float(gap)}
            for point, gap in zip(runs[0]["curve"] if runs else [], np.mean(gaps, axis=0) if runs else [], strict=True)
        ]
    write_csv(out / "ica.csv", rows)
    write_csv(out / "ica-curves.csv", curves)
    _draw(rows, out / "ica.png")
    _draw(curves, out / "ica-curves.png")
    return [*_table(results[0][0], rows, dims, methods), *_paper_lines(dims, methods)]


def _arrival(result: Trial) -> tuple[int, float] | None:
    """The step and the seconds after which a run was within `ARRIVED` of the truth for the first time."""
    near = [(step, seconds) for step, value, seconds in result["curve"] if result["truth"] - value <= ARRIVED]
    return near[0] if near else None


def _mean_and_error(name: str, values: Sequence[float]) -> dict[str, float | None]:
    error = float(np.std(values, ddof=1)) / len(values) ** 0.5 if len(values) > 1 else None
    return {name: float(np.mean(values)) if values else None, f"{name}_stderr": error}


def _table(first: Trial, rows: Sequence[Trial], dims: Sequence[int], methods: Sequence[str]) -> list[str]:
    """Nats below maximum likelihood, and how soon each method is near the truth."""
    cells = {(row["dim"], row["method"]): row for row in rows}

    def line(method: str, text: Callable[[Trial], str]) -> str:
        return f"{method:<10}" + "".join(f"{text(cells[dim, method]):>24}" for dim in dims)

    def gap(row: Trial, name: str) -> str:
        value, error = row[name], row[f"{name}_stderr"]
        text = "failed" if value is None else f"{value:.3f}"
        return text + ("" if error is None else f" ± {error:.3f}")

    def arrival(row: Trial) -> str:
        found = f"{row['arrived']} of {row['runs']}"
        steps, seconds = row["steps_to_arrive"], row["seconds_to_arrive"]
        return found if steps is None else f"{found}: {steps:g}, {seconds:.0f} s"

    header = f"{'':<10}" + "".join(f"{f'D = {dim}':>24}" for dim in dims)
    return [
        f"{first['steps']} steps of {first['batch_size']} fresh points; settings chosen on another mixing matrix.",
        "Test log-likelihood, nats below the truth, mean ± standard error over mixing matrices:",
        header,
        *(line(method, lambda row: gap(row, "below_truth")) for method in methods),
        f"Nats below {methods[0]}:",
        header,
        *(line(method, lambda row: gap(row, "below_ml")) for method in methods[1:]),
        f"Runs that come within {ARRIVED} of the truth; where half of them do, the median of steps and seconds:",
        header,
        *(line(method, arrival) for method in methods),
    ]


def _paper_lines(dims: Sequence[int], methods: Sequence[str]) -> list[str]:
    lines = ["Paper, nats below its ML (negative: above; its data are others, so only gaps compare):"]
    for method in methods[1:]:
        known = PAPER["LSD" if method == FIELD else method]
        gaps = [PAPER["ML"][dim] - known[dim] if dim in known else None for dim in dims]
        lines.append(f"{method:<10}" + "".join(f"{'-' if gap is None else f'({gap:.2f})':>24}" for gap in gaps))
    return lines


def _draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Nats below the truth against steps; where the table has no steps, those at the end against the dimension.

    The axis is logarithmic, so that all methods are in the picture. What is nearer to the truth than `NEAREST` is drawn
    there: such a gap is within the error of the test points.
    """
    dims, methods = (list(dict.fromkeys(row[key] for row in rows)) for key in ("dim", "method"))
    along = "step" in rows[0]
    panels = dims if along else [None]
    columns = min(3, len(panels))
    figure, axes = new_figure(-(-len(panels) // columns), columns, width=PAGE_WIDTH / columns, height=2.8)
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    for (ax, dim), (number, method) in product(zip(axes.flat, panels, strict=False), enumerate(methods)):
        own = [row for row in rows if row["method"] == method and dim in (None, row["dim"])]
        gap = np.maximum([row["below_truth"] for row in own], NEAREST)
        colour, marker, line = SERIES[number]
        if along:
            ax.plot([row["step"] for row in own], gap, color=colour, linestyle=line, label=method)
        else:
            place = np.array([dims.index(row["dim"]) for row in own]) + 0.12 * (number - (len(methods) - 1) / 2)
            ax.plot(place, gap, marker, color=colour, markersize=6, label=method)
            ax.set_xticks(range(len(dims)), [f"D = {dim}" for dim in dims])
        ax.set(yscale="log", title="" if dim is None else f"D = {dim}", xlabel="step" if along else "")
    for row in axes:
        row[0].set_ylabel("nats below the truth, log scale")
    legend_above(figure, axes.flat[0])
    save_figure(figure, path)


_RATES = [2e-3, 5e-3]
_METHODS = {
    "ML": {"lr": _RATES},
    "LSD": {"lr": _RATES},
    FIELD: {"lr": [1e-3, 2e-3], "l2": [1.0], "critic_steps": [1]},
    "SM": {"lr": _RATES},
    "NCE": {"lr": _RATES},
    "CNCE": {"lr": _RATES, "sigma": [0.3, 1.0]},
}
_PAPER_RATES = [1e-3, 1e-4, 1e-5]

EXPERIMENT = Experiment(
    scales={
        "smoke": {
            "dims": [3],
            "methods": {
                "ML": {"lr": [1e-3]},
                "LSD": {"lr": [1e-3, 2e-3]},
                FIELD: {"lr": [1e-3], "l2": [1.0], "critic_steps": [1]},
                "SM": {"lr": [1e-3]},
                "NCE": {"lr": [1e-3]},
                "CNCE": {"lr": [1e-3], "sigma": [1.0]},
            },
            "steps": 20,
            "batch_size": 50,
            "width": 16,
            "log_points": 4,
            "betas": [0.9, 0.999],
            "repetitions": 2,
        },
        "quick": {
            "dims": [10, 20, 30],
            "methods": _METHODS,
            "steps": 5000,
            "batch_size": 500,
            "width": 100,
            "log_points": 40,
            "betas": [0.9, 0.999],
            "repetitions": 5,
        },
        "paper": {
            "dims": [10, 20, 30, 40, 50],
            "methods": {
                "ML": {"lr": _PAPER_RATES},
                FIELD: {"lr": _PAPER_RATES, "l2": [0.1, 1.0, 10.0], "critic_steps": [1, 5]},
                "SM": {"lr": _PAPER_RATES},
                "NCE": {"lr": _PAPER_RATES},
                "CNCE": {"lr": _PAPER_RATES, "sigma": [0.01, 0.1, 1.0, 10.0]},
            },
            "steps": 100_000,
            "batch_size": 1000,
            "width": 300,
            "log_points": 100,
            "betas": [0.5, 0.9],
            "repetitions": 5,
        },
    },
    trials=_trials,
    run=_run,
    report=_report,
    search=_search,
    choose=_choose,
    draw=_draw,
)
