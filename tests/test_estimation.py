import json
import math

import numpy as np
import pytest
import torch

from steinscope import FitSettings, InputError, discrepancy, from_score
from steinscope.critics import MLP, Linear, Mean, Preconditioned
from steinscope.models import RBM, Gaussian
from steinscope.portfolio import Stack

from helpers import gaussian, generator, misfits, network, sample

SHORT = FitSettings(steps=50, every=10)


def truth_of(x, score, true_score, l2=0.5):
    """E‖s_q - s_p‖² / 2λ in coordinates of unit scale, over the points themselves."""
    spread = x.double().std(0, correction=0)
    return float(((score - true_score) * spread).square().sum(1).mean()) / (2 * l2)


@pytest.mark.parametrize("name", ["mean", "scale"])
def test_gaussians_in_100_dimensions(name):
    """The estimate is within 5% of the truth, and the critic within 20% of the best one, from 5000 points."""
    data = Gaussian(torch.zeros(100))
    model = Gaussian(torch.full((100,), 0.3)) if name == "mean" else Gaussian(torch.zeros(100), std=1.5)
    truth = 100 * 0.3**2 if name == "mean" else 100 * (1 - 1 / 1.5**2) ** 2
    estimate = discrepancy(data.sample(5000, seed=1), model, critics="closed form", folds=3)
    assert 0.95 * truth < estimate.value < 1.05 * truth
    test = data.sample(5000, seed=2)
    with torch.no_grad():
        best = model.score(test) - data.score(test)
        error = (estimate.critic(test) - best).square().sum() / best.square().sum()
    assert float(error) < 0.2**2


# What the estimate must reach at least, as a share of the truth. It may exceed the truth by chance alone.
LEAST = {
    "laplace": 0.6,
    "rotated laplace": 0.5,
    "student 30": 0.75,
    "student 2.5": 0.6,
    "narrow student": 0.75,
    "two modes": 0.5,
}


@pytest.mark.parametrize("name", LEAST)
def test_structure_is_found_without_a_network(name):
    x, score, true_score = misfits(name)
    estimate, truth = discrepancy(x, score, critics="closed form"), truth_of(x, score, true_score)
    assert estimate.value > LEAST[name] * truth
    assert estimate.value < 1.05 * truth + 2 * estimate.stderr


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 0.5])
@pytest.mark.parametrize("critics", [("linear", "kernel"), ("linear", MLP(3, width=16))])
def test_the_value_is_a_lower_bound_in_expectation(critics, shift):
    """Over many repetitions its mean does not exceed the truth, and its lower end holds as often as it says."""
    data, model = Gaussian(torch.zeros(3)), Gaussian(torch.full((3,), shift))
    repetitions = 30
    runs = [
        discrepancy(data.sample(300, seed=10_000 + seed), model, critics=critics, settings=SHORT, folds=3, seed=seed)
        for seed in range(repetitions)
    ]
    # Coordinates are measured in units of the points' standard deviation, so that the truth differs a little each time.
    truths = [3 * shift**2 * float(data.sample(300, seed=10_000 + seed).var(0).mean()) for seed in range(repetitions)]
    excess = np.array([run.fisher_bound for run in runs]) - truths
    assert excess.mean() < 4 * excess.std() / repetitions**0.5
    covered = np.mean([run.fisher_bound_lower <= truth for run, truth in zip(runs, truths, strict=True)])
    assert covered > 0.95 - 4 * (0.05 * 0.95 / repetitions) ** 0.5
    if shift:
        assert excess.mean() > -0.4 * 3 * shift**2


@pytest.mark.slow
def test_little_is_found_where_the_model_is_right():
    """Three standard errors above zero are exceeded with probability .00135 at most, so in 2 of 40 nulls at most but
    for one time in ten thousand."""
    z = []
    for seed in range(40):
        x = torch.randn(200, 3, generator=generator(20_000 + seed))
        estimate = discrepancy(x, -x, critics="closed form", folds=3, seed=seed)
        assert estimate.stderr > 0
        z.append(estimate.value / estimate.stderr)
    assert np.sum(np.array(z) > 3) <= 2
    assert np.mean(np.array(z) > 0) < 0.5


def test_an_estimate_near_zero_says_what_was_looked_for():
    x = torch.randn(500, 4, generator=generator(1))
    text = str(discrepancy(x, -x, critics="closed form"))
    assert "note: little or nothing was found; looked for wrong means and covariances (linear)" in text
    assert "looked for" not in str(discrepancy(x, 1 - x, critics="closed form"))


