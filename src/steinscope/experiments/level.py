"""The level of the test: how often it rejects where the model is right.

Four families whose samples are exact, at two sizes and in three dimensions, and the test over all pairs of few points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.experiments.rates import FIRST_SEED, binomial_interval, run_methods
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.models.rbm import RBM
from steinscope.plots import COLOURS, PAGE_WIDTH, new_figure, save_figure

__all__ = ["EXPERIMENT", "NULLS"]

LEVELS = (0.05, 0.01)


def _gaussian(n: int, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, dim, generator=_generator(seed))
    return x, -x


def _student(n: int, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    """Independent coordinates with 5 degrees of freedom."""
    generator = _generator(seed)
    chi = torch.randn(n, dim, 5, generator=generator).square().mean(2)
    x = torch.randn(n, dim, generator=generator) / chi.sqrt()
    return x, -6 * x / (5 + x.square())


def _mixture(n: int, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    """Two Gaussians with means ± (1, 0, …, 0)."""
    generator = _generator(seed)
    signs = torch.randint(2, (n,), generator=generator) * 2 - 1
    x = torch.randn(n, dim, generator=generator)
    x[:, 0] += signs
    score = -x
    score[:, 0] += torch.tanh(x[:, 0])
    return x, score


def _rbm(n: int, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    """An RBM with 16 hidden units, another one in each test."""
    rbm = RBM.random(dim, 16, seed=seed)
    x = rbm.sample(n, seed=FIRST_SEED + seed)
    with torch.no_grad():
        return x, rbm.score(x)


def _skewed(n: int, dim: int, seed: int) -> tuple[Tensor, Tensor]:
    """Independent Gumbel coordinates."""
    uniform = torch.rand(n, dim, generator=_generator(seed)).clamp(1e-6, 1 - 1e-6)
    x = -(-uniform.log()).log()
    return x, (-x).exp() - 1


NULLS = {"gaussian": _gaussian, "student": _student, "mixture": _mixture, "rbm": _rbm, "skewed": _skewed}


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    size = settings["tests_a_trial"]
    return [
        {"family": family, "n": n, "dim": dim, "seed": start, "tests": size, "method": settings["method"]}
        for start in range(0, settings["repetitions"], size)
        for n in settings["sizes"]
        for dim in settings["dims"]
        for family in settings["families"]
    ]


def _run(trial: Trial, out: Path) -> Trial:
    pvalues = []
    for seed in range(FIRST_SEED + trial["seed"], FIRST_SEED + trial["seed"] + trial["tests"]):
        x, score = NULLS[trial["family"]](trial["n"], trial["dim"], seed)
        pvalues.append(run_methods([trial["method"]], x, score, seed)[trial["method"]]["pvalue"])
    return {"pvalues": pvalues}


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    cells: dict[tuple[str, int, int], list[float]] = {}
    for trial, result in results:
        cells.setdefault((trial["family"], trial["n"], trial["dim"]), []).extend(result["pvalues"])
    everything = np.concatenate([*cells.values()])
    rows, lines = [], [f"Rejection rates of {results[0][0]['method']} where the model is right."]
    for (family, n, dim), found in sorted(cells.items(), key=lambda cell: (cell[0][1:], cell[0][0])):
        pvalues = np.array(found)
        row: dict[str, Any] = {"family": family, "n": n, "dim": dim, "tests": len(pvalues)}
        for level in LEVELS:
            rejected = int((pvalues <= level).sum())
            low, high = binomial_interval(rejected, len(pvalues))
            row |= {f"rate_{level:g}": rejected / len(pvalues), f"low_{level:g}": round(low, 4)}
            row |= {f"high_{level:g}": round(high, 4)}
        rows.append(row)
        rates = ", ".join(f"{row[f'rate_{level:g}']:.3f} at {level:g}" for level in LEVELS)
        lines.append(f"{family}, n = {n}, d = {dim}: {rates} ({len(pvalues)} tests)")
    for level in LEVELS:
        lines.append(f"all {len(everything)} tests: {(everything <= level).mean():.4f} at {level:g}")
    write_csv(out / "level.csv", rows)
    _draw(rows, out / "level.png")
    return [*lines, "Paper: the statistic is normal where the model is right; it has no rejection rates."]


def _draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """The rate of each cell at the first level, with its interval."""
    level = f"{LEVELS[0]:g}"
    rates, low, high = (np.array([row[f"{name}_{level}"] for row in rows]) for name in ("rate", "low", "high"))
    figure, ((ax,),) = new_figure(1, 1, width=PAGE_WIDTH, height=0.8 + 0.2 * len(rows))
    places = np.arange(len(rows))
    spread = np.maximum([rates - low, high - rates], 0.0)
    ax.errorbar(rates, places, xerr=spread, fmt="o", markersize=4, color=COLOURS["train"])
    ax.axvline(LEVELS[0], color=COLOURS["grey"], linewidth=1)
    names = {"gaussian": "Gaussian", "student": "Student t", "rbm": "RBM"}
    ax.set_yticks(
        places, [f"{names.get(row['family'], row['family'])}, n = {row['n']}, d = {row['dim']}" for row in rows]
    )
    ax.invert_yaxis()
    tests = sorted({row["tests"] for row in rows})
    ax.set(
        xlabel=f"share of {' or '.join(map(str, tests))} tests that reject at {LEVELS[0]:.0%}, with exact 95% intervals"
    )
    save_figure(figure, path)


_FAMILIES = ["gaussian", "student", "mixture", "rbm"]
_EXACT = {"families": _FAMILIES, "sizes": [200, 1000], "dims": [10, 50, 200], "tests_a_trial": 25}

EXPERIMENT = Experiment(
    scales={
        "smoke": {
            "families": ["gaussian", "skewed"],
            "sizes": [30, 100],
            "dims": [2],
            "repetitions": 2,
            "tests_a_trial": 2,
            "method": "closed form",
        },
        "quick": {**_EXACT, "repetitions": 50, "method": "closed form"},
        "paper": {**_EXACT, "repetitions": 500, "method": "closed form"},
    },
    trials=_trials,
    run=_run,
    report=_report,
    draw=_draw,
)
