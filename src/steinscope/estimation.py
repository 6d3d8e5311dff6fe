"""Estimate the learned Stein discrepancy between points and a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
import torch
from torch import Tensor

from steinscope.chains import Chains, in_chains, mean_and_stderr, measure_chains, scores_in_chains
from steinscope.critics.base import Critic
from steinscope.critics.fitting import DEFAULT_FIT, History
from steinscope.critics.mean import Mean
from steinscope.densities import model_of
from steinscope.errors import InputError
from steinscope.explanation import Explanation, Recipe, explain_held_out
from steinscope.folds import chain_parts, fold_parts, split_parts
from steinscope.frames import Names, coordinate_label
from steinscope.metric import Metric, MetricName
from steinscope.points import ScoredPoints
from steinscope.portfolio.choice import CriticChoice, Critics, Purpose, choose_critics
from steinscope.portfolio.learner import Context
from steinscope.portfolio.stacking import FoldFit, fit_fold
from steinscope.registries import CRITICS
from steinscope.results import support_notes
from steinscope.scoring import make_points
from steinscope.settings import FitSettings
from steinscope.shapes import flattened
from steinscope.support.checks import check_choice, check_count, check_number
from steinscope.support.jobs import run_jobs
from steinscope.support.normal import normal_quantile
from steinscope.support.randomness import Seed, make_generator
from steinscope.unconstrained import unconstrained_model

__all__ = ["CriticShare", "Estimate", "EstimatePlan", "EstimateSettings", "discrepancy", "plan_estimate"]

_METRIC_ROWS = 100_000
_ATOM_ROWS = 1000
MOST_FOLDS = 1000


@dataclass(frozen=True)
class CriticShare:
    """What one critic found.

    Arguments:
        name: The critic.
        value: The discrepancy that it finds alone, on the held-out points.
        stderr: Its standard error.
        share: Its share of the mean Stein value of the stack; None where that is not clearly positive.
    """

    name: str
    value: float
    stderr: float
    share: float | None

    def __str__(self) -> str:
        return f"{self.name} {self.value:.3g}" + ("" if self.share is None else f" ({self.share:.0%})")


@dataclass(frozen=True)
class Estimate:
    r"""An estimate of the learned Stein discrepancy, from points that the critics have not seen.

    Arguments:
        value: The mean of $2(s_i - \lambda \|f_i\|^2)$ over the held-out points. In expectation it is at most
            $E\|s_q - s_p\|^2 / 2\lambda$, whatever the critic f, and equal to it where f is the best one.
        stderr: Its standard error, given the critics.
        mean_stein: The mean Stein value of the held-out points, the paper's estimate. It can be too large.
        values: The value of each held-out point.
        index: Which row of x each of them belongs to.
        critics: What each critic found, alone and as a part of the stack.
        l2: The penalty λ.
        metric: The coordinates in which the discrepancy is measured.
        critic: The fitted stack of critics; with folds, the average of theirs. It takes unconstrained coordinates where
            the model has a support.
        history: How the first trained critic was fitted; None where all were solved.
        n_train: How many points trained each critic.
        n_validation: How many points chose among the critics and their weights.
        n_test: How many points were held out for `value`.
        notes: What a reader should know about this estimate.
        batch: How many of `values` in a row are a batch of dependent draws; 1 for independent points.
        parts: In how many parts the points were held out, each by critics that learned from the others.
        recipe: How `explain` works; see `steinscope.explanation.Recipe`.
    """

    value: float
    stderr: float
    mean_stein: float
    values: np.ndarray = field(repr=False)
    index: np.ndarray = field(repr=False)
    critics: tuple[CriticShare, ...]
    l2: float
    metric: str
    critic: Critic = field(repr=False)
    history: History | None = field(repr=False)
    n_train: int
    n_validation: int
    n_test: int
    notes: tuple[str, ...] = ()
    batch: int = 1
    parts: int = 1
    recipe: Recipe = field(default_factory=Recipe, repr=False, compare=False)

    @property
    def fisher_bound(self) -> float:
        r"""An estimate of a lower bound on the Fisher divergence $E\|s_q - s_p\|^2$ in the metric: 2λ times `value`."""
        return 2 * self.l2 * self.value

    @property
    def fisher_bound_lower(self) -> float:
        """The lower end of the one-sided 95% confidence interval of `fisher_bound`."""
        return 2 * self.l2 * (self.value - normal_quantile(0.95) * self.stderr)

    def explain(self, worst: int = 10) -> Explanation:
        """The coordinates and points that the discrepancy comes from, by critics that have not seen the points.

        Arguments:
            worst: How many of the worst points to list.
        """
        return self.recipe(worst)

    def to_dict(self) -> dict[str, Any]:
        """Numbers and lists, ready for JSON. The critic is left out."""
        names = ("value", "stderr", "mean_stein", "fisher_bound", "fisher_bound_lower", "l2", "metric")
        return {
            **{name: getattr(self, name) for name in (*names, "n_train", "n_validation", "n_test")},
            "critics": [vars(critic) for critic in self.critics],
            "notes": list(self.notes),
            "values": self.values.tolist(),
            "index": self.index.tolist(),
            "history": None if self.history is None else self.history.to_dict(),
        }

    def plot(self, axes: Any = None) -> Any:
        """Draw what each critic found and the values of the held-out points; returns the matplotlib figure."""
        from steinscope.plots import plot_estimate

        return plot_estimate(self, axes)

    def __str__(self) -> str:
        found = ", ".join(str(critic) for critic in self.critics)
        lines = [
            f"Learned Stein discrepancy   {self.value:.4g} ± {self.stderr:.2g}   (λ = {self.l2:g}, {self.metric} "
            "coordinates)",
            f"Fisher divergence           at least {max(0.0, self.fisher_bound_lower):.4g} with 95% confidence",
            f"Critics, alone (share)      {found}",
            f"Points                      {self.n_train} train, {self.n_validation} validation, {self.n_test} held out",
        ]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


@torch.inference_mode(False)
def discrepancy(
    x: Any,
    model: Any = None,
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
    seed: Seed = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> Estimate:
    r"""The learned Stein discrepancy between points and a model (Algorithm 1 of the paper, for one model).

    Several critics, most of them in closed form, are fitted to some of the points. Other points choose their weights,
    and the rest are held out for the estimate. A network learns what the other critics leave over, and is added. The
    model's score is computed once at each point.

    Arguments:
        x: The points, an array (n, ...), a data frame, a memmap, or the path of a directory of .npy or Parquet
            shards (or a list of such files); or `Draws` of a posterior.
        model: An object with `score(x)` or `log_prob(x)`, or an array of scores at x; not needed for `Draws`.
        support: As in `gof_test`.
        chains: As in `gof_test`. Stretches of time are then held out, and standard errors come from batches of draws.
        critics: `"auto"` for all that apply, `"closed form"` for those of them that need no training, or some of the
            names in `steinscope.registries.CRITICS` (`"linear"`, `"additive"`, `"kernel"`, `"mlp"`, and `"model"` where
            the model has features) and critics or networks of your own.
        l2: The penalty λ. The best critic is (s_q - s_p) / 2λ.
        metric: The coordinates in which critics are measured: `"scaled"`, each coordinate in units of its standard
            deviation; `"whitened"`, all of them uncorrelated; or `"identity"`, as they are.
        folds: The number of parts, each of which is held out in turn, so that every point is held out once; None for
            one split.
        split: The shares of the points for training, validation and estimation; with folds, the first two say how the
            points that are not held out are divided. At most 10 000 points are used for validation; the others go to
            training.
        settings: Steps, batches and learning rate of critics that are trained; see `FitSettings`.
        jobs: The number of folds that run at once, each with one thread; by default one after the other, with all
            threads. The numbers do not depend on it.
        names: The names of the coordinates; by default the columns of x if it is a data frame.
        seed: A whole number or a torch generator: the split, the first weights, batches and probes.
        dtype: The floating type to compute in; by default that of x.
        device: Where to compute; by default where x is.
        progress: Whether to show a progress bar; by default on a terminal.

    Returns:
        The estimate, with its standard error and what each critic found; it prints as text.

    Example:
        >>> from steinscope.models import Gaussian
        >>> x = Gaussian(torch.zeros(2)).sample(2000)
        >>> estimate = discrepancy(x, Gaussian(torch.ones(2)), critics="closed form")
        >>> abs(estimate.value - 2.0) < 4 * estimate.stderr
        True
    """
    how = EstimateSettings(critics, l2, metric, folds, split, settings)
    x, shape = in_chains(x, chains)
    model = scores_in_chains(model_of(x, model), shape)
    points = make_points(x, model, support=support, names=names, dtype=dtype, device=device)
    known = None if shape is None else measure_chains(points, shape).checked()
    plan = plan_estimate(points, model, how, seed=seed, progress=progress, chains=known)
    return plan.finish(run_jobs(plan.tasks, jobs))


@dataclass(frozen=True)
class EstimateSettings:
    """How a discrepancy is estimated, apart from points, model and seed; `discrepancy` says what each of them is."""

    critics: Critics = "auto"
    l2: float = 0.5
    metric: MetricName = "scaled"
    folds: int | None = 5
    split: Sequence[float] = (0.6, 0.2, 0.2)
    fit: FitSettings = DEFAULT_FIT

    def __post_init__(self) -> None:
        object.__setattr__(self, "l2", check_number("l2", self.l2, over=0))
        check_choice("metric", self.metric, get_args(MetricName))
        object.__setattr__(self, "split", _check_split(self.split))
        if self.folds is not None:
            object.__setattr__(self, "folds", check_count("folds", self.folds, 2, MOST_FOLDS))
        if not isinstance(self.fit, FitSettings):
            raise InputError("settings", f"expected FitSettings(...), got {type(self.fit).__name__}")

    def parts(
        self, n: int, generator: torch.Generator, chains: Chains | None = None
    ) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Rows for training, validation and estimation, once or for each fold."""
        if chains is not None:
            return chain_parts(chains, self.folds, self.split, generator)
        if self.folds is not None:
            return fold_parts(n, self.folds, self.split, generator)
        return split_parts(n, self.split, generator)


