"""What the testing experiments share: the methods, and rejection rates with exact intervals."""

from __future__ import annotations

import time
from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np
import torch

from steinscope.errors import InputError
from steinscope.gof.driver import gof_test
from steinscope.registries import CRITICS, KERNEL_TESTS, KernelTestEntry
from steinscope.results import TestResult

__all__ = ["FIRST_SEED", "binomial_interval", "find_method", "run_methods", "single_critics"]

# Settings of the test were chosen on seeds before this one.
FIRST_SEED = 10_000

Method = Callable[[torch.Tensor, Any, int], TestResult]


def _learned(**options: Any) -> Method:
    return lambda x, score, seed: gof_test(x, score, seed=seed, progress=False, **options)


def _kernel(entry: KernelTestEntry, **options: Any) -> Method:
    """A kernel test as the literature has it, in the coordinates of the points: on RBMs units cost it some power."""

    def run(x: torch.Tensor, score: Any, seed: int) -> TestResult:
        test = entry.load()
        units = {"metric": "identity"} if "metric" in signature(test).parameters else {}
        return test(x, score, seed=seed, **units, **options)

    return run


def single_critics() -> list[str]:
    """The critics that need nothing but scores, by name."""
    return [name for name, entry in CRITICS.items() if entry.needs is None]


def find_method(name: str) -> Method:
    """A test by its name in the experiments: `learned`, `closed form`, `split`, a critic, or a kernel test's label."""
    closed_form = [key for key, entry in CRITICS.items() if entry.is_closed_form]
    methods = {
        "learned": _learned(),
        "closed form": _learned(critics=closed_form),
        **{key: _learned(critics=(key,)) for key in CRITICS},
        "split": _learned(scheme="split"),
        **{entry.label: _kernel(entry) for entry in KERNEL_TESTS.values() if entry.against == "scores"},
        "KSD imq": _kernel(KERNEL_TESTS["ksd"], kernel="imq"),
    }
    if name not in methods:
        raise InputError("options", f"methods: expected some of {', '.join(methods)}, got {name!r}")
    return methods[name]


def run_methods(names: list[str], x: torch.Tensor, score: Any, seed: int) -> dict[str, dict[str, float]]:
    """Run tests on the same points: the p-value, statistic and seconds of each."""
    results = {}
    for name in names:
        method = find_method(name)
        start = time.perf_counter()
        result = method(x, score, seed)
        seconds = time.perf_counter() - start
        results[name] = {"pvalue": result.pvalue, "statistic": result.statistic, "seconds": seconds}
    return results


def binomial_interval(successes: int, n: int) -> tuple[float, float]:
    """The exact 95% interval of a rate (Clopper and Pearson 1934): no rate in it would be rejected at 2.5% a side."""
    low = 0.0 if successes == 0 else _rate_where_at_least(successes, n, 0.025)
    high = 1.0 if successes == n else 1.0 - _rate_where_at_least(n - successes, n, 0.025)
    return low, high


def _rate_where_at_least(successes: int, n: int, probability: float) -> float:
    """The rate at which so many successes or more have this probability, by bisection."""
    counts = np.arange(n + 1)
    log_factorials = np.concatenate([[0.0], np.log(np.arange(1, n + 1)).cumsum()])
    log_choices = (log_factorials[n] - log_factorials - log_factorials[::-1])[successes:]
    low, high = 0.0, 1.0
    # 60 halvings are more than float64 can tell apart.
    for _ in range(60):
        rate = (low + high) / 2
        log_terms = log_choices + counts[successes:] * np.log(rate) + (n - counts[successes:]) * np.log1p(-rate)
        low, high = (rate, high) if np.exp(log_terms).sum() < probability else (low, rate)
    return (low + high) / 2
