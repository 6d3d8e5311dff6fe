import math
import re

import numpy as np
import pytest
import torch

from steinscope import gof_test
from steinscope.critics import MLP, Linear
from steinscope.gof.driver import MANY_POINTS
from steinscope.models import RBM
from steinscope.registries import CRITICS

from helpers import generator, normal

CHEAP = [name for name, entry in CRITICS.items() if entry.is_closed_form]


def test_the_parts_add_up():
    x = normal()
    result = gof_test(x, 0.1 - x, repeats=1)
    assert [critic.name for critic in result.critics] == ["mean", "linear", "additive", "kernel", "mlp"]
    for critic in result.critics:
        assert critic.block_n.tolist() == [50] * 9
        assert float(np.square(critic.block_weight).sum()) == pytest.approx(1.0)
        assert float(critic.block_weight @ critic.block_z) == pytest.approx(critic.z)
        assert critic.order_z.tolist() == [critic.z]
        assert critic.pvalue == pytest.approx(0.5 * math.erfc(critic.z / math.sqrt(2)), rel=1e-9, abs=0)
    z = np.array([critic.z for critic in result.critics])
    assert result.statistic == pytest.approx(0.5 * math.log(np.exp(2 * z).sum()))
    assert result.rejected and result.rejected == (result.pvalue <= 0.05)


def test_later_blocks_weigh_more():
    """Squared weights go with the number of points before a block, where the Stein values keep their scale."""
    weights = [
        gof_test(x, -x, critics="mean", repeats=1).critics[0].block_weight for s in range(40) for x in [normal(seed=s)]
    ]
    share = np.square(weights).mean(0)
    expected = np.arange(1, 10) / 45
    # 50 values tell their scale within 1 / √100, and so does the block before; 40 repetitions average that.
    np.testing.assert_allclose(share, expected, rtol=0.25)


@pytest.mark.parametrize("critics", [*CHEAP, pytest.param(CHEAP, marks=pytest.mark.slow)], ids=str)
def test_level_on_exact_nulls(critics):
    """400 exact nulls at 5%: between .05 ± 4 standard errors, less what skewness may cost, reject."""
    rejections = 0
    for seed in range(400):
        x = normal(300, 8, seed=seed)
        rejections += gof_test(x, -x, critics=critics, seed=seed, repeats=4 if critics == CHEAP else 1).rejected
    assert 0.05 - 4 * (0.0475 / 400) ** 0.5 < rejections / 400 < 0.05 + 4 * (0.0475 / 400) ** 0.5


@pytest.mark.slow
def test_the_default_keeps_its_level():
    pvalues = np.array([gof_test(x, -x, seed=s).pvalue for s in range(60) for x in [normal(500, 4, seed=s)]])
    assert (pvalues <= 0.05).mean() < 0.05 + 4 * (0.0475 / 60) ** 0.5
    assert 0.35 < np.median(pvalues) < 0.7


def laplace(n, dim, seed):
    uniform = torch.rand(n, dim, generator=generator(seed)) - 0.5
    return -torch.sign(uniform) * torch.log1p(-2 * uniform.abs()) / 2**0.5


def bimodal(n, dim, seed):
    x = normal(n, dim, seed)
    signs = torch.randint(2, (n,), generator=generator(seed + 1)) * 2 - 1
    x[:, 7] = 0.8 * signs + 0.6 * x[:, 7]
    return x


def cosine_pair(n, dim, seed):
    x = normal(n, dim, seed)
    x[:, 1] = (x[:, 1] + torch.cos(2 * x[:, 0]) - math.exp(-2)) / (1.5 - math.exp(-4) + 0.5 * math.exp(-8)) ** 0.5
    return x


@pytest.mark.parametrize(
    "draw, dim, coordinates",
    [(laplace, 20, None), (bimodal, 50, (7,)), (cosine_pair, 10, (1, 0))],
)
def test_what_kernels_miss_is_found_and_named(draw, dim, coordinates):
    for seed in range(5):
        x = draw(1000, dim, seed)
        result = gof_test(x, -x, seed=seed)
        assert result.rejected
        assert result.strongest is not None and result.strongest.name == "additive"
        assert "found by: additive" in str(result)
        if coordinates:
            assert coordinates in {one.coordinates for one in result.findings}


def test_findings_say_the_direction():
    x = normal(1000, 3)
    x[:, 1] *= 1.5
    x[:, 2] = 0.6 * x[:, 0] + 0.8 * x[:, 2]
    text = "\n".join(str(finding) for finding in gof_test(x, -x, critics="additive").findings)
    assert re.search(r"x\[1\] spreads \d+% more than the model says", text)
    assert re.search(r"x\[0\] and x\[2\] have correlation 0.\d+, 0.\d+ above what the model says", text)


def test_the_models_own_features_are_used():
    rbm = RBM.random(10, 6, seed=1)
    x = rbm.sample(600, seed=2)
    result = gof_test(x, rbm.perturbed(0.1, seed=3), critics="auto")
    assert [critic.name for critic in result.critics] == list(CRITICS) and len(result.notes) == 1
    alone = gof_test(x, rbm.perturbed(0.1, seed=3), critics="model")
    assert [critic.name for critic in alone.critics] == ["model"] and alone.rejected
    assert not gof_test(x, rbm, critics="model").rejected


def test_critics_of_your_own():
    x = normal(300, 3)
    result = gof_test(x, 0.5 - x, critics=[Linear(3), MLP(3, width=8)])
    assert [critic.name for critic in result.critics] == ["Linear", "MLP"] and result.rejected


def test_beyond_doubt_the_mlp_is_not_run():
    x = normal(500, 5)
    result = gof_test(x, 1.0 - x)
    assert [critic.name for critic in result.critics] == list(CHEAP) and "beyond doubt" in result.notes[1]
    # At least what it would be with the network, whatever that finds.
    assert 0 < gof_test(x, 1.0 - x, critics="closed form").pvalue < result.pvalue < 1e-6


def test_many_points_go_through_one_order_by_default():
    x = torch.randn(MANY_POINTS + 1, 1, generator=torch.Generator().manual_seed(0))
    assert len(gof_test(x, -x, critics="mean").critics[0].order_z) == 1
    assert len(gof_test(x[1:], -x[1:], critics="mean").critics[0].order_z) == 4
    assert len(gof_test(x, -x, critics="mean", repeats=2).critics[0].order_z) == 2
