import inspect

import pytest
import torch

from steinscope import InputError
from steinscope.densities import as_density
from steinscope.stein import LSD, PenalisedLSD, Power, mean_and_std, stein_values

from helpers import DISTRIBUTIONS, MAKE_CRITIC, as_model, generator, sample


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_steins_identity(name):
    """Where the model is right the mean Stein value is zero, for every critic, within 4 standard errors."""
    dim, n = 3, 100_000
    x = sample(DISTRIBUTIONS[name](dim), n, seed=1)
    score = as_density(as_model(name, dim)).score(x)
    for critic_name, make in MAKE_CRITIC.items():
        critic = make(dim).float().eval()
        with torch.no_grad():
            mean, std = mean_and_std(critic.stein(x, score)[0])
        assert abs(mean) < 4 * std / n**0.5, critic_name


def test_a_wrong_model_breaks_the_identity():
    x = sample(DISTRIBUTIONS["student"](3), 100_000)
    critic = MAKE_CRITIC["linear"](3)
    with torch.no_grad():
        mean, std = mean_and_std(critic.stein(x, -x)[0])
    assert abs(mean) > 10 * std / 100_000**0.5


def test_stein_values_sum_over_all_axes_but_the_first():
    score, f = torch.randn(4, 2, 3, generator=generator()), torch.randn(4, 2, 3, generator=generator(1))
    expected = torch.einsum("nij,nij->n", score, f) + 1
    torch.testing.assert_close(stein_values(score, f, torch.ones(4)), expected)


@pytest.mark.parametrize(
    "score, f, div, message",
    [
        ((5,), (5, 1), (5,), r"f: expected the shape of score, \(5,\), got \(5, 1\)"),
        ((6, 2), (4, 3), (4,), r"f: expected the shape of score, \(6, 2\), got \(4, 3\)"),
        ((5, 1), (5, 1), (5, 1), r"div: expected one number for each of the 5 points, got shape \(5, 1\)"),
        ((5, 2), (5, 2), (1,), r"div: expected one number for each of the 5 points, got shape \(1,\)"),
    ],
)
def test_stein_values_do_not_guess_shapes(score, f, div, message):
    with pytest.raises(InputError, match=message):
        inspect.unwrap(stein_values)(torch.ones(score), torch.ones(f), torch.ones(div))


def test_objectives():
    values, norms = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 1.0, 4.0])
    assert float(LSD()(values, norms)) == 2.0
    assert float(PenalisedLSD(0.5)(values, norms)) == 1.0
    assert float(Power(0.25)(values, norms)) == pytest.approx(2.0 - 0.5, rel=1e-5)


def test_statistics_are_summed_in_float64():
    values = torch.full((1_000_000,), 0.1) + 1e4
    mean, std = mean_and_std(values)
    assert mean == pytest.approx(float(values[0]), rel=1e-12) and std < 1e-6
