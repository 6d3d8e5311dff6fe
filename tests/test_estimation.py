import json

import numpy as np
import pytest
import torch

from steinscope import FitSettings, InputError, discrepancy, from_score
from steinscope.critics import MLP, Linear, Mean
from steinscope.densities import as_density
from steinscope.models import Gaussian

from helpers import gaussian, network, sample


@pytest.mark.slow
@pytest.mark.parametrize("name, steps", [("mean", 600), ("scale", 1000)])
def test_gaussians_in_100_dimensions(name, steps):
    """With ample samples the estimate reaches 95% of the truth, and the critic is within 10% of the best one."""
    data = Gaussian(torch.zeros(100))
    model = Gaussian(torch.full((100,), 0.3)) if name == "mean" else Gaussian(torch.zeros(100), std=1.5)
    truth = 100 * 0.3**2 if name == "mean" else 100 * (1 - 1 / 1.5**2) ** 2
    estimate = discrepancy(data.sample(400_000, seed=1), model, settings=FitSettings(steps=steps, every=200))
    assert 0.95 * truth < estimate.value < 1.05 * truth
    test = data.sample(5000, seed=2)
    with torch.no_grad():
        best = model.score(test) - data.score(test)
        error = (estimate.critic(test) - best).square().sum() / best.square().sum()
    assert float(error) < 0.1**2


@pytest.mark.parametrize("critic", [Linear(3), pytest.param(MLP(3, width=16), marks=pytest.mark.slow)])
@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_the_fisher_bound_is_a_lower_bound(critic, shift):
    """Over 200 seeded repetitions the bound does not exceed the truth, and its lower end holds as often as it says."""
    data, model = Gaussian(torch.zeros(3)), Gaussian(torch.full((3,), shift))
    truth, repetitions = 3 * shift**2, 200
    runs = [
        discrepancy(
            data.sample(300, seed=seed),
            model,
            critic=critic,
            settings=FitSettings(steps=30, lr=0.03, every=10),
            seed=seed,
        )
        for seed in range(repetitions)
    ]
    bounds = np.array([run.fisher_bound for run in runs])
    assert bounds.mean() < truth + 4 * bounds.std() / repetitions**0.5
    covered = np.mean([run.fisher_bound_lower <= truth for run in runs])
    assert covered > 0.95 - 4 * (0.05 * 0.95 / repetitions) ** 0.5
    if shift:
        assert bounds.mean() > 0.7 * truth


def test_lambda_scales_the_discrepancy_and_not_the_bound():
    x, model = sample(gaussian(3), 3000), Gaussian(torch.zeros(3))
    small, large = (discrepancy(x, model, critic=Linear(3), l2=l2) for l2 in (0.5, 5.0))
    assert small.value == pytest.approx(10 * large.value, rel=1e-3)
    assert small.fisher_bound == pytest.approx(large.fisher_bound, rel=1e-3)


def test_folds_hold_every_point_out_once():
    x = sample(gaussian(2), 203)
    estimate = discrepancy(x, Gaussian(torch.zeros(2)), folds=4, settings=FitSettings(steps=20, every=10))
    assert sorted(estimate.index.tolist()) == list(range(203))
    assert estimate.n_test == 203 and isinstance(estimate.critic, Mean)
    assert estimate.value == pytest.approx(float(estimate.values.mean()), rel=1e-5)
    assert estimate.stderr == pytest.approx(float(estimate.values.std(ddof=1)) / 203**0.5, rel=1e-5)


def test_the_model_is_scored_once_at_each_point():
    calls = []

    def score(x):
        calls.append(len(x))
        return 0.1 - x

    discrepancy(sample(gaussian(2), 500), from_score(score), settings=FitSettings(steps=50), folds=3)
    assert sum(calls) == 500


def test_the_parts_of_the_split():
    estimate = discrepancy(
        sample(gaussian(2), 1000), Gaussian(torch.zeros(2)), settings=FitSettings(steps=5), split=(0.5, 0.2, 0.3)
    )
    assert (estimate.n_train, estimate.n_validation, estimate.n_test) == (500, 200, 300)
    estimate = discrepancy(
        sample(gaussian(2), 100), Gaussian(torch.zeros(2)), settings=FitSettings(steps=5), split=(0.5, 0.0, 0.5)
    )
    assert estimate.n_validation == 0 and estimate.history.selected == 5


