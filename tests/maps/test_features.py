"""What every feature map of the library does, against brute force."""

import inspect

import pytest
import torch

import steinscope.models
from steinscope import InputError
from steinscope.critics import Features
from steinscope.maps import Affine, AnyFeatures, FeatureMap, RandomCosines
from steinscope.maps.features import InCoordinates
from steinscope.metric import Metric
from steinscope.models import EBM, RBM

from helpers import brute_force_diagonal, generator, network

POINTS = torch.randn(100, 4, generator=generator(9), dtype=torch.float64) * torch.arange(1, 5) + 1
SCALED, WHITENED = Metric.scaled(POINTS, -POINTS), Metric.whitened(POINTS)

# How to build each of them on four coordinates, in float64. A new feature map needs a line here.
FEATURE_MAPS = {
    "affine": Affine,
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
    with pytest.raises(InputError, match=r"feature_map: expected .*\(3, K\), got \(2,\)"):
        Features(lambda x: x[0]).feature_map(torch.ones(3, 2))
