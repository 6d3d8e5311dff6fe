"""What every feature map of the library does, against brute force."""

import inspect

import pytest
import torch

import steinscope.models
from steinscope import InputError, compare, gof_test
from steinscope.critics import Features
from steinscope.maps import Affine, AnyFeatures, FeatureMap, RandomCosines
from steinscope.maps.features import InCoordinates, as_feature_map
from steinscope.metric import Metric
from steinscope.models import EBM, RBM, Gaussian

from helpers import brute_force_diagonal, generator, network

POINTS = torch.randn(100, 4, generator=generator(9), dtype=torch.float64) * torch.arange(1, 5) + 1
SCALED, WHITENED = Metric.scaled(POINTS, -POINTS), Metric.whitened(POINTS)

# How to build each of them on four coordinates, in float64. A new feature map needs a line here.
FEATURE_MAPS = {
    "affine": lambda: Affine(4),
    "any function": lambda: AnyFeatures(network(4).double()),
    "cosines": lambda: RandomCosines(4, count=6, bandwidth=1.5).double(),
    "hidden units of an RBM": lambda: RBM.random(4, 3).double().features,
    "hidden layer of an EBM": lambda: EBM.perceptron(4, width=5).double().features,
    "hidden layer of a deep EBM": lambda: EBM.perceptron(4, width=5, depth=3).double().features,
    "in scaled coordinates": lambda: InCoordinates(AnyFeatures(network(4).double()), SCALED),
    "in whitened coordinates": lambda: InCoordinates(RandomCosines(4, count=7, bandwidth=2.0).double(), WHITENED),
}


def kinds(base):
    """All feature maps that the library has defined; models bring some of their own."""
    for name in steinscope.models.__all__:
        getattr(steinscope.models, name)
    below = {kind for child in base.__subclasses__() for kind in (child, *kinds(child))}
    return {kind for kind in below if kind.__module__.startswith("steinscope.") and not inspect.isabstract(kind)}


def test_every_feature_map_is_tested():
    assert {type(make()) for make in FEATURE_MAPS.values()} == kinds(FeatureMap)


@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("name", FEATURE_MAPS)
def test_contract(name, n):
    """The sum of Jacobians, and value, divergence and diagonal of W φ."""
    feature_map = FEATURE_MAPS[name]()
    x = torch.randn(n, 4, dtype=torch.float64, generator=generator())
    features = feature_map(x)
    jacobian = torch.stack([torch.func.jacrev(lambda point: feature_map(point[None])[0])(point) for point in x])
    for ours, theirs in zip(feature_map.sum_jacobian(x), (features, jacobian.sum(0).T), strict=True):
        torch.testing.assert_close(ours, theirs)
    weights = torch.randn(4, features.shape[1], dtype=torch.float64, generator=generator(1))
    diagonal = brute_force_diagonal(lambda points: feature_map(points) @ weights.T, x)
    for method, derivative in (
        (feature_map.value_and_divergence, diagonal.sum(1)),
        (feature_map.value_and_diagonal, diagonal),
    ):
        value, ours = method(x, weights)
        torch.testing.assert_close(value, features @ weights.T)
        torch.testing.assert_close(ours, derivative)


def test_cosines_are_those_of_a_gaussian_kernel():
    """Products of many features are kernel values: with K of them within 5 / √K, for each has a spread below one."""
    x, count, width = torch.randn(6, 3, generator=generator()), 20_000, 1.7
    features = RandomCosines(3, count=count, bandwidth=width)(x)
    kernel = torch.exp(-torch.cdist(x, x).square() / (2 * width**2))
    assert (features @ features.T - kernel).abs().max() < 5 / count**0.5
    assert not torch.equal(features, RandomCosines(3, count=count, bandwidth=width, seed=1)(x))


def test_bad_input():
    with pytest.raises(InputError, match="bandwidth: expected a positive number, got 0.0"):
        RandomCosines(2, bandwidth=0.0)
    with pytest.raises(InputError, match=r"feature_map: expected .*\(3, K\), got shape \(2,\)"):
        Features(lambda x: x[0]).feature_map(torch.ones(3, 2))


def fails(x):
    raise KeyError("weights\nsecond line")


@pytest.mark.parametrize(
    "fn, message",
    [
        (fails, "features failed at x: KeyError: 'weights"),
        (lambda x: x @ torch.ones(3, 2), "features failed at x: RuntimeError: mat1 and mat2"),
        (lambda x: x.tolist(), r"expected features of shape \(5, K\), got list"),
        (lambda x: x.sum(1), r"expected features of shape \(5, K\), got shape \(5,\)"),
        (lambda x: x[:, :0], r"expected features of shape \(5, K\), got shape \(5, 0\)"),
        (lambda x: x.long(), "expected features of a floating type, got torch.int64"),
        (lambda x: x.log(), "the features of point 0 are not all finite"),
        (lambda x: x.detach() + 1, "the features do not depend on x through torch operations"),
    ],
)
def test_features_of_models_that_fail_are_one_line(fn, message):
    x = torch.linspace(-1, 1, 10).reshape(5, 2)
    for name in ("model", "feature_map"):
        with pytest.raises(InputError, match=f"{name}: {message}") as caught:
            as_feature_map(fn, name).sum_jacobian(x)
        assert "\n" not in str(caught.value)


def test_constant_features_have_no_derivative():
    features, jacobian = AnyFeatures(lambda x: torch.ones(len(x), 3)).sum_jacobian(torch.ones(4, 2))
    assert torch.equal(features, torch.ones(4, 3)) and torch.equal(jacobian, torch.zeros(2, 3))


class WithBadFeatures(Gaussian):
    """A model whose features fail, and nothing else."""

    def features(self, x):
        raise RuntimeError("first\nsecond")


def test_a_model_whose_features_fail_says_so_and_fails_only_its_row_of_a_ranking():
    x = torch.randn(300, 2, generator=generator())
    with pytest.raises(InputError, match="^model: features failed at x: RuntimeError: first$"):
        gof_test(x, WithBadFeatures(torch.zeros(2)))
    positive = x.exp()
    with pytest.raises(InputError, match="^model: features failed at x: RuntimeError: first$"):
        gof_test(positive, WithBadFeatures(torch.zeros(2)), support="positive", critics="model")
    options = {"critics": ("linear", "model"), "folds": 2}
    ranking = compare({"bad": WithBadFeatures(torch.zeros(2)), "good": RBM.random(2, 3)}, x, **options)
    assert ranking.names == ("good",) or list(ranking.names) == ["good"]
    assert "features failed at x: RuntimeError: first" in ranking.failures["bad"]


@pytest.mark.parametrize("feature_map", [Affine(3), RandomCosines(3)])
def test_points_of_another_dimension(feature_map):
    for call in (feature_map, feature_map.sum_jacobian, Features(feature_map).feature_map):
        with pytest.raises(InputError, match="x: this critic takes points of 3 coordinates, got 2"):
            call(torch.ones(4, 2))
