"""Test whether points come from a model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from steinscope.arrays import Points
from steinscope.critics import MLP, Critic
from steinscope.errors import InputError
from steinscope.estimation import make_points
from steinscope.features import AnyFeatures, FeatureMap
from steinscope.fitting import evaluate, fit_points
from steinscope.portfolio import CriticLearner, FeatureLearner, Learner, LinearLearner, SparseLearner
from steinscope.randomness import make_generator
from steinscope.results import CriticResult, TestResult
from steinscope.stein import Power, mean_and_std

__all__ = ["gof_test"]

LEAST_POINTS = 100
CLOSED_FORM = ("linear", "sparse", "features")
NAMES = (*CLOSED_FORM, "mlp", "model")
_BATCH_ROWS = 8192
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
        critics: `"auto"` for all that apply, or some of `"linear"`, `"sparse"`, `"features"`, `"mlp"`, `"model"` and
            critics of your own.
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
            f"{LEAST_POINTS}; ksd_test takes fewer"
        )
    if scheme == "split":
        return _split_test(points, alpha, seed, progress)
    if scheme != "prequential":
        raise InputError(f'scheme: expected "prequential" or "split", got {scheme!r}')
    if not 2 <= blocks <= len(points) // 10:
        raise InputError(
            f"blocks: expected a number from 2 to {len(points) // 10}, a tenth of the points, got {blocks}"
        )
    chosen = _check_critics(critics, model)
    results = [_prequential_test(points, model, chosen, blocks, alpha, seed + r) for r in range(repeats)]
    if repeats == 1:
        return results[0]
    pvalue = min(1.0, 2 * float(np.mean([result.pvalue for result in results])))
    middle = sorted(results, key=lambda result: result.statistic)[repeats // 2]
    note = f"p is twice the mean of {repeats} random orders; critics and blocks are those of the middle one"
    return TestResult(
        middle.statistic, pvalue, alpha, middle.method, middle.n, middle.dim, middle.critics, middle.findings, (note,)
    )


def _check_critics(critics: str | Sequence[str | Critic], model: Any) -> list[str | Critic]:
    has_features = callable(getattr(model, "features", None))
    if isinstance(critics, str) and critics == "auto":
        return [name for name in NAMES if name != "model" or has_features]
    chosen = [critics] if isinstance(critics, str | Critic) else list(critics)
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
    before = np.cumsum([len(part) for part in parts])[:-1]
    weight = np.sqrt(before * np.array([len(part) for part in parts[1:]]))
    weight = weight / np.sqrt(np.square(weight).sum())

    # Critics in closed form go first: where they have rejected beyond doubt nobody else need run.
    cheap = [critic for critic in critics if critic in CLOSED_FORM]
    dear = [critic for critic in critics if critic not in CLOSED_FORM]
    learners: list[Learner] = []
    z, correlation, block_z = np.zeros(0), np.zeros((0, 0)), np.zeros((0, 0))
    for group in (cheap, cheap + dear) if cheap and dear else (critics,):
        learners = [_make_learner(critic, model, seed) for critic in group]
        block_z, correlation = _run_blocks(points, parts, learners, weight)
        z = block_z @ weight
        if len(critics) * _upper_tail(z.max()) < _BEYOND_DOUBT:
            break
    notes = [_ORDER_NOTE]
    if len(learners) < len(critics):
        pvalue = len(critics) * _upper_tail(z.max())
        notes.append(f"the closed-form critics reject beyond doubt, so the other {len(critics) - len(z)} were not run")
    else:
        pvalue = _largest_pvalue(float(z.max()), correlation)
    sizes = np.array([len(part) for part in parts[1:]])
    results = tuple(
        CriticResult(learner.name, float(value), _upper_tail(value), sizes, rows, weight)
        for learner, value, rows in zip(learners, z, block_z, strict=True)
    )
    sparse = next((learner for learner in learners if isinstance(learner, SparseLearner)), None)
    findings = sparse.findings() if sparse is not None else ()
    return TestResult(
        float(z.max()),
        pvalue,
        alpha,
        f"Learned Stein test, {blocks} prequential blocks",
        len(points),
        points.dim,
        results,
        findings,
        tuple(notes),
    )


def _run_blocks(
    points: Points, parts: Sequence[Tensor], learners: list[Learner], weight: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The z-score of each learner in each block, and the correlation of the learners' combined z-scores."""
    correlation = np.zeros((len(learners), len(learners)))
    block_z = np.zeros((len(learners), len(parts) - 1))
    for number, part in enumerate(parts):
        total, products = np.zeros(len(learners)), np.zeros((len(learners), len(learners)))
        for start in range(0, len(part), _BATCH_ROWS):
            x, score = (rows.reshape(len(rows), -1) for rows in points.take(part[start : start + _BATCH_ROWS]))
            if number == 0 and start == 0:
                for learner in learners:
                    learner.begin(x, score)
            if number > 0:
                values = torch.stack([learner.values(x, score) for learner in learners]).double()
                total += values.sum(1).cpu().numpy()
                products += (values @ values.T).cpu().numpy()
            for learner in learners:
                learner.observe(x, score)
        for learner in learners:
            learner.refit()
        if number > 0:
            # Under the null the conditional mean is zero, so the root of the sum of squares is the right yardstick. A
            # sum that is normalised by it has lighter tails than a t statistic, which matters in small blocks.
            norm = np.sqrt(np.maximum(np.diag(products), 1e-300))
            block_z[:, number - 1] = total / norm
            correlation += weight[number - 1] ** 2 * products / np.outer(norm, norm)
    return block_z, correlation


def _upper_tail(z: float) -> float:
    return 0.5 * math.erfc(z / math.sqrt(2))


def _largest_pvalue(largest: float, correlation: np.ndarray) -> float:
    """The probability that the largest of correlated standard normals is at least this large."""
    count = len(correlation)
    bonferroni = min(1.0, count * _upper_tail(largest))
    if count == 1 or bonferroni < 1e-3:
        return bonferroni
    eigenvalues, vectors = torch.linalg.eigh(torch.from_numpy(correlation))
    root = vectors * eigenvalues.clamp_min(0.0).sqrt()
    normals = torch.randn(_NORMAL_DRAWS, count, generator=make_generator(0), dtype=torch.float64)
    exceeded = int(((normals @ root.T).amax(1) >= largest).sum())
    return min(bonferroni, (1 + exceeded) / (1 + _NORMAL_DRAWS))


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
        objective=Power(),
        steps=1000,
        batch_size=n_train,
        lr=1e-3,
        lr_decay=False,
        weight_decay=5e-4,
        every=100,
        select="power",
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
    )
