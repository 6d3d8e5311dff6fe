import torch

from steinscope.critics import MLP, Linear
from steinscope.portfolio import CriticLearner

from helpers import learner_data, taught


def test_only_the_newest_points_are_kept():
    learner = CriticLearner(MLP(4, width=4), steps=1, most_points=25)
    x, score = learner_data()
    learner.begin(x, score)
    for start in range(0, 60, 10):
        learner.observe(x[start : start + 10], score[start : start + 10])
    kept = torch.cat([points for points, _ in learner.kept])
    assert torch.equal(kept, torch.cat([x[50:], x[40:50], x[30:40]]))


def test_few_points_are_learned_slowly():
    """60 points of the 500 that are enough: the learning rate is smaller by the root of their share."""
    learner = taught(CriticLearner(MLP(4, width=4), steps=1, lr=0.01))
    assert abs(learner.optimiser.param_groups[0]["lr"] - 0.01 * (60 / 500) ** 0.5) < 1e-12


def test_a_critic_in_closed_form_is_solved_and_not_trained():
    x, score = learner_data()
    learner = taught(CriticLearner(Linear(4), ridge=0.1))
    expected = Linear(4)
    expected.solve([(x, score)], 0.5, 0.1)
    assert torch.equal(learner.critic.weights, expected.weights) and not hasattr(learner, "optimiser")
