"""Chains of dependent draws: their memory, batches of them, and tests and estimates that hold for them."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.signal import lfilter

from steinscope import InputError, compare, discrepancy, gof_test, thin
from steinscope.bayes import Draws
from steinscope.chains import (
    Chains,
    TooFewDraws,
    autocorrelation_times,
    batch_scores,
    batch_stderr,
    dependence_note,
    mean_and_stderr,
    measure_chains,
)
from steinscope.comparison import shared_points
from steinscope.kernels import fssd_test, ksd_test, ksdagg_test, linear_ksd_test
from steinscope.models import Gaussian
from steinscope.scoring import make_points
from steinscope.support.normal import normal_of_student, upper_tail


def autoregression(seed, rho, shape=(4, 1000, 3), scale=1.0):
    """Chains whose draws are standard normal, times a scale, with autocorrelations rho^lag."""
    noise = np.random.default_rng(seed).standard_normal(shape)
    noise[:, 1:] *= math.sqrt(1 - rho**2)
    return (scale * lfilter([1.0], [1.0, -rho], noise, axis=1)).astype(np.float32)


def most_rejections(count, rate):
    """How many rejections of `count` tests there are at most, but for one case in a thousand."""
    return int(stats.binom.ppf(0.999, count, rate))


@pytest.mark.parametrize("rho", [0.0, 0.5, 0.9])
def test_autocorrelation_times_are_those_of_an_autoregression(rho):
    x = autoregression(0, rho, (8, 20_000, 4))
    times = autocorrelation_times(x.astype(float))
    # Of 160 000 draws worth n / τ the sum of autocorrelations has an error of about √(2 τ window / n), here below 6%.
    assert times == pytest.approx((1 + rho) / (1 - rho), rel=0.15)
    # The autocorrelations of squares are those of the draws squared.
    assert autocorrelation_times(np.square(x.astype(float))) == pytest.approx((1 + rho**2) / (1 - rho**2), rel=0.2)


def test_autocorrelation_times_see_what_is_slow_behind_what_is_antithetic():
    shape = (8, 20_000, 2)
    fast, slow = autoregression(0, -0.5, shape), autoregression(1, 0.98, shape)
    # The autocorrelations are .95 (-.5)^lag + .05 (.98)^lag, of which the first two add up to less than zero.
    x = math.sqrt(0.95) * fast.astype(float) + math.sqrt(0.05) * slow
    assert autocorrelation_times(x) == pytest.approx(0.95 * 0.5 / 1.5 + 0.05 * 1.98 / 0.02, rel=0.25)
    assert autocorrelation_times(fast.astype(float)) == pytest.approx(0.5 / 1.5, rel=0.15)


def test_what_does_not_vary_has_no_memory_and_chains_that_disagree_have_a_long_one():
    assert autocorrelation_times(np.ones((2, 50, 1))).tolist() == [1.0]
    assert autocorrelation_times(np.arange(3.0).reshape(3, 1, 1)).tolist() == [1.0]
    apart = autoregression(0, 0.0, (4, 500, 1)) + np.array([0.0, 0.0, 5.0, 5.0])[:, None, None]
    assert autocorrelation_times(apart.astype(float))[0] > 100


def test_a_constant_coordinate_has_no_memory_whatever_rounding_makes_of_its_mean():
    x = autoregression(0, 0.0, (4, 300, 3)).astype(float)
    x[..., 1] = 0.1
    rows = x.reshape(-1, 3)
    assert float(torch.from_numpy(rows[:, 1]).mean()) != 0.1
    assert measure_chains(make_points(rows, -rows), (4, 300)).time < 2 and thin(x).shape == x.shape
    assert dependence_note(make_points(rows, -rows)) is None


@pytest.mark.parametrize("degrees", [9, 19, 100])
@pytest.mark.parametrize("t", [-2.0, 0.3, 1.7, 4.0])
def test_student_variables_become_normal_ones_of_the_same_probability(t, degrees):
    assert upper_tail(normal_of_student(t, degrees)) == pytest.approx(stats.t.sf(t, degrees), rel=0.02)


def test_batches_give_the_standard_error_of_a_mean():
    rho, n = 0.8, 4000
    x = autoregression(1, rho, (300, n, 1))[:, :, 0].astype(float)
    truth = math.sqrt(n * (1 + rho) / (1 - rho))
    errors = batch_stderr(x, 40)
    # Each of 300 errors comes from 100 batches, and is right within 1/√200 and a little more for the correction. The
    # larger of two estimates counts, which makes them too large by some part of that.
    assert 0.98 < np.sqrt(np.square(errors).mean()) / truth < 1.1
    assert np.square(x.reshape(300, -1, 40).sum(2)).sum(1).mean() < np.square(errors).mean()
    z, _ = batch_scores(x, 40)
    assert abs(np.mean(z)) < 4 / math.sqrt(300)
    assert np.std(z) == pytest.approx(1.0, abs=0.15)
    mean, stderr = mean_and_stderr(x[0] + 5, 40)
    assert mean == pytest.approx(5.0, abs=5 * truth / n)
    assert stderr == pytest.approx(truth / n, rel=0.5)


@pytest.mark.parametrize("chains", [Chains(4, 1003, 2.0), Chains(50, 40, 3.0), Chains(1, 500, 1.0), Chains(3, 99, 9.9)])
def test_blocks_are_whole_batches_and_hold_every_draw_once(chains):
    parts = chains.parts(10, torch.Generator().manual_seed(0))
    rows = torch.cat([chains.left, *parts])
    assert sorted(rows.tolist()) == list(range(chains.count * chains.length))
    assert len(parts) >= min(10, chains.count * chains.slots // 2)
    for part in parts:
        steps = part.reshape(-1, chains.batch).diff(dim=1)
        assert (steps == 1).all()
    assert len(chains.places) == len(chains.batches)


@pytest.mark.slow
@pytest.mark.parametrize("rho", [-0.5, 0.8])
def test_right_chains_are_rejected_as_often_as_the_level_says_and_wrong_ones_more_often(rho):
    level, runs = 0.05, 40
    wrong = said = unsaid = 0
    for seed in range(runs):
        x = autoregression(seed, rho, (4, 600, 3))
        said += gof_test(x, -x, chains=True, critics="closed form", seed=seed).rejected
        rows = x.reshape(-1, 3)
        unsaid += gof_test(rows, -rows, critics=("linear",), seed=seed, chains=False).rejected
        wide = 1.25 * x
        wrong += gof_test(wide, -wide, chains=True, critics="closed form", seed=seed).rejected
    assert said <= most_rejections(runs, level)
    assert wrong > 0.8 * runs
    assert unsaid > said


def _linear(*arguments, draws=None, **options):
    """The test in linear time, which needs no bootstrap."""
    return linear_ksd_test(*arguments, **options)


@pytest.mark.slow
@pytest.mark.parametrize("test", [ksd_test, partial(ksdagg_test, factors=(0.25, 1.0)), _linear, fssd_test])
def test_kernel_tests_hold_their_level_for_chains(test):
    runs = 20
    rejected = 0
    for seed in range(runs):
        x = autoregression(seed, 0.7, (4, 300, 2))
        rejected += test(x, -x, chains=True, draws=200, seed=seed).rejected
    assert rejected <= most_rejections(runs, 0.05)
    x = autoregression(0, 0.7, (4, 300, 2)) + 1.0
    assert test(x, -x, chains=True).rejected


def test_independent_kernel_tests_reject_right_chains():
    rejected = [ksd_test(x.reshape(-1, 2), -x.reshape(-1, 2)).rejected for x in map(_slow_chains, range(10))]
    assert sum(rejected) > most_rejections(10, 0.05)


def _slow_chains(seed):
    return autoregression(seed, 0.9, (4, 250, 2))


def test_the_result_says_what_the_chains_are_worth():
    x = autoregression(0, 0.5)
    result = gof_test(x, -x, chains=True)
    assert result.n == 4000
    assert {critic.name for critic in result.critics} == {"mean", "linear", "additive", "kernel", "mlp"}
    assert "4 chains × 1000 draws, effective " in result.notes[0]
    # Three stretches of each chain, where ten blocks were asked for.
    assert "12 prequential blocks" in result.method and len(result.critics[0].block_z) == 11
    assert "stretches of time" in str(result)
    assert result.explain().critic in {critic.name for critic in result.critics}


def test_errors_of_explanations_know_that_draws_depend_on_each_other():
    x = autoregression(0, 0.9, (4, 2000, 1))
    estimate = discrepancy(x, 0.5 - x, chains=True, critics="closed form")
    # There is one coordinate, whose contribution is the discrepancy itself. The error of that has a correction, which
    # sums of fewer than a hundred batches make a third at most.
    assert estimate.explain().stderr == pytest.approx([estimate.stderr], rel=0.35)
    z = gof_test(x, -x, chains=True, critics="mean", repeats=1).explain()
    assert z.stderr == pytest.approx([1.0], rel=0.35)


def test_models_scores_and_draws_give_the_same_result():
    x = autoregression(0, 0.5)
    by_scores = gof_test(x, -x, chains=True, critics=("linear",))
    assert gof_test(Draws(x, -x), critics=("linear",)).pvalue == by_scores.pvalue
    by_model = gof_test(torch.from_numpy(x), Gaussian(torch.zeros(3)), chains=True, critics=("linear",))
    assert by_model.pvalue == pytest.approx(by_scores.pvalue, rel=1e-4)
    independent = gof_test(Draws(x, -x), critics=("linear",), chains=False)
    assert independent.pvalue == gof_test(x.reshape(-1, 3), -x.reshape(-1, 3), critics=("linear",)).pvalue


@pytest.mark.parametrize(
    ("x", "options", "message"),
    [
        (np.zeros((4, 1000, 3)), {}, "x: the shape (4, 1000, 3) looks like 4 chains of 1000 draws: pass chains=True"),
        (
            np.zeros((1000, 3)),
            {"chains": True},
            "expected the shape (chains, draws, ...) with chains=True, got (1000, 3)",
        ),
        (autoregression(0, 0.95, (4, 100, 3)), {"chains": True}, "x: cannot tell: "),
        (autoregression(0, 0.0), {"chains": True, "scheme": "split"}, "scheme: 'split' is for independent points"),
    ],
)
def test_what_cannot_be_tested_as_chains_is_one_line(x, options, message):
    with pytest.raises(InputError) as error:
        gof_test(x, -x, **options)
    assert message in str(error.value)


def test_few_effective_draws_are_no_p_value():
    x = autoregression(0, 0.95, (4, 150, 3))
    with pytest.raises(TooFewDraws, match=r"cannot tell: \d+ effective draws, at least 100 are needed"):
        gof_test(x, -x, chains=True)
    with pytest.raises(TooFewDraws):
        discrepancy(x, -x, chains=True)


def test_dependent_rows_that_nobody_has_called_chains_are_noticed():
    x = autoregression(0, 0.7)
    for rows in (x.reshape(-1, 3), x.swapaxes(0, 1).reshape(-1, 3)):
        notes = gof_test(rows, -rows, critics=("mean",)).notes
        assert any("chains=True" in note for note in notes)
    shuffled = np.random.default_rng(0).permutation(x.reshape(-1, 3))
    assert not any("chains=True" in note for note in gof_test(shuffled, -shuffled, critics=("mean",)).notes)


def test_standard_errors_of_estimates_are_those_of_chains():
    slow, fast = (autoregression(0, rho, (4, 2000, 2)) for rho in (0.8, 0.0))
    errors = [discrepancy(x, -1.3 * x, chains=True, critics=("linear",)).stderr for x in (slow, fast)]
    # Squares of the slow chains are worth τ = (1 + .64) / (1 - .64) times less; the means more so.
    assert 1.3 < errors[0] / errors[1] < 4.0
    ranking = compare({"right": -slow, "wrong": -1.3 * slow}, slow, chains=True, critics=("linear",))
    assert ranking.names[0] == "right"
    assert ranking.estimates["right"].batch > 20
    # Two stretches of each chain, where five folds were asked for.
    assert ranking.folds == 8


def test_rankings_are_as_sure_as_the_errors_of_differences_of_chains_allow():
    """Of two models the nearer one is nearer with the probability that the difference to it has its sign."""
    x = autoregression(2, 0.8)
    ranking = compare({"left": -x - 0.05, "right": 0.06 - x}, x, chains=True, critics="linear")
    difference = ranking.difference(*ranking.names[::-1])
    z = difference.value / difference.stderr / math.sqrt(shared_points(ranking.estimates[ranking.names[0]]))
    assert 0.1 < ranking.best_is_better()[0] < 0.95
    # 20 000 draws know a probability within .0035, and four times that is allowed.
    assert ranking.best_is_better()[0] == pytest.approx(1 - 2 * upper_tail(z), abs=0.014)


def test_one_split_of_chains_holds_out_two_batches_at_least():
    x = autoregression(0, 0.9, (1, 2600, 1))
    estimate = discrepancy(x, -x, chains=True, folds=None, split=(0.79, 0.2, 0.01), critics="linear")
    assert estimate.n_test == 2 * estimate.batch and math.isfinite(estimate.stderr)
    assert len(set(estimate.index.tolist())) == estimate.n_test


def test_thinned_draws_are_nearly_independent():
    x = autoregression(0, 0.9, (4, 5000, 2))
    kept = thin(x)
    assert isinstance(kept, np.ndarray)
    assert autocorrelation_times(kept.astype(float)).max() < 1.3
    independent = autoregression(0, 0.0, (4, 500, 2))
    assert thin(independent).shape == independent.shape
    draws = thin(Draws(x, -x, log_prob=np.zeros(x.shape[:2])), every=100)
    assert draws.x.shape == (4, 50, 2)
    assert draws.log_prob.shape == (4, 50)
    assert (draws.x[:, -1] == x[:, -1]).all()
    with pytest.raises(InputError, match="every"):
        thin(x, every=0)
