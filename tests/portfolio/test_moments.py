import torch

from steinscope.portfolio import LinearLearner, MeanLearner

from helpers import learner_data, taught


def test_the_mean_critic_is_the_average_score():
    learner, (_, score) = taught(MeanLearner()), learner_data()
    test_x, test_score = learner_data(9, seed=1)
    torch.testing.assert_close(learner.values(test_x, test_score), test_score @ score.mean(0))


def test_the_linear_critic_is_the_plain_average():
    learner, (x, score) = taught(LinearLearner()), learner_data()
    centred = x - x.mean(0)
    matrix = (score.T @ centred / 60 + torch.eye(4)) / centred.square().mean()
    test_x, test_score = learner_data(9, seed=1)
    f = (test_x - x.mean(0)) @ matrix.T + score.mean(0)
    torch.testing.assert_close(learner.values(test_x, test_score), (test_score * f).sum(1) + matrix.trace())
