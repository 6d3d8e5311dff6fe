"""`steinscope check`. Files that ArviZ has saved are read in `tests_bayes`."""

import json

import numpy as np
import pytest

from steinscope.bayes import from_arrays

from helpers import assert_one_line


@pytest.fixture
def narrow(monkeypatch):
    """A posterior in a file whose draws spread too little."""
    x = 0.6 * np.random.default_rng(0).normal(size=(4, 300, 2))
    draws = from_arrays(x, -x, names=["mu", "tau"])
    monkeypatch.setattr("steinscope.commands.check.load_draws", lambda source, model: draws)
    return ["posterior.nc", "--model", "mine:model", "--critics", "linear"]


def test_a_verdict_is_printed(here, command, narrow):
    done = command("check", *narrow, "--report", "page.html")
    assert done.code == 0 and "verdict: misfit" in done.out and "report: page.html" in done.out
    assert "The draws do not fit the posterior" in (here / "page.html").read_text()


def test_the_exit_status_says_so_only_if_asked(command, narrow):
    done = command("check", *narrow, "--json", "--fail-on-misfit")
    assert done.code == 1 and json.loads(done.out)["verdict"] == "misfit"
    assert command("check", *narrow, "--quiet").out == ""


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["x.npy", "--model", "m:m"], "x: expected a .nc file with a posterior, got x.npy; steinscope test takes"),
        (["posterior.nc"], "model: posterior.nc is a posterior: give the model that was sampled"),
        (["posterior.nc", "--model", "m:m", "--report", "page.txt"], "report: expected a name that ends in .html"),
        (["posterior.nc", "--model", "nothing_here:m"], "model: there is no module nothing_here"),
    ],
)
def test_what_cannot_be_checked(here, command, arguments, message):
    done = command("check", *arguments)
    assert_one_line(done, message)
