"""Power over families of misfit where no single critic wins, at two strengths each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.experiments.rates import FIRST_SEED, binomial_interval, run_methods, single_critics
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.models.rbm import RBM
from steinscope.plots import PAGE_WIDTH, new_figure, save_figure

__all__ = ["ALTERNATIVES", "EXPERIMENT"]

Draw = Callable[[int, int, float, torch.Generator], tuple[Tensor, Tensor]]


def _normal(n: int, dim: int, generator: torch.Generator) -> Tensor:
    return torch.randn(n, dim, generator=generator)


def _laplace(n: int, dim: int, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A share of the coordinates is Laplace with variance 1; the model is N(0, I)."""
    x = _normal(n, dim, generator)
    count = max(1, round(strength * dim))
    uniform = torch.rand(n, count, generator=generator) - 0.5
    x[:, :count] = -torch.sign(uniform) * torch.log1p(-2 * uniform.abs()) / math.sqrt(2)
    return x, -x


def _bimodal(n: int, dim: int, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One coordinate has two modes at ± strength and variance 1; the model is N(0, I)."""
    x = _normal(n, dim, generator)
    signs = torch.randint(2, (n,), generator=generator) * 2 - 1
    x[:, 0] = strength * signs + math.sqrt(1 - strength**2) * x[:, 0]
    return x, -x


def _two_modes(n: int, dim: int, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Two modes at ± strength along a direction that is no axis; the model is the Gaussian of the same covariance."""
    direction = torch.ones(dim) / math.sqrt(dim)
    signs = torch.randint(2, (n, 1), generator=generator) * 2 - 1
    x = _normal(n, dim, generator) + strength * signs * direction
    shrink = strength**2 / (1 + strength**2)
    return x, -(x - shrink * (x @ direction)[:, None] * direction)


def _student(n: int, dim: int, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Student t with `strength` degrees of freedom, scaled to variance 1; the model is N(0, I)."""
    degrees = int(strength)
    chi = torch.randn(n, dim, degrees, generator=generator).square().mean(2)
    x = _normal(n, dim, generator) / chi.sqrt() * math.sqrt((degrees - 2) / degrees)
    return x, -x


def _correlation(n: int, dim: int, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """All pairs have correlation `strength`; the model is N(0, I)."""
    common = torch.randn(n, 1, generator=generator)
    x = math.sqrt(1 - strength) * _normal(n, dim, generator) + math.sqrt(strength) * common
    return x, -x


def _pair(n: int, dim: int, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One pair has correlation `strength`; the model is N(0, I)."""
    x = _normal(n, dim, generator)
    x[:, 1] = strength * x[:, 0] + math.sqrt(1 - strength**2) * x[:, 1]
    return x, -x


def _banana(n: int, dim: int, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """x₁ bends with x₀², uncorrelated and of variance 1; the model is N(0, I)."""
    x = _normal(n, dim, generator)
    x[:, 1] = (x[:, 1] + strength * (x[:, 0] ** 2 - 1)) / math.sqrt(1 + 2 * strength**2)
    return x, -x


def _cosine(n: int, dim: int, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """x₁ depends on cos 2x₀, with mean 0 and variance 1; the model is N(0, I)."""
    x = _normal(n, dim, generator)
    mean, variance = math.exp(-2), 0.5 * (1 + math.exp(-8)) - math.exp(-4)
    x[:, 1] = (x[:, 1] + strength * (torch.cos(2 * x[:, 0]) - mean)) / math.sqrt(1 + strength**2 * variance)
    return x, -x


def _rbm_weight(n: int, dim: int, strength: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """One weight of an RBM with 16 hidden units is off by `strength`."""
    rbm = RBM.random(dim, 16, seed=generator)
    x = rbm.sample(n, seed=generator)
    weights = rbm.weights.detach().clone()
    weights[0, 0] += strength
    with torch.no_grad():
        return x, RBM(weights, rbm.visible, rbm.hidden).score(x)


ALTERNATIVES: dict[str, tuple[Draw, tuple[tuple[int, float], ...]]] = {
    "laplace": (_laplace, ((20, 1.0), (100, 0.1))),
    "student": (_student, ((30, 5.0), (30, 15.0))),
    "bimodal coordinate": (_bimodal, ((50, 0.8), (50, 0.6))),
    "two modes": (_two_modes, ((5, 1.5), (5, 1.0))),
    "correlation": (_correlation, ((50, 0.05), (50, 0.02))),
    "one pair": (_pair, ((50, 0.25), (50, 0.15))),
    "banana": (_banana, ((10, 0.3), (10, 0.15))),
    "cosine pair": (_cosine, ((10, 1.0), (10, 0.3))),
    "rbm weight": (_rbm_weight, ((20, 0.6), (20, 0.3))),
}
SINGLE = single_critics()


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    fixed = {key: settings[key] for key in ("n", "methods")}
    return [
        {"family": family, "dim": dim, "strength": strength, "seed": seed, **fixed}
        for seed in range(FIRST_SEED, FIRST_SEED + settings["repetitions"])
        for family, (_, cells) in ALTERNATIVES.items()
        for dim, strength in cells
    ]


def _run(trial: Trial, out: Path) -> Trial:
    generator = torch.Generator().manual_seed(trial["seed"])
    x, score = ALTERNATIVES[trial["family"]][0](trial["n"], trial["dim"], trial["strength"], generator)
    return run_methods(trial["methods"], x, score, trial["seed"])


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    methods = results[0][0]["methods"]
    cells: dict[tuple[str, int, float], list[Trial]] = {}
    for trial, result in results:
        cells.setdefault((trial["family"], trial["dim"], trial["strength"]), []).append(result)
    rows, lines = (
        [],
        [f"Rejection rates at 5%, n = {results[0][0]['n']}, {len(next(iter(cells.values())))} tests each."],
    )
    lines.append(f"{'family':<20}{'d':>4}{'strength':>9}  " + "".join(f"{method:>12}" for method in methods))
    gaps = []
    for (family, dim, strength), records in cells.items():
        rates = {method: float(np.mean([record[method]["pvalue"] <= 0.05 for record in records])) for method in methods}
        for method, rate in rates.items():
            low, high = binomial_interval(round(rate * len(records)), len(records))
            rows.append(
                {
                    "family": family,
                    "dim": dim,
                    "strength": strength,
                    "method": method,
                    "tests": len(records),
                    "rate": rate,
                    "low": round(low, 4),
                    "high": round(high, 4),
                }
            )
        lines.append(f"{family:<20}{dim:>4}{strength:>9g}  " + "".join(f"{rates[method]:>12.2f}" for method in methods))
        singles = [rates[method] for method in SINGLE if method in rates]
        if "learned" in rates and singles:
            gaps.append(max(singles) - rates["learned"])
    if gaps:
        lines.append(
            f"The default is {np.mean(gaps):.3f} below the best single critic on average, {max(gaps):.2f} at most."
        )
    write_csv(out / "alternatives.csv", rows)
    _draw_rates(rows, out / "alternatives.png")
    return [*lines, "Paper: has no such table."]


def _draw_rates(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells = list(dict.fromkeys((row["family"], row["dim"], row["strength"]) for row in rows))
    rates = np.array([row["rate"] for row in rows]).reshape(len(cells), len(methods))
    figure, ((ax,),) = new_figure(1, 1, width=PAGE_WIDTH, height=1.0 + 0.24 * len(cells))
    ax.imshow(rates, vmin=0, vmax=1, cmap="Blues", aspect="auto")
    for i, j in np.ndindex(rates.shape):
        ax.text(
            j,
            i,
            f"{rates[i, j]:.2f}",
            ha="center",
            va="center",
            color="white" if rates[i, j] > 0.6 else "black",
            fontsize=9,
        )
    ax.set_xticks(range(len(methods)), methods)
    names = [f"{family}, d = {dim}, strength {strength:g}" for family, dim, strength in cells]
    ax.set_yticks(range(len(cells)), names)
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)
    tests = min(row["tests"] for row in rows)
    widest = max(max(row["rate"] - row["low"], row["high"] - row["rate"]) for row in rows)
    ax.set_title(f"share of {tests} tests that reject at 5%\nexact 95% intervals reach at most {widest:.2f} away")
    save_figure(figure, path)


EXPERIMENT = Experiment(
    scales={
        "smoke": {"n": 200, "repetitions": 1, "methods": ["closed form", "linear", "additive", "KSD"]},
        "quick": {"n": 1000, "repetitions": 30, "methods": ["learned", *SINGLE, "KSD", "KSDAgg"]},
        "paper": {"n": 1000, "repetitions": 200, "methods": ["learned", *SINGLE, "KSD", "FSSD", "KSDAgg"]},
    },
    trials=_trials,
    run=_run,
    report=_report,
    draw=_draw_rates,
)
