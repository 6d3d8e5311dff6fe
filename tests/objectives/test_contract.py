"""What every objective of training does, on a Gaussian where the answer is known."""

import inspect
import json

import pytest
import torch
from torch import nn

from steinscope.critics import MLP
from steinscope.models import Gaussian
from steinscope.objectives import (
    AuxiliaryObjective,
    ConditionalNoiseContrast,
    ContrastiveDivergence,
    DenoisingScoreMatching,
    GridLikelihood,
    LearnedStein,
    MaximumLikelihood,
    NoiseContrast,
    ScoreMatching,
    TrainingObjective,
)
from steinscope.registries import OBJECTIVES
from steinscope.training import train

from helpers import COVARIANCE, MEAN, gaussian_points, generator

# The registry, and what has no name in it.
MAKE = {
    **{name: entry.make for name, entry in OBJECTIVES.items()},
    "persistent chains": lambda: ContrastiveDivergence(start="persistent", chains=2000),
    "grid": GridLikelihood,
}


def begun(name, model, x):
    """An objective that has looked at the points, its critic trained where it has one."""
    objective = MAKE[name]()
    objective.begin(model, x, generator(1))
    if isinstance(objective, AuxiliaryObjective):
        optimiser = torch.optim.Adam(objective.auxiliary.parameters(), lr=0.01)
        for step in range(40):
            optimiser.zero_grad()
            objective.auxiliary_loss(model, x, generator(step)).backward()
            optimiser.step()
    return objective


@pytest.mark.parametrize("wrong", ["mean", "scale"])
@pytest.mark.parametrize("name", MAKE)
def test_a_step_down_goes_to_the_truth(name, wrong):
    """The gradient and the way to the truth enclose an angle well below 90 degrees; against the sign it is above."""
    truth = Gaussian(MEAN, COVARIANCE)
    model = Gaussian(MEAN + 0.5, COVARIANCE) if wrong == "mean" else Gaussian(MEAN, 2.0 * COVARIANCE)
    x = gaussian_points(2000)
    loss = begun(name, model, x).model_loss(model, x, generator(2))
    parameters = (model.mean, truth.mean) if wrong == "mean" else (model.cholesky, truth.cholesky)
    (gradient,) = torch.autograd.grad(loss, parameters[0])
    way = (parameters[1] - parameters[0]).detach()
    cosine = -(gradient * way).sum() / (gradient.norm() * way.norm())
    assert loss.shape == () and float(cosine) > 0.25


@pytest.mark.parametrize("name", MAKE)
def test_contract(name):
    """The same numbers from the same generator; neither the points nor the global random state change."""
    model, x = Gaussian(MEAN, COVARIANCE), gaussian_points(200)
    before, state = x.clone(), torch.get_rng_state()
    ours, same = (begun(name, model, x).model_loss(model, x, generator(2)) for _ in range(2))
    assert torch.equal(ours, same) and ours.isfinite() and ours.requires_grad
    assert torch.equal(x, before) and torch.equal(torch.get_rng_state(), state)
    objective = MAKE[name]()
    assert isinstance(objective, TrainingObjective)
    assert isinstance(objective.loss_meaning, str) and isinstance(objective.unshareable, str)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_name_trains(name):
    model = Gaussian(torch.zeros(2), std=1.5)
    before = model.mean.detach().clone()
    result = train(model, gaussian_points(500), objective=name, steps=3, batch_size=50)
    assert not torch.equal(model.mean, before) and result.state.step == 3
    assert list(result.history.step) == [3] and "after 3 steps" in str(result)


class Shaped(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Gaussian(torch.zeros(4))

    def log_prob(self, x):
        return self.inner.log_prob(x.flatten(1))


@pytest.mark.parametrize("name", OBJECTIVES)
def test_images_need_no_flattening(name):
    x = 1.0 + torch.randn(200, 2, 2, generator=generator(1))
    model, flat = Shaped(), Gaussian(torch.zeros(4))
    train(model, x, objective=name, steps=3, batch_size=50, lr=0.02)
    train(flat, x.flatten(1), objective=name, steps=3, batch_size=50, lr=0.02)
    assert float(flat.mean.detach().abs().max()) > 0.01
    torch.testing.assert_close(model.inner.mean, flat.mean, atol=1e-4, rtol=1e-4)


# Denoising and Langevin chains have a known bias, which these settings keep below the tolerance.
SETTINGS = {
    "lsd": LearnedStein,
    "lsd, critic of the paper": lambda: LearnedStein(MLP(2, width=32), critic_steps=2),
    "lsd, plain critic": lambda: LearnedStein(MLP(2, width=32), critic_steps=2, precondition=False),
    "score matching": ScoreMatching,
    "sliced score matching": lambda: ScoreMatching("sliced", probes=4, noise="rademacher"),
    "denoising": lambda: DenoisingScoreMatching(0.3),
    "nce": lambda: NoiseContrast(ratio=2),
    "cnce": ConditionalNoiseContrast,
    "likelihood": MaximumLikelihood,
    "contrastive divergence": lambda: ContrastiveDivergence(steps=5, epsilon=0.01),
    "short chains from noise": lambda: ContrastiveDivergence(steps=25, epsilon=0.1, start="noise"),
    "persistent chains": lambda: ContrastiveDivergence(steps=5, epsilon=0.02, start="persistent", chains=2000),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_the_truth_is_where_training_ends(name):
    """With 4000 points the estimates have standard errors near .03; the tolerance is .15."""
    model = Gaussian(torch.zeros(2), std=1.5)
    result = train(
        model, gaussian_points(), objective=SETTINGS[name](), steps=700, batch_size=256, lr=0.02, lr_decay=True, seed=1
    )
    assert result.model is model
    assert (model.mean.detach() - MEAN).abs().max() < 0.15
    assert (model.covariance.detach() - COVARIANCE).abs().max() < 0.15


# Every argument of every objective, with a value that is not its default.
OTHER_SETTINGS = {
    LearnedStein: {
        "critic": MLP(2),
        "l2": 2.0,
        "critic_steps": 3,
        "precondition": False,
        "shrinkage": 0.2,
        "residual": False,
        "jumps": False,
    },
    ScoreMatching: {"trace": "sliced", "probes": 2, "noise": "rademacher"},
    DenoisingScoreMatching: {"sigma": 0.7},
    NoiseContrast: {"ratio": 2},
    ConditionalNoiseContrast: {"sigma": 0.7, "ratio": 2},
    MaximumLikelihood: {},
    GridLikelihood: {"low": -3.0, "high": 3.0, "size": 7},
    ContrastiveDivergence: {"steps": 3, "epsilon": 0.2, "sigma": 0.3, "start": "noise", "chains": 12},
}


@pytest.mark.parametrize("name", MAKE)
def test_every_setting_is_known_to_checkpoints(name):
    """A run cannot be resumed with another value of any argument."""
    kind = type(MAKE[name]())
    assert set(inspect.signature(kind).parameters) == set(OTHER_SETTINGS[kind])
    default = kind().settings()
    assert json.loads(json.dumps(default)) == default
    for argument, value in OTHER_SETTINGS[kind].items():
        changed = kind(**{argument: value}).settings()
        assert changed != default and argument in {key for key in changed if changed[key] != default.get(key)}


@pytest.mark.parametrize("name", MAKE)
def test_settings_do_not_change_in_training(name):
    objective = MAKE[name]()
    before = objective.settings()
    x = gaussian_points(200)
    train(Gaussian(x.mean(0)), x, objective=objective, steps=2, batch_size=20)
    assert objective.settings() == before
