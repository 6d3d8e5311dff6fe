"""How the points are divided between the modes of a model, beside how the model divides its mass."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.chains import autocorrelation_times, in_chains
from steinscope.densities import model_of
from steinscope.errors import InputError
from steinscope.findings import ModeFinding
from steinscope.metric import Metric
from steinscope.modes.masses import Masses, model_masses
from steinscope.modes.search import Modes, find_modes
from steinscope.modes.surface import Surface
from steinscope.points import ScoredPoints, check_rows, read_rows, row_blocks, rows_device, rows_dtype
from steinscope.scoring import score_rows, unconstrained_rows
from steinscope.support.checks import check_level, check_seed
from steinscope.support.randomness import make_generator
from steinscope.supports import find_region
from steinscope.unconstrained import Unconstrained, unconstrained_model

__all__ = ["ModeWeights", "check_starts", "mode_weights", "weigh"]

LEAST_POINTS = 20
KEPT_POINTS = 2000
_SEARCHED_POINTS = 1000
_SHOWN_POINTS = 500
_LEAST_EXPECTED = 5.0


@dataclass(frozen=True)
class ModeWeights:
    """The modes of a model, with the share of the points in each and the share that the model gives it.

    Arguments:
        centres: Where the modes are, in the coordinates of the points.
        count: How many points belong to each mode.
        expected: The share that the model gives to each mode.
        stderr: The standard error of that share.
        pvalue: The probability of a division at least as far from the model's, if the points came from the model.
        alpha: The level.
        sample: Some of the points, for a picture.
        time: The autocorrelation time of the points if they are draws of chains: the number of draws that are worth one
            independent point.
    """

    centres: np.ndarray
    count: np.ndarray
    expected: np.ndarray
    stderr: np.ndarray
    pvalue: float
    alpha: float
    sample: np.ndarray = field(repr=False)
    time: float = 1.0

    @property
    def n(self) -> int:
        """How many points there are."""
        return int(self.count.sum())

    @property
    def share(self) -> np.ndarray:
        """The share of the points that each mode holds."""
        return self.count / self.n

    @property
    def rejected(self) -> bool:
        """Whether the model's division is rejected at level `alpha`."""
        return self.pvalue <= self.alpha

    @property
    def z(self) -> np.ndarray:
        """The share of the points minus that of the model in standard errors, mode by mode."""
        variance = self.expected * (1 - self.expected) * self.time / self.n + np.square(self.stderr)
        return (self.share - self.expected) / np.sqrt(np.maximum(variance, 1e-300)) * (len(self.count) > 1)

    def place(self, mode: int, most: int = 4) -> str:
        """The centre of a mode, or the first of its coordinates, as text."""
        flat = self.centres.reshape(len(self.centres), -1)
        # What a thousandth of the spread of the points would hide is zero.
        small = 1e-3 * self.sample.std(0)
        numbers = [f"{0.0 if abs(value) < small[j] else value:.3g}" for j, value in enumerate(flat[mode][:most])]
        return f"({', '.join(numbers + ['…'] * (flat.shape[1] > most))})"

    def in_original(self, coordinates: Unconstrained) -> ModeWeights:
        """The same table with centres in the user's coordinates instead of unconstrained ones."""
        centres, sample = (
            coordinates.original(torch.from_numpy(part).reshape(len(part), *coordinates.shape)).numpy()
            for part in (self.centres, self.sample)
        )
        return replace(self, centres=centres, sample=sample.reshape(len(sample), -1))

    def findings(self) -> tuple[ModeFinding, ...]:
        """The modes whose shares are more than three standard errors off, in words, the farthest first."""
        # Two modes are equally far off, but for rounding.
        order = np.argsort(-np.abs(self.z).round(6), kind="stable")
        return tuple(
            ModeFinding("modes", int(i) + 1, float(self.share[i]), float(self.expected[i]), float(self.stderr[i]), z)
            for i in order
            if abs(z := float(self.z[i])) > 3.0
        )

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists, ready for JSON."""
        names = ("centres", "count", "share", "expected", "stderr", "z")
        lists = {name: getattr(self, name).tolist() for name in names}
        return {**lists, "n": self.n, "pvalue": self.pvalue, "alpha": self.alpha, "rejected": self.rejected}

    def plot(self, axes: Any = None) -> Any:
        """Draw the points with the modes, and the two shares of each mode; returns the matplotlib figure."""
        from steinscope.plots import plot_modes

        return plot_modes(self, axes)

    def __str__(self) -> str:
        modes = "1 mode" if len(self.count) == 1 else f"{len(self.count)} modes"
        lines = [f"Modes of the model: {self.n} points, {modes}", ""]
        lines.append(f"{'mode':<6}{'points':>8}{'share':>9}   {'the model gives':<17}centre")
        for i in range(len(self.count)):
            gives = f"{100 * self.expected[i]:.1f}% ± {100 * self.stderr[i]:.1f}%"
            share = f"{100 * self.share[i]:.1f}%"
            lines.append(f"{i + 1:<6}{self.count[i]:>8}{share:>9}   {gives:<17}{self.place(i)}")
        if len(self.count) == 1:
            return "\n".join([*lines, "", "one mode was found, so there is nothing to divide"])
        other = "the points are divided in another way than the model says"
        found = other if self.rejected else "no other division than the model's was found"
        return "\n".join([*lines, "", f"p = {self.pvalue:.3g}: {found}"])


@torch.inference_mode(False)
def mode_weights(
    x: Any,
    model: Any,
    *,
    support: Any = None,
    chains: bool | None = None,
    starts: Any = None,
    alpha: float = 0.05,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> ModeWeights:
    """A comparison of how the points are divided between the modes of a model with how the model divides its mass.

    Arguments:
        x: The points, an array (n, ...) or a memmap; at least 20 of them.
        model: An object with `log_prob(x)`, which need not be normalised, or a model of scipy.stats or scikit-learn.
        support: As in `gof_test`. Modes are then those of the density in unconstrained coordinates.
        chains: As in `gof_test`. The uncertainty of the shares then depends on how often chains change modes.
        starts: Further points, of the shape of those in x, from which to search for modes. By default the search starts
            from some points of x, and from places around them.
        alpha: The level.
        seed: A whole number: all that is random in the search and in the estimate.
        dtype: The floating type to compute in; by default that of x.
        device: Where to compute; by default where x is.

    Example:
        >>> from torch.distributions import Categorical, Independent, MixtureSameFamily, Normal
        >>> parts = Independent(Normal(torch.tensor([[-9.0], [9.0]]), 1.0), 1)
        >>> model = MixtureSameFamily(Categorical(torch.tensor([0.25, 0.75])), parts)
        >>> x = torch.randn(1000, 1, generator=torch.Generator().manual_seed(0))
        >>> x += torch.tensor([[-9.0], [9.0]]).repeat(500, 1)
        >>> table = mode_weights(x, model)
        >>> table.share.tolist(), [round(float(share), 2) for share in sorted(table.expected)], table.rejected
        ([0.5, 0.5], [0.25, 0.75], True)
    """
    alpha, seed = check_level("alpha", alpha), check_seed("seed", seed)
    model = model_of(x, model)
    x, shape = in_chains(x, chains)
    rows = check_rows(x, "x", dtype=dtype, device=device)
    if not callable(getattr(model, "log_prob", None)):
        raise InputError("model", "expected a model with log_prob(x): scores do not know the weights of modes")
    if len(rows) < LEAST_POINTS:
        raise InputError("x", f"{len(rows)} rows are too few, at least {LEAST_POINTS} are needed")
    dtype, place = dtype or rows_dtype(rows), rows_device(rows, device)
    region = find_region(support, model, rows.shape[1:])
    coordinates = None if region is None else Unconstrained(region)
    if coordinates is not None:
        rows = unconstrained_rows(rows, coordinates, dtype=dtype, device=place)
        model = unconstrained_model(model, coordinates)
    order = torch.randperm(len(rows), generator=make_generator(seed))
    some = read_rows(rows, order[:_SEARCHED_POINTS], dtype=dtype, device=place)
    metric = Metric.by_scores(some, torch.as_tensor(score_rows(model, some, dtype=dtype, device=place)))
    surface = Surface(model, metric, tuple(rows.shape[1:]), dtype, place)
    generator = make_generator(seed, place, purpose="modes")
    given = check_starts(starts, some, model, coordinates)
    modes = find_modes(
        surface, metric.points(some.double()), generator, None if given is None else metric.points(given.double())
    )
    if not len(modes):
        raise InputError("model", "its log-density is not finite anywhere near the points")
    cells = torch.cat(
        [
            modes.cells(metric.points(read_rows(rows, slice(*block), dtype=dtype, device=place).double()))
            for block in row_blocks(rows)
        ]
    )
    kept = order[:KEPT_POINTS].to(place)
    z = metric.points(read_rows(rows, kept, dtype=dtype, device=place).double())
    count = cells.bincount(minlength=len(modes))
    time = 1.0
    if shape is not None:
        is_in = torch.nn.functional.one_hot(cells, len(modes)).double().reshape(*shape, -1)
        time = max(1.0, float(autocorrelation_times(is_in.cpu().numpy()).max()))
    table = weigh(modes, surface, count, z, cells[kept], generator, alpha, time)
    return table if coordinates is None else table.in_original(coordinates)


def weigh(
    modes: Modes,
    surface: Surface,
    count: Tensor,
    z: Tensor,
    cells: Tensor,
    generator: torch.Generator,
    alpha: float,
    time: float = 1.0,
) -> ModeWeights:
    """The table of modes, the fullest first, without those that have no points and next to no mass.

    Arguments:
        modes: The modes.
        surface: The log-density.
        count: How many points belong to each mode.
        z: Some of the points.
        cells: The modes that these belong to.
        generator: The source of the draws of the estimate.
        alpha: The level.
        time: The autocorrelation time of the points.
    """
    masses, n = model_masses(modes, surface, z, cells, generator), int(count.sum())
    is_worth_it = (count > 0) | (n * masses.share >= 1.0)
    order = torch.argsort(count + masses.share, descending=True, stable=True)
    order = order[is_worth_it[order]]
    share, covariance = masses.share[order], masses.covariance[order][:, order]
    total = share.sum()
    shares = Masses(share / total, covariance / total.square())
    shown = surface.metric.original(z[:_SHOWN_POINTS])
    return ModeWeights(
        surface.metric.original(modes.centres[order]).reshape(len(order), *surface.shape).cpu().numpy(),
        count[order].cpu().numpy(),
        shares.share.cpu().numpy(),
        shares.covariance.diagonal().clamp_min(0.0).sqrt().cpu().numpy(),
        _pvalue(count[order].double() / time, shares),
        alpha,
        shown.cpu().numpy(),
        time,
    )


def _pvalue(count: Tensor, masses: Masses) -> float:
    """Of the chi-squared test that the counts are multinomial with shares that are known within their errors."""
    n = count.sum()
    rare = n * masses.share < _LEAST_EXPECTED
    groups = torch.eye(len(count)).to(masses.share)
    if int(rare.sum()) > 1:
        # Rare modes count as one.
        groups = torch.cat([groups[~rare], rare[None].to(groups)])
    if len(groups) < 2:
        return 1.0
    share = groups @ masses.share
    multinomial = (torch.diag(share) - torch.outer(share, share)) / n
    covariance = (multinomial + groups @ masses.covariance @ groups.T)[1:, 1:]
    off = (groups @ count / n - share)[1:]
    # Of shares that add up to one the first is left out.
    smallest = 1e-12 * covariance.diagonal().max().clamp_min(1e-30)
    statistic = off @ torch.linalg.solve(covariance + smallest * torch.eye(len(off)).to(off), off)
    half = torch.tensor(len(off) / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, statistic.cpu().double().clamp_min(0.0) / 2))


def check_starts(
    starts: Any, x: Tensor | ScoredPoints, model: Any, coordinates: Unconstrained | None = None
) -> Tensor | None:
    """Points from which the user wants modes to be searched, or an `InputError`.

    Arguments:
        starts: What came.
        x: The points of the data.
        model: The model.
        coordinates: The unconstrained coordinates of the points; those that starts get, too.
    """
    if starts is None:
        return None
    if not callable(getattr(model, "log_prob", None)):
        raise InputError("starts", "they are for the search of modes, which takes a model with log_prob(x)")
    inner = tuple((x.x if isinstance(x, ScoredPoints) else x).shape[1:])
    shape = inner if coordinates is None else coordinates.region.shape
    rows = check_rows(starts, "starts", dtype=x.dtype, device=x.device)
    if tuple(rows.shape[1:]) != shape:
        raise InputError("starts", f"expected points of shape {shape} like those in x, got {tuple(rows.shape[1:])}")
    found = torch.as_tensor(rows)
    if coordinates is None:
        return found
    coordinates.region.check(found, "starts")
    return coordinates.points(found)
