"""Code in the pages that needs a sampler runs."""

import re
from pathlib import Path

import numpy as np
import pytest

PAGE = Path(__file__).parent.parent / "docs" / "posteriors.md"
SECTIONS = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize(
    "section, printed", [("PyMC", "z[Choate]"), ("NumPyro", "Draws(1 chain of 2000 draws, 3 coord")]
)
def test_code_in_the_page_runs(section, printed, capsys):
    (block,) = re.findall(r"```\{code-block\} python\n(.*?)```", SECTIONS[section], re.DOTALL)
    exec(compile(block, str(PAGE), "exec"), {})
    assert printed in capsys.readouterr().out


def _gaussian_divergence(sample, posterior, units):
    """The Fisher divergence of two Gaussians with the moments of draws, in units of each coordinate."""
    (mean, covariance), (other, wanted) = ((x.mean(0), np.cov(x.T)) for x in (sample, posterior))
    difference = np.diag(units) @ (np.linalg.inv(covariance) - np.linalg.inv(wanted))
    shift = units * np.linalg.solve(wanted, mean - other)
    return np.trace(difference @ covariance @ difference.T) + shift @ shift


def test_nuts_laplace_advi_and_sgld_are_ranked_in_the_order_that_their_moments_say(capsys):
    (block,) = re.findall(r"## NUTS, Laplace.*?```\{code-block\} python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    found = {}
    exec(compile(block, str(PAGE), "exec"), found)
    ranking, samples = found["ranking"], found["samples"]
    assert str(ranking) in capsys.readouterr().out
    (shown,) = re.findall(r"print\(ranking\)\n```\n\n```\{code-block\} text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert tuple(re.findall(r"^ +\d  (\w+)", shown, re.MULTILINE)) == ranking.names
    rows = {name: np.concatenate(getattr(sample, "x", sample)) for name, sample in samples.items()}
    units = np.concatenate([*rows.values()]).std(0)
    far = {name: _gaussian_divergence(x, rows["NUTS"], units) for name, x in rows.items()}
    assert ranking.names == tuple(sorted(far, key=far.__getitem__)) == ("NUTS", "Laplace", "SGLD", "ADVI")
    assert ranking.difference("SGLD", "Laplace").probability > 0.99
    assert ranking.difference("ADVI", "SGLD").probability > 0.99
    # Both are mostly wrong in their moments: what critics find is about what two Gaussians are apart.
    for name in ("SGLD", "ADVI"):
        assert 0.6 < ranking.estimates[name].value / far[name] < 1.4
    assert ranking.findings["NUTS"] == ()
