import math
from dataclasses import replace

import pytest

from steinscope import FitSettings, gof_test
from steinscope.critics.fitting import fit_points
from steinscope.gof import split
from steinscope.stein import Power

from helpers import normal


def test_split_is_the_papers_scheme():
    x = normal(200, 2)
    result = gof_test(x, 1.5 - x, scheme="split")
    assert "160/20/20" in result.method and result.critics[0].block_n.tolist() == [20]
    assert result.rejected and [critic.name for critic in result.critics] == ["mlp"]
    assert result.pvalue == pytest.approx(0.5 * math.erfc(result.statistic / math.sqrt(2)), rel=1e-9, abs=0)


def test_the_same_seed_gives_the_same_result(short_split):
    x = normal(200, 2)
    ours, same, other = (gof_test(x, 0.5 - x, scheme="split", seed=seed).to_dict() for seed in (0, 0, 1))
    assert ours == same and ours["statistic"] != other["statistic"]


def test_the_critic_is_trained_as_in_the_paper(monkeypatch):
    """1000 steps on all points at 0.001 with weight decay, and of ten critics the most powerful one."""
    seen = {}

    def spy(critic, train, validation, objective, settings, **options):
        seen.update(critic=critic.critic, parts=(len(train), len(validation)), objective=objective, settings=settings)
        return fit_points(critic, train, validation, objective, replace(settings, steps=10, every=5), **options)

    monkeypatch.setattr(split, "fit_points", spy)
    x = normal(200, 2)
    gof_test(x, 0.5 - x, scheme="split")
    assert seen["parts"] == (160, 20) and isinstance(seen["objective"], Power)
    assert [layer.out_features for layer in seen["critic"].layers] == [300, 300, 2] and seen["critic"].dropout == 0.5
    assert seen["settings"] == FitSettings(
        steps=1000,
        batch_size=160,
        lr=1e-3,
        lr_decay=False,
        weight_decay=5e-4,
        every=100,
        select="power",
        patience=None,
    )
