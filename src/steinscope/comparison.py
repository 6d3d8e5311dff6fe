"""Rank models by their learned Stein discrepancy on the same points (Algorithm 1 of the paper)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.critics.base import Critic
from steinscope.critics.fitting import DEFAULT_FIT
from steinscope.densities import as_density
from steinscope.errors import InputError, NonFiniteError
from steinscope.estimation import Estimate, EstimateSettings, estimate_points
from steinscope.points import ScoredPoints, check_rows, rows_device, rows_dtype, score_rows
from steinscope.settings import FitSettings
from steinscope.support.checks import check_level, check_seed
from steinscope.support.normal import normal_quantile, upper_tail

__all__ = ["Difference", "Ranking", "compare"]


@dataclass(frozen=True)
class Difference:
    """How much larger the discrepancy of one model is than that of another, on the same held-out points.

    Arguments:
        value: The mean of the pointwise differences.
        stderr: Its standard error, given the critics.
        probability: The probability that the difference is really positive, from the normal approximation.
    """

    value: float
    stderr: float
    probability: float

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The two-sided confidence interval."""
        half = normal_quantile(0.5 + check_level("level", level) / 2) * self.stderr
        return self.value - half, self.value + half

    def __str__(self) -> str:
        return f"{self.value:.4g} ± {self.stderr:.2g}, positive with probability {self.probability:.3g}"


