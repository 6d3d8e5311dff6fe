"""Rank models by their learned Stein discrepancy on the same points (Algorithm 1 of the paper)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from steinscope.chains import Chains, in_chains, mean_and_stderr, measure_chains, scores_in_chains
from steinscope.critics.fitting import DEFAULT_FIT
from steinscope.densities import as_density, model_of
from steinscope.draws import Draws
from steinscope.errors import InputError, NonFiniteError
from steinscope.estimation import Estimate, EstimatePlan, EstimateSettings, plan_estimate
from steinscope.frames import coordinate_names
from steinscope.metric import Metric, MetricName
from steinscope.points import ScoredPoints, check_rows, rows_device, rows_dtype
from steinscope.portfolio.choice import Critics
from steinscope.scoring import is_scores, score_points
from steinscope.settings import FitSettings
from steinscope.shards import is_shards, open_shards
from steinscope.support.checks import check_level, check_seed
from steinscope.support.jobs import run_jobs
from steinscope.support.normal import normal_quantile, upper_tail
from steinscope.supports import common_region, find_region
from steinscope.unconstrained import Unconstrained

__all__ = ["Difference", "Ranking", "compare", "shared_points", "sureness"]


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
    difference_label: ClassVar[str] = "difference to the best, paired"

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
        value, stderr = mean_and_stderr(pointwise, self.estimates[a].batch)
        if stderr == 0.0:
            return Difference(value, stderr, 0.5 if value == 0.0 else float(value > 0.0))
        return Difference(value, stderr, upper_tail(-value / stderr))

    def best_is_better(self) -> np.ndarray:
        """How sure it is that the best model is better than each of the others, from the second to the last.

        The best is chosen on the same points. So the difference to it is compared with what the largest difference to
        the best would be if all models were equally good: then one ranking in twenty exceeds 0.95 anywhere. The critics
        were learned from points that other folds hold out, which the standard errors do not take into account; so the
        variance is increased by the ratio of held-out points to points learned from. Nadeau and Bengio (2003) increase
        it by that ratio times the number of folds, for scores of few folds; for pointwise values that is too much.
        """
        # Means of batches where points are draws of chains.
        values = np.stack([one.values.reshape(-1, one.batch).mean(1) for one in self.estimates.values()])
        if len(values) < 2:
            return np.empty(0)
        # All estimates hold out the same points.
        shared = shared_points(next(iter(self.estimates.values())))
        covariance = np.atleast_2d(np.cov(values)) / values.shape[1]
        return sureness(values.mean(1), covariance * shared * self._more_by_neighbours(values))

    def _more_by_neighbours(self, values: np.ndarray) -> float:
        """By how much variances are larger than batches tell that are taken for independent, as standard errors know.

        Arguments:
            values: The means of batches of the pointwise values, model by model.
        """
        plain = (values[1:] - values[0]).var(1, ddof=1) / values.shape[1]
        known = np.square([self.difference(name, self.names[0]).stderr for name in self.names[1:]])
        return max(1.0, float((known[plain > 0] / plain[plain > 0]).max(initial=1.0)))

    def rows(self) -> list[dict[str, Any]]:
        """The table: one dictionary for each model, best first, those that failed last."""
        table = []
        better = self.best_is_better()
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
                    "best_is_better": better[rank - 2] if to_best else None,
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


@torch.inference_mode(False)
def compare(
    models: Mapping[str, Any],
    x: Any,
    *,
    support: Any = None,
    chains: bool | None = None,
    critics: Critics = "auto",
    l2: float = 0.5,
    metric: MetricName = "scaled",
    folds: int | None = 5,
    split: Sequence[float] = (0.6, 0.2, 0.2),
    settings: FitSettings = DEFAULT_FIT,
    jobs: int | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> Ranking:
    """A ranking of models by their learned Stein discrepancy from the points, the smallest first.

    The same kinds of critics are fitted for each model, to the same points and in the same coordinates, and the same
    points are held out. So the difference of two models is a mean of paired differences, whose standard error is
    usually much smaller than that of either discrepancy.

    Arguments:
        models: A model, or an array of scores at x, for each name.
        x: The points, an array (n, ...), a data frame or a memmap.
        support: Where the models' densities are positive, as in `gof_test`, the same for all of them. By default what
            the models declare; those that declare none are taken to have the support of the others.
        chains: As in `discrepancy`; arrays of scores then have the shape (chains, draws, ...) of x, too.
        critics: As in `discrepancy`. `"model"`, a model's own features, is not part of `"auto"` here: it would look
            more closely at models that have features.
        l2: The penalty λ. Discrepancies with different λ are not comparable.
        metric: As in `discrepancy`. It depends on the points alone, so that it is the same for all models.
        folds: As in `discrepancy`.
        split: As in `discrepancy`.
        settings: As in `discrepancy`.
        jobs: The number of models and folds that run at once, each with one thread; by default one after the other,
            with all threads. The numbers do not depend on it.
        names: The names of the coordinates; by default the columns of x if it is a data frame.
        seed: A whole number: the split, the first weights, batches and probes of every critic.
        dtype: The floating type to compute in; by default that of x.
        device: Where to compute; by default where x is.
        progress: Whether to show a progress bar for each model; by default on a terminal.

    Returns:
        A ranking, which prints as a table. A model whose scores are not finite, or whose critic does not stay
        finite, is reported in its row and does not stop the others.

    Example:
        >>> from steinscope.models import Gaussian
        >>> x = Gaussian(torch.zeros(2)).sample(1000)
        >>> models = {"shifted": Gaussian(torch.ones(2)), "true": Gaussian(torch.zeros(2))}
        >>> compare(models, x, critics="closed form").names
        ('true', 'shifted')
    """
    seed = check_seed("seed", seed)
    how = EstimateSettings(critics, l2, metric, folds, split, settings)
    x, shape = in_chains(x, chains)
    rows = check_rows(x, "x", dtype=dtype, device=device)
    dtype, place = dtype or rows_dtype(rows), rows_device(rows, device)
    if isinstance(models, Mapping):
        models = {name: scores_in_chains(model, shape, f"models[{name!r}]") for name, model in models.items()}
    _check_models(models, rows.shape)
    models = {name: model_of(x, model) for name, model in models.items()}
    labels = coordinate_names(x, names, int(np.prod(rows.shape[1:], dtype=np.int64)))
    region = common_region(support, models, rows.shape[1:])
    coordinates = None if region is None else Unconstrained(region)
    failures: dict[str, str] = {}
    scored: dict[str, ScoredPoints] = {}
    for name, model in models.items():
        try:
            find_region(support, model, rows.shape[1:])  # a model that has none, such as a discrete one, fails here
            scored[name] = score_points(model, rows, coordinates, dtype=dtype, device=place, name=name, labels=labels)
        except InputError as error:
            failures[name] = error.problem
    known = _measured(scored, shape)
    plans: dict[str, EstimatePlan] = {}
    shared: Metric | None = None
    for number, (name, points) in enumerate(scored.items(), start=1):
        try:
            plans[name] = plan_estimate(
                points,
                models[name],
                how,
                seed=seed,
                purpose="ranking",
                metric=shared,
                progress=progress,
                title=f"{name} ({number}/{len(scored)})",
                chains=known,
            )
            shared = plans[name].metric
        except InputError as error:
            failures[name] = error.problem
    outcomes = run_jobs([_Attempt(task) for plan in plans.values() for task in plan.tasks], jobs)
    estimates: dict[str, Estimate] = {}
    for name, plan in plans.items():
        own, outcomes = outcomes[: len(plan.tasks)], outcomes[len(plan.tasks) :]
        problems = [outcome for outcome in own if isinstance(outcome, str)]
        if problems:
            failures[name] = problems[0]
        else:
            estimates[name] = plan.finish([outcome for outcome in own if not isinstance(outcome, str)])
    if not estimates:
        name, reason = next(iter(failures.items()))
        raise InputError("models", f"none of the {len(models)} could be ranked; {name}: {reason}")
    ranked = sorted(estimates.items(), key=lambda item: item[1].value)
    # All models have the same parts, of chains maybe more or fewer than were asked for.
    folds = None if how.folds is None else len(next(iter(plans.values())).parts)
    return Ranking(dict(ranked), failures, how.l2, folds)


def _measured(scored: Mapping[str, ScoredPoints], shape: tuple[int, int] | None) -> Chains | None:
    """The chains, if there are any, by the longest autocorrelation time that they have beside any of the models."""
    if shape is None or not scored:
        return None
    return max((measure_chains(points, shape) for points in scored.values()), key=lambda one: one.time).checked()


@dataclass(frozen=True)
class _Attempt:
    """The work on one fold of one model, or why it failed: one model must not stop the others."""

    task: Any

    def __call__(self) -> Any:
        try:
            return self.task()
        except (InputError, NonFiniteError) as error:
            return error.problem if isinstance(error, InputError) else str(error)


def shared_points(estimate: Estimate) -> float:
    """By how much the variance of an estimate is larger because folds learn from the points of each other."""
    return 1 + estimate.n_test / estimate.parts / (estimate.n_train + estimate.n_validation)


def sureness(values: np.ndarray, covariance: np.ndarray) -> np.ndarray:
    """How sure it is that the first value, the smallest, is really smaller than each of the others.

    Arguments:
        values: The values, in ascending order.
        covariance: The covariance of their errors.
    """
    stderr = np.sqrt(np.maximum(_variances_of_differences(covariance), 0.0))
    observed = (values - values[0])[1:]
    draws = _normal_draws(covariance)
    # In each draw: the largest standardised difference to the smallest value.
    best = draws.argmin(1)
    spread = np.where(stderr[best] > 0, stderr[best], np.inf)
    largest = ((draws - draws.min(1, keepdims=True)) / spread).max(1)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(stderr[0, 1:] > 0, observed / stderr[0, 1:], np.where(observed > 0, np.inf, 0.0))
    return np.array([float((largest < one).mean()) for one in z])


def _variances_of_differences(covariance: np.ndarray) -> np.ndarray:
    variances = np.diagonal(covariance)
    return variances[:, None] + variances - 2 * covariance


def _normal_draws(covariance: np.ndarray, count: int = 20_000) -> np.ndarray:
    """Draws of the errors of all models together. They are the same each time, so that a ranking is, too."""
    eigenvalues, vectors = np.linalg.eigh(covariance)
    root = vectors * np.sqrt(np.maximum(eigenvalues, 0.0))
    return np.random.default_rng(0).standard_normal((count, len(covariance))) @ root.T


def _shape(scores: Any, name: str) -> tuple[int, ...]:
    if is_shards(scores):
        return open_shards(scores, name).shape
    return tuple(np.shape(scores.score_rows if isinstance(scores, Draws) else scores))


def _check_models(models: Any, shape: tuple[int, ...]) -> None:
    """Check the form of every model before any critic is trained."""
    if not isinstance(models, Mapping):
        raise InputError("models", f"expected a dictionary from names to models, got {type(models).__name__}")
    if not models:
        raise InputError("models", "expected at least one model, got none")
    for name, model in models.items():
        if not isinstance(name, str):
            raise InputError("models", f"expected names that are strings, got {name!r}")
        if is_scores(model):
            came = _shape(model, f"models[{name!r}]")
            if came != tuple(shape):
                raise InputError(
                    f"models[{name!r}]", f"an array of scores must have the shape of x, {tuple(shape)}, got {came}"
                )
        else:
            try:
                as_density(model)
            except InputError as error:
                raise error.renamed(f"models[{name!r}]") from None
