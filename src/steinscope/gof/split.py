"""The test of the paper: one critic, trained, chosen and tested on three parts of the points (Algorithm 2)."""

from __future__ import annotations

import math

import numpy as np
import torch

from steinscope.critics.fitting import evaluate, fit_points
from steinscope.critics.mlp import MLP
from steinscope.critics.preconditioned import Preconditioned
from steinscope.errors import InputError
from steinscope.explanation import Recipe, explain_held_out
from steinscope.gof.combination import ORDER_NOTE
from steinscope.metric import Metric
from steinscope.points import ScoredPoints
from steinscope.results import CriticResult, TestResult
from steinscope.settings import FitSettings
from steinscope.stein import Power, mean_and_std
from steinscope.support.normal import upper_tail
from steinscope.support.randomness import make_generator

__all__ = ["split_test"]

_SCALE_POINTS = 8192


def split_test(points: ScoredPoints, alpha: float, seed: int, progress: bool | None) -> TestResult:
    """Algorithm 2 as in the paper, with each coordinate in units of one over its root mean square score."""
    order = torch.randperm(len(points), generator=make_generator(seed))
    n_validation = n_test = round(0.1 * len(points))
    n_train = len(points) - n_validation - n_test
    train, validation, test = (points.subset(part) for part in order.split([n_train, n_validation, n_test]))
    # Units of single coordinates must not matter.
    metric = Metric.by_scores(*train.take(slice(_SCALE_POINTS)))
    critic = MLP(points.dim, dropout=0.5, seed=seed)
    fit = fit_points(
        Preconditioned(critic, metric.centre, metric.scale.square().diag()),
        train,
        validation,
        Power(),
        FitSettings(
            steps=1000,
            batch_size=n_train,
            lr=1e-3,
            lr_decay=False,
            weight_decay=5e-4,
            every=100,
            select="power",
            patience=None,
        ),
        seed=seed,
        progress=progress,
    )
    mean, std = mean_and_std(evaluate(fit.critic, test)[0])
    if std == 0.0:
        raise InputError("x", f"all {n_test} points of the test have the same Stein value, so that it has no error")
    statistic = math.sqrt(n_test) * mean / std
    found = CriticResult(
        "mlp",
        statistic,
        upper_tail(statistic),
        np.array([n_test]),
        np.array([statistic]),
        np.ones(1),
        np.array([statistic]),
    )
    return TestResult(
        statistic,
        upper_tail(statistic),
        alpha,
        f"Learned Stein test, one split {n_train}/{n_validation}/{n_test}",
        len(points),
        points.dim,
        (found,),
        notes=(ORDER_NOTE,),
        recipe=Recipe(
            lambda worst, position: explain_held_out(points, [(order[-n_test:], fit.critic)], "mlp", worst, "z-score")
        ),
    )
