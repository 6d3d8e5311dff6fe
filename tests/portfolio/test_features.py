import torch

from steinscope.maps import AnyFeatures
from steinscope.portfolio import CosineLearner, FeatureLearner

from helpers import learner_data, network, taught


def test_a_solved_critic_on_features():
    learner, (x, score) = taught(FeatureLearner(AnyFeatures(network(4).double()))), learner_data()
    feature_map = learner.feature_map
    features, jacobian = feature_map.sum_jacobian(x)
    gram = features.T @ features / 60
    ridge = gram.diagonal().mean() * torch.eye(len(gram))
    expected = (score.T @ features + jacobian) / 60 @ torch.linalg.inv(gram + ridge)
    torch.testing.assert_close(learner.weights, expected)


def test_the_width_of_the_cosines_is_the_median_distance():
    frequencies = [taught(CosineLearner(), factor=factor).feature_map.frequencies for factor in (1, 10)]
    torch.testing.assert_close(frequencies[0], 10 * frequencies[1])
    # Frequencies are normal with the inverse of the width as standard deviation: 400 of them tell it within 4 / √800.
    width = torch.pdist(learner_data()[0]).median()
    assert abs(float(frequencies[0].std() * width) - 1) < 4 / 800**0.5