def make_metric(points: ScoredPoints, name: MetricName, generator: torch.Generator) -> Metric:
    """The coordinates of a name, from at most 100 000 of the points."""
    rows = torch.randperm(len(points), generator=generator)[:_METRIC_ROWS]
    x, score = points.take(rows)
    _check_density(flattened(x[:_ATOM_ROWS]), points.names)
    return Metric.named(name, x, score)


def _check_density(x: Tensor, names: Names) -> None:
    """Points most of which share a value in some coordinate have no density, and are infinitely far from any model."""
    middle = x.median(0).values
    is_atom = (x == middle).double().mean(0) > 0.5
    if bool(is_atom.any()):
        coordinate = int(is_atom.nonzero()[0, 0])
        raise InputError(
            "x",
            f"most points have {coordinate_label(names, coordinate)} = {float(middle[coordinate]):g}; such points have "
            "no density, and their discrepancy is infinite: leave the coordinate out, add noise, or use gof_test",
        )


@dataclass(frozen=True)
class EstimatePlan:
    """An estimate whose folds are still to be worked on, here or in other processes.

    Arguments:
        points: The points with the model's scores.
        metric: The coordinates.
        how: The settings.
        parts: Rows for training, validation and estimation, for each fold.
        tasks: The work on each fold.
        chains: How the points are arranged in chains, where they are draws of them.
    """

    points: ScoredPoints
    metric: Metric
    how: EstimateSettings
    parts: list[tuple[Tensor, Tensor, Tensor]]
    tasks: list[Callable[[], FoldFit]]
    chains: Chains | None = None

    def finish(self, fits: Sequence[FoldFit]) -> Estimate:
        """The estimate, from what the folds found."""
        return _summary(self.points, self.metric, self.how, self.parts, fits, self.chains)


