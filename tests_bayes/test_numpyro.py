"""Draws of NumPyro's own NUTS."""

import arviz
import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pytest
from numpyro.infer import MCMC, NUTS

from steinscope import InputError, gof_test
from steinscope.bayes import from_numpyro, from_posterior

from posteriors import EFFECTS, ERRORS, FEATURES, LABELS, NAMES, SCHOOLS, assert_right


def centred(effects):
    mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", 8):
        theta = numpyro.sample("theta", dist.Normal(mu, tau))
        numpyro.sample("y", dist.Normal(theta, ERRORS), obs=effects)


def non_centred(effects):
    mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample("tau", dist.HalfCauchy(5))
    with numpyro.plate("school", 8):
        theta = numpyro.deterministic("theta", mu + tau * numpyro.sample("z", dist.Normal(0, 1)))
        numpyro.sample("y", dist.Normal(theta, ERRORS), obs=effects)


def regression(features, labels):
    w = numpyro.sample("w", dist.Normal(0, 2).expand([3]).to_event(1))
    numpyro.sample("y", dist.Bernoulli(logits=features @ w), obs=labels)


def funnel():
    v = numpyro.sample("v", dist.Normal(0, 3))
    numpyro.sample("x", dist.Normal(0, jnp.exp(v / 2)).expand([2]).to_event(1))


MODELS = {
    "centred": (centred, (EFFECTS,), {}),
    "non-centred": (non_centred, (), {"effects": EFFECTS}),
    "regression": (regression, (FEATURES,), {"labels": LABELS}),
    "funnel": (funnel, (), {}),
}


@pytest.fixture(scope="module", params=MODELS)
def sampled(request):
    model, args, kwargs = MODELS[request.param]
    how = {"chain_method": "vectorized", "progress_bar": False}
    mcmc = MCMC(NUTS(model), num_warmup=100, num_samples=100, num_chains=2, **how)
    mcmc.run(jax.random.PRNGKey(1), *args, extra_fields=("z_grad", "potential_energy"), **kwargs)
    return request.param, mcmc


def test_scores_are_those_written_by_hand_and_those_of_the_sampler(sampled):
    name, mcmc = sampled
    model, args, kwargs = MODELS[name]
    draws = from_numpyro(mcmc)
    by_number = tuple(label if "(" in label or "[" not in label else None for label in NAMES[name])
    assert draws.x.shape == (2, 100, len(NAMES[name]))
    assert all(ours == theirs for ours, theirs in zip(draws.names, by_number, strict=True) if theirs is not None)
    # NumPyro computes in float32.
    assert_right(draws, name, 1e-4)
    gradients = mcmc.get_extra_fields(group_by_chain=True)["z_grad"]
    sites = list(dict.fromkeys(label.removeprefix("log(").rstrip(")").partition("[")[0] for label in draws.names))
    theirs = np.concatenate([np.asarray(gradients[site]).reshape(2, 100, -1) for site in sites], 2)
    assert np.allclose(draws.scores, -theirs, rtol=1e-3, atol=1e-3 * np.abs(theirs).max())

    # The same from the draws alone, and from a container, which gives names.
    alone = from_numpyro(mcmc.get_samples(group_by_chain=True), model, *args, **kwargs)
    one = from_numpyro(mcmc.get_samples(), model, *args, **kwargs)
    assert np.array_equal(alone.x, draws.x) and one.x.shape == (1, 200, draws.dim)
    idata = arviz.from_numpyro(mcmc, coords={"school": SCHOOLS}, dims={"theta": ["school"], "z": ["school"]})
    labelled = from_numpyro(idata, model, *args, **kwargs)
    assert labelled.names == NAMES[name] and np.array_equal(labelled.scores, draws.scores)


def test_other_data_and_other_arguments_are_refused(sampled):
    name, mcmc = sampled
    if name == "regression":
        idata = arviz.from_numpyro(mcmc)
        with pytest.raises(InputError, match="model: its log-density differs from the sampler's by .* is it the model"):
            from_numpyro(idata, regression, FEATURES, 1 - LABELS)
        with pytest.raises(InputError, match="model: it cannot be called with the arguments given: .*labels"):
            from_numpyro(idata, regression, FEATURES)
        with pytest.raises(InputError, match="data: the model has 'v', of which there are no draws; there are w"):
            from_posterior(idata, funnel)
        with pytest.raises(InputError, match="model: an MCMC knows its model"):
            from_numpyro(mcmc, regression)
        with pytest.raises(InputError, match="model: draws that are not an MCMC need their model"):
            from_numpyro(idata)
        with pytest.raises(InputError, match="data: this MCMC has not been run"):
            from_numpyro(MCMC(NUTS(regression), num_warmup=1, num_samples=1))


def test_the_last_state_is_compared_where_no_energies_were_kept():
    mcmc = MCMC(NUTS(funnel), num_warmup=50, num_samples=50, progress_bar=False)
    mcmc.run(jax.random.PRNGKey(0))
    assert from_numpyro(mcmc).x.shape == (1, 50, 3)
    state = mcmc.last_state
    mcmc._last_state = state._replace(potential_energy=state.potential_energy + 1)
    with pytest.raises(InputError, match="model: its log-density differs from the sampler's"):
        from_numpyro(mcmc)


def bounded():
    scale = numpyro.sample("scale", dist.HalfNormal(1.0))
    numpyro.sample("w", dist.Dirichlet(jnp.ones(3)))
    numpyro.sample("p", dist.Uniform(0, 1 + scale))
    numpyro.sample("chance", dist.Beta(2, 2))
    numpyro.deterministic("double", 2 * scale)


def test_transforms_and_deterministic_sites():
    """Draws of the prior are independent draws of a model without data."""
    prior = numpyro.infer.Predictive(bounded, num_samples=500)(jax.random.PRNGKey(1))
    draws = from_numpyro(prior, bounded)
    assert draws.names == ("log(scale)", "simplex(w)[0]", "simplex(w)[1]", "interval(p)", "logit(chance)")
    p, upper = np.asarray(prior["p"]), 1 + np.asarray(prior["scale"])
    assert np.allclose(draws.x[0, :, 3], np.log(p / (upper - p)), rtol=1e-3, atol=1e-3)
    assert not gof_test(draws, critics="closed form").rejected
    wrong = {**prior, "scale": 1.3 * prior["scale"]}
    assert gof_test(from_numpyro(wrong, bounded), critics="closed form").rejected


def test_discrete_sites_are_refused():
    def counts():
        numpyro.sample("x", dist.Normal(numpyro.sample("count", dist.Poisson(3)), 1))

    draws = {"x": np.zeros((2, 10)), "count": np.zeros((2, 10), int)}
    with pytest.raises(InputError, match="model: the site 'count' is discrete"):
        from_numpyro(draws, counts)

    def switch():
        numpyro.sample("x", dist.Normal(numpyro.sample("on", dist.Bernoulli(0.5)), 1))

    with pytest.raises(InputError, match="model: the site 'on' is discrete"):
        from_numpyro({"x": np.zeros((2, 10)), "on": np.zeros((2, 10), int)}, switch)
