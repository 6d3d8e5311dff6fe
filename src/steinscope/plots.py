"""Figures. Each function takes results and returns a matplotlib figure; nothing is shown or saved here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from steinscope.estimation import Estimate
    from steinscope.fitting import History
    from steinscope.results import TestResult

__all__ = ["COLOURS", "new_figure", "plot_estimate", "plot_history", "plot_normal_quantiles", "plot_test"]

COLOURS = {"train": "#4c72b0", "validation": "#dd8452", "truth": "#333333", "selected": "#55a868", "grey": "#999999"}


def new_figure(rows: int = 1, columns: int = 1, width: float = 4.0, height: float = 3.0) -> tuple[Figure, np.ndarray]:
    """A figure with a grid of axes that does not pass through pyplot, so that no window or global state is touched."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.asarray(figure.subplots(rows, columns, squeeze=False))
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
    return figure, axes


def plot_history(history: History, ax: Axes, truth: float | None = None) -> None:
    """Mean and standard deviation of the Stein values against steps, and the step that was selected."""
    for name in ("train", "validation"):
        mean, std = getattr(history, f"{name}_mean"), getattr(history, f"{name}_std")
        if np.isfinite(mean).any():
            ax.plot(history.step, mean, color=COLOURS[name], label=name)
            ax.fill_between(history.step, mean - std, mean + std, color=COLOURS[name], alpha=0.2, linewidth=0)
    if truth is not None:
        ax.axhline(truth, color=COLOURS["truth"], linestyle="--", linewidth=1, label="true discrepancy")
    ax.axvline(history.selected, color=COLOURS["selected"], linewidth=1, label="selected")
    ax.set(xlabel="step", ylabel="Stein value, mean ± std")
    ax.legend(frameon=False, fontsize=8)


def plot_estimate(estimate: Estimate, axes: Any = None) -> Figure:
    """The history of the critic beside a histogram of the held-out Stein values."""
    if axes is None:
        figure, grid = new_figure(1, 2)
        axes = grid[0]
    else:
        axes = np.ravel(axes)
        if len(axes) != 2:
            from steinscope.errors import InputError

            raise InputError(f"axes: expected two axes, got {len(axes)}")
        figure = axes[0].figure
    plot_history(estimate.history, axes[0])
    axes[1].hist(estimate.values, bins="auto", color=COLOURS["validation"], alpha=0.7)
    axes[1].axvline(0.0, color=COLOURS["truth"], linewidth=1)
    axes[1].axvline(estimate.value, color=COLOURS["selected"], label=f"{estimate.value:.3g} ± {estimate.stderr:.2g}")
    axes[1].set(xlabel="Stein value", ylabel="held-out points")
    axes[1].legend(frameon=False, fontsize=8)
    return figure


def plot_test(result: TestResult, ax: Any = None) -> Figure:
    """The z-score of each critic in each block, and the combined one."""
    if ax is None:
        figure, ((ax,),) = new_figure(1, 1, width=5.0)
    else:
        figure = ax.figure
    for number, critic in enumerate(result.critics):
        colour = f"C{number}"
        ax.plot(range(1, len(critic.block_z) + 1), critic.block_z, "o", color=colour, alpha=0.5, markersize=4)
        ax.axhline(critic.z, color=colour, label=f"{critic.name}: z = {critic.z:.2f}")
    ax.axhline(0.0, color=COLOURS["truth"], linewidth=1)
    ax.set(xlabel="block", ylabel="z-score", title=f"p = {result.pvalue:.3g}")
    if result.critics:
        ax.legend(frameon=False, fontsize=8)
    return figure


def plot_normal_quantiles(values: np.ndarray, ax: Axes, title: str) -> None:
    """A quantile–quantile plot against the standard normal."""
    from torch import linspace
    from torch.special import ndtri

    n = len(values)
    theory = ndtri(linspace(0.5 / n, 1 - 0.5 / n, n).double()).numpy()
    ax.plot(theory, np.sort(values), ".", color=COLOURS["train"], markersize=4)
    ax.plot(theory, theory, color="#c44e52", linewidth=1)
    ax.set(xlabel="standard normal", ylabel="statistic", title=title)
