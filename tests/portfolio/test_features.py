import torch

from steinscope.maps import AnyFeatures
from steinscope.portfolio import FeatureLearner

from helpers import learner_data, network, taught


def test_a_solved_critic_on_features():
    learner, (x, score) = taught(FeatureLearner(AnyFeatures(network(4).double()))), learner_data()
    feature_map = learner.feature_map
    features, jacobian = feature_map.sum_jacobian(x)
    gram = features.T @ features / 60
    ridge = gram.diagonal().mean() * torch.eye(len(gram))
    expected = (score.T @ features + jacobian) / 60 @ torch.linalg.inv(gram + ridge)
    torch.testing.assert_close(learner.weights, expected)
