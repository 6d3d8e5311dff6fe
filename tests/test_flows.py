"""Flows of zuko and guides of Pyro, with stand-ins of theirs; `tests_bayes/test_flows.py` has the real ones."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.distributions import Independent, Normal, TransformedDistribution, Uniform
from torch.distributions.transforms import Transform, constraints

from steinscope import InputError, compare, from_log_prob, gof_test, train
from steinscope.densities import as_density
from steinscope.supports import find_region

from helpers import normal


class LazyDistribution(nn.Module):
    """What zuko calls a flow: a module from a context to a distribution."""

    __module__ = "zuko.lazy"


class Flow(LazyDistribution):
    __module__ = "zuko.flows"

    def __init__(self, context=0):
        super().__init__()
        self.weights = nn.Parameter(torch.full((3, 2 + context), 0.5))

    def forward(self, c=None):
        return Standard(self.weights)


class Standard:
    def __init__(self, weights):
        self.weights = weights

    def log_prob(self, x):
        assert (x @ self.weights.T[:2]).shape[1] == 3
        if self.weights.shape[1] > 2:
            raise RuntimeError("shapes cannot be multiplied")
        return -0.5 * x.square().sum(1)


def test_a_flow_and_its_distribution_are_models():
    x, flow = normal(300, 2), Flow()
    theirs = gof_test(x, -x, critics="closed form").pvalue
    for model in (flow, flow()):
        assert torch.equal(as_density(model).score(x), -x)
        # Weights are float32: points in float64 are looked at in that type.
        for points in (x, x.double().numpy()):
            assert gof_test(points, model, critics="closed form").pvalue == pytest.approx(theirs, rel=1e-4)
    names = compare({"wide": from_log_prob(lambda x: -0.1 * (x**2).sum(1)), "flow": flow}, x, critics="closed form")
    assert names.names == ("flow", "wide")
    assert flow.weights.grad is None and list(dict(flow.named_parameters())) == ["weights"]


def test_a_flow_with_a_context_says_what_to_pass():
    expected = r"the flow Flow fails at x without a context: RuntimeError: shapes .*; if it has one, pass .*flow\(cont"
    with pytest.raises(InputError, match=f"model: {expected}"):
        gof_test(normal(300, 2), Flow(context=2))


def test_float32_is_tried_only_where_float64_fails():
    seen = []

    def log_prob(x):
        seen.append(x.dtype)
        if x.dtype == torch.float64:
            raise RuntimeError("expected Float")
        return -0.5 * x.square().sum(1)

    x = normal(2, 3)
    assert torch.equal(from_log_prob(log_prob).score(x.double()), -x.double())
    assert seen == [torch.float64, torch.float32]

    def broken(x):
        seen.append(x.dtype)
        raise RuntimeError("never mind")

    seen.clear()
    with pytest.raises(InputError, match="model: log_prob failed at x: RuntimeError: never mind"):
        from_log_prob(broken).score(x)
    assert seen == [torch.float32]


def made(name, module, **methods):
    base = type("AutoGuide", (), {"__module__": module, "__call__": lambda self: None})
    return type(name, (base,), {"__module__": module, **methods})()


@pytest.mark.parametrize(
    "guide, message",
    [
        (
            made("AutoIAFNormal", "pyro.infer.autoguide", get_posterior=lambda self: None),
            r"AutoIAFNormal is a guide of Pyro: pass guide.get_posterior\(\), its distribution of unconstrained",
        ),
        (made("AutoNormal", "pyro.infer.autoguide"), "AutoNormal is a guide of Pyro: .* AutoDiagonalNormal, .* has"),
        (made("AutoNormal", "numpyro.infer.autoguide"), r"AutoNormal is a guide of NumPyro: .*from_numpyro\(draws"),
        (made("AutoNormal", "elsewhere"), "got the function or callable an object of type AutoNormal; say what it"),
    ],
)
def test_guides_say_what_to_pass(guide, message):
    with pytest.raises(InputError, match=f"model: {message}"):
        gof_test(np.zeros((100, 2)) + np.arange(100)[:, None], guide)


class Coupling(Transform):
    """A layer of a flow: it has no sign, because it is monotone in no single coordinate."""

    domain = codomain = constraints.independent(constraints.real, 1)
    bijective = True


@pytest.mark.parametrize("base", [Normal(torch.zeros(2), 1.0), Uniform(torch.zeros(2), 1.0)])
def test_a_flow_of_layers_without_a_sign_lives_everywhere(base):
    assert find_region(None, TransformedDistribution(Independent(base, 1), [Coupling()]), [2]) is None


class Shifted(LazyDistribution):
    __module__ = "zuko.flows"

    def __init__(self):
        super().__init__()
        self.mean = nn.Parameter(torch.zeros(2))

    def forward(self, c=None):
        return Independent(Normal(self.mean, torch.ones(2)), 1)


@pytest.mark.parametrize("objective", ["likelihood", "lsd"])
def test_a_flow_is_trained_as_it_is(objective, tmp_path):
    flow = Shifted()
    options = {"objective": objective, "steps": 200, "lr": 0.05, "average": 0.9, "checkpoint": tmp_path}
    result = train(flow, 1.0 + normal(500, 2), **options)
    assert result.model is flow and isinstance(result.averaged, Shifted)
    for trained in (flow, result.averaged):
        assert float((trained.mean.detach() - 1.0).abs().max()) < 0.15
    again = train(Shifted(), 1.0 + normal(500, 2), **options)
    assert torch.equal(again.model.mean, flow.mean)
