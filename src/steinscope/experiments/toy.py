"""Figures 1 and 4 of the paper: densities learned from two-dimensional points.

In two dimensions the normaliser can be summed over a grid, so that every method is judged by its held-out
log-likelihood, and maximum likelihood through that sum is possible, too. The density of the data is the ceiling.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.critics.mlp import MLP
from steinscope.data.toy import TOY, draw_toy
from steinscope.data.toy_densities import true_log_likelihood
from steinscope.experiments.rates import FIRST_SEED
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.experiments.search import SEARCH_SEED, best_points, grid_points
from steinscope.models.ebm import EBM
from steinscope.objectives.base import TrainingObjective
from steinscope.objectives.learned_stein import LearnedStein
from steinscope.objectives.likelihood import ContrastiveDivergence, GridLikelihood, grid_log_normaliser
from steinscope.objectives.matching import ScoreMatching
from steinscope.objectives.noise_contrast import NoiseContrast
from steinscope.plots import PAGE_WIDTH, new_figure, save_figure
from steinscope.support.randomness import make_generator
from steinscope.training.driver import train

__all__ = ["EXPERIMENT"]

METHODS = {
    "likelihood": "exact likelihood",
    "lsd": "LSD",
    "lsd-field": "LSD as in the paper",
    "sliced": "sliced score matching",
    "nce": "NCE",
    "short-run": "short-run MCMC",
}
# These two see only scores, and learn the mass of separated modes from noise that falls to zero.
SEES_ONLY_SCORES = ("lsd-field", "sliced")
# Data sets in the figure of short-run chains.
SHOWN = ("checkerboard", "moons")
HALF_WIDTH = 5.0
TEST_POINTS = 20_000
_PIXELS = 120
GRID = ("lr", "steps")


def _objective(trial: Trial) -> TrainingObjective:
    method = trial["method"]
    if method == "likelihood":
        return GridLikelihood(-HALF_WIDTH, HALF_WIDTH, trial["grid"])
    if method == "lsd":
        return LearnedStein()
    if method == "lsd-field":
        critic = _sharpen(MLP(2, trial["width"]), trial["steepness"])
        return LearnedStein(critic, l2=trial["l2"], critic_steps=trial["critic_steps"])
    if method == "sliced":
        return ScoreMatching("sliced")
    if method == "nce":
        return NoiseContrast()
    return ContrastiveDivergence(steps=trial["chain_steps"], epsilon=0.01, sigma=0.05, start="noise")


def _network(trial: Trial, look: Tensor) -> EBM:
    """An EBM whose first layer starts steeper than usual, because the densities are sharp."""
    model = EBM.perceptron(2, trial["width"], mean=look.mean(0), std=look.std(0) + 1, seed=trial["seed"])
    _sharpen(model.net, trial["steepness"])
    return model


def _sharpen(network: Any, steepness: float) -> Any:
    with torch.no_grad():
        network.layers[0].weight.mul_(steepness)
    return network


def _trial(settings: Mapping[str, Any], data: str, method: str, seed: int, point: Trial) -> Trial:
    left = ("data", "methods", "repetitions", "chosen")
    fixed = {key: value for key, value in settings.items() if key not in left}
    return {
        "data": data,
        "method": method,
        "seed": seed,
        **fixed,
        **point,
        "steps": point["steps"] or settings["steps"],
    }


def _search(settings: Mapping[str, Any]) -> list[Trial]:
    """Every method with every point of its small grid, unless there is only one."""
    return [
        _trial(settings, data, method, SEARCH_SEED, point)
        for (method, grid), data in product(settings["methods"].items(), settings["data"])
        if len(points := grid_points(grid, GRID)) > 1
        for point in points
    ]


def _choose(settings: Mapping[str, Any], searched: Sequence[tuple[Trial, Trial]]) -> Mapping[str, Any]:
    """The settings with one point of each grid."""
    best = best_points(searched, GRID, lambda trial: (trial["method"], trial["data"]), "log_likelihood")
    cells = product(settings["methods"].items(), settings["data"])
    first = {(method, data): grid_points(grid, GRID)[0] for (method, grid), data in cells}
    return {**settings, "chosen": {**first, **best}}


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    return [
        _trial(settings, data, method, FIRST_SEED + number, settings["chosen"][method, data])
        for number in range(settings["repetitions"])
        for method, data in product(settings["methods"], settings["data"])
    ]


def _run(trial: Trial, out: Path) -> Trial:
    name, seed = trial["data"], trial["seed"]
    look = draw_toy(name, 5000, seed=1)
    test = draw_toy(name, TEST_POINTS, seed=2)
    objective = _objective(trial)
    result = train(
        _network(trial, look),
        lambda n, generator: draw_toy(name, n, generator),
        objective=objective,
        steps=trial["steps"],
        batch_size=trial["batch_size"],
        lr=trial["lr"],
        lr_decay=True,
        average=trial["average"],
        noise=trial["noise"] if trial["method"] in SEES_ONLY_SCORES else None,
        seed=seed,
        progress=False,
    )
    model = result.averaged
    axis = torch.linspace(-HALF_WIDTH, HALF_WIDTH, _PIXELS)
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    grid = torch.stack([x.flatten(), y.flatten()], 1)
    coarse = grid.view(_PIXELS, _PIXELS, 2)[4::8, 4::8].reshape(-1, 2)
    with torch.no_grad():
        log_normaliser = grid_log_normaliser(model)
        values = model.log_prob(test) - log_normaliser
        record = {
            "log_likelihood": float(values.mean()),
            "stderr": float(values.std()) / TEST_POINTS**0.5,
            "last": float(result.model.log_prob(test).mean() - grid_log_normaliser(result.model)),
            "density": (model.log_prob(grid) - log_normaliser).exp().view(_PIXELS, _PIXELS).half().tolist(),
            "score": model.score(coarse).tolist(),
            "places": coarse.tolist(),
        }
    if isinstance(objective, ContrastiveDivergence):
        record["samples"] = objective.sample(result.model, test[:2000], make_generator(3)).tolist()
    return record


def _image(ax: Any, values: Any, title: str) -> None:
    extent = (-HALF_WIDTH, HALF_WIDTH, -HALF_WIDTH, HALF_WIDTH)
    # The square root, so that thin rings of little mass can be seen beside dense ones.
    ax.imshow(np.sqrt(np.array(values)), origin="lower", extent=extent, cmap="viridis")
    ax.set(title=title)
    ax.set_axis_off()


def _points(ax: Any, points: Any, title: str) -> None:
    ax.plot(*np.asarray(points).T, ".", markersize=1, color="#333333")
    ax.set(title=title, xlim=(-HALF_WIDTH, HALF_WIDTH), ylim=(-HALF_WIDTH, HALF_WIDTH))
    ax.set_axis_off()
    ax.set_aspect("equal")


def _draw(table: Mapping[tuple[str, str], Trial], names: list[str], out: Path) -> None:
    columns = min(4, len(names))
    figure, axes = new_figure(3 * -(-len(names) // columns), columns, width=PAGE_WIDTH / columns, height=2.05)
    for ax in axes.flat:
        ax.set_axis_off()
    for number, name in enumerate(names):
        row, column = divmod(number, columns)
        cells = axes[3 * row : 3 * row + 3, column]
        record = table[name, "lsd"]
        _points(cells[0], draw_toy(name, 2000, seed=1).numpy(), f"{name}: points")
        _image(cells[1], record["density"], f"density of LSD\nlog-likelihood {record['log_likelihood']:.2f}")
        ax, places, score = cells[2], np.array(record["places"]), np.array(record["score"])
        # Long arrows are shortened: directions matter where there are no points, and lengths where there are.
        length = np.linalg.norm(score, axis=1, keepdims=True)
        score = score / np.maximum(length, 1e-9) * np.minimum(length, 5.0)
        ax.quiver(*places.T, *score.T, angles="xy", width=0.006)
        ax.set(title="score of LSD")
        ax.set_aspect("equal")
    save_figure(figure, out / "toy.png")
    if (names[0], "short-run") not in table:
        return
    chosen = [name for name in SHOWN if name in names] or names[:1]
    figure, axes = new_figure(len(chosen), 4, width=PAGE_WIDTH / 4, height=2.2)
    for row, name in zip(axes, chosen, strict=True):
        _points(row[0], draw_toy(name, 2000, seed=1).numpy(), f"{name}:\npoints")
        _points(row[1], table[name, "short-run"]["samples"], "short-run MCMC:\nsamples")
        _image(row[2], table[name, "short-run"]["density"], "short-run MCMC:\ndensity")
        _image(row[3], table[name, "lsd"]["density"], "LSD:\ndensity")
    save_figure(figure, out / "toy-short-run.png")


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    names = list(dict.fromkeys(trial["data"] for trial, _ in results))
    methods = list(dict.fromkeys(trial["method"] for trial, _ in results))
    truths = {name: true_log_likelihood(name, draw_toy(name, TEST_POINTS, seed=2)) for name in names}
    rows = []
    for name, method in product(names, methods):
        own = [(t, r) for t, r in results if (t["data"], t["method"]) == (name, method)]
        values = np.array([result["log_likelihood"] for _, result in own])
        spread = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else None
        rows.append(
            {
                "data": name,
                "method": method,
                **{key: own[0][0][key] for key in GRID},
                "runs": len(own),
                "log_likelihood": values.mean(),
                "stderr": spread,
                "stderr_of_test_points": max(result["stderr"] for _, result in own),
                "truth": truths[name],
            }
        )
    write_csv(out / "toy.csv", rows)
    if "lsd" in methods:
        _draw({(t["data"], t["method"]): r for t, r in results if t["seed"] == FIRST_SEED}, names, out)
    cells = {(row["data"], row["method"]): row for row in rows}
    runs = len(results) // len(rows)
    lines = [
        f"Held-out log-likelihood, mean of {runs} run{'s' if runs > 1 else ''} ± standard error; settings chosen on "
        f"seed {SEARCH_SEED}. {TEST_POINTS} test points add at most "
        f"{max(row['stderr_of_test_points'] for row in rows):.3f}.",
        f"{'':<14}" + "".join(f"{column:>23}" for column in ("truth", *(METHODS[method] for method in methods))),
    ]
    for name in names:
        truth = truths[name]
        texts = ["unknown" if truth is None else f"{truth:.3f}"]
        for method in methods:
            value, error = cells[name, method]["log_likelihood"], cells[name, method]["stderr"]
            texts.append(f"{value:.3f}" + ("" if error is None else f" ± {error:.3f}"))
        lines.append(f"{name:<14}" + "".join(f"{text:>23}" for text in texts))
    if "lsd" in methods:
        known = [(truth, cells[name, "lsd"]["log_likelihood"]) for name, truth in truths.items() if truth is not None]
        close = sum(truth - value <= 0.15 for truth, value in known)
        lines.append(
            f"LSD is within 0.15 nats of the truth on {close} of {len(known)} data sets whose density is known."
        )
    lines.append(
        "Paper (figures): LSD's densities look like the data; short-run MCMC's samples do, its density does not."
    )
    return lines


_METHODS = {
    "likelihood": {"lr": [5e-3], "steps": [6000]},
    "lsd": {"lr": [5e-3]},
    "lsd-field": {"lr": [1e-3]},
    "sliced": {"lr": [1e-3, 5e-3]},
    "nce": {"lr": [1e-3, 5e-3]},
    "short-run": {"lr": [1e-3]},
}
_QUICK = {
    "data": list(TOY),
    "methods": _METHODS,
    "repetitions": 3,
    "width": 300,
    "steps": 2000,
    "batch_size": 256,
    "l2": 0.5,
    "critic_steps": 5,
    "average": 0.995,
    "noise": 1.0,
    "steepness": 3.0,
    "grid": 64,
    "chain_steps": 30,
}

EXPERIMENT = Experiment(
    scales={
        "smoke": {
            **_QUICK,
            "data": ["moons"],
            "methods": {
                **{name: {"lr": [1e-3]} for name in METHODS},
                "lsd": {"lr": [1e-3, 5e-3]},
            },
            "repetitions": 2,
            "width": 16,
            "steps": 20,
            "batch_size": 32,
            "grid": 10,
            "chain_steps": 3,
            "average": 0.9,
        },
        "quick": _QUICK,
        "paper": {**_QUICK, "steps": 10_000, "average": 0.999},
    },
    trials=_trials,
    run=_run,
    report=_report,
    search=_search,
    choose=_choose,
)