@dataclass(frozen=True)
class Ranking:
    """Models from the best to the worst, by their learned Stein discrepancy.

    Arguments:
        estimates: The estimate of each model, best first. All of them hold out the same points.
        failures: Models that could not be scored, and why.
        l2: The penalty λ.
        folds: In how many parts the points were held out; None for one split.
    """

    estimates: Mapping[str, Estimate] = field(repr=False)
    failures: Mapping[str, str]
    l2: float
    folds: int | None

    @property
    def names(self) -> tuple[str, ...]:
        """The models that were ranked, best first."""
        return tuple(self.estimates)

    @property
    def values(self) -> np.ndarray:
        """Their discrepancies."""
        return np.array([estimate.value for estimate in self.estimates.values()])

    @property
    def stderr(self) -> np.ndarray:
        """The standard errors of the discrepancies."""
        return np.array([estimate.stderr for estimate in self.estimates.values()])

    def difference(self, a: str, b: str) -> Difference:
        """How much larger the discrepancy of `a` is than that of `b`, paired point by point."""
        for argument, name in (("a", a), ("b", b)):
            if name not in self.estimates:
                reason = f", which failed: {self.failures[name]}" if name in self.failures else ""
                raise InputError(argument, f"expected one of {', '.join(self.names)}, got {name!r}{reason}")
        pointwise = self.estimates[a].values.astype(np.float64) - self.estimates[b].values.astype(np.float64)
        value, stderr = float(pointwise.mean()), float(pointwise.std(ddof=1) / math.sqrt(len(pointwise)))
        if stderr == 0.0:
            return Difference(value, stderr, 0.5 if value == 0.0 else float(value > 0.0))
        return Difference(value, stderr, upper_tail(-value / stderr))

    def rows(self) -> list[dict[str, Any]]:
        """The table: one dictionary for each model, best first, those that failed last."""
        table = []
        for rank, (name, estimate) in enumerate(self.estimates.items(), start=1):
            to_best = self.difference(name, self.names[0]) if rank > 1 else None
            table.append(
                {
                    "rank": rank,
                    "model": name,
                    "lsd": estimate.value,
                    "stderr": estimate.stderr,
                    "fisher_bound": estimate.fisher_bound,
                    "fisher_bound_lower": estimate.fisher_bound_lower,
                    "difference": to_best.value if to_best else 0.0,
                    "difference_stderr": to_best.stderr if to_best else 0.0,
                    "best_is_better": to_best.probability if to_best else None,
                    "failure": None,
                }
            )
        empty = dict.fromkeys(table[0])
        return table + [{**empty, "model": name, "failure": reason} for name, reason in self.failures.items()]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists, ready for JSON. Pointwise values stand in `estimates`."""
        n_test = next(iter(self.estimates.values())).n_test
        return {"l2": self.l2, "folds": self.folds, "n_test": n_test, "models": self.rows()}

    def plot(self, axes: Any = None) -> Any:
        """Draw discrepancies and paired differences with 95% intervals; returns the matplotlib figure."""
        from steinscope.plots import plot_ranking

        return plot_ranking(self, axes)

    def __str__(self) -> str:
        first = next(iter(self.estimates.values()))
        how = f"{self.folds} folds" if self.folds else f"{first.n_train}/{first.n_validation}/{first.n_test} points"
        names = [name if len(name) <= 40 else name[:39] + "…" for name in (*self.names, *self.failures)]
        width = max(5, *map(len, names))
        lines = [
            f"Learned Stein discrepancy, λ = {self.l2:g}, {how}, {first.n_test} points held out for every model",
            "",
            f"rank  {'model':<{width}}  {'LSD':>10}  {'s.e.':>8}  {'Fisher ≥':>10}  {'difference':>10}  {'s.e.':>8}  "
            "P(best is better)",
        ]
        for row, name in zip(self.rows(), names, strict=True):
            if row["failure"] is not None:
                lines.append(f"   -  {name:<{width}}  failed: {row['failure']}")
                continue
            line = f"{row['rank']:>4}  {name:<{width}}  {row['lsd']:>10.4g}  {row['stderr']:>8.2g}  "
            line += f"{max(0.0, row['fisher_bound_lower']):>10.4g}"
            if row["rank"] > 1:
                line += (
                    f"  {row['difference']:>10.4g}  {row['difference_stderr']:>8.2g}  {row['best_is_better']:>17.3f}"
                )
            lines.append(line)
        return "\n".join(lines)


def compare(
    models: Mapping[str, Any],
    x: Any,
    *,
    l2: float = 0.5,
    folds: int | None = 5,
    critic: Critic | torch.nn.Module | None = None,
    split: Sequence[float] = (0.8, 0.1, 0.1),
    precondition: bool = False,
    settings: FitSettings = DEFAULT_FIT,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> Ranking:
    """Rank models by how far they are from the points, the smallest learned Stein discrepancy first.

    Every model gets its own critic. All critics start from the same weights, train on the same points in the same
    order, and hold out the same points, so that the difference of two models is a mean of paired differences, whose
    standard error is mostly much smaller than that of either discrepancy.

    Arguments:
        models: A model, or an array of scores at x, for each name.
        x: The points, an array (n, ...) or a memmap.
        l2: The penalty λ. Discrepancies with different λ are not comparable.
        folds: The number of parts, each of which is held out in turn, so that every point is held out once; None for
            one split.
        critic: The critic to start from, or a network; by default that of `discrepancy`.
        split: The shares of the points for training, validation and estimation; with folds, the first two say how the
            points that are not held out are shared.
        precondition: As in `discrepancy`.
        settings: As in `discrepancy`.
        seed: A whole number: the split, the first weights, batches and probes of every critic.
        dtype: The floating type to compute in; by default that of x.
        device: Where to compute; by default where x is.
        progress: Whether to show a progress bar for each model; by default on a terminal.

    Returns:
        A ranking, which prints as a table. A model whose scores are not finite, or whose critic does not stay
        finite, is reported in its row and does not stop the others.

    Example:
        >>> from steinscope.critics import Linear
        >>> from steinscope.models import Gaussian
        >>> x = Gaussian(torch.zeros(2)).sample(1000)
        >>> models = {"shifted": Gaussian(torch.ones(2)), "true": Gaussian(torch.zeros(2))}
        >>> compare(models, x, critic=Linear(2)).names
        ('true', 'shifted')
    """
    check_seed("seed", seed)
    how = EstimateSettings(critic, l2, split, folds, precondition, settings)
    rows = check_rows(x, "x", dtype=dtype, device=device)
    dtype, place = dtype or rows_dtype(rows), rows_device(rows, device)
    _check_models(models, rows.shape)
    estimates: dict[str, Estimate] = {}
    failures: dict[str, str] = {}
    for number, (name, model) in enumerate(models.items(), start=1):
        try:
            points = ScoredPoints(rows, score_rows(model, rows, dtype=dtype, device=place, name=name), dtype, place)
        except InputError as error:
            failures[name] = error.problem
            continue
        title = f"{name} ({number}/{len(models)})"
        try:
            estimates[name] = estimate_points(points, how, seed=seed, progress=progress, title=title)
        except NonFiniteError as error:
            failures[name] = str(error)
    if not estimates:
        name, reason = next(iter(failures.items()))
        raise InputError("models", f"none of the {len(models)} could be ranked; {name}: {reason}")
    ranked = sorted(estimates.items(), key=lambda item: item[1].value)
    return Ranking(dict(ranked), failures, l2, folds)


def _check_models(models: Any, shape: tuple[int, ...]) -> None:
    """Check the form of every model before any critic is trained."""
    if not isinstance(models, Mapping):
        raise InputError("models", f"expected a dictionary from names to models, got {type(models).__name__}")
    if not models:
        raise InputError("models", "expected at least one model, got none")
    for name, model in models.items():
        if not isinstance(name, str):
            raise InputError("models", f"expected names that are strings, got {name!r}")
        if isinstance(model, Tensor | np.ndarray | list | tuple):
            came = tuple(model.shape) if isinstance(model, Tensor | np.ndarray) else np.shape(model)
            if came != tuple(shape):
                raise InputError(
                    f"models[{name!r}]", f"an array of scores must have the shape of x, {tuple(shape)}, got {came}"
                )
        else:
            try:
                as_density(model)
            except InputError as error:
                raise error.renamed(f"models[{name!r}]") from None
