"""The demo: train an energy-based model of the moons, rank it among others, and test each of them."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from steinscope.comparison import Ranking, compare
from steinscope.data.toy import moons, moons_density
from steinscope.densities import as_density
from steinscope.errors import InputError
from steinscope.experiments.moons_models import LEAST_STEPS, fit_models, train_ebm
from steinscope.gof.driver import gof_test
from steinscope.metric import Metric
from steinscope.plots import COLOURS, new_figure
from steinscope.report import report_ranking
from steinscope.scoring import score_rows
from steinscope.support.files import write_file

__all__ = ["run_demo"]

# Four tests are made, so each has a level well below 5%.
LEVEL = 0.01
_TRAIN_SHARE = 7 / 8
_LEAST_POINTS = 4000
# Fresh points on which the true discrepancy is an average.
_TRUTH_POINTS = 50_000
_CERTAIN = 0.95


def run_demo(out: Path, *, points: int = 16_000, steps: int = 2000) -> Iterator[str]:
    """Train, rank and test models of the moons, write the report, and say line by line what came out.

    Arguments:
        out: The directory for the report, the figure, and the arrays to continue with.
        points: How many points; seven eighths of them train the models, and the others rank and test them.
        steps: How many steps to train the energy-based model for.
    """
    if points < _LEAST_POINTS:
        raise InputError("points", f"expected at least {_LEAST_POINTS}, got {points}")
    if steps < LEAST_STEPS:
        raise InputError("steps", f"expected at least {LEAST_STEPS}, got {steps}")
    x = moons(points, seed=0)
    known, held_out = x.split([round(_TRAIN_SHARE * points), points - round(_TRAIN_SHARE * points)])
    yield f"{points} points of two moons: {len(known)} to fit four models, {len(held_out)} to rank and test them."
    yield f"Training an energy-based model by the learned Stein discrepancy, {steps} steps ..."
    models = {**fit_models(known), **train_ebm(known, steps)}
    yield "Ranking the models and testing each of them on the held-out points ..."
    ranking = compare(models, held_out, seed=0)
    tests = {name: gof_test(held_out, models[name], alpha=LEVEL, seed=0) for name in ranking.names}
    truths = {name: true_discrepancy(models[name], held_out, ranking.l2) for name in ranking.names}
    yield from ("", f"{'rank':<6}{'model':<20}{'discrepancy':>18}{'truth':>9}{f'test of fit at {LEVEL:.0%}':>30}")
    for rank, (name, estimate) in enumerate(ranking.estimates.items(), start=1):
        value = f"{estimate.value:.2f} ± {estimate.stderr:.2f}"
        verdict = f"{'rejected' if tests[name].rejected else 'nothing found'}, p = {tests[name].pvalue:.2g}"
        yield f"{rank:<6}{name:<20}{value:>18}{truths[name]:>9.2f}{verdict:>30}"
    first, second = ranking.names[:2]
    apart = ranking.difference(second, first)
    if ranking.best_is_better()[0] < _CERTAIN:
        yield f"The first two differ by {apart.value:.2f} ± {apart.stderr:.2f}, which may be chance; see their tests."
    yield from (
        "",
        "The discrepancy is 0 where the model is right. The truth is known here, because the moons were drawn from a",
        "density; what is found can only be less. With enough points a test rejects what is nearly right, too.",
    )
    out.mkdir(parents=True, exist_ok=True)
    page = report_ranking(ranking, data="moons, held out", tests=tests, models=models, points=held_out.numpy())
    write_file(out / "report.html", page.encode())
    _draw(held_out, models, ranking, truths, out / "demo.png")
    _save_arrays(held_out, models, out)
    worst, command = _file_name(ranking.names[-1]), _command()
    yield from (
        "",
        "To open:",
        f"  {out / 'report.html'}    the ranking, the tests and the densities",
        f"  {out / 'demo.png'}    densities, and arrows that show where each critic would move the mass",
        "To try next:",
        f"  {command} test {out / 'points.npy'} --score {out / worst} --explain",
        f"  {command} train rings --steps 2000 --noise 1 --out runs/rings",
        f"  {command} sample runs/rings -n 1000 --out samples.npy",
        f"  {command} reproduce --list",
    )


def _command() -> str:
    """What to type for the command: its path in the environment where that is not on the search path."""
    installed = Path(sys.executable).with_name("steinscope")
    if shutil.which("steinscope") or not installed.exists():
        return "steinscope"
    return os.path.relpath(installed)


def _save_arrays(x: torch.Tensor, models: Mapping[str, Any], out: Path) -> None:
    """Points and scores as files, which the command line takes."""
    np.save(out / "points.npy", x.numpy())
    for name, model in models.items():
        scores = score_rows(model, x, dtype=x.dtype, device=x.device, name=name)
        np.save(out / _file_name(name), np.asarray(scores))


def _file_name(name: str) -> str:
    return f"{name.replace(' ', '-')}-scores.npy"


def true_discrepancy(model: Any, x: torch.Tensor, l2: float) -> float:
    """The learned Stein discrepancy of a model of the moons that the best of all critics would find.

    Arguments:
        model: The model.
        x: The points that were judged, which the units of the metric are taken from.
        l2: The penalty λ.
    """
    fresh = moons(_TRUTH_POINTS, seed=1)
    scores = [as_density(one).score(fresh).detach() for one in (model, moons_density())]
    metric = Metric.scaled(x, as_density(model).score(x).detach())
    ours, true = (metric.scores(score).double() for score in scores)
    return float((ours - true).square().sum(1).mean()) / (2 * l2)


def _draw(
    x: torch.Tensor, models: Mapping[str, Any], ranking: Ranking, truths: Mapping[str, float], path: Path
) -> None:
    figure, grid = new_figure(1, len(ranking.names), width=3.4, height=4.0)
    fine, coarse = _grid(200), _grid(22)
    peak = float(moons_density().log_prob(fine.reshape(-1, 2)).exp().max())
    cell = float((fine[0, 1, 0] - fine[0, 0, 0]) * (fine[1, 0, 1] - fine[0, 0, 1]))
    levels = np.linspace(0.0, 1.25 * peak, 13)
    for ax, (name, estimate) in zip(grid[0], ranking.estimates.items(), strict=True):
        with torch.no_grad():
            log_density = models[name].log_prob(fine.reshape(-1, 2)).reshape(200, 200)
        density = log_density.flatten().softmax(0).view(200, 200) / cell
        ax.contourf(fine[..., 0], fine[..., 1], density, levels=levels, cmap="Blues", extend="max")
        ax.scatter(*x[:600].T, s=2, color=COLOURS["truth"], alpha=0.35, linewidths=0)
        _draw_critic(ax, estimate.critic, coarse)
        ax.set_title(f"{name}\n{estimate.value:.2f} ± {estimate.stderr:.2f} of {truths[name]:.2f}", fontsize=14)
        ax.set_aspect("equal")
        ax.set_axis_off()
    legend = (
        "Blue: the model's density, on one scale. Grey: held-out points. Red: where the critic would move the mass.\n"
        "Numbers: the estimated discrepancy ± its standard error, of the true one, known here. 0 is a perfect fit."
    )
    figure.text(0.5, 0.02, legend, ha="center", va="bottom", fontsize=14)
    figure.savefig(path, dpi=150, bbox_inches="tight")


def _draw_critic(ax: Any, critic: Any, grid: torch.Tensor) -> None:
    """Short arrows against the critic, which point from the model to the data: f is proportional to s_q - s_p."""
    points = grid.reshape(-1, 2)
    with torch.no_grad():
        arrows = -critic(points)
        seen = moons_density().log_prob(points).exp() > 4e-3
    lengths = arrows.norm(dim=1, keepdim=True)
    arrows = arrows * (0.45 / (lengths + 4.0))
    x, y, dx, dy = np.asarray(torch.cat([points, arrows], 1)[seen]).T
    ax.quiver(x, y, dx, dy, color="#c44e52", angles="xy", scale_units="xy", scale=1, width=0.004)


def _grid(size: int) -> torch.Tensor:
    horizontal, vertical = torch.linspace(-4, 4, size), torch.linspace(-3.2, 3.2, size)
    return torch.stack(torch.meshgrid(horizontal, vertical, indexing="xy"), -1)