def test_the_same_seed_gives_the_same_bits():
    x = sample(gaussian(2), 300)
    ours, same, other = (
        discrepancy(x, Gaussian(torch.zeros(2)), settings=FitSettings(steps=30), seed=seed) for seed in (1, 1, 2)
    )
    assert ours.to_dict() == same.to_dict() and ours.value != other.value


def test_arrays_and_memmaps_give_what_tensors_give(tmp_path):
    x = sample(gaussian(2), 300)
    np.save(tmp_path / "x.npy", x.numpy())
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    model = Gaussian(torch.zeros(2))
    values = [discrepancy(points, model, settings=FitSettings(steps=20)).value for points in (x, x.numpy(), on_disk)]
    assert values[0] == values[1] == values[2]
    assert discrepancy(x.numpy(), -x.numpy(), settings=FitSettings(steps=20)).value == pytest.approx(
        values[0], rel=1e-4
    )


def test_images_and_single_numbers():
    images = torch.randn(100, 1, 4, 4, generator=torch.Generator().manual_seed(0))
    assert discrepancy(images, from_score(lambda x: -x), settings=FitSettings(steps=5)).n_test == 10
    numbers = np.random.default_rng(0).normal(size=400)
    estimate = discrepancy(numbers, torch.distributions.Normal(1.0, 1.0), settings=FitSettings(steps=200))
    assert abs(estimate.value - 1.0) < 4 * estimate.stderr + 0.1


@pytest.mark.parametrize("critic", [network(4), Linear(4)], ids=["network", "linear"])
@pytest.mark.parametrize("precondition", [False, True])
def test_any_network_and_a_preconditioned_critic(critic, precondition):
    """The best critic gives E‖s_q - s_p‖²; in whitened coordinates the norm is that of the points' covariance."""
    data, model = gaussian(4), Gaussian(torch.zeros(4))
    x = sample(data, 2000)
    # Both densities are Gaussian, so that the difference of the scores is linear and a linear critic can be the best.
    difference = model.score(x).detach() - as_density(data).score(x)
    metric = torch.cov(x.T) if precondition else torch.eye(4)
    truth = float(torch.einsum("ni,ij,nj->n", difference, metric, difference).mean())
    estimate = discrepancy(x, model, critic=critic, precondition=precondition, settings=FitSettings(steps=300, lr=0.01))
    assert 0.85 * truth - 4 * estimate.stderr < estimate.value < truth + 4 * estimate.stderr
    assert 4 * estimate.stderr < 0.4 * truth


def test_the_result_prints_saves_and_draws(tmp_path):
    estimate = discrepancy(sample(gaussian(2), 400), Gaussian(torch.zeros(2)), settings=FitSettings(steps=50))
    text = str(estimate)
    assert "Learned Stein discrepancy" in text and "320 train, 40 validation, 40 held out" in text
    assert "Fisher divergence" in text and "λ = 0.5" in text
    assert json.loads(json.dumps(estimate.to_dict()))["n_test"] == 40
    estimate.plot().savefig(tmp_path / "estimate.png")
    assert (tmp_path / "estimate.png").stat().st_size > 5000
    with pytest.raises(AttributeError):
        estimate.value = 0.0


@pytest.mark.parametrize(
    "options, message",
    [
        ({"l2": 0.0}, "l2: expected a positive number, got 0.0"),
        ({"split": (0.5, 0.5)}, r"split: expected shares .* got \(0.5, 0.5\)"),
        ({"split": (0.9, 0.2, 0.1)}, r"split: expected shares .* got \(0.9, 0.2, 0.1\)"),
        ({"folds": 1}, "folds: expected a whole number from 2 on, got 1"),
        ({"x": np.ones((5, 2)) * np.arange(5)[:, None]}, "x: 5 rows are too few for the split"),
        ({"x": np.ones((9, 2)) * np.arange(9)[:, None], "folds": 9}, "x: 9 rows are too few for 9 folds"),
        ({"x": np.array([[1.0, np.nan]])}, "x: row 0 holds nan"),
    ],
)
def test_bad_input(options, message):
    x = options.pop("x", np.random.default_rng(0).normal(size=(100, 2)))
    with pytest.raises(InputError, match=message):
        discrepancy(x, Gaussian(torch.ones(2)), **options)
