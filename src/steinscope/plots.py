"""Figures. Each function takes results and returns a matplotlib figure; nothing is shown or saved here."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from steinscope.errors import InputError
from steinscope.results import equals_pvalue
from steinscope.support.files import write_output
from steinscope.support.normal import normal_quantile
from steinscope.support.squashed import squashed_below

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from steinscope.bayes.samples import SampleRanking
    from steinscope.comparison import Ranking
    from steinscope.estimation import Estimate
    from steinscope.explanation import Explanation
    from steinscope.modes.weights import ModeWeights
    from steinscope.results import TestResult
    from steinscope.training.driver import TrainResult

__all__ = [
    "COLOURS",
    "PAGE_WIDTH",
    "SERIES",
    "legend_above",
    "new_figure",
    "plot_estimate",
    "plot_explanation",
    "plot_modes",
    "plot_normal_quantiles",
    "plot_ranking",
    "plot_test",
    "plot_training",
    "rates_with_intervals",
    "save_figure",
    "save_image_grid",
]

COLOURS = {
    "train": "#0072b2",
    "validation": "#d55e00",
    "truth": "#333333",
    "selected": "#009e73",
    "other": "#cc79a7",
    "grey": "#999999",
}
# Colour, marker and line of the first, second, … curve. Colours are those of Okabe and Ito, which the colour-blind can
# tell apart; markers and lines differ as well, for print in grey.
SERIES = (
    ("#0072b2", "o", "-"),
    ("#e69f00", "s", "--"),
    ("#009e73", "^", "-."),
    ("#cc79a7", "D", ":"),
    ("#56b4e9", "v", (0, (5, 1))),
    ("#000000", "P", (0, (3, 1, 1, 1))),
    ("#d55e00", "X", (0, (1, 1))),
)
# The width in inches of a figure that fills a page: letters of 9 points are then about as large as the text's.
PAGE_WIDTH = 7.5
_DOTS_PER_INCH = 160
_LETTERS, _TITLE_LETTERS = 9, 10


def new_figure(rows: int = 1, columns: int = 1, width: float = 4.0, height: float = 3.0) -> tuple[Figure, np.ndarray]:
    """A figure with a grid of axes that does not pass through pyplot, so that no window or global state is touched.

    Arguments:
        rows: The number of rows of axes.
        columns: The number of columns.
        width: The width of one of the axes in inches.
        height: The height of one.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = np.asarray(figure.subplots(rows, columns, squeeze=False))
    for ax in axes.flat:
        ax.spines[["top", "right"]].set_visible(False)
        ax.set_prop_cycle(color=[colour for colour, _, _ in SERIES])
        ax.tick_params(labelsize=_LETTERS)
        for label in (ax.xaxis.label, ax.yaxis.label):
            label.set_fontsize(_LETTERS)
    return figure, axes


def save_figure(figure: Figure, path: str | Path) -> None:
    """Write a figure as PNG, with enough dots for a page on a screen of high resolution."""
    for ax in figure.axes:
        # A title that is set takes its size from matplotlib's settings.
        ax.title.set_fontsize(_TITLE_LETTERS)
    figure.savefig(path, dpi=_DOTS_PER_INCH)


def legend_above(figure: Figure, ax: Axes, columns: int | None = None) -> None:
    """One legend for all axes of a figure, above them, where it hides nothing."""
    handles, labels = ax.get_legend_handles_labels()
    columns = columns or len(labels)
    figure.legend(handles, labels, loc="outside upper center", ncols=columns, frameon=False, fontsize=_LETTERS)