@pytest.mark.parametrize("name", ["laplace", "student 30", "two modes"])
def test_the_stack_is_not_much_worse_than_its_best_critic(name):
    x, score, _ = misfits(name)
    estimate = discrepancy(x, score, critics="closed form")
    best = max(estimate.critics, key=lambda critic: critic.value)
    assert estimate.value > best.value - 2 * estimate.stderr


def test_what_critics_add_is_shared_among_them():
    x, score, _ = misfits("two modes")
    estimate = discrepancy(x, score, critics="closed form")
    assert [critic.name for critic in estimate.critics] == ["linear", "additive", "kernel"]
    assert sum(critic.share for critic in estimate.critics) == pytest.approx(1.0, abs=1e-6)


def test_the_network_finds_what_the_others_leave_over():
    """Functions of x₀ + x₁ + x₂ for the network alone, after the linear critic."""
    x = 2 * torch.randn(3000, 3, generator=generator(5))
    bump = torch.tanh(3 * x.sum(1, keepdim=True)).expand_as(x)
    linear, both = (
        discrepancy(x, -x / 4 + bump, critics=critics, settings=FitSettings(steps=300), folds=None)
        for critics in ("linear", ("linear", "mlp"))
    )
    assert both.value > linear.value + 3 * both.stderr
    assert both.critics[1].name == "mlp" and both.critics[1].share > 0.1
    assert both.history is not None and linear.history is None


def test_the_models_own_features_are_used_where_it_has_them():
    rbm = RBM.random(10, 8, seed=1)
    x, model = rbm.sample(2000, seed=2), rbm.perturbed(0.1, seed=3)
    with torch.no_grad():
        truth = truth_of(x, model.score(x), rbm.score(x))
    estimate = discrepancy(x, model, critics=("linear", "model"))
    assert estimate.critics[1].name == "model" and estimate.value > 0.7 * truth


def test_units_of_single_coordinates_do_not_matter():
    x, score, _ = misfits("student 30", n=1000)
    units = torch.tensor([1000.0, 1e-3, *[1.0] * (x.shape[1] - 2)])
    x, score = x.double(), score.double()
    plain, changed = (discrepancy(x * u, score / u, critics="closed form") for u in (1.0, units))
    assert changed.value == pytest.approx(plain.value, rel=1e-6)
    identity = [discrepancy(x * u, score / u, critics="linear", metric="identity").value for u in (1.0, units)]
    assert identity[1] != pytest.approx(identity[0], rel=0.5)


def test_the_whitened_metric_is_that_of_whitened_points():
    x = sample(gaussian(3), 2000)
    root = torch.linalg.inv(torch.linalg.cholesky(torch.cov(x.T)))
    z = (x - x.mean(0)) @ root.T
    whitened = discrepancy(x, -x, critics="linear", metric="whitened").value
    moved = discrepancy(z, -x @ torch.linalg.inv(root), critics="linear", metric="identity").value
    assert whitened == pytest.approx(moved, rel=0.02)


def test_lambda_scales_the_discrepancy_and_not_the_bound():
    x, model = sample(gaussian(3), 3000), Gaussian(torch.zeros(3))
    small, large = (discrepancy(x, model, critics="closed form", l2=l2) for l2 in (0.5, 5.0))
    assert small.value == pytest.approx(10 * large.value, rel=1e-3)
    assert small.fisher_bound == pytest.approx(large.fisher_bound, rel=1e-3)


def test_folds_hold_every_point_out_once():
    x = sample(gaussian(2), 203)
    estimate = discrepancy(x, Gaussian(torch.zeros(2)), folds=4, critics="closed form")
    assert sorted(estimate.index.tolist()) == list(range(203))
    assert estimate.n_test == 203 and isinstance(estimate.critic, Mean)
    assert estimate.value == pytest.approx(float(estimate.values.mean()), rel=1e-9)
    assert estimate.stderr == pytest.approx(float(estimate.values.std(ddof=1)) / 203**0.5, rel=1e-9)


def test_the_value_is_that_of_the_critic_on_the_held_out_points():
    x, model = sample(gaussian(2), 1000), Gaussian(torch.zeros(2))
    estimate = discrepancy(x, model, folds=None, metric="identity", settings=SHORT)
    assert isinstance(estimate.critic, Stack)
    rows = x[estimate.index]
    with torch.no_grad():
        stein, norms = estimate.critic.stein(rows, model.score(rows))
    assert estimate.mean_stein == pytest.approx(float(stein.mean()), rel=1e-4)
    assert estimate.value == pytest.approx(float(2 * (stein - 0.5 * norms).mean()), rel=1e-4)


def test_the_model_is_scored_once_at_each_point():
    calls = []

    def score(x):
        calls.append(len(x))
        return 0.1 - x

    discrepancy(sample(gaussian(2), 500), from_score(score), settings=SHORT, folds=3)
    assert sum(calls) == 500


