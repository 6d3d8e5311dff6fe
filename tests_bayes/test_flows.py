"""Flows of zuko, and distributions and guides of Pyro, as models: one contract for all of them."""

import pyro
import pyro.distributions as dist
import pytest
import torch
import zuko
from pyro.infer import SVI, Trace_ELBO
from pyro.infer.autoguide import (
    AutoDiagonalNormal,
    AutoIAFNormal,
    AutoLaplaceApproximation,
    AutoLowRankMultivariateNormal,
    AutoMultivariateNormal,
    AutoNormal,
)

from steinscope import InputError, compare, discrepancy, gof_test, train
from steinscope.densities import as_density

SIZES = {"transforms": 2, "hidden_features": (16, 16)}


def schools(effects):
    mu = pyro.sample("mu", dist.Normal(0.0, 5.0))
    tau = pyro.sample("tau", dist.HalfCauchy(5.0))
    with pyro.plate("school", 8):
        pyro.sample("y", dist.Normal(mu, tau + 10), obs=effects)


def guide_of(kind):
    """A guide after a few steps of variational inference."""
    pyro.clear_param_store()
    guide, effects = kind(schools), torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])
    inference = SVI(schools, guide, pyro.optim.Adam({"lr": 0.02}), Trace_ELBO())
    for _ in range(20):
        inference.step(effects)
    return guide.laplace_approximation(effects) if kind is AutoLaplaceApproximation else guide


def coupling():
    layers = [
        dist.transforms.AffineCoupling(1, pyro.nn.DenseNN(1, [8], [1, 1])),
        dist.transforms.Permute(torch.tensor([1, 0])),
    ]
    return dist.TransformedDistribution(dist.Normal(torch.zeros(2), 1.0).to_event(1), layers)


# How to make each, and how to draw from it. What is here is a model as it is.
MODELS = {
    "zuko NSF": lambda: zuko.flows.NSF(2, **SIZES),
    "zuko MAF": lambda: zuko.flows.MAF(2, **SIZES),
    "zuko NICE": lambda: zuko.flows.NICE(2, **SIZES),
    "zuko GMM": lambda: zuko.mixtures.GMM(2, components=2),
    "zuko NSF, its distribution": lambda: zuko.flows.NSF(2, **SIZES)(),
    "zuko MAF, given a context": lambda: zuko.flows.MAF(2, 3, **SIZES)(torch.ones(3)),
    "Pyro MultivariateNormal": lambda: dist.MultivariateNormal(torch.ones(2), torch.eye(2) + 0.5),
    "Pyro Gamma": lambda: dist.Gamma(3.0, 1.0).expand([2]).to_event(1),
    "Pyro Dirichlet": lambda: dist.Dirichlet(torch.tensor([2.0, 3.0, 4.0])),
    "Pyro MixtureSameFamily": lambda: dist.MixtureSameFamily(
        dist.Categorical(torch.ones(2)), dist.Normal(torch.tensor([[-1.0, 0.0], [1.0, 0.0]]), 1.0).to_event(1)
    ),
    "Pyro AffineCoupling": coupling,
    **{
        f"Pyro {kind.__name__}": lambda kind=kind: guide_of(kind).get_posterior()
        for kind in (AutoDiagonalNormal, AutoMultivariateNormal, AutoLowRankMultivariateNormal, AutoIAFNormal)
    },
    "Pyro AutoLaplaceApproximation": lambda: guide_of(AutoLaplaceApproximation).get_posterior(),
}


@pytest.fixture(params=MODELS)
def made(request):
    """A model, its distribution, and draws of it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MODELS[request.param]()
        distribution = model() if isinstance(model, torch.nn.Module) and not hasattr(model, "log_prob") else model
        return model, distribution, distribution.sample((400,)).detach()


def test_the_contract_of_a_model(made):
    model, distribution, x = made
    leaf = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(distribution.log_prob(leaf).sum(), leaf)
    assert torch.allclose(as_density(model).score(x), expected, rtol=1e-4, atol=1e-4)

    right = gof_test(x, model, critics="closed form")
    assert right.pvalue > 0.001
    # NumPy computes in float64, and the weights of a flow are float32.
    assert gof_test(x.double().numpy(), model, critics="closed form").pvalue == pytest.approx(right.pvalue, abs=0.01)
    # Points of a simplex stay there when two coordinates are swapped.
    is_simplex = x.shape[1] == 3
    wrong = x[:, [2, 1, 0]] if is_simplex else x * 1.5
    assert gof_test(wrong, model, critics="closed form").rejected
    assert discrepancy(wrong, model, critics="closed form").value > discrepancy(x, model, critics="closed form").value


def test_flows_and_distributions_are_ranked_together():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        flow = zuko.flows.NSF(2, **SIZES)
        x = flow().sample((1000,))
    models = {"flow": flow, "wide": dist.Normal(torch.zeros(2), 3.0).to_event(1)}
    assert compare(models, x, critics="closed form").names == ("flow", "wide")


@pytest.mark.parametrize("objective", ["likelihood", "lsd"])
def test_a_flow_is_trained_as_it_is(objective):
    x = 2.0 + torch.randn(1000, 2, generator=torch.Generator().manual_seed(0))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        flow = zuko.flows.MAF(2, **SIZES)
    before = float(flow().log_prob(x).mean().detach())
    result = train(flow, x, objective=objective, steps=100, lr=0.01)
    assert result.model is flow and float(flow().log_prob(x).mean().detach()) > before + 1


def test_what_is_no_density_says_what_to_pass():
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    messages = {
        r"the flow MAF fails at x without a context: .*; if it has one, pass .*flow\(context\)": zuko.flows.MAF(2, 3),
        r"AutoMultivariateNormal is a guide of Pyro: pass guide.get_posterior\(\)": guide_of(AutoMultivariateNormal),
        "AutoNormal is a guide of Pyro: .* AutoDiagonalNormal": guide_of(AutoNormal),
        "log_prob must return one number .* sum over the coordinates": dist.Normal(torch.zeros(2), 1.0),
    }
    for message, model in messages.items():
        with pytest.raises(InputError, match=f"model: {message}"):
            gof_test(x, model)