def rates_with_intervals(
    ax: Axes, rows: Sequence[Mapping[str, Any]], methods: Sequence[str], places: Sequence[Any], key: str
) -> None:
    """The rates of several methods at each of several places, side by side, with their intervals.

    Arguments:
        ax: Where to draw.
        rows: One for each method and place: `method`, the place under `key`, `rate`, `low` and `high`.
        methods: The methods, in the order of their colours.
        places: The places, from left to right.
        key: What the rows call a place.
    """
    step = 0.7 / max(len(methods), 4)
    for number in range(0, len(places), 2):
        ax.axvspan(number - 0.5, number + 0.5, color="#f2f2f2", linewidth=0, zorder=-1)
    for number, method in enumerate(methods):
        own = [row for row in rows if row["method"] == method]
        rate, low, high = (np.array([float(row[name]) for row in own]) for name in ("rate", "low", "high"))
        x = np.array([places.index(row[key]) for row in own]) + step * (number - (len(methods) - 1) / 2)
        colour, marker, _ = SERIES[number % len(SERIES)]
        spread = np.maximum([rate - low, high - rate], 0.0)
        ax.errorbar(x, rate, yerr=spread, fmt=marker, markersize=4.5, color=colour, elinewidth=1, label=method)
    ax.set_xticks(range(len(places)), [f"{place:g}" for place in places])
    ax.set(xlim=(-0.5, len(places) - 0.5), ylim=(-0.03, 1.03))


