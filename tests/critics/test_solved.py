import pytest
import torch

from steinscope import InputError
from steinscope.critics import Features, Linear
from steinscope.critics.solved import _check_batch
from steinscope.maps import AnyFeatures, RandomCosines

from helpers import generator, network


def test_features_are_solved_in_closed_form():
    """The solution minimises the ridge problem: its gradient by autograd is zero."""
    x = torch.randn(400, 3, dtype=torch.float64, generator=generator())
    score = torch.sin(x) - x
    for feature_map in (RandomCosines(3, count=15).double(), AnyFeatures(network(3).double())):
        critic = Features(feature_map)
        critic.solve([(x[:150], score[:150]), (x[150:], score[150:])], l2=0.7, ridge=0.0)
        values, norms = critic.stein(x, score)
        (gradient,) = torch.autograd.grad(values.mean() - 0.7 * norms.mean(), critic.weights)
        assert float(gradient.abs().max()) < 1e-8


def test_moments_are_means_over_all_batches():
    x = torch.randn(40, 2, dtype=torch.float64, generator=generator())
    feature_map = RandomCosines(2, count=5).double()
    moments = Features(feature_map).moments([(x[:10], -x[:10]), (x[10:], -x[10:])])
    features, jacobian = feature_map.sum_jacobian(x)
    torch.testing.assert_close(moments.gram, features.T @ features / 40)
    torch.testing.assert_close(moments.cross, (-x.T @ features + jacobian) / 40)


def test_the_linear_critic_recovers_a_linear_optimum():
    x = torch.randn(200_000, 2, dtype=torch.float64, generator=generator())
    score = -x @ torch.tensor([[0.5, 0.1], [0.1, 1.0]], dtype=torch.float64) + 0.3
    critic = Linear(2)
    critic.solve([(x, score)], l2=0.5)
    expected = torch.tensor([[0.5, -0.1, 0.3], [-0.1, 0.0, 0.3]], dtype=torch.float64)
    assert float((critic.weights.detach() - expected).abs().max()) < 0.02


def test_bad_input():
    with pytest.raises(InputError, match="critic: a Features critic has no weights"):
        Features(RandomCosines(2))(torch.ones(1, 2))
    with pytest.raises(InputError, match="batches: expected at least one batch of points and scores, got none"):
        Linear(2).solve([])


@pytest.mark.parametrize(
    "batches, options, message",
    [
        (
            [(torch.ones(3, 2), torch.ones(2, 2))],
            {},
            r"batches: expected scores of the shape of x, \(3, 2\), got \(2, 2\)",
        ),
        ([(torch.ones(3, 2), torch.ones(3, 2))], {"l2": 0.0}, "l2: expected a positive number, got 0.0"),
        ([(torch.ones(3, 2), torch.ones(3, 2))], {"ridge": -1.0}, "ridge: expected a number from 0 on, got -1.0"),
        ([(torch.ones(3, 3), torch.ones(3, 3))], {}, "x: this critic takes points of 2 coordinates, got 3"),
    ],
)
def test_what_cannot_be_solved(batches, options, message):
    with pytest.raises(InputError, match=message):
        Linear(2).solve(batches, **options)


@pytest.mark.parametrize(
    "batch, came", [(torch.ones(2, 2), "an object of type Tensor"), ((torch.ones(3, 2),), "tuple")]
)
def test_batches_are_pairs(batch, came):
    with pytest.raises(InputError, match=f"batches: expected pairs of points and scores, got .*{came}"):
        _check_batch(batch)
    with pytest.raises(InputError, match="batches: expected a tensor of a floating type, got an object of type list"):
        _check_batch((torch.ones(1, 1), [1.0]))
