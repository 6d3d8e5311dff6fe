import itertools
import math

import numpy as np
import pytest
import torch

from steinscope import InputError
from steinscope.models import RBM

from helpers import generator


def small(dim=2, hidden=3, seed=0):
    return RBM.random(dim, hidden, seed).double()


def joint(rbm, x, h):
    """The log of the unnormalised joint density, as the paper gives it."""
    return 0.5 * x @ rbm.weights @ h + rbm.visible @ x + rbm.hidden @ h - 0.5 * x @ x


def test_the_density_is_the_joint_summed_over_hidden_states():
    rbm = small()
    x = torch.randn(6, 2, dtype=torch.float64, generator=generator())
    states = [torch.tensor(h, dtype=torch.float64) for h in itertools.product((-1, 1), repeat=3)]
    expected = torch.stack([torch.stack([joint(rbm, point, h) for h in states]).logsumexp(0) for point in x])
    torch.testing.assert_close(rbm.log_prob(x), expected)


def test_the_normaliser_against_a_grid():
    rbm = small()
    axis = torch.linspace(-12, 12, 1201, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    with torch.no_grad():
        integral = rbm.log_prob(grid).logsumexp(0) + 2 * math.log(float(axis[1] - axis[0]))
        assert float(rbm.log_normaliser()) == pytest.approx(float(integral), abs=1e-8)


def test_exact_samples_and_gibbs_have_the_enumerated_moments():
    rbm, n = small(3, 4, seed=1), 100_000
    states, log_weights = rbm._enumerate()
    probabilities = log_weights.softmax(0).detach()
    means = (rbm.visible + 0.5 * states @ rbm.weights.T).detach()
    mean = probabilities @ means
    second = means.T @ (probabilities[:, None] * means) + torch.eye(3, dtype=torch.float64)
    for x in (rbm.sample(n, seed=2), rbm.gibbs(n, steps=200, seed=2)):
        spread = x.std(0) / n**0.5
        assert ((x.mean(0) - mean).abs() < 4 * spread).all()
        products = x[:, :, None] * x[:, None, :]
        assert ((products.mean(0) - second).abs() < 4 * products.std(0) / n**0.5).all()


def test_its_features_are_the_means_of_the_hidden_units():
    rbm = small(4, 5)
    x = torch.randn(7, 4, dtype=torch.float64, generator=generator())
    torch.testing.assert_close(rbm.features(x), torch.tanh(0.5 * x @ rbm.weights + rbm.hidden).detach())


def test_a_perturbation_changes_the_weights_alone():
    rbm = RBM.random(20, 30)
    other = rbm.perturbed(0.1, seed=3)
    difference = (other.weights - rbm.weights).detach()
    assert float(difference.std()) == pytest.approx(0.1, rel=0.15)
    assert torch.equal(other.visible, rbm.visible) and torch.equal(other.hidden, rbm.hidden)


def test_parts_get_the_type_of_the_weights():
    rbm = RBM(np.ones((2, 3)), [0, 0], torch.zeros(3))
    assert rbm.score(torch.zeros(4, 2, dtype=torch.float64)).dtype == torch.float64
    assert RBM([[1, -1], [1, 1]], [0, 0], [0, 0]).score(torch.zeros(4, 2)).dtype == torch.float32


def test_bad_input():
    with pytest.raises(InputError, match="hidden: expected finite numbers, got "):
        RBM(torch.zeros(2, 3), torch.zeros(2), torch.full((3,), torch.inf))
    with pytest.raises(InputError, match=r"RBM: expected weights \(d, h\).*got \(2, 3\), \(3,\) and \(3,\)"):
        RBM(torch.zeros(2, 3), torch.zeros(3), torch.zeros(3))
    with pytest.raises(InputError, match="RBM: 17 hidden units are too many to enumerate, at most 16"):
        RBM.random(2, 17).sample(3)
