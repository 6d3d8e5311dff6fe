import torch

from steinscope import discrepancy
from steinscope.metric import Metric
from steinscope.portfolio import MarginalLearner, OriginalLearner, RotatedLearner

from helpers import generator


def correlated(n):
    """Points with two modes in each coordinate, which go together, and the scores of the Gaussian like them."""
    common = torch.randn(n, 1, dtype=torch.float64, generator=generator())
    x = 2 * common + torch.randn(n, 4, dtype=torch.float64, generator=generator(1))
    x = x + 1.5 * x.sign()
    return x, -(x - x.mean(0)) @ torch.linalg.inv(torch.cov(x.T))


def fitted(learner, metric, x, score):
    """The critic as a function of x."""
    z, scores = metric.points(x), metric.scores(score)
    learner.begin(z, scores)
    learner.observe(z, scores)
    learner.refit()
    return lambda points: metric.field_in_x(learner.field(metric.points(points))[0])


def test_functions_of_the_users_coordinates_in_a_metric_that_mixes_them():
    x, score = correlated(500)
    metric = Metric.whitened(x)
    critic = fitted(OriginalLearner(metric), metric, x, score)
    moved = x[:20].clone()
    moved[:, 1] += 0.5
    is_changed = (critic(moved) - critic(x[:20])).abs().amax(0) > 1e-8
    assert is_changed.tolist() == [False, True, False, False]
    plain = fitted(MarginalLearner(), metric, x, score)
    assert ((plain(moved) - plain(x[:20])).abs().amax(0) > 1e-8).all()


def test_a_wrong_marginal_is_found_in_mixed_coordinates():
    """It is a matter of one of the user's coordinates, and of all of the metric's."""
    x, score = correlated(4000)
    metric = Metric.whitened(x)

    def found(learner):
        z, scores = metric.points(x), metric.scores(score)
        learner.begin(z[:3000], scores[:3000])
        learner.observe(z[:3000], scores[:3000])
        best = -1e9
        for _ in learner.path(0.5):
            f, divergence = learner.value_and_divergence(z[3000:])
            values = 2 * ((scores[3000:] * f).sum(1) + divergence - 0.5 * f.square().sum(1))
            best = max(best, float(values.mean()))
        return best

    original = found(OriginalLearner(metric))
    assert original > 1.2 * max(found(MarginalLearner()), found(RotatedLearner()))
    whole = discrepancy(x, score, critics="additive", metric="whitened")
    assert whole.value > 0.9 * original
