"""Discrepancies in closed form: against one network on one split, which was all there was before, and as n grows."""

import resource
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import torch

from benchmarks.timing import Table, medians
from steinscope import FitSettings, compare, discrepancy, fit_critic
from steinscope.critics import MLP

N, D = 6000, 8
DEGREES = {"t30": 30.0, "t12": 12.0, "t9": 9.0, "t4": 4.0, "t3": 3.0}


def student_score(x, degrees):
    return -(degrees + 1) * x / (degrees + x**2)


def one_network(x, score, seed=0):
    """The mean Stein value of the paper's critic on a tenth of the points, chosen on another tenth."""
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    train, validation, test = order.split([len(x) - 2 * (len(x) // 10), len(x) // 10, len(x) // 10])
    fit = fit_critic(
        MLP(x.shape[1], dropout=0.5 if len(train) < 5000 else 0.0, skip=True),
        x[train],
        score[train],
        validation=(x[validation], score[validation]),
        settings=FitSettings(),
        progress=False,
    )
    with torch.no_grad():
        return float(fit.critic.stein(x[test], score[test])[0].mean())


def rank_by_one_network(scores, x, folds=5):
    """The same for each model and each fold of a ranking."""
    return {name: [one_network(x, score, seed) for seed in range(folds)] for name, score in scores.items()}


def run():
    x = torch.tensor(np.random.default_rng(0).standard_t(6, (N, D)), dtype=torch.float32)
    scores = {name: student_score(x, degrees) for name, degrees in DEGREES.items()}
    seconds = medians({"closed form": partial(discrepancy, x, scores["t30"], critics="closed form")}, rounds=5)
    seconds |= medians({"one network": partial(one_network, x, scores["t30"])}, rounds=3, warm=False)
    seconds |= {"default": medians({"": partial(discrepancy, x, scores["t30"])}, rounds=1, warm=False)[""]}
    rows = [{"call": "discrepancy", **_row(seconds)}]
    seconds = medians({"closed form": partial(compare, scores, x, critics="closed form")}, rounds=3)
    seconds |= medians({"one network": partial(rank_by_one_network, scores, x)}, rounds=1, warm=False)
    seconds |= {"default": medians({"": partial(compare, scores, x)}, rounds=1, warm=False)[""]}
    rows.append({"call": "compare, 5 models", **_row(seconds)})
    yield Table(f"Estimates at n = {N}, D = {D}", "network / closed form 10 for discrepancy, 5 for compare", rows)

    rows = []
    with tempfile.TemporaryDirectory() as directory:
        for n in (10_000, 100_000, 1_000_000):
            path = Path(directory) / "x.npy"
            np.save(path, np.random.default_rng(0).standard_normal((n, 50), dtype=np.float32))
            points = np.load(path, mmap_mode="r")
            np.save(path.with_name("score.npy"), -1.1 * points)
            scores_on_disk = np.load(path.with_name("score.npy"), mmap_mode="r")
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            start = time.perf_counter()
            discrepancy(points, scores_on_disk, critics="closed form")
            took = time.perf_counter() - start
            beside = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**20
            rows.append({"n": n, "seconds": took, "peak GiB, pages of the file included": beside})
    yield Table("Closed form from a memmap as n grows, D = 50", "a million in 30 s", rows)


def _row(seconds):
    return {
        **{f"{name} s": value for name, value in seconds.items()},
        "network / closed form": seconds["one network"] / seconds["closed form"],
    }
