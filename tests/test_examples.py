"""The examples run as they are, and find what they are there to show."""

import re
import runpy
from pathlib import Path

import pytest
import torch

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


@pytest.mark.slow
def test_dependent_draws_are_rejected_and_thinned_ones_are_not(run):
    _, printed = run("mcmc_output.py")
    rejected = [int(count) for count in re.findall(r"(\d+) of 40 right sets", printed)]
    # Of 40 tests at 5% more than 7 reject with a probability of a thousandth.
    assert rejected[0] >= 36 and rejected[-1] <= 7
    assert "SGLD with large steps is rejected" in printed and re.search(r"x\[\d\] spreads .* the model says", printed)


@pytest.mark.slow
def test_models_are_ranked_as_the_true_density_ranks_them(run):
    names, printed = run("rank_ebms.py")
    ranking, truth = names["ranking"], names["truth"]
    assert len(ranking.names) == 3 and f"{ranking.names[0]} comes first" in printed
    assert printed.count("p = ") == 3
    assert ranking.difference(ranking.names[-1], ranking.names[0]).probability > 0.999
    assert truth[ranking.names[-1]] > truth[ranking.names[0]]


@pytest.mark.slow
def test_a_trained_model_fits_better_than_a_gaussian(run):
    names, printed = run("train_ebm.py")
    assert "a Gaussian is rejected" in printed
    z = [float(number) for number in re.findall(r"z-score of its shape ([\d.]+)", printed)]
    assert z[0] < z[1] / 3
    data, samples = names["held_out"], torch.from_numpy(names["samples"])
    assert samples.shape == (1000, 2)
    # The eight centres have the radius 4 / √2, and the spread around them is 0.5 / √2: nearly all points lie in a ring,
    # in which a Gaussian of the same moments has half of its mass.
    in_ring = [float(((x.norm(dim=1) - 4 / 2**0.5).abs() < 3 * 0.5 / 2**0.5).double().mean()) for x in (data, samples)]
    assert in_ring[0] > 0.98 and in_ring[1] > 0.85
    # Modes of the data have equal shares, within 4 standard errors of 1000 points; the chains find every one of them.
    shares = {name: names["shares"](x) for name, x in (("data", data), ("samples", samples))}
    assert (shares["data"] - 1 / 8).abs().max() < 4 * (1 / 8 * 7 / 8 / 1000) ** 0.5
    assert shares["samples"].min() > 0.05
    for name, share in shares.items():
        assert f"{name}: {' '.join(f'{part:.2f}' for part in share)}" in printed
