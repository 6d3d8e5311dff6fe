"""Rank samples by how far they are from one posterior: samplers, and approximations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch

from steinscope.chains import Chains, in_chains, measure_chains, scores_in_chains
from steinscope.comparison import Difference, shared_points, sureness
from steinscope.critics.fitting import DEFAULT_FIT
from steinscope.densities import model_of
from steinscope.draws import Draws
from steinscope.effects import find_effects
from steinscope.errors import InputError, NonFiniteError
from steinscope.estimation import Estimate, EstimateSettings, plan_estimate
from steinscope.findings import Finding
from steinscope.metric import Metric
from steinscope.points import ScoredPoints
from steinscope.portfolio.choice import Critics
from steinscope.scoring import is_scores, make_points
from steinscope.settings import FitSettings
from steinscope.shapes import flattened
from steinscope.support.checks import check_seed
from steinscope.support.jobs import run_jobs
from steinscope.support.normal import upper_tail

__all__ = ["SampleRanking", "compare_samples"]

_METRIC_ROWS = 10_000


@dataclass(frozen=True)
class SampleRanking:
    """Samples of one posterior, ranked by their learned Stein discrepancy from it, the nearest first.

    Arguments:
        estimates: The estimate of each sample, nearest first.
        findings: How each sample differs from the posterior.
        failures: Samples that could not be ranked, and why.
        l2: The penalty λ.
        folds: In how many parts the points were to be held out; None for one split. Chains may have been divided into
            more or fewer: see `Estimate.parts`.
    """

    estimates: Mapping[str, Estimate] = field(repr=False)
    findings: Mapping[str, tuple[Finding, ...]] = field(repr=False)
    failures: Mapping[str, str]
    l2: float
    folds: int | None
    difference_label: ClassVar[str] = "difference to the nearest"

    @property
    def names(self) -> tuple[str, ...]:
        """The samples that were ranked, nearest first."""
        return tuple(self.estimates)

    @property
    def values(self) -> np.ndarray:
        """Their discrepancies."""
        return np.array([estimate.value for estimate in self.estimates.values()])

    @property
    def stderr(self) -> np.ndarray:
        """The standard errors of the discrepancies."""
        return np.array([estimate.stderr for estimate in self.estimates.values()])

    def variance(self, name: str) -> float:
        """The variance of the error of a discrepancy, larger by the points that folds share, as in `compare`."""
        one = self.estimates[name]
        return one.stderr**2 * shared_points(one)

    def difference(self, a: str, b: str) -> Difference:
        """How much larger the discrepancy of `a` is than that of `b`. Samples are independent: their errors add up."""
        for argument, name in (("a", a), ("b", b)):
            if name not in self.estimates:
                raise InputError(argument, f"expected one of {', '.join(self.names)}, got {name!r}")
        value = self.estimates[a].value - self.estimates[b].value
        stderr = math.sqrt(self.variance(a) + self.variance(b)) if a != b else 0.0
        return Difference(value, stderr, upper_tail(-value / stderr) if stderr > 0 else 0.5)

    def best_is_better(self) -> np.ndarray:
        """How sure it is that the nearest sample is nearer than each of the others, from the second to the last."""
        return sureness(self.values, np.diag([self.variance(name) for name in self.names]))

    def rows(self) -> list[dict[str, Any]]:
        """The table: one dictionary for each sample, nearest first, those that failed last."""
        better = [None, *self.best_is_better().tolist()]
        table = [
            {
                "rank": rank,
                "sample": name,
                "lsd": one.value,
                "stderr": one.stderr,
                "fisher_bound_lower": one.fisher_bound_lower,
                "best_is_better": better[rank - 1],
                "finding": str(self.findings[name][0]) if self.findings[name] else None,
                "failure": None,
            }
            for rank, (name, one) in enumerate(self.estimates.items(), start=1)
        ]
        empty = dict.fromkeys(table[0])
        return table + [{**empty, "sample": name, "failure": reason} for name, reason in self.failures.items()]

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists, ready for JSON."""
        return {"l2": self.l2, "folds": self.folds, "samples": self.rows()}

    def plot(self, axes: Any = None) -> Any:
        """Discrepancies with 95% intervals, nearest on top, beside the differences to the nearest, as a figure."""
        from steinscope.plots import plot_ranking

        return plot_ranking(self, axes)

    def __str__(self) -> str:
        width = max(6, *(len(name) for name in (*self.names, *self.failures)))
        lines = [
            f"Learned Stein discrepancy to one posterior, λ = {self.l2:g}",
            "",
            f"rank  {'sample':<{width}}  {'LSD':>9}  {'s.e.':>7}  {'P(best is better)':>17}  first finding",
        ]
        for row in self.rows():
            if row["failure"] is not None:
                lines.append(f"   -  {row['sample']:<{width}}  failed: {row['failure']}")
                continue
            sure = "" if row["best_is_better"] is None else f"{row['best_is_better']:.3f}"
            numbers = f"{row['lsd']:>9.3g}  {row['stderr']:>7.2g}  {sure:>17}"
            lines.append(f"{row['rank']:>4}  {row['sample']:<{width}}  {numbers}  {row['finding'] or 'none'}")
        return "\n".join(lines)


