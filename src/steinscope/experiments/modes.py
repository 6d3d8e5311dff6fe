"""Weights of separated modes: the learned test beside KSD and perturbed KSD, on the benchmarks of the latter.

Perturbed KSD (Liu, Duncan and Gandy 2023) moves the points between modes by a Markov chain that leaves the model as it
is, and applies KSD to where they end. `pKSD` chooses the length of the jumps on half of the points and tests the other
half; `spKSD` adds up the kernels of all lengths and tests all points. The settings are those of the authors' programs.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.densities import from_log_prob
from steinscope.experiments.rates import binomial_interval, find_method
from steinscope.experiments.runner import Experiment, Trial, write_csv
from steinscope.kernels.bootstrap import bootstrap_pvalue, random_signs, u_statistics
from steinscope.kernels.stein_kernel import Sample, make_sample, stein_kernel
from steinscope.maps.radial import median_distance, radial
from steinscope.metric import Metric
from steinscope.models.rbm import RBM
from steinscope.modes import Modes, Surface, find_modes
from steinscope.plots import COLOURS, PAGE_WIDTH, SERIES, legend_above, new_figure, save_figure
from steinscope.scoring import make_points
from steinscope.support.randomness import make_generator

__all__ = ["EXPERIMENT"]

Pair = tuple[Any, Tensor]
LENGTHS = torch.linspace(0.5, 1.5, 21, dtype=torch.float64)
BOOTSTRAP_DRAWS = 800


def _bimodal(dim: int, n: int, share: float, generator: torch.Generator) -> Pair:
    """Two Gaussians six apart, with weights one half; `share` of the points is in the first."""
    apart = torch.zeros(dim)
    apart[0] = 6.0

    def log_prob(x: Tensor) -> Tensor:
        return torch.stack([-0.5 * x.square().sum(1), -0.5 * (x - apart).square().sum(1)]).logsumexp(0)

    is_second = torch.rand(n, 1, generator=generator) >= share
    return from_log_prob(log_prob), torch.randn(n, dim, generator=generator) + is_second * apart


def _t_banana(dim: int, n: int, strength: float, generator: torch.Generator) -> Pair:
    """Ten bent and ten round Student t distributions, of equal weights; those of the points are off by `strength`."""
    count, bent, degrees, bend = 20, 10, 7, 0.003
    fixed = make_generator(2022, purpose="t-banana")
    weights = 1 / count + (strength * torch.randn(count, generator=fixed)).exp()
    places = 40 * torch.rand(count, dim, generator=fixed) - 20
    scales, bends = torch.full((count, dim), math.sqrt(0.1 * math.sqrt(dim))), torch.zeros(count, dim)
    scales[:bent], scales[:bent, 0], bends[:bent, 1] = 1.0, 10.0, bend

    def log_prob(x: Tensor) -> Tensor:
        straight = x[:, None] - bends * (x[:, None, :1].square() - 100)
        squared = ((straight - places) / scales).square().sum(2)
        return (-scales.log().sum(1) - 0.5 * (degrees + dim) * (squared / degrees).log1p()).logsumexp(1)

    which = torch.multinomial(weights, n, replacement=True, generator=generator)
    chi = torch.randn(n, degrees, generator=generator).square().mean(1, keepdim=True)
    x = places[which] + scales[which] * torch.randn(n, dim, generator=generator) / chi.sqrt()
    return from_log_prob(log_prob), x + bends[which] * (x[:, :1].square() - 100)


def _rbm(dim: int, n: int, shift: float, generator: torch.Generator, hidden: int = 5) -> Pair:
    """An RBM with 6 times a part of the identity as B: 2^hidden modes. The points have c = `shift` in two units."""
    weights, bias = 6.0 * torch.eye(dim)[:, :hidden], torch.zeros(hidden)
    bias[:2] = shift
    points = RBM(weights, torch.zeros(dim), bias)
    return RBM(weights, torch.zeros(dim), torch.zeros(hidden)), points.sample(n, seed=generator)


# The family, how far random starts lie from zero in each direction, and the steps of the chain.
FAMILIES: dict[str, tuple[Callable[[int, int, float, torch.Generator], Pair], float, int]] = {
    "bimodal": (_bimodal, 10.0, 10),
    "t-banana": (_t_banana, 20.0, 100),
    "rbm": (_rbm, 10.0, 50),
}


def _jump(modes: Modes, surface: Surface, z: Tensor, lengths: Tensor, steps: int, generator: torch.Generator) -> Tensor:
    """Where points (n, d) are after steps of Metropolis between random pairs of modes, for each length of jumps."""
    count, z = len(modes), z.expand(len(lengths), *z.shape)
    if count < 2:
        return z
    factors, dim = lengths[:, None, None], z.shape[2]
    here = surface.log_prob(z.reshape(-1, dim)).reshape(z.shape[:2])
    for _ in range(steps):
        start = torch.randint(count, (z.shape[1],), generator=generator)
        stop = (start + torch.randint(1, count, start.shape, generator=generator)) % count
        local = torch.einsum("lnd,nde->lne", z - factors * modes.centres[start], modes.inverse_roots[start])
        moved = torch.einsum("lnd,nde->lne", local, modes.roots[stop]) + factors * modes.centres[stop]
        there = surface.log_prob(moved.reshape(-1, dim)).reshape(here.shape)
        gain = there - here + modes.log_volumes[stop] - modes.log_volumes[start]
        is_accepted = torch.rand(here.shape, generator=generator, dtype=here.dtype).log() < gain
        z, here = torch.where(is_accepted[..., None], moved, z), torch.where(is_accepted, there, here)
    return z


def _kernel(x: Tensor, model: Any) -> Tensor:
    """The Stein kernel of the inverse multiquadric of the median distance, zero on the diagonal."""
    sample = make_sample(x, model, "identity")
    width = median_distance(sample.x)
    return stein_kernel(radial("imq", width), sample, Sample(sample.x, sample.score)).fill_diagonal_(0.0)


def _power(kernel: Tensor) -> float:
    """The U-statistic over its standard deviation where the model is wrong."""
    n = len(kernel)
    rows = kernel.double().sum(1)
    variance = 4 * rows.square().sum() / n**3 - 4 * rows.sum().square() / n**4
    return float(rows.sum() / n**2 / variance.clamp_min(1e-12).sqrt())


def _perturbed(x: Tensor, model: Any, seed: int, steps: int, reach: float, is_sum: bool) -> float:
    """The p-value of pKSD, or of spKSD."""
    generator = make_generator(seed, purpose="pKSD")
    half = len(x) // 2
    searched = x if is_sum else x[:half]
    points = make_points(searched, model)
    metric = Metric.by_scores(*points.take(slice(None)))
    surface = Surface(model, metric, tuple(x.shape[1:]), x.dtype, x.device)
    starts = 2 * reach * torch.rand(len(x) // 4, x.shape[1], generator=generator) - reach
    modes = find_modes(surface, metric.points(searched).double(), generator, metric.points(starts).double())

    def moved(part: Tensor, lengths: Tensor) -> list[Tensor]:
        ends = _jump(modes, surface, metric.points(part).double(), lengths, steps, generator)
        return [metric.original(end).to(x) for end in ends]

    if is_sum:
        kernel = sum((_kernel(part, model) for part in moved(x, LENGTHS)), _kernel(x, model))
    else:
        first, rest = x[:half], x[half:]
        alone = _kernel(first, model)
        powers = [_power(alone + _kernel(part, model)) for part in moved(first, LENGTHS)]
        best = LENGTHS[int(np.argmax(powers))][None]
        kernel = _kernel(rest, model) + _kernel(moved(rest, best)[0], model)
    signs = random_signs(len(kernel), BOOTSTRAP_DRAWS, generator, kernel.dtype)
    whole = slice(0, len(kernel))
    return bootstrap_pvalue(u_statistics([(whole, whole, kernel)], signs))


def _trials(settings: Mapping[str, Any]) -> list[Trial]:
    return [
        {"family": family, "dim": dim, "n": n, "strength": strength, "seed": seed, "methods": settings["methods"]}
        for seed in range(settings["first_seed"], settings["first_seed"] + settings["repetitions"])
        for family, dim, n, strength in settings["cells"]
    ]


def _run(trial: Trial, out: Path) -> Trial:
    draw, reach, steps = FAMILIES[trial["family"]]
    seed = trial["seed"]
    model, x = draw(trial["dim"], trial["n"], trial["strength"], make_generator(seed))
    result = {}
    for method in trial["methods"]:
        start = time.perf_counter()
        if method in ("pKSD", "spKSD"):
            pvalue = _perturbed(x, model, seed, steps, reach, method == "spKSD")
        else:
            pvalue = find_method(method)(x, model, seed).pvalue
        result[method] = {"pvalue": pvalue, "seconds": time.perf_counter() - start}
    return result


def _report(results: Sequence[tuple[Trial, Trial]], out: Path) -> list[str]:
    methods = results[0][0]["methods"]
    cells: dict[tuple[str, int, int, float], list[Trial]] = {}
    for trial, result in results:
        cells.setdefault((trial["family"], trial["dim"], trial["n"], trial["strength"]), []).append(result)
    rows, lines = [], [f"Rejection rates at 5%, {len(next(iter(cells.values())))} tests each, and seconds."]
    lines.append(f"{'family':<10}{'d':>4}{'n':>6}{'strength':>9}  " + "".join(f"{method:>16}" for method in methods))
    for (family, dim, n, strength), records in cells.items():
        shown = ""
        for method in methods:
            rejections = sum(record[method]["pvalue"] <= 0.05 for record in records)
            low, high = binomial_interval(rejections, len(records))
            seconds = float(np.median([record[method]["seconds"] for record in records]))
            row = {"family": family, "dim": dim, "n": n, "strength": strength, "method": method, "tests": len(records)}
            rate = rejections / len(records)
            rows.append({**row, "rate": rate, "low": round(low, 4), "high": round(high, 4), "seconds": seconds})
            shown += f"{f'{rate:.2f} ({seconds:.2f} s)':>16}"
        lines.append(f"{family:<10}{dim:>4}{n:>6}{strength:>9g}  {shown}")
    write_csv(out / "modes.csv", rows)
    _draw_rates(rows, out / "modes.png")
    return [*lines, "Right model: bimodal .5, t-banana 0, rbm 0. Paper: has no such table."]


def _draw_rates(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    methods = list(dict.fromkeys(row["method"] for row in rows))
    cells = list(dict.fromkeys((row["family"], row["dim"], row["n"], row["strength"]) for row in rows))
    figure, ((ax,),) = new_figure(1, 1, width=PAGE_WIDTH, height=1.4 + 0.3 * len(cells))
    for number, method in enumerate(methods):
        own = [row for row in rows if row["method"] == method]
        rate = np.array([row["rate"] for row in own])
        bounds = np.array([[row["low"], row["high"]] for row in own])
        errors = np.maximum(np.abs(bounds - rate[:, None]).T, 0.0)
        places = np.arange(len(cells)) + 0.16 * (number - (len(methods) - 1) / 2)
        colour, marker, _ = SERIES[number % len(SERIES)]
        ax.errorbar(rate, places, xerr=errors, fmt=marker, markersize=4.5, color=colour, elinewidth=1, label=method)
    ax.axvline(0.05, color=COLOURS["grey"], linewidth=1, linestyle=":")
    names = [f"{family}, d = {dim}, n = {n}, strength {strength:g}" for family, dim, n, strength in cells]
    ax.set(
        yticks=range(len(cells)),
        yticklabels=names,
        xlabel="share of tests that reject at 5%, with exact 95% intervals",
        xlim=(-0.03, 1.03),
    )
    ax.invert_yaxis()
    legend_above(figure, ax)
    save_figure(figure, path)


METHODS = ["learned", "KSD", "pKSD", "spKSD"]
CELLS = [
    ["bimodal", 1, 200, 0.5],
    ["bimodal", 1, 200, 0.6],
    ["bimodal", 1, 200, 1.0],
    ["bimodal", 50, 1000, 0.5],
    ["bimodal", 50, 1000, 0.55],
    ["bimodal", 100, 1000, 1.0],
    ["t-banana", 10, 1000, 0.0],
    ["t-banana", 10, 1000, 0.2],
    ["rbm", 50, 1000, 0.0],
    ["rbm", 50, 1000, 0.1],
]

SMALL_CELLS = [
    ["bimodal", 1, 200, 0.5],
    ["bimodal", 1, 200, 0.6],
    ["bimodal", 1, 200, 1.0],
    ["bimodal", 50, 500, 0.5],
    ["bimodal", 50, 500, 0.6],
    ["t-banana", 10, 500, 0.0],
    ["t-banana", 10, 500, 0.4],
    ["rbm", 50, 500, 0.0],
    ["rbm", 50, 500, 0.2],
]

EXPERIMENT = Experiment(
    scales={
        "smoke": {
            "repetitions": 1,
            "first_seed": 0,
            "cells": [["bimodal", 1, 200, 1.0], ["bimodal", 5, 200, 0.5]],
            "methods": METHODS,
        },
        "quick": {"repetitions": 100, "first_seed": 10_000, "cells": SMALL_CELLS, "methods": METHODS[:3]},
        "paper": {"repetitions": 100, "first_seed": 10_000, "cells": CELLS, "methods": METHODS},
    },
    trials=_trials,
    run=_run,
    report=_report,
    draw=_draw_rates,
)
