"""The appendix on the test statistic: is it standard normal where the model is right?

For RBMs with 16 hidden units, whose samples are exact. The prequential statistic shown is that of the linear critic;
the p-value of the whole portfolio is compared with the uniform distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steinscope.experiments.rates import FIRST_SEED, run_methods
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.models.rbm import RBM
from steinscope.plots import PAGE_WIDTH, new_figure, plot_normal_quantiles, save_figure

__all__ = ["EXPERIMENT"]

HIDDEN = 16
PAPER = {50: 0.29, 100: 0.68, 200: 0.45}


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    fixed = {key: settings[key] for key in ("n", "methods")}
    seeds = range(FIRST_SEED, FIRST_SEED + settings["repetitions"])
    return [{"dim": dim, "seed": seed, **fixed} for seed in seeds for dim in settings["dims"]]


def _run(trial: Trial, out: Path) -> Trial:
    rbm = RBM.random(trial["dim"], HIDDEN, seed=trial["seed"])
    x = rbm.sample(trial["n"], seed=10_000 + trial["seed"])
    with torch.no_grad():
        score = rbm.score(x)
    return run_methods(trial["methods"], x, score, trial["seed"])


def kolmogorov_smirnov(uniforms: np.ndarray) -> float:
    """The p-value of the Kolmogorov–Smirnov test of uniformity, by the asymptotic series with Stephens' correction."""
    n = len(uniforms)
    ordered, steps = np.sort(uniforms), np.arange(n + 1) / n
    distance = max((steps[1:] - ordered).max(), (ordered - steps[:-1]).max())
    scaled = distance * (np.sqrt(n) + 0.12 + 0.11 / np.sqrt(n))
    k = np.arange(1, 101)
    return float(np.clip(2 * ((-1.0) ** (k - 1) * np.exp(-2 * (k * scaled) ** 2)).sum(), 0.0, 1.0))


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    methods = results[0][0]["methods"]
    dims = list(dict.fromkeys(trial["dim"] for trial, _ in results))
    rows, values, lines = [], [], []
    for method in methods:
        for dim in dims:
            runs = [result[method] for trial, result in results if trial["dim"] == dim]
            pvalues = np.array([run["pvalue"] for run in runs])
            agreement = kolmogorov_smirnov(pvalues)
            values += [{"method": method, "dim": dim, "pvalue": float(pvalue)} for pvalue in pvalues]
            rows.append({"method": method, "dim": dim, "tests": len(runs), "ks_pvalue": agreement})
            paper = f"; paper {PAPER[dim]}" if method == "split" and dim in PAPER else ""
            rejected = (pvalues <= 0.05).mean()
            lines.append(f"{method}, {dim} d: KS p-value {agreement:.2f}, rejects {rejected:.3f} at 5%{paper}")
    write_csv(out / "null.csv", rows)
    write_csv(out / "null-pvalues.csv", values)
    _draw(values, out / "null.png")
    return [
        *lines,
        "Paper: KS p-values .29, .68, .45 in 50, 100, 200 d for the split scheme, on samples of Gibbs chains.",
    ]


def _draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """Quantile–quantile plots of the p-values as z-scores: every one-sided p-value has one, whatever is behind it."""
    methods, dims = (list(dict.fromkeys(row[key] for row in rows)) for key in ("method", "dim"))
    figure, axes = new_figure(len(methods), len(dims), width=PAGE_WIDTH / len(dims), height=2.5)
    for (i, method), (j, dim) in product(enumerate(methods), enumerate(dims)):
        pvalues = np.array([row["pvalue"] for row in rows if (row["method"], row["dim"]) == (method, dim)])
        z = -torch.special.ndtri(torch.from_numpy(pvalues).clamp(1e-12, 1 - 1e-12)).numpy()
        title = f"{method}, {dim} dimensions\nKS p = {kolmogorov_smirnov(pvalues):.2f}"
        plot_normal_quantiles(z, axes[i, j], title)
        axes[i, j].set(
            xlabel="quantile of the normal" if i == len(methods) - 1 else "", ylabel="z-score" if j == 0 else ""
        )
    save_figure(figure, path)


EXPERIMENT = Experiment(
    scales={
        "smoke": {"dims": [5, 8], "n": 100, "repetitions": 6, "methods": ["linear", "closed form"]},
        "quick": {"dims": [50, 100], "n": 1000, "repetitions": 100, "methods": ["linear", "closed form"]},
        "paper": {"dims": [50, 100, 200], "n": 1000, "repetitions": 200, "methods": ["linear", "learned", "split"]},
    },
    trials=_trials,
    run=_run,
    report=_report,
    draw=_draw,
)
