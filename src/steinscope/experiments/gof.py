"""Figure 5 of the paper: rejection rates of the tests on perturbed RBMs, and the same on RBMs with exact samples.

Samples of the paper's RBMs come from Gibbs chains, which do not mix: at σ = 0 the points are not an exact sample of the
model. RBMs with 16 hidden units have exact samples, by enumeration of the hidden states.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steinscope.experiments.rates import FIRST_SEED, binomial_interval, run_methods
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.kernels import mmd_test
from steinscope.models.rbm import MOST_ENUMERATED, RBM
from steinscope.plots import COLOURS, PAGE_WIDTH, legend_above, new_figure, rates_with_intervals, save_figure

__all__ = ["EXPERIMENT"]

LEVEL = 0.05


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    fixed = {key: settings[key] for key in ("n", "sigmas", "gibbs_steps", "methods")}
    return [
        {"dim": dim, "hidden": hidden, "seed": seed, **fixed}
        for seed in range(FIRST_SEED, FIRST_SEED + settings["repetitions"])
        for dim, hidden in settings["shapes"]
    ]


def _draw(rbm: RBM, trial: Trial, seed: int) -> torch.Tensor:
    if trial["hidden"] <= MOST_ENUMERATED:
        return rbm.sample(trial["n"], seed=seed)
    return rbm.gibbs(trial["n"], steps=trial["gibbs_steps"], seed=seed)


def _run(trial: Trial, out: Path) -> Trial:
    seed = trial["seed"]
    rbm = RBM.random(trial["dim"], trial["hidden"], seed=seed)
    x = _draw(rbm, trial, 10_000 + seed)
    stein_methods = [method for method in trial["methods"] if method != "MMD"]
    result = {}
    for sigma in trial["sigmas"]:
        model = rbm.perturbed(sigma, seed=20_000 + seed)
        with torch.no_grad():
            score = model.score(x)
        rows = run_methods(stein_methods, x, score, seed)
        if "MMD" in trial["methods"]:
            test = mmd_test(x, _draw(model, trial, 30_000 + seed), seed=seed)
            rows["MMD"] = {"pvalue": test.pvalue, "statistic": test.statistic, "seconds": float("nan")}
        result[str(sigma)] = rows
    return result


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    first = results[0][0]
    shapes = list(dict.fromkeys((trial["dim"], trial["hidden"]) for trial, _ in results))
    rows = []
    for shape, method, sigma in product(shapes, first["methods"], first["sigmas"]):
        records = [result for trial, result in results if (trial["dim"], trial["hidden"]) == shape]
        runs = [record[str(sigma)][method] for record in records]
        rejected = sum(run["pvalue"] <= LEVEL for run in runs)
        low, high = binomial_interval(rejected, len(runs))
        seconds = [run["seconds"] for run in runs if run["seconds"] is not None]
        rows.append(
            {
                "dim": shape[0],
                "hidden": shape[1],
                "sigma": sigma,
                "method": method,
                "tests": len(runs),
                "rate": rejected / len(runs),
                "low": round(low, 4),
                "high": round(high, 4),
                "seconds": round(float(np.median(seconds)), 4) if seconds else "",
            }
        )
    write_csv(out / "gof.csv", rows)
    _draw_rates(rows, out / "gof.png")
    lines = [f"Rejection rates at 5%, n = {first['n']}, {rows[0]['tests']} tests each. Median seconds in brackets."]
    for dim, hidden in shapes:
        lines.append(f"({dim}, {hidden})  σ = {', '.join(map(str, first['sigmas']))}")
        for method in first["methods"]:
            chosen = [row for row in rows if (row["dim"], row["hidden"], row["method"]) == (dim, hidden, method)]
            rates = "  ".join(f"{row['rate']:.2f}" for row in chosen)
            seconds = f"{chosen[0]['seconds']:.3f}" if chosen[0]["seconds"] != "" else "-"
            lines.append(f"  {method:<12} {rates}   ({seconds})")
    lines.append("Paper (figure): LSD matches the quadratic KSD in 100 and 200 dimensions; MMD falls behind all.")
    return lines


def _draw_rates(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """The rates of all methods at each perturbation, one of the axes for each size of RBM, up to three in a row."""
    shapes = list(dict.fromkeys((row["dim"], row["hidden"]) for row in rows))
    methods, sigmas = (list(dict.fromkeys(row[key] for row in rows)) for key in ("method", "sigma"))
    columns = min(3, len(shapes))
    lines = -(-len(shapes) // columns)
    figure, axes = new_figure(lines, columns, width=PAGE_WIDTH / columns, height=2.8 if lines > 1 else 3.2)
    for ax in axes.flat[len(shapes) :]:
        ax.set_axis_off()
    for number, shape in enumerate(shapes):
        ax = axes.flat[number]
        rates_with_intervals(
            ax, [row for row in rows if (row["dim"], row["hidden"]) == shape], methods, sigmas, "sigma"
        )
        ax.axhline(LEVEL, color=COLOURS["grey"], linestyle=":", linewidth=1)
        kind = "exact samples" if shape[1] <= MOST_ENUMERATED else "Gibbs chains"
        ax.set(
            title=f"{shape[0]} visible, {shape[1]} hidden, {kind}"
            if columns < 3
            else f"{shape[0]} × {shape[1]}, {kind}"
        )
        if number % columns == 0:
            ax.set_ylabel(f"share of {rows[0]['tests']} tests that reject")
        if number >= len(shapes) - columns:
            ax.set_xlabel("perturbation σ of the weights")
    legend_above(figure, axes.flat[0])
    save_figure(figure, path)


QUICK = ["learned", "closed form", "linear", "KSD", "LKSD", "FSSD", "MMD", "KSDAgg"]

EXPERIMENT = Experiment(
    scales={
        "smoke": {
            "shapes": [[6, 4], [6, 20]],
            "sigmas": [0.0, 0.5],
            "n": 200,
            "gibbs_steps": 50,
            "repetitions": 2,
            "methods": ["closed form", "linear", "KSD", "LKSD", "FSSD", "MMD", "KSDAgg"],
        },
        "quick": {
            "shapes": [[50, 40], [50, 16]],
            "sigmas": [0.0, 0.01, 0.02, 0.04],
            "n": 1000,
            "gibbs_steps": 2000,
            "repetitions": 20,
            "methods": QUICK,
        },
        "paper": {
            "shapes": [[50, 40], [100, 80], [200, 100], [50, 16], [100, 16], [200, 16]],
            "sigmas": [0.0, 0.01, 0.02, 0.04, 0.06],
            "n": 1000,
            "gibbs_steps": 2000,
            "repetitions": 200,
            "methods": [*QUICK, "split"],
        },
    },
    trials=_trials,
    run=_run,
    report=_report,
    draw=_draw_rates,
)
