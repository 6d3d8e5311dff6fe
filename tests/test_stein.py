import pytest
import torch

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


def test_objectives():
    values, norms = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, 1.0, 4.0])
    assert float(LSD()(values, norms)) == 2.0
    assert float(PenalisedLSD(0.5)(values, norms)) == 1.0
    assert float(Power(0.25)(values, norms)) == pytest.approx(2.0 - 0.5, rel=1e-5)


def test_statistics_are_summed_in_float64():
    values = torch.full((1_000_000,), 0.1) + 1e4
    mean, std = mean_and_std(values)
    assert mean == pytest.approx(float(values[0]), rel=1e-12) and std < 1e-6
