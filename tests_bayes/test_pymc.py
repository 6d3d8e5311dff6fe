"""Draws of PyMC's own NUTS."""

import json

import numpy as np
import pymc as pm
import pytest
import xarray
from arviz.labels import BaseLabeller
from arviz.sel_utils import xarray_var_iter

from steinscope import InputError, gof_test
from steinscope.bayes import from_posterior, from_pymc

from posteriors import EFFECTS, ERRORS, FEATURES, LABELS, NAMES, SCHOOLS, assert_right


def eight_schools(form, effects=EFFECTS):
    with pm.Model(coords={"school": SCHOOLS}) as model:
        mu, tau = pm.Normal("mu", 0, 5), pm.HalfCauchy("tau", 5)
        if form == "centred":
            theta = pm.Normal("theta", mu, tau, dims="school")
        else:
            theta = pm.Deterministic("theta", mu + tau * pm.Normal("z", 0, 1, dims="school"), dims="school")
        pm.Normal("y", theta, ERRORS, observed=effects, dims="school")
    return model


def regression():
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=pm.math.dot(FEATURES, pm.Normal("w", 0, 2, shape=3)), observed=LABELS)
    return model


def funnel():
    with pm.Model() as model:
        pm.Normal("x", 0, pm.math.exp(pm.Normal("v", 0, 3) / 2), shape=2)
    return model


MODELS = {
    "centred": lambda: eight_schools("centred"),
    "non-centred": lambda: eight_schools("non-centred"),
    "regression": regression,
    "funnel": funnel,
}


@pytest.fixture(scope="module", params=MODELS)
def sampled(request):
    model = MODELS[request.param]()
    how = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    return request.param, model, pm.sample(60, tune=60, chains=2, cores=1, model=model, **how)


def test_scores_are_those_written_by_hand(sampled, tmp_path):
    name, model, idata = sampled
    draws = from_pymc(idata, model)
    assert draws.names == NAMES[name] and draws.x.shape == (2, 60, len(NAMES[name]))
    assert_right(draws, name, 1e-9)
    assert np.allclose(draws.log_prob, idata.sample_stats["lp"].to_numpy())
    assert draws.diverging.shape == (2, 60)

    # The same from a file, and from the tree that ArviZ 1 keeps posteriors in.
    idata.to_netcdf(tmp_path / "posterior.nc")
    tree = xarray.DataTree.from_dict({"posterior": idata.posterior, "sample_stats": idata.sample_stats})
    for data in (tmp_path / "posterior.nc", tree, xarray.open_datatree(tmp_path / "posterior.nc")):
        other = from_posterior(data, model)
        assert other.names == draws.names and np.array_equal(other.scores, draws.scores)

    labeller = BaseLabeller()
    theirs = [
        labeller.make_label_flat(variable, selection, place)
        for variable, selection, place, _ in xarray_var_iter(idata.posterior, skip_dims={"chain", "draw"})
    ]
    assert {label.removeprefix("log(").removesuffix(")") for label in draws.names} <= set(theirs)


def test_another_prior_other_data_and_discrete_variables_are_refused():
    how = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1, "cores": 1}
    idata = pm.sample(30, tune=30, chains=1, model=funnel(), **how)
    with pm.Model() as other:
        pm.Normal("x", 0, pm.math.exp(pm.Normal("v", 0, 2) / 2), shape=2)
    with pytest.raises(InputError, match="model: its log-density differs from the sampler's by .* is it the model"):
        from_pymc(idata, other)
    with pm.Model() as discrete:
        pm.Normal("x", pm.Poisson("count", 3), 1, shape=2)
    with pytest.raises(InputError, match="model: the variable 'count' is discrete"):
        from_pymc(idata, discrete)
    with pytest.raises(InputError, match="data: the model has 'w', of which there are no draws; there are"):
        from_pymc(idata, regression())
    with pytest.raises(InputError, match="model: expected a pymc.Model, got function"):
        from_pymc(idata, regression)


