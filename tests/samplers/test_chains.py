import numpy as np
import pytest
import torch
from torch.distributions import Normal

from steinscope import InputError, NonFiniteError, from_score
from steinscope.models import Gaussian
from steinscope.samplers import HMC, MALA, SGLD, Info, State, run_chains

from helpers import generator, normal

MODEL = Gaussian(torch.tensor([1.0, -2.0]), torch.tensor([[1.0, 0.5], [0.5, 2.0]]))


class Counter:
    """A sampler that adds one, and says that every other chain moved."""

    def begin(self, x):
        return State(x)

    def __call__(self, state, generator):
        return State(state.x + 1), Info(torch.arange(len(state.x)) % 2 == 0)


def test_states_are_kept_at_the_steps_that_were_asked_for():
    chains = run_chains(Counter(), torch.zeros(4, 1), 10, every=3, burn_in=2)
    assert chains.steps.tolist() == [5, 8, 10] and chains.trajectory[:, 0, 0].tolist() == [5, 8, 10]
    assert chains.acceptance.tolist() == [1, 0, 1, 0]
    last = run_chains(Counter(), torch.zeros(4, 1), 10)
    assert last.steps.tolist() == [10] and np.array_equal(last.trajectory[-1], last.x.numpy())


def test_one_chain_goes_on_where_it_ended():
    sampler, random = MALA(MODEL, 0.5), generator(3)
    whole = run_chains(sampler, normal(5, 2), 20, seed=generator(3))
    half = run_chains(sampler, normal(5, 2), 12, seed=random)
    rest = run_chains(sampler, half.state, 8, seed=random)
    assert torch.equal(rest.x, whole.x)


def test_images_are_chains_too():
    model = from_score(lambda x: -x)
    assert run_chains(SGLD(model, 0.1), torch.zeros(3, 4, 5), 5).x.shape == (3, 4, 5)


def test_errors():
    x = normal(3, 2)
    with pytest.raises(InputError, match="steps: expected a whole number from 1 to 1000000000, got 0"):
        run_chains(SGLD(MODEL), x, 0)
    with pytest.raises(InputError, match="every: expected a whole number from 1 on, got 0"):
        run_chains(SGLD(MODEL), x, 3, every=0)
    with pytest.raises(InputError, match="burn_in: expected a whole number from 0 to 4, got 5"):
        run_chains(SGLD(MODEL), x, 5, burn_in=5)
    with pytest.raises(NonFiniteError, match="sampling: the chains left all bounds by step 300; take smaller steps"):
        run_chains(SGLD(from_score(lambda x: x**3), 1.0), 10 + x, 300)


def test_chains_of_single_numbers():
    """1000 chains of one number each end in the model's distribution, within 4 standard errors."""
    for sampler in (MALA(Normal(1.0, 2.0), 2.0), HMC(Gaussian([1.0], std=2.0), 0.5), SGLD(Normal(1.0, 2.0), 0.1)):
        x = run_chains(sampler, torch.zeros(1000), 200).x
        assert x.shape == (1000,) and abs(float(x.mean()) - 1) < 4 * 2 / 1000**0.5
