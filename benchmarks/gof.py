"""The test of fit: against the textbook split test, against kernel tests, and as n grows."""

import resource
import time
from functools import partial

import torch

from benchmarks import textbook
from benchmarks.timing import Table, medians
from steinscope import gof_test
from steinscope.kernels import ksd_test, ksdagg_test
from steinscope.models import RBM

SHAPES = ((50, 40), (100, 80), (200, 100))


def problem(dim, hidden, n=1000):
    """Samples of an RBM, and the same RBM as the model: nothing to find, so that every critic runs."""
    rbm = RBM.random(dim, hidden)
    return rbm.gibbs(n, steps=200), rbm


def run():
    rows = []
    for dim, hidden in SHAPES:
        x, rbm = problem(dim, hidden)
        with torch.no_grad():
            scores = rbm.score(x)
        seconds = medians(
            {"default": partial(gof_test, x, scores), "KSDAgg": partial(ksdagg_test, x, scores)}, rounds=7
        )
        seconds |= medians({"textbook split": partial(textbook.split_test, x, rbm.log_prob)}, rounds=1, warm=False)
        seconds |= medians(
            {
                "closed form, 1 order": partial(gof_test, x, scores, critics="closed form", repeats=1),
                "closed form": partial(gof_test, x, scores, critics="closed form"),
                "KSD": partial(ksd_test, x, scores, draws=1000),
            },
            rounds=15,
        )
        rows.append(
            {
                "D": dim,
                **{f"{name} s": value for name, value in seconds.items()},
                "split / default": seconds["textbook split"] / seconds["default"],
                "KSDAgg / default": seconds["KSDAgg"] / seconds["default"],
                "KSD / 1 order": seconds["KSD"] / seconds["closed form, 1 order"],
            }
        )
    yield Table("A test at n = 1000", "split / default 40, KSDAgg / default 1, KSD / 1 order 1", rows)

    rows = []
    for n in (10_000, 100_000, 1_000_000):
        x = torch.randn(n, 50)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        gof_test(x, -x)
        seconds = time.perf_counter() - start
        beside = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
        rows.append({"n": n, "seconds": seconds, "peak GiB beside the data": beside})
    yield Table(
        "The default as n grows, D = 50", "at most 12 times from 10⁴ to 10⁵, a million in a minute or two", rows
    )

    x = torch.randn(20_000, 50)
    start = time.perf_counter()
    ksd_test(x, -x)
    yield Table("KSD in tiles, D = 50", "none", [{"n": 20_000, "seconds": time.perf_counter() - start}])
