"""Wealth that is bet against a model."""

import numpy as np
import pytest

from steinscope.streams.purse import Purse


def test_wealth_under_fair_bets_is_one_on_average_and_rarely_large():
    """2000 purses, 60 fair bets each: the probability to reach 10 is at most a tenth."""
    random, final, reached = np.random.default_rng(0), [], 0
    for _ in range(2000):
        purse = Purse(2, alpha=0.1)
        up = random.random((60, 2)) < 0.5
        purse.bet(np.where(up, np.log(1.4), np.log(0.6)))
        final.append(np.exp(purse.log_wealth))
        reached += purse.reached is not None
        assert (purse.pvalue <= 0.1) == (purse.reached is not None)
    # Four standard errors.
    assert abs(np.mean(final) - 1) < 4 * np.std(final) / 2000**0.5
    assert reached / 2000 < 0.1 + 4 * (0.1 * 0.9 / 2000) ** 0.5


def test_a_bettor_who_loses_everything_leaves_the_cash():
    purse = Purse(1, alpha=0.05)
    purse.bet(np.full((1, 1), -np.inf))
    assert np.exp(purse.log_wealth) == pytest.approx(0.5)
    before = purse.log_wealth
    purse.bet(np.full((200, 1), np.log(1.5)))
    assert purse.reached is not None and purse.log_wealth > before + 50


def test_the_best_bettor_is_followed():
    """The wealth is at least half of a bettor's share, less what is moved between them."""
    purse = Purse(4, alpha=0.05)
    gains = np.tile(np.log([1.1, 0.9, 0.95, 1.0]), (100, 1))
    purse.bet(gains)
    assert purse.log_wealth > 100 * np.log(1.1) - np.log(8) - 100 * 0.01 - 0.1
    assert purse.shares.argmax() == 0 and purse.shares.sum() == pytest.approx(1.0)


def test_it_goes_on_where_it_was():
    gains = np.random.default_rng(0).normal(0.01, 0.1, (100, 3))
    whole, half, rest = (Purse(3, alpha=0.05) for _ in range(3))
    whole.bet(gains)
    half.bet(gains[:40])
    rest.restore(half.state())
    rest.bet(gains[40:])
    assert rest.state() == whole.state()
