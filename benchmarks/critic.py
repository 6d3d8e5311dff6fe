"""The critic: one step, one validation, and a whole discrepancy, against the textbook."""

from functools import partial

import torch

from benchmarks import textbook
from benchmarks.timing import Table, medians
from steinscope import FitSettings, discrepancy, from_log_prob
from steinscope.critics import MLP
from steinscope.models import RBM
from steinscope.stein import PenalisedLSD

N, WIDTH, DIMS = 800, 300, (50, 100, 200)


def step(critic, optimiser, x, scores, objective):
    loss = -objective(*critic.stein(x, scores))
    optimiser.zero_grad()
    loss.backward()
    optimiser.step()


def rbm(dim, hidden=80):
    weights = torch.randint(2, (dim, hidden)).float() * 2 - 1
    return partial(textbook.rbm_log_prob, weights=weights, visible=torch.randn(dim), hidden=torch.randn(hidden))


def multiplications(dim, n=N, width=WIDTH):
    """What the matrix products of one exact step need, forward and backward."""
    forward = 2 * n * dim * width + 2 * n * width**2 + dim * width**2
    backward = 3 * n * dim * width + 4 * n * width**2 + 2 * dim * width**2
    return forward + backward


def run():
    torch.manual_seed(0)
    rows = []
    square = torch.randn(1024, 1024)
    for dim in DIMS:
        x, log_prob = torch.randn(N, dim), rbm(dim)
        scores = textbook.score(log_prob, x)
        net, critic = textbook.network(dim), MLP(dim, WIDTH).train()
        theirs = torch.optim.Adam(net.parameters(), lr=1e-3)
        ours = torch.optim.Adam(critic.parameters(), lr=1e-3, fused=True)
        seconds = medians(
            {
                "textbook": partial(textbook.step, net, theirs, x, log_prob),
                "steinscope": partial(step, critic, ours, x, scores, PenalisedLSD(0.5)),
                "peak": lambda: square @ square,
            },
            rounds=60,
        )
        peak = 1024**3 / seconds["peak"]
        rows.append(
            {
                "D": dim,
                "textbook ms": 1e3 * seconds["textbook"],
                "steinscope ms": 1e3 * seconds["steinscope"],
                "ratio": seconds["textbook"] / seconds["steinscope"],
                "share of peak": multiplications(dim) / seconds["steinscope"] / peak,
            }
        )
    yield Table(f"One critic step, n = {N}, H = {WIDTH}", "ratio 1.4, share of matrix-product peak 0.6", rows)

    rows = []
    for dim in DIMS:
        x = torch.randn(100, dim)
        net, critic = textbook.network(dim).eval(), MLP(dim, WIDTH).eval()
        ours = partial(torch.no_grad()(critic.stein), x, -x)
        seconds = medians({"textbook": partial(textbook.exact_values, net, x, -x), "steinscope": ours}, rounds=15)
        rows.append(
            {
                "D": dim,
                **{f"{k} ms": 1e3 * v for k, v in seconds.items()},
                "ratio": seconds["textbook"] / seconds["steinscope"],
            }
        )
    yield Table("One validation with exact traces, 100 points", "ratio 30", rows)

    rows = []
    for dim in DIMS:
        truth = RBM.random(dim, 80)
        x, log_prob = truth.gibbs(1000, steps=200), truth.perturbed(0.04).log_prob
        model = from_log_prob(log_prob)
        seconds = medians(
            {
                "textbook": partial(textbook.discrepancy, x, log_prob),
                "default": partial(discrepancy, x, model, progress=False),
                "all steps": partial(discrepancy, x, model, progress=False, settings=FitSettings(patience=None)),
            },
            rounds=1,
            warm=False,
        )
        rows.append(
            {
                "D": dim,
                **{f"{k} s": v for k, v in seconds.items()},
                "ratio": seconds["textbook"] / seconds["default"],
                "all steps ratio": seconds["textbook"] / seconds["all steps"],
            }
        )
    yield Table("A whole discrepancy of an RBM against a perturbed one, n = 1000", "ratio 3", rows)
