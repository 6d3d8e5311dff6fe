"""The examples run as they are, and find what they are there to show."""

import re
import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Run an example as a script: its names and what it printed."""

    def run_example(name):
        monkeypatch.chdir(tmp_path)
        names = runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return names, capsys.readouterr().out

    return run_example


def test_every_example_is_tested():
    assert {path.name for path in EXAMPLES.glob("*.py")} == {"mcmc_output.py", "rank_ebms.py", "train_ebm.py"}


def test_dependent_draws_are_rejected_and_thinned_ones_are_not(run):
    _, printed = run("mcmc_output.py")
    rejected = [int(count) for count in re.findall(r"(\d+) of 40 right sets", printed)]
    # Of 40 tests at 5% more than 7 reject with a probability of a thousandth.
    assert rejected[0] >= 36 and rejected[-1] <= 7
    assert "SGLD with large steps is rejected" in printed and "spreads more than the model says" in printed


def test_models_are_ranked_as_the_true_density_ranks_them(run):
    names, printed = run("rank_ebms.py")
    ranking, truth = names["ranking"], names["truth"]
    assert len(ranking.names) == 3 and f"{ranking.names[0]} comes first" in printed
    assert printed.count("p = ") == 3
    assert ranking.difference(ranking.names[-1], ranking.names[0]).probability > 0.999
    assert truth[ranking.names[-1]] > truth[ranking.names[0]]


def test_a_trained_model_fits_better_than_a_gaussian(run):
    names, printed = run("train_ebm.py")
    assert "a Gaussian is rejected" in printed
    z = [float(number) for number in re.findall(r"z-score ([\d.]+)", printed)]
    assert z[0] < z[1] / 3
    samples = names["samples"]
    # The eight centres have the radius 4 / √2, and the spread around them is 0.5 / √2.
    assert samples.shape == (1000, 2)
    assert float((samples**2).sum(1).mean()) == pytest.approx(8.25, rel=0.15)
    assert names["shares"](names["held_out"]).sum() == pytest.approx(1.0)
