"""The level of the test for chains of dependent draws, and its power beside that of thinned draws.

Chains start from exact draws, so that they are right, or wrong by a known factor, from the first draw on.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from steinscope.chains import thin
from steinscope.errors import InputError
from steinscope.experiments.rates import FIRST_SEED, binomial_interval
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.gof.driver import gof_test
from steinscope.plots import COLOURS, new_figure

__all__ = ["EXPERIMENT", "autoregression", "random_walk"]

LEVELS = (0.05, 0.01)
DIM = 10
CRITICS = {"closed form": "closed form", "learned": "auto", "thinned": "closed form"}
_CELL = ("sampler", "chains", "draws", "stretch", "method")


def autoregression(rho: float, chains: int, draws: int, seed: int, dim: int = DIM) -> np.ndarray:
    """Chains whose stationary distribution is standard normal, with correlation ρ between neighbours.

    Example:
        >>> x = autoregression(-0.5, 2, 4000, seed=0)
        >>> x.shape, round(float((x[:, 1:] * x[:, :-1]).mean()), 1)
        ((2, 4000, 10), -0.5)
    """
    x = np.random.default_rng(seed).normal(size=(chains, draws, dim))
    for t in range(1, draws):
        x[:, t] = rho * x[:, t - 1] + math.sqrt(1 - rho**2) * x[:, t]
    return x


def random_walk(dim: int, chains: int, draws: int, seed: int) -> np.ndarray:
    """Random-walk Metropolis on the standard normal, with steps of 2.38 / √d."""
    rng = np.random.default_rng(seed)
    steps = 2.38 / math.sqrt(dim) * rng.normal(size=(draws, chains, dim))
    chances = np.log(rng.random((draws, chains)))
    x = np.empty((draws, chains, dim))
    here = rng.normal(size=(chains, dim))
    for t in range(draws):
        proposed = here + steps[t]
        is_taken = chances[t] < 0.5 * (np.square(here).sum(1) - np.square(proposed).sum(1))
        here = np.where(is_taken[:, None], proposed, here)
        x[t] = here
    return x.swapaxes(0, 1)


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    """Trials in rounds over all cells, so that a run that was stopped has some of each."""
    level = settings["repetitions"]
    cells = [(_autoregression_cell(cell, 1.0, "closed form"), level) for cell in settings["level"]]
    for dim in settings["random_walks"]:
        cell = {"sampler": "random walk", "parameter": dim, "chains": 4, "draws": 1000, "stretch": 1.0}
        cells.append(({**cell, "method": "closed form"}, level))
    cells += [(_autoregression_cell(cell, 1.0, "learned"), settings["trained"]) for cell in settings["network"]]
    for cell in settings["power"]:
        for method in ("closed form", "thinned"):
            cells.append((_autoregression_cell(cell, settings["stretch"], method), settings["misfits"]))
    size, most = settings["tests_a_trial"], max(repetitions for _, repetitions in cells)
    return [
        {**cell, "seed": start, "tests": min(size, repetitions - start)}
        for start in range(0, most, size)
        for cell, repetitions in cells
        if start < repetitions
    ]


def _autoregression_cell(cell: Sequence[float], stretch: float, method: str) -> Trial:
    rho, chains, draws = cell
    shape = {"chains": int(chains), "draws": int(draws)}
    return {"sampler": "autoregression", "parameter": rho, **shape, "stretch": stretch, "method": method}


def _run(trial: Trial, out: Path) -> Trial:
    pvalues = []
    make = autoregression if trial["sampler"] == "autoregression" else random_walk
    for seed in range(FIRST_SEED + trial["seed"], FIRST_SEED + trial["seed"] + trial["tests"]):
        x = trial["stretch"] * make(trial["parameter"], trial["chains"], trial["draws"], seed)
        pvalues.append(_pvalue(x, trial["method"], seed))
    return {"pvalues": pvalues}


def _pvalue(x: np.ndarray, method: str, seed: int) -> float | None:
    """The p-value of the standard normal, or None where there are too few effective draws."""
    is_thinned = method == "thinned"
    if is_thinned:
        x = np.concatenate(thin(x))
    try:
        return gof_test(x, -x, chains=not is_thinned, critics=CRITICS[method], seed=seed, progress=False).pvalue
    except InputError as error:
        # Chains that are worth too few draws, or too few draws left after thinning.
        if error.argument != "x":
            raise
        return None


def _label(cell: Mapping[str, Any]) -> str:
    is_walk = cell["sampler"] == "random walk"
    name = f"{cell['sampler']}, {'d' if is_walk else 'ρ'} = {cell['parameter']:g}"
    spread = "" if cell["stretch"] == 1 else f", spread {cell['stretch']:g}"
    return f"{name}, {cell['chains']} × {cell['draws']}{spread}, {cell['method']}"


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    cells: dict[str, tuple[Trial, list[float | None]]] = {}
    for trial, result in results:
        cells.setdefault(_label(trial), (trial, []))[1].extend(result["pvalues"])
    rows, lines = [], ["Rejection rates for chains, of those tests that can tell."]
    for label, (trial, found) in cells.items():
        pvalues = np.array([value for value in found if value is not None])
        row: dict[str, Any] = {key: trial[key] for key in ("parameter", *_CELL)}
        row |= {"tests": len(found), "cannot_tell": len(found) - len(pvalues)}
        for level in LEVELS:
            rejected = int((pvalues <= level).sum())
            low, high = binomial_interval(rejected, len(pvalues)) if len(pvalues) else (0.0, 1.0)
            rate = rejected / len(pvalues) if len(pvalues) else None
            row |= {f"rate_{level:g}": rate, f"low_{level:g}": round(low, 4), f"high_{level:g}": round(high, 4)}
        rows.append({"label": label, **row})
        rates = ", ".join(f"{row[f'rate_{level:g}']:.3f} at {level:g}" for level in LEVELS) if len(pvalues) else "none"
        silent = f", {row['cannot_tell']} cannot tell" if row["cannot_tell"] else ""
        lines.append(f"{label}: {rates} ({len(found)} tests{silent})")
    write_csv(out / "chains.csv", rows)
    _draw([row for row in rows if row["stretch"] == 1 and row["rate_0.05"] is not None], out / "chains.png")
    return [*lines, "Paper: it has no chains."]


def _draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """The rate of each cell of right chains at the first level, with its interval."""
    level = f"{LEVELS[0]:g}"
    rates, low, high = (np.array([row[f"{name}_{level}"] for row in rows]) for name in ("rate", "low", "high"))
    figure, ((ax,),) = new_figure(1, 1, width=7.5, height=1.4 + 0.25 * len(rows))
    places = np.arange(len(rows))
    if len(rows):
        spread = np.maximum([rates - low, high - rates], 0.0)
        ax.errorbar(rates, places, xerr=spread, fmt="o", markersize=4, color=COLOURS["train"])
    ax.axvline(LEVELS[0], color=COLOURS["grey"], linewidth=1)
    ax.set_yticks(places, [row["label"] for row in rows])
    ax.invert_yaxis()
    ax.set(xlabel=f"share rejected at {LEVELS[0]:.0%}, with 95% intervals")
    figure.savefig(path, dpi=150)


# The correlation of neighbours, how many chains, and how many draws each.
_LEVEL = [[-0.5, 4, 1000], [0.0, 4, 1000], [0.5, 4, 1000], [0.9, 4, 1000], [0.95, 4, 1000], [0.95, 4, 2000]]
_LEVEL += [[0.5, 1, 4000], [0.9, 1, 4000]]
_POWER = [[0.0, 4, 1000], [0.5, 4, 1000], [0.9, 4, 1000], [0.95, 4, 2000], [0.9, 1, 4000]]
_CHAINS = {
    "level": _LEVEL,
    "random_walks": [3],
    "network": [[-0.5, 4, 1000], [0.5, 4, 1000], [0.9, 4, 1000]],
    "power": _POWER,
    "stretch": 1.1,
}

EXPERIMENT = Experiment(
    scales={
        "smoke": {
            "level": [[0.5, 2, 300], [0.95, 2, 300]],
            "random_walks": [1],
            "network": [[-0.5, 2, 300]],
            "power": [[0.5, 2, 300]],
            "stretch": 1.1,
            "repetitions": 2,
            "trained": 1,
            "misfits": 2,
            "tests_a_trial": 2,
        },
        "quick": {**_CHAINS, "repetitions": 40, "trained": 10, "misfits": 20, "tests_a_trial": 10},
        "paper": {**_CHAINS, "repetitions": 500, "trained": 100, "misfits": 100, "tests_a_trial": 10},
    },
    trials=_trials,
    run=_run,
    report=_report,
)