def plot_estimate(estimate: Estimate, axes: Any = None) -> Figure:
    """What each critic finds alone, with 95% intervals, beside a histogram of the held-out values."""
    if axes is None:
        figure, grid = new_figure(1, 2)
        axes = grid[0]
    else:
        figure, axes = _two_axes(axes)
    names = [*(critic.name for critic in estimate.critics), "all together"]
    found = np.array([*(critic.value for critic in estimate.critics), estimate.value])
    stderr = np.array([*(critic.stderr for critic in estimate.critics), estimate.stderr])
    position, half = np.arange(len(names)), normal_quantile(0.975) * stderr
    axes[0].errorbar(found, position, xerr=half, fmt="o", markersize=4, color=COLOURS["train"], capsize=2)
    axes[0].axvline(0.0, color=COLOURS["truth"], linewidth=1)
    axes[0].set(xlabel=f"learned Stein discrepancy (λ = {estimate.l2:g})", yticks=position, yticklabels=names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    axes[1].hist(estimate.values, bins="auto", color=COLOURS["validation"], alpha=0.7)
    axes[1].axvline(0.0, color=COLOURS["truth"], linewidth=1)
    axes[1].axvline(estimate.value, color=COLOURS["selected"], label=f"{estimate.value:.3g} ± {estimate.stderr:.2g}")
    axes[1].set(xlabel="value of a point", ylabel="held-out points")
    axes[1].legend(frameon=False, fontsize=_LETTERS)
    return figure


def _two_axes(axes: Any) -> tuple[Figure, np.ndarray]:
    axes = np.ravel(axes)
    if len(axes) != 2:
        raise InputError("axes", f"expected two axes, got {len(axes)}")
    return axes[0].figure, axes


def plot_test(result: TestResult, ax: Any = None) -> Figure:
    """The z-score of each critic in each block as a mark, and over all blocks as a line."""
    is_new = ax is None
    if is_new:
        figure, ((ax,),) = new_figure(1, 1, width=5.0, height=3.4)
    else:
        figure = ax.figure
    for number, critic in enumerate(result.critics):
        colour, marker, line = SERIES[number % len(SERIES)]
        ax.plot(range(1, len(critic.block_z) + 1), critic.block_z, marker, color=colour, alpha=0.6, markersize=4)
        ax.axhline(critic.z, color=colour, linestyle=line, label=f"{critic.name}: z = {critic.z:.2f}")
    ax.axhline(0.0, color=COLOURS["truth"], linewidth=1)
    ax.set(xlabel="block", ylabel="z-score", title=f"p {equals_pvalue(result.pvalue)}")
    if result.critics and is_new:
        legend_above(figure, ax, columns=3)
    elif result.critics:
        ax.legend(frameon=False, fontsize=_LETTERS)
    return figure


def plot_modes(modes: ModeWeights, axes: Any = None) -> Figure:
    """Some of the points with the modes, beside the share of the points and the model's share of each mode.

    The points are drawn over the two coordinates in which the modes lie farthest apart.
    """
    if axes is None:
        figure, grid = new_figure(1, 2)
        axes = grid[0]
    else:
        figure, axes = _two_axes(axes)
    k = len(modes.count)
    centres = modes.centres.reshape(k, -1)
    apart = centres.std(0) if k > 1 else modes.sample.std(0)
    shown = sorted(np.argsort(-apart, kind="stable")[:2].tolist())
    plane, tops = modes.sample[:, shown], centres[:, shown]
    if len(shown) == 1:
        axes[0].hist(plane[:, 0], bins="auto", color=COLOURS["grey"], alpha=0.7)
        axes[0].set(ylabel="points")
        tops = np.column_stack([tops[:, 0], np.zeros(k)])
    else:
        axes[0].plot(*plane.T, ".", color=COLOURS["grey"], markersize=2)
        axes[0].set(ylabel=f"x[{shown[1]}]")
    axes[0].set(xlabel=f"x[{shown[0]}]")
    for number, top in enumerate(tops, start=1):
        axes[0].plot(*top, "o", color=COLOURS["validation"], markersize=13, alpha=0.85)
        axes[0].annotate(str(number), top, ha="center", va="center", color="white", fontsize=8, weight="bold")
    position, half = np.arange(1, k + 1), normal_quantile(0.975) * modes.stderr
    axes[1].bar(position, 100 * modes.share, 0.6, color=COLOURS["grey"], alpha=0.7, label="points")
    axes[1].errorbar(
        position, 100 * modes.expected, yerr=100 * half, fmt="o", color=COLOURS["train"], capsize=3, label="the model"
    )
    axes[1].set(xlabel="mode", ylabel="share in %", xticks=position, title=f"p = {modes.pvalue:.3g}", ylim=(0, None))
    axes[1].legend(frameon=False, fontsize=_LETTERS)
    return figure


def plot_explanation(explanation: Explanation, ax: Any = None, most: int = 20) -> Figure:
    """What the coordinates contribute, with 95% intervals, the largest contribution on top."""
    order = explanation.order[:most]
    if ax is None:
        figure, ((ax,),) = new_figure(1, 1, width=5.0, height=max(1.8, 0.9 + 0.25 * len(order)))
    else:
        figure = ax.figure
    position = np.arange(len(order))
    error = explanation.intervals()[order, 1] - explanation.coordinates[order]
    ax.errorbar(
        explanation.coordinates[order], position, xerr=error, fmt="o", markersize=4, color=COLOURS["train"], capsize=2
    )
    ax.axvline(0.0, color=COLOURS["truth"], linewidth=1)
    ax.set(xlabel=f"contribution to the {explanation.quantity} {explanation.total:.3g} of {explanation.critic}")
    # A name is text: a dollar sign in it must not start mathematics.
    ax.set_yticks(position, [explanation.label(i).replace("$", r"\$") for i in order])
    ax.set_ylim(len(order) - 0.5, -0.5)
    return figure


def plot_normal_quantiles(values: np.ndarray, ax: Axes, title: str) -> None:
    """A quantile–quantile plot against the standard normal."""
    from torch import linspace
    from torch.special import ndtri

    n = len(values)
    theory = ndtri(linspace(0.5 / n, 1 - 0.5 / n, n).double()).numpy()
    ax.plot(theory, np.sort(values), ".", color=COLOURS["train"], markersize=4)
    ax.plot(theory, theory, color=COLOURS["validation"], linewidth=1)
    ax.set(xlabel="standard normal", ylabel="statistic", title=title)


def plot_ranking(ranking: Ranking | SampleRanking, axes: Any = None) -> Figure:
    """Discrepancies with 95% intervals, best on top, beside the differences to the best.

    Those of models on the same points are paired; those of samples are not, because their points are different.
    """
    names = ranking.names
    if axes is None:
        figure, grid = new_figure(1, 2, width=4.5, height=max(1.8, 0.9 + 0.35 * len(names)))
        axes = grid[0]
    else:
        figure, axes = _two_axes(axes)
    position = np.arange(len(names))
    style = {"fmt": "o", "markersize": 4, "color": COLOURS["train"], "capsize": 2}
    axes[0].errorbar(ranking.values, position, xerr=normal_quantile(0.975) * ranking.stderr, **style)
    axes[0].set(xlabel=f"learned Stein discrepancy (λ = {ranking.l2:g})", yticks=position)
    # A name is text: a dollar sign in it must not start mathematics.
    axes[0].set_yticklabels([name.replace("$", r"\$") for name in names])
    differences = [ranking.difference(name, names[0]) for name in names]
    values, stderr = (np.array([getattr(item, key) for item in differences]) for key in ("value", "stderr"))
    axes[1].errorbar(
        values, position, xerr=normal_quantile(0.975) * stderr, **{**style, "color": COLOURS["validation"]}
    )
    axes[1].axvline(0.0, color=COLOURS["truth"], linewidth=1)
    axes[1].set(xlabel=ranking.difference_label, yticks=position, yticklabels=[])
    for ax, shown, error in ((axes[0], ranking.values, ranking.stderr), (axes[1], values[1:], stderr[1:])):
        ax.set_ylim(len(names) - 0.5, -0.5)
        if (threshold := squashed_below(shown, normal_quantile(0.975) * error)) is not None:
            ax.set_xscale("symlog", linthresh=threshold)
            # Margins of the linear axis would be decades of this one.
            lowest = min(0.0, float((shown - normal_quantile(0.975) * error).min()))
            ax.set_xlim(1.5 * lowest - 0.2 * threshold, 2.0 * float((shown + error).max()))
            ax.set_xlabel(f"{ax.get_xlabel()}, log scale")
    return figure


def plot_training(result: TrainResult, axes: Any = None) -> Figure:
    """How a run went, against steps.

    Where points were held out: score matching and discrepancy there, with bands of two standard errors, and the step
    whose model was returned. Otherwise the model's loss, and beside it the auxiliary loss or the norm of the gradient.
    """
    history = result.history
    if axes is None:
        figure, grid = new_figure(1, 2)
        axes = grid[0]
    else:
        figure, axes = _two_axes(axes)
    if np.isfinite(history.held_out).any():
        _plot_held_out(axes[0], history.step, history.held_out, history.held_out_error, "held-out score matching")
        if result.best_step is not None:
            axes[0].axvline(result.best_step, color=COLOURS["truth"], linestyle=":")
            axes[0].set_title(f"returned: the model of step {result.best_step}")
        if np.isfinite(history.discrepancy).any():
            _plot_held_out(
                axes[1], history.step, history.discrepancy, history.discrepancy_error, "held-out discrepancy"
            )
        else:
            axes[1].plot(history.step, history.model_loss, color=COLOURS["train"])
            axes[1].set(xlabel="step", ylabel="model loss")
        return figure
    for ax, name in zip(axes, ("model_loss", "auxiliary_loss"), strict=True):
        ax.plot(history.step, getattr(history, name), color=COLOURS["train"])
        ax.set(xlabel="step", ylabel=name.replace("_", " "))
    if not np.isfinite(history.auxiliary_loss).any():
        axes[1].plot(history.step, history.gradient_norm, color=COLOURS["validation"])
        axes[1].set(ylabel="norm of the gradient")
    return figure


def _plot_held_out(ax: Axes, step: np.ndarray, values: np.ndarray, errors: np.ndarray, label: str) -> None:
    ax.plot(step, values, color=COLOURS["validation"])
    ax.fill_between(step, values - 2 * errors, values + 2 * errors, color=COLOURS["validation"], alpha=0.2, linewidth=0)
    ax.set(xlabel="step", ylabel=label)


def save_image_grid(path: str | Path, images: np.ndarray, columns: int = 8, margin: int = 1, zoom: int = 1) -> None:
    """Write grey images (n, height, width) of bytes as one PNG, row by row, with a margin between them.

    Arguments:
        path: The file to write.
        images: The images.
        columns: How many stand in a row.
        margin: The pixels between two images.
        zoom: How many dots of the file are the side of a pixel: eight images of 28 × 28 fill a page with 3.
    """
    from matplotlib.image import imsave

    if images.ndim != 3 or images.dtype != np.uint8 or len(images) == 0:
        raise InputError("images", f"expected bytes of shape (n, height, width), got {images.dtype} {images.shape}")
    n, height, width = images.shape
    columns = min(columns, n)
    rows = -(-n // columns)
    grid = np.full((rows * (height + margin) + margin, columns * (width + margin) + margin), 128, dtype=np.uint8)
    for number, image in enumerate(images):
        row, column = divmod(number, columns)
        top, left = margin + row * (height + margin), margin + column * (width + margin)
        grid[top : top + height, left : left + width] = image
    content = io.BytesIO()
    grid = grid.repeat(zoom, axis=0).repeat(zoom, axis=1)
    imsave(content, np.repeat(grid[:, :, None], 3, axis=2), format="png")
    write_output(Path(path), content.getvalue(), "path")
