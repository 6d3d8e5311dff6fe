"""What several test files need."""

import os
import re
import subprocess
import sys
from html import unescape

import numpy as np
import torch
from torch import nn
from torch.distributions import (
    Categorical,
    Independent,
    Laplace,
    MixtureSameFamily,
    MultivariateNormal,
    Normal,
    StudentT,
)

from steinscope import compare, from_log_prob
from steinscope.critics import MLP, Features, Linear, Mean, Module, Preconditioned
from steinscope.kernels.stein_kernel import Sample
from steinscope.maps import RandomCosines
from steinscope.metric import Metric
from steinscope.models import Gaussian
from steinscope.modes import Surface
from steinscope.portfolio import Context

# How long the campaigns against kills and damaged files are: "ci" in every run of the tests, "soak" in `make soak`.
CAMPAIGN = os.environ.get("STEINSCOPE_CAMPAIGN", "ci")


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(n=500, dim=5, seed=0):
    return torch.randn(n, dim, generator=generator(seed))


def gaussian(dim):
    root = torch.eye(dim) + 0.3 * torch.randn(dim, dim, generator=generator(7)) / dim**0.5
    return MultivariateNormal(torch.linspace(-1, 1, dim), root @ root.T)


def mixture(dim):
    centres = torch.stack([torch.full((dim,), -1.0), torch.full((dim,), 1.5)])
    return MixtureSameFamily(Categorical(torch.tensor([0.3, 0.7])), Independent(Normal(centres, 0.8), 1))


def student(dim):
    return Independent(StudentT(torch.full((dim,), 5.0)), 1)


def laplace(dim):
    return Independent(Laplace(torch.zeros(dim), torch.ones(dim)), 1)


def gaussians(weights, centres, scales):
    """A mixture of round Gaussians."""
    centres, scales = torch.tensor(centres), torch.tensor(scales)[:, None]
    return MixtureSameFamily(Categorical(torch.tensor(weights)), Independent(Normal(centres, scales), 1))


DISTRIBUTIONS = {"gaussian": gaussian, "mixture": mixture, "student": student, "laplace": laplace}


