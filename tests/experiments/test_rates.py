import pytest
from scipy import stats

from steinscope import InputError, gof_test
from steinscope.experiments.rates import binomial_interval, find_method, run_methods, single_critics
from steinscope.kernels import ksd_test
from steinscope.registries import CRITICS, KERNEL_TESTS

from helpers import normal


@pytest.mark.parametrize("successes, n", [(0, 20), (7, 20), (20, 20), (1, 200), (199, 200), (612, 12_000), (1, 1)])
def test_intervals_are_exact(successes, n):
    theirs = stats.binomtest(successes, n).proportion_ci(0.95, method="exact")
    assert binomial_interval(successes, n) == pytest.approx((theirs.low, theirs.high))


def test_every_test_has_a_name_in_the_experiments(short_split):
    x = normal(150, 2)
    names = ["learned", "closed form", "split", "KSD imq", *single_critics()]
    names += [entry.label for entry in KERNEL_TESTS.values() if entry.against == "scores"]
    results = run_methods(names, x, 0.2 - x, seed=3)
    assert list(results) == names
    assert results["learned"]["pvalue"] == gof_test(x, 0.2 - x, seed=3).pvalue
    assert results["KSD imq"]["statistic"] == ksd_test(x, 0.2 - x, seed=3, kernel="imq", metric="identity").statistic
    assert all(0 < result["pvalue"] <= 1 and result["seconds"] > 0 for result in results.values())
    assert set(single_critics()) == {name for name, entry in CRITICS.items() if entry.needs is None}


def test_an_unknown_method_names_the_known_ones():
    with pytest.raises(InputError, match="options: methods: expected some of learned, closed form, .*, got 'magic'"):
        find_method("magic")
