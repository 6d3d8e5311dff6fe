"""How much of a known discrepancy is found, how often something where nothing is, and how sure rankings are."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from steinscope.comparison import compare
from steinscope.data.toy import moons, moons_density
from steinscope.densities import as_density
from steinscope.estimation import discrepancy
from steinscope.experiments.moons_models import fit_models, make_ebm, train_ebm
from steinscope.experiments.rates import binomial_interval
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.metric import Metric
from steinscope.models.rbm import RBM
from steinscope.plots import COLOURS, PAGE_WIDTH, SERIES, legend_above, new_figure, save_figure

__all__ = ["CASES", "EXPERIMENT", "NULLS", "PAIRS"]

EBMS = "moons"
_MOONS_TO_FIT = 14_000
_SURE = 0.95


@dataclass(frozen=True)
class Case:
    """Points from a density that is known, and a model.

    Arguments:
        draw: Takes a number of points, a generator and the experiment's directory to the points, the model's scores and
            the true ones.
        n: How many points.
    """

    draw: Callable[[int, torch.Generator, Path], tuple[Tensor, Tensor, Tensor]]
    n: int


def _laplace(rotated: bool) -> Case:
    def draw(n: int, generator: torch.Generator, out: Path) -> tuple[Tensor, Tensor, Tensor]:
        uniform = torch.rand(n, 30, generator=generator) - 0.5
        x = -torch.sign(uniform) * torch.log1p(-2 * uniform.abs()) / math.sqrt(2)
        turn = torch.linalg.qr(torch.randn(30, 30, generator=generator))[0] if rotated else torch.eye(30)
        return x @ turn, -x @ turn, -math.sqrt(2) * torch.sign(x) @ turn

    return Case(draw, 4000)


def _student_score(x: Tensor, degrees: float, scale: float = 1.0) -> Tensor:
    return -(degrees + 1) * x / (degrees * scale**2 + x**2)


def _student(degrees: float, scale: float = 1.0) -> Case:
    def draw(n: int, generator: torch.Generator, out: Path) -> tuple[Tensor, Tensor, Tensor]:
        chi = torch.randn(n, 8, 6, generator=generator).square().mean(2)
        x = torch.randn(n, 8, generator=generator) / chi.sqrt()
        return x, _student_score(x, degrees, scale), _student_score(x, 6.0)

    return Case(draw, 6000)


def _two_modes(n: int, generator: torch.Generator, out: Path) -> tuple[Tensor, Tensor, Tensor]:
    """Two modes at ±1.5 along a direction that is no axis; the model is the Gaussian of the same covariance."""
    direction = torch.ones(5) / math.sqrt(5)
    x = torch.randn(n, 5, generator=generator)
    x += 1.5 * (2 * torch.randint(2, (n, 1), generator=generator) - 1) * direction
    along = (x @ direction)[:, None] * direction
    true = -x + 1.5 * torch.tanh(1.5 * (x @ direction))[:, None] * direction
    return x, -(x - along) - along / (1 + 1.5**2), true


def _gaussian(mean: float = 0.0, std: float = 1.0, dim: int = 100) -> Case:
    def draw(n: int, generator: torch.Generator, out: Path) -> tuple[Tensor, Tensor, Tensor]:
        x = torch.randn(n, dim, generator=generator)
        return x, (mean - x) / std**2, -x

    return Case(draw, 5000)


def _rbm(dim: int, hidden: int, sigma: float = 0.04) -> Case:
    def draw(n: int, generator: torch.Generator, out: Path) -> tuple[Tensor, Tensor, Tensor]:
        rbm = RBM.random(dim, hidden, seed=generator)
        x = rbm.gibbs(n, steps=500, seed=generator)
        with torch.no_grad():
            return x, rbm.perturbed(sigma, seed=generator).score(x), rbm.score(x)

    return Case(draw, 5000)


def _moons(model: str, n: int) -> Case:
    def draw(n: int, generator: torch.Generator, out: Path) -> tuple[Tensor, Tensor, Tensor]:
        x = moons(n, seed=generator)
        score = as_density(_moons_models(out)[model]).score(x).detach()
        return x, score, as_density(moons_density()).score(x).detach()

    return Case(draw, n)


def _right(case: Case, n: int) -> Case:
    """The same points with the right model."""

    def draw(n: int, generator: torch.Generator, out: Path) -> tuple[Tensor, Tensor, Tensor]:
        x, _, true = case.draw(n, generator, out)
        return x, true, true

    return Case(draw, n)


CASES: dict[str, Case] = {
    "Laplace, d = 30, against N(0, I)": _laplace(False),
    "the same, rotated": _laplace(True),
    "t6, d = 8, against t30": _student(30.0),
    "t6 against t6 of scale .8": _student(6.0, 0.8),
    "t6 against t2.5": _student(2.5),
    "two modes, d = 5, against a Gaussian": Case(_two_modes, 5000),
    "N(0, I), d = 100, against means of .3": _gaussian(mean=0.3),
    "N(0, I), d = 100, against a scale of 1.5": _gaussian(std=1.5),
    "RBM (50, 40), off by .04": _rbm(50, 40),
    "RBM (100, 80), off by .04": _rbm(100, 80),
    **{
        f"{name} of two moons, n = {n}": _moons(name, n)
        for n in (2000, 20_000)
        for name in ("one Gaussian", "two Gaussians", "early EBM", "trained EBM")
    },
}
# The model is right.
NULLS: dict[str, Case] = {
    "N(0, I), d = 10": _right(_gaussian(dim=10), 1000),
    "t6, d = 8": _right(_student(6.0), 1000),
    "Laplace, d = 30": _right(_laplace(False), 500),
    "RBM (50, 40)": _right(_rbm(50, 40), 500),
}


def _opposite_means(x: Tensor) -> dict[str, Tensor]:
    return {"plus": 0.2 - x, "minus": -0.2 - x}


def _different_directions(x: Tensor) -> dict[str, Tensor]:
    return {f"mean {i}": 0.4 * torch.eye(x.shape[1])[i] - x for i in range(2)}


def _four_directions(x: Tensor) -> dict[str, Tensor]:
    return {f"mean {i}": 0.4 * torch.eye(x.shape[1])[i] - x for i in range(4)}


# Models of N(0, I) in 5 dimensions that are equally good.
PAIRS = {
    "means at .2 and -.2": _opposite_means,
    "means along two axes": _different_directions,
    "means along four axes": _four_directions,
}


def _moons_models(out: Path) -> dict[str, Any]:
    """The models of the demo; the trained ones are read from the directory."""
    known = moons(_MOONS_TO_FIT, seed=0)
    models = fit_models(known)
    for name in ("early EBM", "trained EBM"):
        model = make_ebm(known)
        model.load_state_dict(load_file(out / EBMS / f"{name}.safetensors"))
        models[name] = model
    return models


def _prepare(settings: Mapping[str, Any], out: Path) -> None:
    directory = out / EBMS
    if (directory / "trained EBM.safetensors").exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    for name, model in train_ebm(moons(_MOONS_TO_FIT, seed=0), settings["moons_steps"]).items():
        save_file(model.state_dict(), directory / f"{name}.safetensors")


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    shares = [
        {"part": "share", "case": case, "method": method, "n": settings["n"], "seed": settings["seed"] + repetition}
        for repetition in range(settings["repetitions"])
        for case in settings["cases"] or CASES
        for method in settings["methods"]
    ]
    nulls = [
        {"part": "null", "case": case, "method": "closed form", "n": settings["n"], "seed": settings["seed"] + number}
        for number in range(settings["nulls"])
        for case in NULLS
    ]
    rankings = [
        {"part": "ranking", "case": case, "n": settings["n"], "seed": settings["seed"] + number}
        for number in range(settings["rankings"])
        for case in PAIRS
    ]
    return shares + nulls + rankings


def _run(trial: Trial, out: Path) -> Trial:
    generator = torch.Generator().manual_seed(trial["seed"])
    if trial["part"] == "ranking":
        x = torch.randn(trial["n"] or 500, 5, generator=generator)
        ranking = compare(PAIRS[trial["case"]](x), x, critics="closed form", seed=trial["seed"], progress=False)
        return {"sure": float(ranking.best_is_better().max())}
    case = (CASES if trial["part"] == "share" else NULLS)[trial["case"]]
    x, score, true = case.draw(trial["n"] or case.n, generator, out)
    estimate = discrepancy(x, score, critics=trial["method"], seed=trial["seed"], progress=False)
    metric = Metric.scaled(x, score)
    truth = (metric.scores(score) - metric.scores(true)).double().square().sum(1).mean() / (2 * estimate.l2)
    return {
        "truth": float(truth),
        "value": estimate.value,
        "stderr": estimate.stderr,
        "mean_stein": estimate.mean_stein,
    }


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    groups: dict[tuple[str, str, str], list[Trial]] = {}
    for trial, result in results:
        groups.setdefault((trial["part"], trial["case"], trial.get("method", "closed form")), []).append(result)
    rows, lines = [], ["Share of the true discrepancy that is found, in the scaled metric:"]
    for (part, case, method), found in groups.items():
        if part == "share":
            shares = [one["value"] / one["truth"] for one in found]
            errors = [one["stderr"] / one["truth"] for one in found]
            share, error = float(np.mean(shares)), float(np.sqrt(np.mean(np.square(errors)) / len(errors)))
            lines.append(f"  {case:<44}{method:>12}  {share:6.3f} ± {error:.3f}   truth {found[0]['truth']:.4g}")
            rows.append(_row(part, case, method, len(found), share, error))
    lines.append("Share of estimates more than three standard errors above zero where the model is right:")
    for (part, case, method), found in groups.items():
        if part == "null":
            lines.append(_count(rows, part, case, method, [one["value"] > 3 * one["stderr"] for one in found]))
    lines.append(f"Share of rankings of equally good models with P(best is better) above {_SURE}:")
    for (part, case, method), found in groups.items():
        if part == "ranking":
            lines.append(_count(rows, part, case, method, [one["sure"] > _SURE for one in found]))
    write_csv(out / "estimates.csv", rows)
    _draw(rows, out / "estimates.png")
    return [*lines, "Paper: has no such table."]


def _row(part: str, case: str, method: str, count: int, value: float, error: float) -> dict[str, Any]:
    return {"part": part, "case": case, "method": method, "repetitions": count, "value": value, "stderr": error}


def _count(rows: list[dict[str, Any]], part: str, case: str, method: str, hits: Sequence[bool]) -> str:
    """One line, and a row, for how often something happened."""
    share = float(np.mean(hits))
    low, high = binomial_interval(sum(hits), len(hits))
    rows.append(_row(part, case, method, len(hits), share, math.sqrt(share * (1 - share) / len(hits))))
    return f"  {case:<44}{method:>12}  {share:6.3f}   ({low:.3f} to {high:.3f}, {len(hits)} runs)"


def _draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    rows = [row for row in rows if row["part"] == "share"]
    cases, methods = (list(dict.fromkeys(row[key] for row in rows)) for key in ("case", "method"))
    figure, ((ax,),) = new_figure(1, 1, width=PAGE_WIDTH, height=1.0 + 0.3 * len(cases))
    for number, method in enumerate(methods):
        own = [row for row in rows if row["method"] == method]
        places = [cases.index(row["case"]) + 0.15 * number for row in own]
        colour, marker, _ = SERIES[number % len(SERIES)]
        ax.errorbar(
            [row["value"] for row in own],
            places,
            xerr=[2 * row["stderr"] for row in own],
            fmt=marker,
            markersize=4.5,
            elinewidth=1,
            color=colour,
            label=method,
        )
    ax.axvline(1.0, color=COLOURS["grey"], linewidth=1)
    ax.set_yticks(range(len(cases)), cases)
    ax.invert_yaxis()
    ax.set(xlabel="share of the true discrepancy, with two standard errors")
    legend_above(figure, ax)
    save_figure(figure, path)


EXPERIMENT = Experiment(
    scales={
        "smoke": {
            "cases": ["t6, d = 8, against t30", "trained EBM of two moons, n = 2000"],
            "methods": ["closed form"],
            "n": 300,
            "moons_steps": 20,
            "repetitions": 1,
            "nulls": 1,
            "rankings": 1,
            "seed": 0,
        },
        "quick": {
            "cases": None,
            "methods": ["closed form", "mlp"],
            "n": None,
            "moons_steps": 2000,
            "repetitions": 1,
            "nulls": 50,
            "rankings": 50,
            "seed": 10_000,
        },
        "paper": {
            "cases": None,
            "methods": ["closed form", "auto", "mlp"],
            "n": None,
            "moons_steps": 2000,
            "repetitions": 5,
            "nulls": 200,
            "rankings": 200,
            "seed": 10_000,
        },
    },
    trials=_trials,
    run=_run,
    report=_report,
    prepare=_prepare,
    draw=_draw,
)
