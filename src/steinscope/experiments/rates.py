"""What the testing experiments share: the methods, and rejection rates with binomial intervals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Any

import torch

from steinscope.gof import CLOSED_FORM, gof_test
from steinscope.kernels import fssd_test, ksd_test, ksdagg_test, linear_ksd_test
from steinscope.results import TestResult

__all__ = ["METHODS", "binomial_interval", "run_methods"]

Method = Callable[[torch.Tensor, Any, int], TestResult]

METHODS: dict[str, Method] = {
    "learned": lambda x, score, seed: gof_test(x, score, seed=seed),
    "closed form": lambda x, score, seed: gof_test(x, score, critics=CLOSED_FORM, seed=seed),
    **{
        name: lambda x, score, seed, name=name: gof_test(x, score, critics=(name,), seed=seed)
        for name in ("mean", "linear", "sparse", "features", "mlp")
    },
    "split": lambda x, score, seed: gof_test(x, score, scheme="split", seed=seed, progress=False),
    "KSD": lambda x, score, seed: ksd_test(x, score, seed=seed),
    "KSD imq": lambda x, score, seed: ksd_test(x, score, kernel="imq", seed=seed),
    "LKSD": lambda x, score, seed: linear_ksd_test(x, score, seed=seed),
    "FSSD": lambda x, score, seed: fssd_test(x, score, seed=seed),
    "KSDAgg": lambda x, score, seed: ksdagg_test(x, score, seed=seed),
}


def run_methods(names: list[str], x: torch.Tensor, score: Any, seed: int) -> dict[str, dict[str, float]]:
    """Run tests on the same points: the p-value, statistic and seconds of each."""
    results = {}
    for name in names:
        start = time.perf_counter()
        result = METHODS[name](x, score, seed)
        seconds = time.perf_counter() - start
        results[name] = {"pvalue": result.pvalue, "statistic": result.statistic, "seconds": seconds}
    return results


def binomial_interval(successes: int, n: int, z: float = 1.96) -> tuple[float, float]:
    """Wilson's 95% interval of a rate."""
    rate = successes / n
    centre = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)