@torch.inference_mode(False)
def compare_samples(
    samples: Mapping[str, Any],
    model: Any = None,
    *,
    support: Any = None,
    critics: Critics = "auto",
    l2: float = 0.5,
    folds: int | None = 5,
    settings: FitSettings = DEFAULT_FIT,
    jobs: int | None = None,
    names: Sequence[str] | None = None,
    seed: int = 0,
) -> SampleRanking:
    """A ranking of samples of one posterior, such as those of NUTS, a variational fit and a Laplace approximation.

    All discrepancies are measured in the same coordinates: each in units of its standard deviation over all samples,
    which count equally. Two samples have no points in common, so differences are not paired. Draws of chains depend on
    each other, so standard errors come from batches of draws.

    Arguments:
        samples: `Draws`, independent points (n, d), or chains (chains, draws, d), for each name.
        model: The posterior, an object with `score(x)` or `log_prob(x)`; not needed if all samples are `Draws`.
        support: As in `gof_test`.
        critics: As in `discrepancy`.
        l2: The penalty λ. Discrepancies with different λ are not comparable.
        folds: As in `discrepancy`.
        settings: As in `discrepancy`.
        jobs: As in `discrepancy`.
        names: What the coordinates are called; by default those of the samples.
        seed: As in `discrepancy`.

    Example:
        >>> rng = np.random.default_rng(0)
        >>> samples = {"narrow": 0.8 * rng.normal(size=(1000, 2)), "right": rng.normal(size=(4, 250, 2))}
        >>> from steinscope.models import Gaussian
        >>> compare_samples(samples, Gaussian(torch.zeros(2)), critics="closed form").names
        ('right', 'narrow')
    """
    seed = check_seed("seed", seed)
    how = EstimateSettings(critics, l2, "scaled", folds, fit=settings)
    _check_samples(samples, model)
    known = next((sample.names for sample in samples.values() if isinstance(sample, Draws)), None)
    scored: dict[str, tuple[Any, ScoredPoints, Chains | None]] = {}
    failures: dict[str, str] = {}
    for name, sample in samples.items():
        try:
            scored[name] = _scored(sample, model, support, names if names is not None else _borrowed(sample, known))
        except InputError as error:
            if error.argument == "names":
                raise
            failures[name] = f"{error.argument}: {error.problem}" if error.argument != "x" else error.problem
    dims = {name: points.dim for name, (_, points, _) in scored.items()}
    if len(set(dims.values())) > 1:
        raise InputError("samples", f"expected as many coordinates in each, got {dims}")
    metric = _common_metric([points for _, points, _ in scored.values()]) if scored else None
    estimates: dict[str, Estimate] = {}
    for name, (target, points, chains) in scored.items():
        try:
            plan = plan_estimate(
                points, target, how, seed=seed, purpose="ranking", metric=metric, progress=False, chains=chains
            )
            estimates[name] = plan.finish(run_jobs(plan.tasks, jobs))
        except (InputError, NonFiniteError) as error:
            failures[name] = error.problem if isinstance(error, InputError) else str(error)
    if not estimates:
        name, reason = next(iter(failures.items()))
        raise InputError("samples", f"none of the {len(samples)} could be ranked; {name}: {reason}")
    ranked = dict(sorted(estimates.items(), key=lambda item: item[1].value))
    found = {name: find_effects(scored[name][1], scored[name][2]) for name in ranked}
    said = {name: tuple(one.of("posterior") for one in findings) for name, findings in found.items()}
    return SampleRanking(ranked, said, failures, how.l2, how.folds)


def _check_samples(samples: Any, model: Any) -> None:
    if not isinstance(samples, Mapping):
        raise InputError("samples", f"expected a dictionary from names to draws, got {type(samples).__name__}")
    if not samples:
        raise InputError("samples", "expected at least one sample, got none")
    for name in samples:
        if not isinstance(name, str):
            raise InputError("samples", f"expected names that are strings, got {name!r}")
    if is_scores(model):
        problem = "expected an object with score(x) or log_prob(x), got scores, and each sample has its own"
        raise InputError("model", f"{problem}: give samples as from_arrays(draws, scores)")


def _borrowed(sample: Any, known: Sequence[str] | None) -> Sequence[str] | None:
    """The names of the draws beside it, for an array, which has none of its own."""
    is_array = not hasattr(sample, "columns") and len(getattr(sample, "shape", ())) > 1
    return known if is_array and known is not None and sample.shape[-1] == len(known) else None


def _scored(
    sample: Any, model: Any, support: Any, names: Sequence[str] | None
) -> tuple[Any, ScoredPoints, Chains | None]:
    """The model of a sample, its points with scores, and how they are arranged in chains."""
    if model is None and not isinstance(sample, Draws):
        raise InputError("model", f"needed, because this sample is no Draws but {type(sample).__name__}")
    is_chains = not isinstance(sample, Draws) and len(getattr(sample, "shape", ())) == 3
    x, shape = in_chains(sample, True if is_chains else None)
    target = scores_in_chains(model_of(x, model), shape)
    points = make_points(x, target, support=support, names=names)
    return target, points, None if shape is None else measure_chains(points, shape).checked()


def _common_metric(sources: Sequence[ScoredPoints]) -> Metric:
    """Each coordinate in units of its standard deviation over all samples, which count equally."""
    rows = min(_METRIC_ROWS, *(len(points) for points in sources))
    taken = [
        points.take(torch.linspace(0, len(points) - 1, rows, dtype=torch.float64).round().long()) for points in sources
    ]
    x, score = (torch.cat([flattened(part).double().cpu() for part in parts]) for parts in zip(*taken, strict=True))
    return Metric.scaled(x, score)