def sample(distribution, n, seed=0):
    """Samples of a torch distribution from a seed, with the global random state put back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return distribution.sample((n,))


def as_model(name, dim):
    distribution = DISTRIBUTIONS[name](dim)
    return from_log_prob(distribution.log_prob) if name == "laplace" else distribution


def network(dim, width=16, seed=0):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(dim, width), nn.Tanh(), nn.Linear(width, dim))


def features(dim):
    critic = Features(RandomCosines(dim, count=20, bandwidth=2.0))
    critic.set_weights(torch.randn(dim, 20, generator=generator(3)))
    return critic


def any_features(dim):
    net = network(dim, seed=5)
    critic = Features(net)
    critic.set_weights(torch.randn(dim, dim, generator=generator(4)))
    return critic


def linear(dim):
    critic = Linear(dim)
    critic.set_weights(torch.randn(dim, dim + 1, generator=generator(5)))
    return critic


def preconditioned(dim):
    points = torch.randn(200, dim, dtype=torch.float64, generator=generator(6)) * torch.arange(1, dim + 1)
    return Preconditioned.from_data(MLP(dim, width=12).double(), points)


MAKE_CRITIC = {
    "mlp-1": lambda dim: MLP(dim, width=13, depth=1),
    "mlp-2": lambda dim: MLP(dim, width=13, depth=2),
    "mlp-3": lambda dim: MLP(dim, width=9, depth=3),
    "mlp-skip": lambda dim: _with_skip(MLP(dim, width=13, skip=True)),
    "features": features,
    "any-features": any_features,
    "linear": linear,
    "module": lambda dim: Module(network(dim)),
    "preconditioned": preconditioned,
    "mean": lambda dim: Mean([MLP(dim, width=8), linear(dim)]),
}


def _with_skip(critic):
    with torch.no_grad():
        critic.skip.copy_(torch.randn(critic.dim, critic.dim, generator=generator(8)))
    return critic


def brute_force_diagonal(fn, x):
    """The diagonal of the Jacobian, point by point."""
    jacobian = torch.func.jacrev(lambda point: fn(point[None])[0])
    return torch.stack([jacobian(point).reshape(point.numel(), -1).diagonal().reshape(point.shape) for point in x])


def brute_force_divergence(fn, x):
    """The trace of the Jacobian, point by point."""
    return brute_force_diagonal(fn, x).flatten(1).sum(1)


def learner_data(n=60, dim=4, seed=0):
    """Points and scores of a model that is wrong in many ways."""
    x = 2 * torch.randn(n, dim, dtype=torch.float64, generator=generator(seed)) + 1
    return x, torch.tanh(x.roll(1, 1)) - 0.4 * x


def taught(learner, batches=((0, 60),), factor=1):
    """A learner after its first block, in which the points come in batches."""
    x, score = learner_data()
    x = factor * x
    learner.begin(x, score)
    for start, stop in batches:
        learner.observe(x[start:stop], score[start:stop])
    learner.refit()
    return learner


def stein_sample(n=30, dim=3):
    """Points and scores as kernel tests hold them."""
    x = torch.randn(n, dim, dtype=torch.float64, generator=generator())
    return Sample(x, torch.sin(x) - 0.7 * x.roll(1, 1))


MEAN, COVARIANCE = torch.tensor([1.0, -0.5]), torch.tensor([[1.0, 0.4], [0.4, 0.8]])


def gaussian_points(n=4000):
    """Points to train a Gaussian on."""
    return Gaussian(MEAN, COVARIANCE).sample(n)


def misfits(name, n=4000, seed=0):
    """Points, the scores of a model that does not fit, and the true scores: where closed forms are known."""
    rng = np.random.default_rng(seed)
    if "laplace" in name:
        y = torch.tensor(rng.laplace(size=(n, 30)) / 2**0.5, dtype=torch.float32)
        turn = torch.linalg.qr(torch.tensor(rng.standard_normal((30, 30)), dtype=torch.float32))[0]
        turn = turn if name.startswith("rotated") else torch.eye(30)
        return y @ turn.T, -y @ turn.T, -(2**0.5) * y.sign() @ turn.T
    if "student" in name:
        x = torch.tensor(rng.standard_t(6, (n, 8)), dtype=torch.float32)
        degrees, scale = (6.0, 0.8) if name.startswith("narrow") else (float(name.split()[1]), 1.0)
        return x, _student_score(x, degrees, scale), _student_score(x, 6.0, 1.0)
    assert name == "two modes"
    # Two modes at ± 1.5 along the diagonal, and the Gaussian of the same covariance.
    direction = torch.full((5,), 5**-0.5)
    sides = torch.tensor(rng.choice([-1.0, 1.0], (n, 1)), dtype=torch.float32)
    x = torch.tensor(rng.standard_normal((n, 5)), dtype=torch.float32) + 1.5 * sides * direction
    along = (x @ direction)[:, None]
    return x, -x + 2.25 / 3.25 * along * direction, -x + 1.5 * direction * torch.tanh(1.5 * along)


def _student_score(x, degrees, scale):
    u = x / scale
    return -(degrees + 1) * u / (degrees + u**2) / scale


# Options of a run of `steinscope train` that takes a moment.
SMALL_RUN = ["--width", "8", "--batch-size", "16", "--log-every", "5"]


def run_command(*arguments, **options):
    """Run `steinscope` in a process of its own."""
    command = [sys.executable, "-m", "steinscope", *arguments]
    return subprocess.run(command, capture_output=True, text=True, **options)


def assert_one_line(done, message):
    """Bad input: exit status 2, nothing printed, and one line that matches the message."""
    assert done.code == 2 and done.out == ""
    assert done.err.startswith("steinscope: ") and len(done.err.splitlines()) == 1
    assert re.search(message, done.err), done.err


# A name that would like to be a script.
EVIL = "<script>alert(1)</script>\"'&"


def report_points(n=300, dim=3):
    """Standard normal but for one coordinate that spreads more."""
    x = normal(n, dim)
    x[:, 1 % dim] = 1.5 * x[:, 1 % dim]
    return x


def text_of(html):
    """What a reader of a page sees, in one line."""
    return re.sub(r"\s+", " ", unescape(re.sub(r"<[^>]*>", " ", html)))


def rank_points(models=None, **options):
    """A ranking of models of the report's points, one of which fails."""
    x = report_points()
    models = models or {"narrow": Gaussian(torch.zeros(3), std=0.5), "true": -x, "broken": x * float("nan")}
    return compare(models, x, critics="linear", folds=2, **options)


def surface(model, dim, metric=None):
    """The log-density of a model over points of single precision."""
    metric = metric or Metric(torch.zeros(dim, dtype=torch.float64), torch.ones(dim, dtype=torch.float64))
    return Surface(model, metric, (dim,), torch.float32, torch.device("cpu"))


def context(model=None, dim=4, seed=0, metric=None):
    """What a learner may know before it sees points, by default in the coordinates of the points themselves."""
    zeros, ones = torch.zeros(dim, dtype=torch.float64), torch.ones(dim, dtype=torch.float64)
    return Context(model, metric or Metric(zeros, ones), (dim,), torch.float64, seed)