def plan_estimate(
    points: ScoredPoints,
    model: Any,
    how: EstimateSettings,
    *,
    seed: Seed,
    purpose: Purpose = "estimate",
    metric: Metric | None = None,
    progress: bool | None = None,
    title: str = "critics",
    chains: Chains | None = None,
) -> EstimatePlan:
    """`discrepancy` for points that have been checked and scored already, up to the work on the folds.

    Arguments:
        points: The points with the model's scores.
        model: The model as the user gave it.
        how: The settings.
        seed: As in `discrepancy`.
        purpose: What the critics are for, an estimate or a ranking.
        metric: The coordinates; by default those that the settings name.
        progress: As in `discrepancy`.
        title: What the progress bar says.
        chains: How the points are arranged in chains, where they are draws of them.
    """
    model = unconstrained_model(model, points.coordinates)
    chosen = choose_critics(how.critics, model, len(points), purpose)
    generator = make_generator(seed)
    parts = how.parts(len(points), generator, chains)
    own = make_metric(points, how.metric, generator)
    metric = own if metric is None else metric
    # One seed for each part, drawn beforehand: however long a critic trains, the next one starts from the same numbers.
    seeds = torch.randint(2**62, (len(parts),), generator=generator).tolist()
    moved, shape = points.in_metric(metric), tuple(points.x.shape[1:])
    # Chains are divided into whole stretches of time, maybe more of them or fewer than were asked for.
    titles = [title if how.folds is None else f"{title}, fold {n}/{len(parts)}" for n in range(1, len(parts) + 1)]
    batch = 1 if chains is None else chains.batch
    contexts = [Context(model, metric, shape, points.dtype, part_seed) for part_seed in seeds]
    tasks: list[Callable[[], FoldFit]] = [
        _Fold(moved, part, chosen, context, how, batch, progress, part_title)
        for part, context, part_title in zip(parts, contexts, titles, strict=True)
    ]
    return EstimatePlan(points, metric, how, parts, tasks, chains)


