"""`steinscope compare` with several samples and one model. Files that ArviZ has saved are read in `tests_bayes`."""

import csv
import json

import numpy as np
import pytest

from steinscope.bayes import from_arrays

MODEL = ["--model", "standard_models:normal", "--critics", "closed form"]


@pytest.fixture
def samples(arrays):
    """Right chains, and points that spread too little."""
    rng = np.random.default_rng(1)
    np.save("chains.npy", rng.normal(size=(4, 200, 3)))
    np.save("narrow.npy", 0.7 * rng.normal(size=(500, 3)))


def test_samples_are_ranked(samples, command, here):
    done = command("compare", "narrow.npy", "right=chains.npy", *MODEL, "--csv", "t.csv", "--report", "page.html")
    assert done.code == 0, done.err
    assert "Learned Stein discrepancy to one posterior" in done.out and "spreads 3" in done.out
    with open("t.csv") as file:
        assert [row["sample"] for row in csv.DictReader(file)] == ["right", "narrow"]
    page = (here / "page.html").read_text()
    assert "right is nearest to the posterior" in page and "Nothing beyond chance" in page and "<svg" in page
    np.save("again.npy", np.load("chains.npy"))
    command("compare", "chains.npy", "again.npy", *MODEL, "--report", "page.html")
    assert "comes first, but not beyond doubt" in (here / "page.html").read_text()


def test_posteriors_bring_their_scores(samples, command, monkeypatch):
    x = np.random.default_rng(2).normal(size=(4, 200, 3))
    draws = {"nuts.nc": x, "advi.nc": 0.7 * x}
    monkeypatch.setattr(
        "steinscope.commands.compare.load_draws",
        lambda source, model: from_arrays(draws[source], -draws[source], names=["mu", "tau", "z"]),
    )
    done = command("compare", "advi.nc", "nuts.nc", "chains.npy", *MODEL, "--json")
    rows = json.loads(done.out)["samples"]
    assert {row["sample"] for row in rows[:2]} == {"nuts", "chains"} and rows[2]["sample"] == "advi"
    assert any(rows[2]["finding"].startswith(name) for name in ("every coordinate", "mu", "tau", "z"))


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["x.npy", "good.npy"], "model: several samples, or a posterior, are held against one model: give one as"),
        (
            ["x.npy", "good.npy", *MODEL, "--model", "b=standard_models:normal"],
            "one as --model MODULE:MODEL, got 2 mod",
        ),
        (["x.npy", "good.npy", "--score", "scores.npy"], "one as --model MODULE:MODEL, got --score"),
        (["posterior.nc", *MODEL], "x: there is no file posterior.nc|xarray"),
        (["x.npy", "x.npy", *MODEL], "x: two samples are named 'x'; give names as NAME=SOURCE"),
        (["x.npy", "nothing.npy", *MODEL], "nothing.npy"),
        (["x.npy", "good.npy", *MODEL, "--metric", "whitened"], "metric: samples are measured in units of their stand"),
    ],
)
def test_samples_that_cannot_be_ranked(samples, command, arguments, message):
    done = command("compare", *arguments)
    assert done.code == 2 and len(done.err.strip().splitlines()) == 1
    assert any(part in done.err for part in message.split("|")), done.err
