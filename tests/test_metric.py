import pytest
import torch

from steinscope import InputError
from steinscope.metric import Metric

from helpers import gaussian, generator, sample

X = sample(gaussian(3), 500).double()
SCORE = -2 * X + 1
METRICS = {
    "scaled": Metric.scaled(X, SCORE),
    "by scores": Metric.by_scores(X, SCORE),
    "whitened": Metric.whitened(X),
    "identity": Metric.identity(X),
}


@pytest.mark.parametrize("name", METRICS)
def test_there_and_back(name):
    metric = METRICS[name]
    torch.testing.assert_close(metric.original(metric.points(X)), X)
    torch.testing.assert_close(metric.field_in_z(metric.field_in_x(X)), X)
    torch.testing.assert_close(metric.points(X).mean(0), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", METRICS)
def test_products_of_scores_and_fields_do_not_depend_on_the_coordinates(name):
    metric, f = METRICS[name], torch.randn(500, 3, generator=generator(1), dtype=torch.float64)
    products = (metric.scores(SCORE) * metric.field_in_z(f)).sum(1)
    torch.testing.assert_close(products, (SCORE * f).sum(1))


def test_units_of_the_names():
    torch.testing.assert_close(METRICS["scaled"].points(X).std(0, correction=0), torch.ones(3, dtype=torch.float64))
    scores = METRICS["by scores"].scores(SCORE)
    torch.testing.assert_close(scores.square().mean(0), torch.ones(3, dtype=torch.float64))
    covariance = torch.cov(METRICS["whitened"].points(X).T)
    torch.testing.assert_close(covariance, torch.eye(3, dtype=torch.float64), atol=0.05, rtol=0)
    torch.testing.assert_close(METRICS["identity"].points(X), X - X.mean(0))


def test_a_coordinate_that_does_not_vary_has_a_scale_all_the_same():
    x = X.clone()
    x[:, 1] = 7.0
    metric = Metric.scaled(x, SCORE)
    assert float(metric.scale[1]) == pytest.approx(1 / float(SCORE[:, 1].square().mean().sqrt()))
    score = SCORE.clone()
    score[:, 1] = 0.0
    assert float(Metric.scaled(x, score).scale[1]) == 1.0
    assert float(Metric.by_scores(X, score).scale[1]) == pytest.approx(float(X[:, 1].std(correction=0)))


def test_points_far_from_zero_are_centred_before_they_are_rounded():
    far = X + 1e7
    torch.testing.assert_close(Metric.scaled(far, SCORE).points(far), METRICS["scaled"].points(X), atol=1e-6, rtol=0)


def test_points_that_are_all_the_same_cannot_be_whitened():
    with pytest.raises(InputError, match="x: its points are all the same"):
        Metric.whitened(torch.ones(10, 2))
