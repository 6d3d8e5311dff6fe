import pytest
import torch

from steinscope.metric import Metric
from steinscope.portfolio import LinearLearner, Stack
from steinscope.portfolio.stack import Member, stack_weights

from helpers import brute_force_divergence, generator, learner_data, taught


def member(f, values, name="critic"):
    return Member(name, LinearLearner(), f, values)


def test_one_critic_gets_its_best_length():
    """w = m / 2λM, whatever the length that it comes with."""
    f = torch.randn(2000, 3, generator=generator(1), dtype=torch.float64)
    values = 0.4 + torch.randn(2000, generator=generator(2), dtype=torch.float64)
    for length in (0.1, 1.0, 10.0):
        weight = float(stack_weights([member(length * f, length * values)], 0.5)[0]) * length
        assert weight == pytest.approx(float(values.mean() / f.square().sum(1).mean()), rel=0.02)


def test_critics_that_find_different_things_add_up():
    axes = torch.eye(2, dtype=torch.float64)
    first, second = (axis.expand(2000, 2) for axis in axes)
    noise = 0.1 * torch.randn(2000, generator=generator(1), dtype=torch.float64)
    weights = stack_weights([member(first, 1.0 + noise), member(second, 0.5 + noise)], 0.5)
    torch.testing.assert_close(weights, torch.tensor([1.0, 0.5], dtype=torch.float64), rtol=0.05, atol=0.02)


def test_twins_share_what_one_would_have():
    f = torch.ones(2000, 1, dtype=torch.float64)
    values = 1.0 + 0.1 * torch.randn(2000, generator=generator(1), dtype=torch.float64)
    weights = stack_weights([member(f, values), member(f, values)], 0.5)
    assert float(weights.sum()) == pytest.approx(1.0, rel=0.05) and float(weights.min()) >= 0


def test_a_critic_that_speaks_against_itself_gets_no_weight():
    f = torch.ones(500, 1, dtype=torch.float64)
    noise = 0.1 * torch.randn(500, generator=generator(1), dtype=torch.float64)
    weights = stack_weights([member(f, 1.0 + noise), member(2 * f, -0.5 + noise)], 0.5)
    assert float(weights[0]) > 0.9 and float(weights[1]) == 0.0


def test_a_critic_that_is_nearly_zero_is_not_blown_up():
    f = torch.ones(500, 1, dtype=torch.float64)
    noise = 0.1 * torch.randn(500, generator=generator(1), dtype=torch.float64)
    weights = stack_weights([member(f, 1.0 + noise), member(1e-6 * f, 1e-7 + 1e-8 * noise)], 0.5)
    assert float(weights[1]) < 10


def test_no_critics_no_weights():
    assert len(stack_weights([], 0.5)) == 0


@pytest.mark.parametrize("kind", ["scaled", "whitened"])
def test_a_stack_is_a_critic_of_x(kind):
    """Its divergence is the trace of its Jacobian, and its Stein values are those of its members."""
    x, score = learner_data(50)
    metric = Metric.whitened(x) if kind == "whitened" else Metric.scaled(x, score)
    learners = [taught(LinearLearner()), taught(LinearLearner(), factor=2)]
    stack = Stack(learners, [0.5, 2.0], metric)
    f, divergence = stack.value_and_divergence(x)
    torch.testing.assert_close(divergence, brute_force_divergence(lambda points: _forward(stack, points), x))
    z, moved = metric.points(x), metric.scores(score)
    expected = 0.5 * learners[0].values(z, moved) + 2.0 * learners[1].values(z, moved)
    torch.testing.assert_close((score * f).sum(1) + divergence, expected)
    values, diagonal = stack.value_and_diagonal(x)
    torch.testing.assert_close(values, f)
    torch.testing.assert_close(diagonal.sum(1), divergence)


def _forward(stack, points):
    z = stack.metric.points(points)
    total = sum(weight * learner.field(z)[0] for learner, weight in zip(stack.learners, stack.weights, strict=True))
    return stack.metric.field_in_x(total)
