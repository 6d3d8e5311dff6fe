"""Training: one critic and one model update, against the loop that builds everything for every update."""

import torch
from torch import nn

from benchmarks import textbook
from benchmarks.timing import Table, medians
from steinscope import TrainSettings
from steinscope.critics import MLP
from steinscope.models import EBM, ICA, UnnormalisedICA
from steinscope.objectives import LearnedStein
from steinscope.training.batches import make_batches
from steinscope.training.distributed import Processes
from steinscope.training.loop import Loop

SETTINGS = TrainSettings(lr=1e-4, auxiliary_lr=1e-4)


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


def textbook_step(model, net, x, batch_size):
    """Both updates on fresh batches, with the textbook loss."""
    options = {"lr": 1e-4, "betas": (0.5, 0.9)}
    theirs, ours = (torch.optim.Adam(part.parameters(), **options) for part in (net, model))

    def step():
        for optimiser, sign in ((theirs, -1), (ours, 1)):
            batch = x[torch.randint(len(x), (batch_size,))]
            loss = sign * textbook.training_loss(model, net, batch, l2=10.0)
            theirs.zero_grad()
            ours.zero_grad()
            loss.backward()
            optimiser.step()

    return step


def run():
    torch.manual_seed(0)
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
