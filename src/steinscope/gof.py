"""Test whether points come from a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from steinscope.arrays import Points
from steinscope.critics import MLP, Critic
from steinscope.errors import InputError
from steinscope.estimation import make_points
from steinscope.explanation import Explanation, Recipe, Tally, explain_held_out
from steinscope.features import AnyFeatures, FeatureMap
from steinscope.fitting import FitSettings, evaluate, fit_points
from steinscope.portfolio import CriticLearner, FeatureLearner, Learner, LinearLearner, MeanLearner, SparseLearner
from steinscope.randomness import make_generator
from steinscope.results import CriticResult, TestResult
from steinscope.stein import Power, mean_and_std

__all__ = ["gof_test"]

LEAST_POINTS = 100
# A network that has seen few points gives skewed Stein values, with which the test rejects too often, and finds little.
LEAST_POINTS_MLP = 500
CLOSED_FORM = ("mean", "linear", "sparse", "features")
NAMES = (*CLOSED_FORM, "mlp", "model")
_BATCH_ROWS = 8192
_SCALE_ROWS = 1024
_NORMAL_DRAWS = 2**15
_BEYOND_DOUBT = 1e-6
_ORDER_NOTE = "the p-value depends on the random order of the points, which seed fixes"


def gof_test(
    x: Any,
    model: Any,
    *,
    scheme: Literal["prequential", "split"] = "prequential",
    critics: str | Sequence[str | Critic] = "auto",
    blocks: int = 10,
    alpha: float = 0.05,
    repeats: int = 1,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> TestResult:
    """Test the hypothesis that the points come from the model (Algorithm 2 of the paper, and a stronger scheme).

    Arguments:
        x: The points, an array (n, ...) or a memmap; at least 100 of them.
        model: An object with `score(x)` or `log_prob(x)`, or an array of scores at x.
        scheme: `"prequential"`: critics that have seen only earlier blocks test each block. `"split"`: the paper's, one
            MLP trained on 80% of the points, chosen on 10% and tested on 10%.
        critics: `"auto"` for all that apply (the MLP from 500 points on, the model's features where it has them), or
            some of `"mean"`, `"linear"`, `"sparse"`, `"features"`, `"mlp"`, `"model"` and critics of your own.
        blocks: Into how many blocks the points are divided.
        alpha: The level.
        repeats: Test in so many random orders. The p-value is twice the mean of theirs, which is valid whatever
            their dependence.
        seed: A whole number: the order of the points and all that is random in the critics.
        dtype: The floating type to compute in; by default that of x.
        device: Where to compute; by default where x is.
        progress: Whether to show a progress bar for the split scheme; by default on a terminal.

    Example:
        >>> from steinscope.models.gaussian import Gaussian
        >>> x = Gaussian(torch.zeros(5)).sample(500)
        >>> gof_test(x, Gaussian(torch.zeros(5))).rejected, gof_test(x, Gaussian(torch.ones(5))).rejected
        (False, True)
    """
    if not 0 < alpha < 1:
        raise InputError(f"alpha: expected a number between 0 and 1, got {alpha}")
    if repeats < 1:
        raise InputError(f"repeats: expected at least 1, got {repeats}")
    points = make_points(x, model, dtype=dtype, device=device)
    if len(points) < LEAST_POINTS:
        raise InputError(
            f"x: {len(points)} rows are too few for a learned test, which rests on the central limit theorem and needs "
            f"{LEAST_POINTS}; the KSD test takes fewer"
        )
    if scheme == "split":
        return _split_test(points, alpha, seed, progress)
    if scheme != "prequential":
        raise InputError(f'scheme: expected "prequential" or "split", got {scheme!r}')
    if not 2 <= blocks <= len(points) // 10:
        raise InputError(
            f"blocks: expected a number from 2 to {len(points) // 10}, a tenth of the points, got {blocks}"
        )
    chosen = _check_critics(critics, model, len(points))
    results = [_prequential_test(points, model, chosen, blocks, alpha, seed + r) for r in range(repeats)]
    if repeats == 1:
        return results[0]
    pvalue = min(1.0, 2 * float(np.mean([result.pvalue for result in results])))
    middle = sorted(results, key=lambda result: result.statistic)[repeats // 2]
    note = f"p is twice the mean of {repeats} random orders; critics and blocks are those of the middle one"
    return replace(middle, pvalue=pvalue, notes=(note,))


def _check_critics(critics: str | Sequence[str | Critic], model: Any, n: int) -> list[str | Critic]:
    has_features = callable(getattr(model, "features", None))
    if critics in ("auto", ["auto"], ("auto",)):
        applies = {"model": has_features, "mlp": n >= LEAST_POINTS_MLP}
        critics = [name for name in NAMES if applies.get(name, True)]
    chosen: list[str | Critic] = [critics] if isinstance(critics, str | Critic) else list(critics)
    if not chosen:
        raise InputError("critics: expected at least one, got none")
    for critic in chosen:
        if isinstance(critic, str) and critic not in NAMES:
            raise InputError(f"critics: expected 'auto' or some of {', '.join(map(repr, NAMES))}, got {critic!r}")
        if not isinstance(critic, str | Critic):
            raise InputError(f"critics: expected names or critics of steinscope.critics, got {type(critic).__name__}")
    if "model" in chosen and not has_features:
        raise InputError("critics: 'model' needs a model with features(x), and this one has none")
    return chosen


def _make_learner(critic: str | Critic, model: Any, seed: int) -> Learner:
    if isinstance(critic, Critic):
        return CriticLearner(type(critic).__name__, critic, seed=seed)
    if critic == "mean":
        return MeanLearner()
    if critic == "linear":
        return LinearLearner()
    if critic == "sparse":
        return SparseLearner()
    if critic == "features":
        return FeatureLearner(seed=seed)
    if critic == "mlp":
        return CriticLearner(seed=seed)
    features = model.features
    return FeatureLearner("model", features if isinstance(features, FeatureMap) else AnyFeatures(features))


def _prequential_test(
    points: Points, model: Any, critics: list[str | Critic], blocks: int, alpha: float, seed: int
) -> TestResult:
    order = torch.randperm(len(points), generator=make_generator(seed))
    parts = order.tensor_split(blocks)
    # Critics in closed form go first: where they have rejected beyond doubt nobody else need run.
    cheap = [critic for critic in critics if critic in CLOSED_FORM]
    dear = [critic for critic in critics if critic not in CLOSED_FORM]
    learners = [_make_learner(critic, model, seed) for critic in cheap or dear]
    values = _run_blocks(points, parts, learners)
    notes = [_ORDER_NOTE]
    if cheap and dear:
        if len(critics) * _upper_tail(_combine(values, parts).z.max()) < _BEYOND_DOUBT:
            left = ", ".join(critic if isinstance(critic, str) else type(critic).__name__ for critic in dear)
            notes.append(f"the critics in closed form reject beyond doubt, so others were not run: {left}")
        else:
            others = [_make_learner(critic, model, seed) for critic in dear]
            values = np.concatenate([values, _run_blocks(points, parts, others)])
            learners += others
    found = _combine(values, parts)
    if len(learners) < len(critics):
        pvalue = len(critics) * _upper_tail(found.z.max())
    else:
        pvalue = _combined_pvalue(found.z, found.correlation)
    sizes = np.array([len(part) for part in parts[1:]])
    results = tuple(
        CriticResult(learner.name, float(z), _upper_tail(z), sizes, block_z, block_weight)
        for learner, z, block_z, block_weight in zip(learners, found.z, found.block_z, found.block_weight, strict=True)
    )
    sparse = next((learner for learner in learners if isinstance(learner, SparseLearner)), None)
    findings = sparse.findings() if sparse is not None else ()
    return TestResult(
        soft_maximum(found.z),
        pvalue,
        alpha,
        f"Learned Stein test, {blocks} prequential blocks",
        len(points),
        points.dim,
        results,
        findings,
        tuple(notes),
        Recipe(
            lambda worst, position: _explain(
                points, model, [*cheap, *dear][position], parts, seed, results[position].z, worst
            )
        ),
    )


def _explain(
    points: Points, model: Any, critic: str | Critic, parts: Sequence[Tensor], seed: int, expected_z: float, worst: int
) -> Explanation:
    """Go through the blocks again with one critic, and add up what coordinates and points contribute to its z-score."""
    learner, tally = _make_learner(critic, model, seed), Tally(points.dim, worst)

    def watch(index: Tensor, x: Tensor, score: Tensor, factor: np.ndarray) -> None:
        tally.add(index, x, score, learner.field, float(factor[0]))

    z = float(_combine(_run_blocks(points, parts, [learner], watch), parts).z[0])
    if not math.isclose(z, expected_z, rel_tol=1e-3, abs_tol=1e-2):
        raise InputError("explain: x or the model has changed since the test; test again")
    learner.refit()
    return tally.finish(
        learner.name, "z-score", lambda values: float(np.linalg.norm(values)), learner.field, points.dtype
    )


def _run_blocks(
    points: Points,
    parts: Sequence[Tensor],
    learners: list[Learner],
    watch: Callable[[Tensor, Tensor, Tensor, np.ndarray], None] | None = None,
) -> np.ndarray:
    """Show the blocks to the learners, one after the other, and return the weighted Stein values, learner by point.

    The first block has no values. Those of a block are weighted by √(points before it) over the scale that its critic
    had on the block before. Both are known before the block is looked at, so the weighted values are martingale
    differences where the model is right. `watch` is given the rows of each tested batch, the batch and its weights.
    """
    values: list[np.ndarray] = []
    factor, before = np.zeros(len(learners)), 0
    for number, part in enumerate(parts):
        for start in range(0, len(part), _BATCH_ROWS):
            x, score = (rows.reshape(len(rows), -1) for rows in points.take(part[start : start + _BATCH_ROWS]))
            if number == 0 and start == 0:
                for learner in learners:
                    learner.begin(x, score)
            if number > 0:
                values.append(_stein_values(learners, x, score) * factor[:, None])
                if watch is not None:
                    watch(part[start : start + _BATCH_ROWS], x, score, factor)
            for learner in learners:
                learner.observe(x, score)
        before += len(part)
        if number < len(parts) - 1:
            for learner in learners:
                learner.refit()
            scale = np.sqrt(np.square(_stein_values(learners, x[:_SCALE_ROWS], score[:_SCALE_ROWS])).mean(1))
            factor = np.where(scale > 0, math.sqrt(before) / np.maximum(scale, 1e-300), 0.0)
    return np.concatenate(values, axis=1)


@dataclass(frozen=True)
class _Combined:
    """What the learners found: everything the p-value depends on."""

    z: np.ndarray
    correlation: np.ndarray
    block_z: np.ndarray
    block_weight: np.ndarray


def _combine(values: np.ndarray, parts: Sequence[Tensor]) -> _Combined:
    """z-scores and their correlation from the weighted Stein values of each learner.

    The sum over the root of the sum of squares is asymptotically standard normal. Normalising once, and not in each
    block, keeps the effect of skewed values of order 1/√n.
    """
    starts = np.cumsum([0, *(len(part) for part in parts[1:-1])])
    block_norm = np.sqrt(np.maximum(np.add.reduceat(np.square(values), starts, axis=1), 1e-300))
    block_z = np.add.reduceat(values, starts, axis=1) / block_norm
    products = values @ values.T
    norm = np.sqrt(np.maximum(np.diagonal(products), 1e-300))
    return _Combined(values.sum(1) / norm, products / np.outer(norm, norm), block_z, block_norm / norm[:, None])


def _stein_values(learners: list[Learner], x: Tensor, score: Tensor) -> np.ndarray:
    return torch.stack([learner.values(x, score) for learner in learners]).double().cpu().numpy()


def _upper_tail(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2))


def soft_maximum(z: np.ndarray) -> float:
    """½ log Σ exp(2z): near the largest of the z-scores, and more where several of them are large."""
    largest = z.max()
    return float(largest + 0.5 * np.log(np.exp(2 * (z - largest)).sum()))


def _combined_pvalue(z: np.ndarray, correlation: np.ndarray) -> float:
    """The probability that the soft maximum of correlated standard normals is at least as large as that of z."""
    count, statistic = len(z), soft_maximum(z)
    # The soft maximum exceeds the largest z-score by ½ log(count) at most.
    bound = min(1.0, count * _upper_tail(statistic - 0.5 * math.log(count)))
    if count == 1 or bound < 1e-3:
        return bound
    eigenvalues, vectors = torch.linalg.eigh(torch.from_numpy(correlation))
    root = vectors * eigenvalues.clamp_min(0.0).sqrt()
    exceeded = int(((2 * _standard_normals(count) @ root.T).exp_().sum(1) >= math.exp(2 * statistic)).sum())
    return min(bound, (1 + exceeded) / (1 + _NORMAL_DRAWS))


@lru_cache(maxsize=8)
def _standard_normals(count: int) -> Tensor:
    return torch.randn(_NORMAL_DRAWS, count, generator=make_generator(0), dtype=torch.float64)


def _split_test(points: Points, alpha: float, seed: int, progress: bool | None) -> TestResult:
    """Algorithm 2 as in the paper."""
    order = torch.randperm(len(points), generator=make_generator(seed))
    n_validation = n_test = round(0.1 * len(points))
    n_train = len(points) - n_validation - n_test
    train, validation, test = (points.subset(part) for part in order.split([n_train, n_validation, n_test]))
    fit = fit_points(
        MLP(points.dim, dropout=0.5, seed=seed),
        train,
        validation,
        FitSettings(
            objective=Power(),
            steps=1000,
            batch_size=n_train,
            lr=1e-3,
            lr_decay=False,
            weight_decay=5e-4,
            every=100,
            select="power",
        ),
        seed=seed,
        progress=progress,
    )
    mean, std = mean_and_std(evaluate(fit.critic, test)[0])
    statistic = math.sqrt(n_test) * mean / std
    critic = CriticResult(
        "mlp", statistic, _upper_tail(statistic), np.array([n_test]), np.array([statistic]), np.ones(1)
    )
    return TestResult(
        statistic,
        _upper_tail(statistic),
        alpha,
        f"Learned Stein test, one split {n_train}/{n_validation}/{n_test}",
        len(points),
        points.dim,
        (critic,),
        notes=(_ORDER_NOTE,),
        recipe=Recipe(
            lambda worst, position: explain_held_out(
                points, [(order[-n_test:], fit.critic)], "mlp", worst, "z-score", True
            )
        ),
    )