def test_the_parts_of_the_split():
    x = sample(gaussian(2), 1000)
    estimate = discrepancy(x, -x, folds=None, split=(0.5, 0.2, 0.3), critics="linear")
    assert (estimate.n_train, estimate.n_validation, estimate.n_test) == (500, 200, 300)
    estimate = discrepancy(x, -x, folds=5, critics="linear")
    assert (estimate.n_train, estimate.n_validation, estimate.n_test) == (600, 200, 1000)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bits_in_any_number_of_processes():
    x = sample(gaussian(2), 600)
    model = Gaussian(torch.zeros(2))
    options = {"critics": ("linear", "kernel", "mlp"), "settings": SHORT, "folds": 2}
    ours, same, other = (discrepancy(x, model, **options, seed=seed).to_dict() for seed in (1, 1, 2))
    assert ours == same and ours["value"] != other["value"]
    one, two = (discrepancy(x, model, **options, jobs=jobs).to_dict() for jobs in (1, 2))
    assert one == two


def test_arrays_and_memmaps_give_what_tensors_give(tmp_path):
    x = sample(gaussian(2), 600)
    np.save(tmp_path / "x.npy", x.numpy())
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    model = Gaussian(torch.zeros(2))
    options = {"critics": ("linear", "additive", "mlp"), "settings": SHORT, "folds": 2}
    values = [discrepancy(points, model, **options).value for points in (x, x.numpy(), on_disk)]
    assert values[0] == values[1] == values[2]
    assert discrepancy(x.numpy(), -x.numpy(), **options).value == pytest.approx(values[0], rel=1e-4)


def test_images_and_single_numbers():
    images = torch.randn(100, 1, 4, 4, generator=generator(0))
    assert discrepancy(images, from_score(lambda x: -x), critics="closed form").n_test == 100
    numbers = np.random.default_rng(0).normal(size=400)
    estimate = discrepancy(numbers, torch.distributions.Normal(1.0, 1.0), critics="closed form")
    assert abs(estimate.value - numbers.var()) < 4 * estimate.stderr


def test_critics_and_networks_of_the_users():
    x = sample(gaussian(4), 600)
    for critics in (network(4), MLP(4, width=8), Linear(4), Preconditioned.from_data(Linear(4), x)):
        estimate = discrepancy(x, Gaussian(torch.full((4,), 2.0)), critics=critics, settings=SHORT)
        assert estimate.value > 2 * estimate.stderr and len(estimate.critics) == 1
    images = torch.randn(400, 2, 2, generator=generator(0))
    assert math.isfinite(discrepancy(images, 1 - images, critics=MLP(4, width=8), settings=SHORT).value)


def test_values_that_cannot_be_squared_have_no_error_and_are_refused():
    x, score = (torch.randn(200, 2, generator=generator(seed), dtype=torch.float64) for seed in (1, 2))
    with pytest.raises(InputError, match="x: the values of some points are not finite"):
        discrepancy(1e150 * x, score, critics="linear", folds=None)


def test_the_result_prints_saves_and_draws(tmp_path):
    estimate = discrepancy(sample(gaussian(2), 400), Gaussian(torch.zeros(2)), critics="closed form")
    text = str(estimate)
    assert "Learned Stein discrepancy" in text and "240 train, 80 validation, 400 held out" in text
    assert "Fisher divergence" in text and "λ = 0.5, scaled coordinates" in text and "kernel" in text
    saved = json.loads(json.dumps(estimate.to_dict()))
    assert saved["n_test"] == 400 and {"name", "value", "stderr", "share"} == set(saved["critics"][0])
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
        ({"split": (0.5, 0.0, 0.5)}, r"split: expected shares .* got \(0.5, 0.0, 0.5\)"),
        ({"folds": 1}, "folds: expected a whole number from 2 to 1000, got 1"),
        ({"jobs": 0}, "jobs: expected a whole number from 1 on, got 0"),
        ({"critics": "deep"}, "critics: expected 'auto', 'closed form' or some of"),
        ({"x": np.ones((5, 2)) * np.arange(5)[:, None], "folds": None}, "x: 5 rows are too few for the split"),
        ({"x": np.ones((9, 2)) * np.arange(9)[:, None], "folds": 9}, "x: 9 rows are too few for 9 folds"),
        ({"x": np.array([[1.0, np.nan]])}, "x: row 0 holds nan"),
    ],
)
def test_bad_input(options, message):
    x = options.pop("x", np.random.default_rng(0).normal(size=(100, 2)))
    with pytest.raises(InputError, match=message):
        discrepancy(x, Gaussian(torch.ones(2)), **options)
