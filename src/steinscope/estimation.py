"""Estimate the learned Stein discrepancy between points and a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steinscope.critics.base import Critic
from steinscope.critics.fitting import DEFAULT_FIT, History, evaluate, fit_points
from steinscope.critics.mean import Mean
from steinscope.critics.mlp import MLP
from steinscope.critics.network import as_critic
from steinscope.critics.preconditioned import Preconditioned
from steinscope.errors import InputError
from steinscope.explanation import Explanation, Recipe, explain_held_out
from steinscope.points import ScoredPoints, make_points
from steinscope.settings import FitSettings
from steinscope.stein import PenalisedLSD, mean_and_std
from steinscope.support.checks import check_count, check_number
from steinscope.support.normal import normal_quantile
from steinscope.support.randomness import Seed, make_generator

__all__ = ["Estimate", "EstimateSettings", "discrepancy", "estimate_points"]

_WHITENING_ROWS = 100_000
_DROPOUT_BELOW = 5000
_MOST_VALIDATION = 10_000


@dataclass(frozen=True)
class Estimate:
    r"""An estimate of the learned Stein discrepancy, from points that the critic has not seen.

    Arguments:
        value: The mean Stein value of the held-out points. Where the critic is the best one it is
            $E\|s_q - s_p\|^2 / 2\lambda$.
        stderr: Its standard error, given the critic.
        values: The Stein value of each held-out point.
        index: Which row of x each of them belongs to.
        fisher_bound: An estimate of a lower bound on the Fisher divergence $E\|s_q - s_p\|^2$ which does not depend
            on λ. Below zero it says nothing.
        fisher_bound_lower: The lower end of its one-sided 95% confidence interval.
        l2: The penalty λ.
        critic: The fitted critic; with folds, the average of their critics.
        history: How the critic was fitted; with folds, of the first of them.
        n_train: How many points trained each critic.
        n_validation: How many points chose among the critics along the way.
        n_test: How many points were held out for `value`.
        recipe: How `explain` works; see `steinscope.explanation.Recipe`.
    """

    value: float
    stderr: float
    values: np.ndarray = field(repr=False)
    index: np.ndarray = field(repr=False)
    fisher_bound: float
    fisher_bound_lower: float
    l2: float
    critic: Critic = field(repr=False)
    history: History = field(repr=False)
    n_train: int
    n_validation: int
    n_test: int
    recipe: Recipe = field(default_factory=Recipe, repr=False, compare=False)

    def explain(self, worst: int = 10) -> Explanation:
        """Which coordinates and points the discrepancy comes from, as critics see it that have not seen the points.

        Arguments:
            worst: How many of the worst points to list.
        """
        return self.recipe(worst)

    def to_dict(self) -> dict[str, Any]:
        """Numbers and lists, ready for JSON. The critic is left out."""
        names = ("value", "stderr", "fisher_bound", "fisher_bound_lower", "l2", "n_train", "n_validation", "n_test")
        return {
            **{name: getattr(self, name) for name in names},
            "values": self.values.tolist(),
            "index": self.index.tolist(),
            "history": self.history.to_dict(),
        }

    def plot(self, axes: Any = None) -> Any:
        """Draw the history of the critic and the held-out Stein values; returns the matplotlib figure."""
        from steinscope.plots import plot_estimate

        return plot_estimate(self, axes)

    def __str__(self) -> str:
        return "\n".join(
            [
                f"Learned Stein discrepancy   {self.value:.4g} ± {self.stderr:.2g}   (λ = {self.l2:g})",
                f"Fisher divergence           at least {self.fisher_bound_lower:.4g} with 95% confidence, "
                f"bound estimated at {self.fisher_bound:.4g}",
                f"Points                      {self.n_train} train, {self.n_validation} validation, "
                f"{self.n_test} held out",
                f"Critic                      {type(self.critic).__name__}, selected at step {self.history.selected}",
            ]
        )


def discrepancy(
    x: Any,
    model: Any,
    *,
    critic: Critic | torch.nn.Module | None = None,
    l2: float = 0.5,
    split: Sequence[float] = (0.8, 0.1, 0.1),
    folds: int | None = None,
    precondition: bool = False,
    settings: FitSettings = DEFAULT_FIT,
    seed: Seed = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> Estimate:
    r"""The learned Stein discrepancy between points and a model (Algorithm 1 of the paper, for one model).

    A critic is trained on some of the points to make the mean Stein value large under the penalty λE‖f‖², chosen on
    others, and its mean Stein value is taken on the rest. The model's score is computed once at each point.

    Arguments:
        x: The points, an array (n, ...) or a memmap.
        model: An object with `score(x)` or `log_prob(x)`, or an array of scores at x.
        critic: The critic to start from, or a network; by default the paper's, an `MLP` of two layers with 300 units,
            with a linear skip, and with dropout of one half where fewer than 5000 points train it.
        l2: The penalty λ. The best critic is (s_q - s_p) / 2λ.
        split: The shares of the points for training, validation and estimation. More than 10 000 points for
            validation are not needed; the others go to training.
        folds: Cross-fit with this number of parts: each is held out in turn, so that every point is held out once.
        precondition: Whether the critic works in coordinates in which the points have identity covariance.
        settings: Steps, batches and learning rate of the critic, and how it is chosen; see `FitSettings`.
        seed: A whole number or a torch generator: the split, the first weights, batches and probes.
        dtype: The floating type to compute in; by default that of x.
        device: Where to compute; by default where x is.
        progress: Whether to show a progress bar; by default on a terminal.

    Example:
        >>> from steinscope.models import Gaussian
        >>> x = Gaussian(torch.zeros(2)).sample(2000)
        >>> estimate = discrepancy(x, Gaussian(torch.ones(2)), settings=FitSettings(steps=300))
        >>> abs(estimate.value - 2.0) < 4 * estimate.stderr
        True
    """
    recipe = EstimateSettings(critic, l2, split, folds, precondition, settings)
    return estimate_points(make_points(x, model, dtype=dtype, device=device), recipe, seed=seed, progress=progress)


@dataclass(frozen=True)
class EstimateSettings:
    """How a discrepancy is estimated, apart from points, model and seed; `discrepancy` says what each of them is."""

    critic: Critic | torch.nn.Module | None = None
    l2: float = 0.5
    split: Sequence[float] = (0.8, 0.1, 0.1)
    folds: int | None = None
    precondition: bool = False
    fit: FitSettings = DEFAULT_FIT

    def __post_init__(self) -> None:
        check_number("l2", self.l2, over=0)
        _check_split(self.split)
        if self.folds is not None:
            check_count("folds", self.folds, 2)
        if self.critic is not None:
            as_critic(self.critic)

    def parts(self, n: int, generator: torch.Generator) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Rows for training, validation and estimation, once or for each fold."""
        if self.folds is not None:
            return _fold_parts(n, self.folds, self.split, generator)
        return _split_parts(n, self.split, generator)


