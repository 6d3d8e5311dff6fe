import math

import pytest

from steinscope import gof_test

from helpers import normal


def test_split_is_the_papers_scheme():
    x = normal(200, 2)
    result = gof_test(x, 1.5 - x, scheme="split")
    assert "160/20/20" in result.method and result.critics[0].block_n.tolist() == [20]
    assert result.rejected and [critic.name for critic in result.critics] == ["mlp"]
    assert result.pvalue == pytest.approx(0.5 * math.erfc(result.statistic / math.sqrt(2)))


def test_the_same_seed_gives_the_same_result(short_split):
    x = normal(200, 2)
    ours, same, other = (gof_test(x, 0.5 - x, scheme="split", seed=seed).to_dict() for seed in (0, 0, 1))
    assert ours == same and ours["statistic"] != other["statistic"]
