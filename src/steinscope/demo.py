"""The demo: which of three models fits a two-dimensional data set?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from steinscope.critics import Critic
from steinscope.data.toy import moons, moons_density
from steinscope.estimation import Estimate, discrepancy
from steinscope.gof import gof_test
from steinscope.models.gaussian import Gaussian
from steinscope.plots import COLOURS, new_figure

__all__ = ["run_demo"]

# Three tests are made, so each has a level well below 5%.
LEVEL = 0.01


def run_demo(out: Path) -> list[str]:
    """Estimate the discrepancy of three models of the moons, draw them, and return the lines of a table."""
    x = moons(4000, seed=0)
    models = {
        "one Gaussian": Gaussian(x.mean(0), torch.cov(x.T)),
        "two Gaussians": _two_gaussians(),
        "true density": moons_density(),
    }
    estimates = {
        name: discrepancy(x, model, steps=400, batch_size=512, lr=3e-3, seed=0) for name, model in models.items()
    }
    out.mkdir(parents=True, exist_ok=True)
    picture = out / "demo.png"
    _draw(x, models, estimates, picture)
    lines = [
        "4000 points of two moons, three models of them. The discrepancy is 0 where the model is right.",
        "",
        f"{'model':<16}{'discrepancy':>20}{'Fisher divergence':>26}{f'test of fit at {LEVEL:.0%}':>26}",
    ]
    for name, estimate in estimates.items():
        value = f"{estimate.value:.3f} ± {estimate.stderr:.3f}"
        bound = f"at least {max(0.0, estimate.fisher_bound_lower):.3f} (95%)"
        test = gof_test(x, models[name], alpha=LEVEL, seed=0)
        verdict = f"{'rejected' if test.rejected else 'not rejected'}, p = {test.pvalue:.2g}"
        lines.append(f"{name:<16}{value:>20}{bound:>26}{verdict:>26}")
    return [*lines, "", f"The picture is in {picture}: data, model density, and where the critic says to move it."]


def _two_gaussians() -> Any:
    family = torch.distributions
    centres = torch.tensor([[-1.0, 0.75], [1.0, -0.75]])
    spread = torch.tensor([[1.45, 0.65], [1.45, 0.65]])
    return family.MixtureSameFamily(
        family.Categorical(torch.ones(2)), family.Independent(family.Normal(centres, spread), 1)
    )


def _draw(x: torch.Tensor, models: dict[str, Any], estimates: dict[str, Estimate], path: Path) -> None:
    figure, (axes,) = new_figure(1, 3, width=3.6, height=3.6)
    fine, coarse = _grid(200), _grid(22)
    for ax, (name, model) in zip(axes, models.items(), strict=True):
        with torch.no_grad():
            density = model.log_prob(fine.reshape(-1, 2)).exp().reshape(200, 200)
        ax.contourf(fine[..., 0], fine[..., 1], density, levels=12, cmap="Blues")
        ax.scatter(*x[:600].T, s=2, color=COLOURS["truth"], alpha=0.35, linewidths=0)
        _draw_critic(ax, estimates[name].critic, coarse)
        estimate = estimates[name]
        ax.set(title=f"{name}\n{estimate.value:.2f} ± {estimate.stderr:.2f}", aspect="equal")
        ax.set_axis_off()
    figure.savefig(path, dpi=150)


def _draw_critic(ax: Any, critic: Critic, grid: torch.Tensor) -> None:
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