@dataclass(frozen=True)
class _Fold:
    """The work on one part, which another process can do."""

    points: ScoredPoints
    part: tuple[Tensor, Tensor, Tensor]
    critics: list[CriticChoice]
    context: Context
    how: EstimateSettings
    batch: int
    progress: bool | None
    title: str

    def __call__(self) -> FoldFit:
        train, validation, test = (self.points.subset(rows) for rows in self.part)
        how, shown = self.how, {"progress": self.progress, "title": self.title}
        return fit_fold(train, validation, test, self.critics, self.context, how.l2, how.fit, batch=self.batch, **shown)


def _summary(
    points: ScoredPoints,
    metric: Metric,
    how: EstimateSettings,
    parts: list[tuple[Tensor, Tensor, Tensor]],
    fits: Sequence[FoldFit],
    chains: Chains | None,
) -> Estimate:
    values, steins = (np.concatenate([getattr(fit, name) for fit in fits]) for name in ("values", "steins"))
    n, critics = len(values), [fit.critic(metric) for fit in fits]
    held_out = [test for _, _, test in parts]
    batch = 1 if chains is None else chains.batch
    value, stderr = mean_and_stderr(values, batch)
    if not math.isfinite(stderr):
        raise InputError("x", "the values of some points are not finite; their scores or coordinates are too large")
    shares = _shares(fits, float(steins.sum()) if value > 2 * stderr else None, batch)
    notes = list(support_notes(points))
    if chains is not None:
        notes.insert(0, f"{chains}, effective {chains.effective:.0f}; batches of {batch} draws")
    if value <= 2 * stderr:
        looked = "; ".join(f"{_text(critic.name)} ({critic.name})" for critic in shares)
        notes.append(f"little or nothing was found; looked for {looked}")
    return Estimate(
        value=value,
        stderr=stderr,
        mean_stein=float(steins.mean()),
        values=values,
        index=torch.cat(held_out).cpu().numpy(),
        critics=shares,
        l2=how.l2,
        metric=how.metric,
        critic=critics[0] if len(critics) == 1 else Mean(critics).eval(),
        history=next((fit.history for fit in fits if fit.history is not None), None),
        n_train=len(parts[0][0]),
        n_validation=len(parts[0][1]),
        n_test=n,
        notes=tuple(notes),
        batch=batch,
        parts=len(parts),
        recipe=Recipe(
            lambda worst, position: explain_held_out(
                points,
                list(zip(held_out, critics, strict=True)),
                "stack",
                worst,
                "discrepancy",
                (how.l2, metric),
                batch,
            )
        ),
    )


def _text(name: str) -> str:
    return CRITICS[name].text if name in CRITICS else "a critic of your own"


def _shares(fits: Sequence[FoldFit], total: float | None, batch: int) -> tuple[CriticShare, ...]:
    """Critic by critic over all folds."""
    shares = []
    for name in dict.fromkeys(name for fit in fits for name in fit.alone):
        alone = np.concatenate([fit.alone[name] for fit in fits])
        part = sum(fit.parts.get(name, 0.0) for fit in fits)
        shares.append(CriticShare(name, *mean_and_stderr(alone, batch), None if total is None else part / total))
    return tuple(shares)


def _check_split(split: Any) -> tuple[float, ...]:
    problem = InputError(
        "split",
        "expected shares for training, validation and estimation that are positive and add up to 1, "
        f"such as (0.6, 0.2, 0.2), got {split!r}",
    )
    try:
        shares = tuple(check_number("split", share, over=0) for share in split)
    except (InputError, TypeError):
        raise problem from None
    if len(shares) != 3 or not math.isclose(sum(shares), 1.0, abs_tol=1e-6):
        raise problem
    return shares