def estimate_points(
    points: ScoredPoints, how: EstimateSettings, *, seed: Seed, progress: bool | None, title: str = "critic"
) -> Estimate:
    """`discrepancy` for points that have been checked and scored already."""
    generator = make_generator(seed)
    parts = how.parts(len(points), generator)
    n_train = len(parts[0][0])
    critic = how.critic
    if critic is None:
        critic = MLP(points.dim, dropout=0.5 if n_train < _DROPOUT_BELOW else 0.0, skip=True, seed=generator)
    # One seed for each part, drawn beforehand: however long a critic trains, the next one starts from the same numbers.
    seeds = torch.randint(2**62, (len(parts),), generator=generator).tolist()
    held_out, values, bounds, critics, histories = [], [], [], [], []
    for number, (train, validation, test) in enumerate(parts, start=1):
        noise = make_generator(seeds[number - 1], points.device)
        training = points.subset(train)
        start = as_critic(critic)
        if how.precondition:
            start = Preconditioned.from_data(start, training.take(slice(_WHITENING_ROWS))[0])
        kept = points.subset(validation) if len(validation) else None
        fit = fit_points(
            start,
            training,
            kept,
            PenalisedLSD(how.l2),
            how.fit,
            seed=seeds[number - 1],
            progress=progress,
            title=title if how.folds is None else f"{title}, fold {number}/{how.folds}",
        )
        test_points = points.subset(test)
        test_values, test_norms = evaluate(fit.critic, test_points, noise)
        scale = _best_scale(*evaluate(fit.critic, kept if kept is not None else training, noise))
        held_out.append(test)
        values.append(test_values)
        bounds.append(_fisher_values(test_values, test_norms, scale))
        critics.append(fit.critic)
        histories.append(fit.history)
    all_values = torch.cat(values)
    n_test = len(all_values)
    value, std = mean_and_std(all_values)
    bound, bound_std = mean_and_std(torch.cat(bounds))
    train, validation, _ = parts[0]
    name = type(critics[0]).__name__
    return Estimate(
        value=value,
        stderr=std / math.sqrt(n_test),
        values=all_values.cpu().numpy(),
        index=torch.cat(held_out).cpu().numpy(),
        fisher_bound=bound,
        fisher_bound_lower=bound - normal_quantile(0.95) * bound_std / math.sqrt(n_test),
        l2=how.l2,
        critic=critics[0] if len(critics) == 1 else Mean(critics).eval(),
        history=histories[0],
        n_train=len(train),
        n_validation=len(validation),
        n_test=n_test,
        recipe=Recipe(
            lambda worst, position: explain_held_out(
                points, list(zip(held_out, critics, strict=True)), name, worst, "discrepancy", False
            )
        ),
    )


