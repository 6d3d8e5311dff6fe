"""Figure 6 of the paper: the discrepancy of perturbed RBMs, learned and by kernels, beside its theoretical value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steinscope.estimation import discrepancy
from steinscope.experiments.rates import FIRST_SEED
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.kernels import ksd_estimate
from steinscope.models.rbm import RBM
from steinscope.plots import COLOURS, PAGE_WIDTH, new_figure, save_figure
from steinscope.settings import FitSettings
from steinscope.support.normal import normal_quantile

__all__ = ["EXPERIMENT"]

METHODS = ("LSD", "quadratic KSD", "linear KSD")
L2 = 0.5


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    fixed = {key: settings[key] for key in ("n", "gibbs_steps", "steps", "folds")}
    return [
        {"dim": dim, "hidden": hidden, "sigma": sigma, "seed": seed, **fixed}
        for seed in range(FIRST_SEED, FIRST_SEED + settings["repetitions"])
        for dim, hidden in settings["shapes"]
        for sigma in settings["sigmas"]
    ]


def _run(trial: Trial, out: Path) -> Trial:
    seed = trial["seed"]
    rbm = RBM.random(trial["dim"], trial["hidden"], seed=seed)
    x = rbm.gibbs(trial["n"], steps=trial["gibbs_steps"], seed=seed)
    with torch.no_grad():
        score = rbm.perturbed(trial["sigma"], seed=1000 + seed).score(x)
        bound = (score - rbm.score(x)).double().square().sum(1).mean() / (2 * L2)
    estimate = discrepancy(
        x,
        score,
        l2=L2,
        folds=trial["folds"],
        metric="identity",
        settings=FitSettings(steps=trial["steps"]),
        seed=seed,
        progress=False,
    )
    quadratic = ksd_estimate(x, score, seed=seed)
    linear = ksd_estimate(x, score, estimator="linear", seed=seed)
    return {
        "bound": float(bound),
        "LSD": [estimate.value, estimate.stderr],
        "quadratic KSD": [quadratic.value, quadratic.stderr],
        "linear KSD": [linear.value, linear.stderr],
    }


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    shapes = list(dict.fromkeys((trial["dim"], trial["hidden"]) for trial, _ in results))
    sigmas = list(dict.fromkeys(trial["sigma"] for trial, _ in results))
    rows = []
    first, count = results[0][0], len(results) // (len(shapes) * len(sigmas))
    lines = [
        f"Discrepancy of RBMs, n = {first['n']}, λ = {L2}, RBMs of each size: {count}; "
        "in brackets how many of its own standard errors a value stands above that at σ = 0."
    ]
    for shape in shapes:
        lines.append(f"({shape[0]}, {shape[1]})  σ = {', '.join(map(str, sigmas))}")
        table = [
            [
                result
                for trial, result in results
                if (trial["dim"], trial["hidden"]) == shape and trial["sigma"] == sigma
            ]
            for sigma in sigmas
        ]
        bounds = np.array([np.mean([result["bound"] for result in cell]) for cell in table])
        for method in METHODS:
            value = np.array([np.mean([result[method][0] for result in cell]) for cell in table])
            stderr = np.array([_stderr([result[method] for result in cell]) for cell in table])
            height = np.array(
                [
                    np.mean([(r[method][0] - b[method][0]) / r[method][1] for r, b in zip(cell, table[0], strict=True)])
                    for cell in table
                ]
            )
            lines.append(
                f"  {method:<14}" + "  ".join(f"{v:.4g} ({h:.1f})" for v, h in zip(value, height, strict=True))
            )
            rows += [
                {
                    "dim": shape[0],
                    "hidden": shape[1],
                    "sigma": sigma,
                    "method": method,
                    "repetitions": len(cell),
                    "value": v,
                    "stderr": s,
                    "standard_errors_above_zero": h,
                    "theory": b if method == "LSD" else "",
                }
                for sigma, cell, v, s, h, b in zip(sigmas, table, value, stderr, height, bounds, strict=True)
            ]
        lines.append("  theory        " + "  ".join(f"{bound:.4g}" for bound in bounds))
    write_csv(out / "rbm-eval.csv", rows)
    _draw(rows, out / "rbm-eval.png")
    lines.append("Paper (figure): LSD increases with σ near its theoretical value, and is more certain than both KSDs.")
    return lines


def _stderr(estimates: Sequence[Sequence[float]]) -> float:
    """The standard error of a mean over RBMs, from the spread between them; of one RBM that of its estimate."""
    values = np.array([value for value, _ in estimates])
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else estimates[0][1]


def _draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Values with 95% intervals, a row for each method and a column for each size."""
    shapes = list(dict.fromkeys((row["dim"], row["hidden"]) for row in rows))
    figure, axes = new_figure(len(METHODS), len(shapes), width=PAGE_WIDTH / len(shapes), height=1.9)
    for (row, method), (column, shape) in product(enumerate(METHODS), enumerate(shapes)):
        own = [one for one in rows if (one["method"], one["dim"], one["hidden"]) == (method, *shape)]
        sigma, value, stderr = (np.array([one[key] for one in own]) for key in ("sigma", "value", "stderr"))
        ax, half = axes[row, column], normal_quantile(0.975) * stderr
        ax.axhline(0.0, color=COLOURS["grey"], linestyle=":", linewidth=1)
        ax.errorbar(sigma, value, yerr=half, fmt="o", markersize=4, elinewidth=1, color=COLOURS["train"])
        if method == "LSD":
            ax.plot(sigma, [one["theory"] for one in own], "--", color=COLOURS["truth"], linewidth=1, label="theory")
            ax.legend(frameon=False, fontsize=9, loc="upper left")
            ax.set_title(f"{shape[0]} visible, {shape[1]} hidden")
        if column == 0:
            ax.set_ylabel(method)
        if row == len(METHODS) - 1:
            ax.set_xlabel("perturbation σ")
    save_figure(figure, path)


SHAPES = [[50, 40], [100, 80], [200, 100]]
SIGMAS = [0.0, 0.01, 0.02, 0.04, 0.06]

EXPERIMENT = Experiment(
    scales={
        "smoke": {
            "shapes": [[6, 4]],
            "sigmas": [0.0, 0.5],
            "n": 200,
            "gibbs_steps": 20,
            "steps": 30,
            "folds": None,
            "repetitions": 1,
        },
        "quick": {
            "shapes": SHAPES,
            "sigmas": SIGMAS,
            "n": 1000,
            "gibbs_steps": 2000,
            "steps": 1000,
            "folds": 5,
            "repetitions": 1,
        },
        "paper": {
            "shapes": SHAPES,
            "sigmas": SIGMAS,
            "n": 1000,
            "gibbs_steps": 2000,
            "steps": 1000,
            "folds": None,
            "repetitions": 20,
        },
    },
    trials=_trials,
    run=_run,
    report=_report,
    draw=_draw,
)
