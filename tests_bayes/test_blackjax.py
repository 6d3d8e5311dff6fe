"""Draws of BlackJAX's own NUTS, and functions and arrays of JAX, pandas, Polars, xarray and scikit-learn."""

import blackjax
import jax
import jax.numpy as jnp
import numpy as np
import pandas
import polars
import pytest
import xarray
from sklearn.linear_model import LinearRegression
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KernelDensity

from steinscope import InputError, from_score, gof_test
from steinscope.bayes import from_blackjax


def log_density(position):
    return -0.5 * (position["mu"] ** 2 + (position["theta"] ** 2 / jnp.array([1.0, 4.0])).sum())


def sample(kernel, step, chains, count):
    """States of (draws, chains), as all chains make a step at a time."""
    keys = jax.random.split(jax.random.PRNGKey(0), chains)
    start = jax.vmap(lambda key: kernel.init({"mu": jax.random.normal(key), "theta": jax.random.normal(key, (2,))}))(
        keys
    )

    def one(states, key):
        states, info = jax.vmap(step)(jax.random.split(key, chains), states)
        return states, states

    return jax.lax.scan(one, start, jax.random.split(jax.random.PRNGKey(1), count))[1]


@pytest.fixture(scope="module")
def states():
    kernel = blackjax.nuts(log_density, step_size=0.5, inverse_mass_matrix=jnp.array([1.0, 1.0, 4.0]))
    return sample(kernel, kernel.step, 3, 50)


def test_states_of_nuts(states):
    draws = from_blackjax(states, log_density, dims=("draw", "chain"))
    assert draws.names == ("mu", "theta[0]", "theta[1]") and draws.x.shape == (3, 50, 3)
    assert np.allclose(draws.scores, -draws.x / [1, 1, 4], atol=1e-5)
    assert np.allclose(draws.log_prob, -0.5 * (draws.x**2 / [1, 1, 4]).sum(2), atol=1e-4)
    one = from_blackjax(jax.tree.map(lambda leaf: leaf[:, 0], states))
    assert np.array_equal(one.x[0], draws.x[0]) and one.density is None
    whole = from_blackjax(jax.tree.map(lambda leaf: leaf.swapaxes(0, 1), states), dims=("chain", "draw"))
    assert np.array_equal(whole.scores, draws.scores)


def test_what_does_not_belong_together_is_refused(states):
    with pytest.raises(InputError, match="dims: these states have several chains: say"):
        from_blackjax(states)
    with pytest.raises(InputError, match="dims: the states have 2 axes before their positions, got .'draw',."):
        from_blackjax(states, dims=("draw",))
    with pytest.raises(InputError, match="scores: they point downhill"):
        from_blackjax(states, lambda position: -log_density(position), dims=("draw", "chain"))
    wrong = states._replace(logdensity_grad=jax.tree.map(jnp.negative, states.logdensity_grad))
    with pytest.raises(InputError, match="scores: they point downhill"):
        from_blackjax(wrong, dims=("draw", "chain"))
    with pytest.raises(InputError, match="scores: at draw .* the score of coordinate"):
        from_blackjax(states, lambda position: 2 * log_density(position), dims=("draw", "chain"))
    with pytest.raises(InputError, match="states: expected states with position and logdensity, got dict"):
        from_blackjax({})


def test_states_without_gradients_need_the_density():
    kernel = blackjax.additive_step_random_walk(log_density, blackjax.mcmc.random_walk.normal(jnp.ones(3)))
    states = sample(kernel, kernel.step, 2, 20)
    with pytest.raises(InputError, match="states: a RWState holds no gradient: give logdensity_fn"):
        from_blackjax(states, dims=("draw", "chain"))
    draws = from_blackjax(states, log_density, dims=("draw", "chain"))
    assert np.allclose(draws.scores, -draws.x / [1, 1, 4], atol=1e-5)


X = np.random.default_rng(0).normal(size=(300, 2))
ARRAYS = {
    "jax": lambda x: jnp.asarray(x),
    "pandas": lambda x: pandas.DataFrame(x, columns=["a", "b"]),
    "polars": lambda x: polars.DataFrame({"a": x[:, 0], "b": x[:, 1]}),
    "xarray": lambda x: xarray.DataArray(x, dims=("draw", "name"), coords={"name": ["a", "b"]}),
}


@pytest.mark.parametrize("library", ARRAYS)
def test_points_and_scores_are_arrays_of_any_library(library):
    shifted = X + [0.0, 0.5]
    made, scores = ARRAYS[library](shifted), ARRAYS[library](-shifted)
    result = gof_test(made, scores, critics="closed form")
    expected = gof_test(shifted, -shifted, critics="closed form")
    assert result.pvalue == pytest.approx(expected.pvalue, rel=0.01)
    assert library == "jax" or any(str(finding).startswith("b ") for finding in result.findings)


def test_functions_of_jax_are_scores_on_numpy_arrays():
    score = jax.vmap(jax.grad(lambda x: -0.5 * (x**2).sum()))
    assert not gof_test(X, from_score(score, numpy=True), critics="closed form").rejected
    with pytest.raises(InputError, match=r"score failed at x: TypeError: .*from_score\(fn, numpy=True\)"):
        gof_test(X, from_score(score))


def test_density_estimators_of_scikit_learn_are_models():
    x = np.random.default_rng(1).normal(size=(2000, 2))
    for model in (GaussianMixture(1, random_state=0), KernelDensity(bandwidth=0.3)):
        model.fit(x)
        assert not gof_test(X, model, critics="closed form").rejected
        assert gof_test(X + 1.0, model, critics="closed form").rejected
        # An estimator that was fitted to a data frame warns about arrays, and warnings are errors here.
        frame = pandas.DataFrame(X, columns=["a", "b"])
        assert gof_test(frame, model.fit(frame), critics="closed form").pvalue > 0.0
        with pytest.raises(InputError, match="x: column 0 is 'b', and .* was fitted with 'a' there"):
            gof_test(frame[["b", "a"]], model)
    with pytest.raises(InputError, match="model: LinearRegression of scikit-learn has no log-density"):
        gof_test(X, LinearRegression())