def _best_scale(values: Tensor, norms: Tensor) -> float:
    """The factor c that makes 2 c E[s] - c² E‖f‖² largest, from points that are not used for the bound."""
    return max(0.0, float(values.double().mean() / norms.double().mean().clamp_min(1e-300)))


def _fisher_values(values: Tensor, norms: Tensor, scale: float) -> Tensor:
    r"""Pointwise values whose mean is at most the Fisher divergence in expectation.

    For every f, $2 E[s_f] - E\|f\|^2 = E\|s_q - s_p\|^2 - E\|f - (s_q - s_p)\|^2$. Here f is the critic times `scale`.
    """
    return 2 * scale * values.double() - scale**2 * norms.double()


def _split_parts(n: int, split: Sequence[float], generator: torch.Generator) -> list[tuple[Tensor, Tensor, Tensor]]:
    total = sum(split)
    n_validation, n_test = (max(2, round(n * part / total)) if part > 0 else 0 for part in split[1:])
    n_validation = min(n_validation, _MOST_VALIDATION)
    n_train = n - n_validation - n_test
    if n_train < 2:
        raise InputError("x", f"{n} rows are too few for the split {tuple(split)}; each part needs at least 2 points")
    order = torch.randperm(n, generator=generator)
    return [(order[:n_train], order[n_train : n_train + n_validation], order[n_train + n_validation :])]


def _fold_parts(
    n: int, folds: int, split: Sequence[float], generator: torch.Generator
) -> list[tuple[Tensor, Tensor, Tensor]]:
    share = split[1] / (split[0] + split[1])
    order = torch.randperm(n, generator=generator)
    parts = []
    for test in order.tensor_split(folds):
        rest = order[~torch.isin(order, test)]
        n_validation = min(max(2, round(share * len(rest))), _MOST_VALIDATION) if share > 0 else 0
        parts.append((rest[n_validation:], rest[:n_validation], test))
    if min(len(part) for train, _, test in parts for part in (train, test)) < 2:
        raise InputError("x", f"{n} rows are too few for {folds} folds; each part needs at least 2 points")
    return parts


def _check_split(split: Any) -> None:
    good = len(split) == 3 and all(part >= 0 for part in split) and split[0] > 0 and split[2] > 0
    if not good or not math.isclose(sum(split), 1.0, abs_tol=1e-6):
        raise InputError(
            "split",
            "expected shares for training, validation and estimation that add up to 1, "
            f"such as (0.8, 0.1, 0.1), got {tuple(split)}",
        )