def test_transforms_with_other_shapes_and_with_bounds_that_are_random():
    with pm.Model() as model:
        pm.Dirichlet("w", np.ones(3))
        pm.Uniform("p", 0, 1 + pm.HalfNormal("scale", 1))
    prior = pm.sample_prior_predictive(400, model=model, random_seed=1)
    draws = from_pymc(prior.prior, model)
    assert sorted(draws.names) == ["interval(p)", "log(scale)", "simplex(w)[0]", "simplex(w)[1]"]
    # Draws of the prior are independent draws of a model without data.
    assert not gof_test(draws, critics="closed form").rejected
    column = draws.names.index("interval(p)")
    p, upper = prior.prior["p"].to_numpy(), 1 + prior.prior["scale"].to_numpy()
    assert np.allclose(draws.x[..., column], np.log(p / (upper - p)))


def test_a_variational_fit_is_rejected():
    model = eight_schools("non-centred")
    with model:
        fit = pm.fit(1500, random_seed=1, progressbar=False)
    draws = from_pymc(fit.sample(1000, random_seed=1), model)
    assert gof_test(draws, critics="closed form").rejected


def test_the_command_line_takes_a_file_and_a_model(tmp_path, capsys, monkeypatch):
    from steinscope.cli import main

    (tmp_path / "mine.py").write_text(
        "import pymc as pm\nwith pm.Model() as model:\n    pm.Normal('x', 0, 1, shape=2)\nnothing = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(2, 200, 2))
    xarray.Dataset({"x": (("chain", "draw", "i"), x)}).to_netcdf("posterior.nc", group="posterior")

    def run(*arguments):
        with pytest.raises(SystemExit) as done:
            main(["test", "posterior.nc", *arguments])
        return done.value.code, *capsys.readouterr()

    code, out, _ = run("--model", "mine:model", "--critics", "linear", "--json")
    assert code == 0 and '"pvalue"' in out
    assert run("--model", "mine:model", "--method", "ksd")[0] == 0
    for arguments, message in (
        (["--model", "mine:nothing"], "model: expected a PyMC model"),
        (["--score", "posterior.nc"], "model: posterior.nc is a posterior: give the model that was sampled"),
    ):
        code, _, err = run(*arguments)
        assert code == 2 and message in err and len(err.strip().splitlines()) == 1


def test_the_command_line_checks_a_file(tmp_path, capsys, monkeypatch):
    from steinscope.cli import main

    (tmp_path / "checked.py").write_text(
        "import pymc as pm\nwith pm.Model() as model:\n    pm.Normal('x', 0, 1, shape=2)\n"
    )
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(4, 300, 2))
    for name, scale, verdict in (("right.nc", 1.0, "nothing found"), ("narrow.nc", 0.7, "misfit")):
        xarray.Dataset({"x": (("chain", "draw", "i"), scale * x)}).to_netcdf(name, group="posterior")
        with pytest.raises(SystemExit) as done:
            main(["check", name, "--model", "checked:model", "--critics", "linear", "--report", "page.html"])
        assert done.value.code == 0 and f"verdict: {verdict}\n" in capsys.readouterr().out
    assert "The draws do not fit the posterior" in (tmp_path / "page.html").read_text()


def test_the_command_line_ranks_files(tmp_path, capsys, monkeypatch):
    from steinscope.cli import main

    (tmp_path / "ranked.py").write_text(
        "import pymc as pm\nwith pm.Model() as model:\n    pm.Normal('x', 0, 1, shape=2)\n"
    )
    monkeypatch.chdir(tmp_path)
    x = np.random.default_rng(0).normal(size=(4, 300, 2))
    for name, scale in (("right.nc", 1.0), ("narrow.nc", 0.7)):
        xarray.Dataset({"x": (("chain", "draw", "i"), scale * x)}).to_netcdf(name, group="posterior")
    with pytest.raises(SystemExit) as done:
        main(["compare", "narrow.nc", "right.nc", "--model", "ranked:model", "--critics", "closed form", "--json"])
    ranked = json.loads(capsys.readouterr().out)["samples"]
    assert done.value.code == 0 and [row["sample"] for row in ranked] == ["right", "narrow"]
