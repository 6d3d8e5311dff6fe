"""What the testing experiments share: the methods, and rejection rates with binomial intervals."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from inspect import signature
from typing import Any

import torch

from steinscope.errors import InputError
from steinscope.gof.driver import gof_test
from steinscope.registries import CRITICS, KERNEL_TESTS, KernelTestEntry
from steinscope.results import TestResult
from steinscope.support.normal import normal_quantile

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
    """Wilson's 95% interval of a rate."""
    rate, z = successes / n, normal_quantile(0.975)
    centre = (rate + z**2 / (2 * n)) / (1 + z**2 / n)
    half = z * math.sqrt(rate * (1 - rate) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)
    return max(0.0, centre - half), min(1.0, centre + half)
