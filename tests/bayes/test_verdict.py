import json

import numpy as np
import pytest

from steinscope import InputError
from steinscope.bayes import check_posterior, from_arrays
from steinscope.report import report_check

NAMES = ["mu", "log(tau)", "<b>theta</b>"]


def draws(change=lambda x: x, n=500, chains=4, seed=1, **known):
    x = change(np.random.default_rng(seed).normal(size=(chains, n, 3)))
    return from_arrays(x, -x, names=NAMES, dims=("chain", "draw"), **known)


def checked(*args, **kwargs):
    return check_posterior(draws(*args, **kwargs), critics="closed form")


def test_right_draws():
    check = checked()
    assert check.verdict == "nothing found" and check.test is not None and not check.test.rejected
    assert "the draws agree with the density, and chains agree with each other" in str(check)


def test_an_approximation_is_seen_by_the_test_alone():
    check = checked(lambda x: x * [1, 0.7, 1], chains=1, n=2000)
    assert check.verdict == "misfit" and check.rhat.max() < 1.01
    assert "log(tau) spreads 3" in str(check) and "less than the posterior says" in str(check)


def test_chains_that_are_elsewhere_are_seen_by_rhat():
    def split(x):
        x[0] += 1.5
        return x

    check = checked(split)
    assert check.verdict == "misfit" and "chains disagree with each other" in check.reasons[0]


def test_while_chains_mix_slowly_nobody_can_tell():
    def moved(x):
        x[0] += 0.32
        return x

    check = checked(moved)
    assert check.verdict == "cannot tell" and "chains mix slowly (r̂ = 1.0" in check.reasons[0]


def test_divergences_leave_a_doubt():
    diverging = np.zeros((4, 500), dtype=bool)
    diverging[1, 7] = True
    check = checked(diverging=diverging)
    assert check.verdict == "cannot tell" and check.reasons[0].startswith("1 trajectory diverged")
    assert checked(diverging=np.zeros((4, 500), dtype=bool)).verdict == "nothing found"


def test_too_few_draws_are_no_verdict():
    check = checked(n=15, chains=1)
    assert check.verdict == "cannot tell" and check.test is None and "there is no Stein test" in str(check)


@pytest.mark.parametrize(
    "value, problem",
    [
        (np.zeros((4, 10, 2)), "draws: expected Draws, as from_pymc and others make them, got ndarray"),
        (draws(n=3), "draws: expected at least 4 draws in each chain, got 3"),
    ],
)
def test_what_cannot_be_checked(value, problem):
    with pytest.raises(InputError, match=problem):
        check_posterior(value)


def test_numbers_and_report():
    check = checked(lambda x: x * [1, 0.7, 1])
    found = json.loads(json.dumps(check.to_dict(), allow_nan=False))
    assert found["verdict"] == "misfit" and [row["name"] for row in found["coordinates"]] == NAMES
    page = report_check(check, data="draws", model="m")
    assert "The draws do not fit the posterior" in page and "&lt;b&gt;theta" in page and "<b>theta" not in page
    assert [row[0] for row in check.rows()][:2] == ["Stein test", "largest r̂"]
