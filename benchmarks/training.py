"""Training: one critic and one model update, against the loop that builds everything for every update."""

import time

import torch
from torch import nn

from benchmarks import textbook
from benchmarks.timing import Table, medians
from steinscope import TrainSettings, train
from steinscope.critics import MLP
from steinscope.data import synthetic_images
from steinscope.models import EBM, ICA, UnnormalisedICA
from steinscope.objectives import LearnedStein, ScoreMatching, score_matching
from steinscope.training.batches import make_batches
from steinscope.training.distributed import Processes
from steinscope.training.loop import Loop

SETTINGS = TrainSettings(lr=1e-4, auxiliary_lr=1e-4)
SLICED = ScoreMatching("sliced", probes=4, noise="rademacher")
# Seconds after which a loop is given up.
LIMIT = 60.0


class TextbookEBM(nn.Module):
    """A network times a Gaussian."""

    def __init__(self, dim, width):
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(dim, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 1)
        )
        self.mean, self.log_std = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.zeros(dim))

    def log_prob(self, x):
        return torch.distributions.Normal(self.mean, self.log_std.exp()).log_prob(x).sum(1) - self.net(x)[:, 0]


def our_step(model, critic, x, batch_size):
    """A step of the loop that `train` runs."""
    loop = Loop(
        model,
        [parameter for parameter in model.parameters() if parameter.requires_grad],
        LearnedStein(critic, l2=10.0, critic_steps=1, precondition=False),
        make_batches(x, batch_size, 0, dtype=x.dtype, device=x.device, shared=Processes(0, 1)),
        "lsd",
        SETTINGS,
        Processes(0, 1),
    )
    return loop.make_step


def textbook_step(model, net, x, batch_size, critic_steps=1, lr=1e-4, l2=10.0):
    """Updates of critic and model on fresh batches, with the textbook loss."""
    options = {"lr": lr, "betas": (0.5, 0.9)}
    theirs, ours = (torch.optim.Adam(part.parameters(), **options) for part in (net, model))

    def step():
        for optimiser, sign in (*[(theirs, -1)] * critic_steps, (ours, 1)):
            batch = x[torch.randint(len(x), (batch_size,))]
            loss = sign * textbook.training_loss(model, net, batch, l2=l2)
            theirs.zero_grad()
            ours.zero_grad()
            loss.backward()
            optimiser.step()

    return step


def digits_like(n, seed):
    """Standardised images of 8 by 8 pixels with uniform noise."""
    pixels = synthetic_images(n, 8, seed=seed).flatten(1).double()
    x = pixels + 16 * torch.rand(pixels.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return ((x - x.mean(0)) / x.std(0)).float()


def gaussian_target(x, held_out):
    """Score matching at held-out points of the Gaussian with the sample covariance."""
    precision = torch.linalg.inv(torch.cov(x.double().T))
    score = -(held_out.double() - x.double().mean(0)) @ precision
    return float(0.5 * score.square().sum(1).mean() - precision.trace())


def seconds_to(target, held_out, start):
    """A judge that stops when a model is as good as the target, and the list that gets the seconds it took."""
    reached = []

    def judge(model):
        if not reached and score_matching(held_out, model, objective=SLICED, seed=0).value <= target:
            reached.append(time.perf_counter() - start)
        return bool(reached) or time.perf_counter() - start > LIMIT

    return judge, reached


def time_to_quality(dim=64, width=128):
    """Seconds until a network is as good as the Gaussian of the sample covariance, by `train` and by Algorithm 3."""
    x, held_out = digits_like(1800, 0).split([1400, 400])
    target = gaussian_target(x, held_out)
    judge, ours = seconds_to(target, held_out, time.perf_counter())
    train(TextbookEBM(dim, width), x, steps=1000, log_every=10, callbacks=[lambda step, model, row: judge(model)])
    model, net = TextbookEBM(dim, width), textbook.network(dim)
    judge, theirs = seconds_to(target, held_out, time.perf_counter())
    step = textbook_step(model, net, x, 128, critic_steps=5, lr=1e-3, l2=0.5)
    number = 0
    while not (number % 10 == 0 and judge(model)):
        step()
        number += 1
    ours, theirs = (ours or [LIMIT])[0], (theirs or [LIMIT])[0]
    reached = "yes" if theirs < LIMIT else f"not in {LIMIT} s"
    return {
        "data": "8 × 8 images",
        "textbook s": theirs,
        "reached": reached,
        "steinscope s": ours,
        "ratio": theirs / ours,
    }


def run():
    torch.manual_seed(0)
    yield Table("Until a network is as good as the Gaussian of the data", "ratio 5", [time_to_quality()])
    x, images = torch.randn(10_000, 50), torch.randn(10_000, 784)
    cases = {
        "ICA, D = 50, n = 1000, H = 300": (
            UnnormalisedICA(ICA(50, seed=1)),
            UnnormalisedICA(ICA(50, seed=1)),
            *(x, 1000, 300, 30),
        ),
        "EBM, 784-1000-1000, n = 128": (EBM.perceptron(784, 1000), TextbookEBM(784, 1000), *(images, 128, 1000, 10)),
    }
    rows = []
    for name, (model, other, points, batch_size, width, rounds) in cases.items():
        dim = points.shape[1]
        seconds = medians(
            {
                "textbook": textbook_step(other, textbook.network(dim, width), points, batch_size),
                "steinscope": our_step(model, MLP(dim, width), points, batch_size),
            },
            rounds=rounds,
        )
        rows.append(
            {
                "model": name,
                **{f"{key} ms": 1e3 * value for key, value in seconds.items()},
                "ratio": seconds["textbook"] / seconds["steinscope"],
            }
        )
    yield Table("One critic and one model update", "ratio 2.5 for ICA, 2 for the EBM", rows)
