import json
import math

import numpy as np
import pytest
import torch

from steinscope import InputError, gof_test
from steinscope.gof.prequential import PAIR_WEIGHTS
from steinscope.models import RBM, Gaussian
from steinscope.registries import CRITICS
from steinscope.support.randomness import next_seed

from helpers import normal

CHEAP = [name for name, entry in CRITICS.items() if entry.is_closed_form]


def test_a_network_joins_when_there_are_enough_points():
    names = {n: [critic.name for critic in gof_test(x, -x).critics] for n in (499, 500) for x in [normal(n)]}
    assert names == {499: list(CHEAP), 500: [*CHEAP, "mlp"]}


def test_orders_are_merged_by_the_cauchy_combination():
    """The orders have weight 1 together, and the test of `mean` over all pairs its own; `additive` has no such test."""
    x, critics = normal(200, 3), ("mean", "additive")
    seeds = [next_seed(5, number) for number in range(3)]
    single = [gof_test(x, 0.2 - x, critics=critics, seed=seed, repeats=1) for seed in seeds]
    merged = gof_test(x, 0.2 - x, critics=critics, seed=5, repeats=3)
    pvalues = np.array([result.pvalue for result in single])
    (pair,), weight = merged.pairs, PAIR_WEIGHTS["mean"]
    cauchy = np.tan((0.5 - pvalues) * math.pi).mean() + weight * math.tan((0.5 - pair.pvalue) * math.pi)
    assert pair.name == "mean"
    assert merged.pvalue == pytest.approx(0.5 - math.atan(cauchy / (1 + weight)) / math.pi)
    for i, critic in enumerate(merged.critics):
        assert critic.order_z.tolist() == pytest.approx([result.critics[i].z for result in single])
        assert critic.z == pytest.approx(critic.order_z.mean())
        np.testing.assert_allclose(critic.block_z, np.mean([result.critics[i].block_z for result in single], 0))
    assert f"had p-values from {pvalues.min():.2g} to {pvalues.max():.2g} in 3 random orders" in str(merged)


def test_trained_critics_go_through_one_order():
    x = normal(500, 2)
    result = gof_test(x, -x, repeats=2)
    assert [len(critic.order_z) for critic in result.critics] == [2] * len(CHEAP) + [1]
    assert [len(gof_test(x, -x, critics="mlp", repeats=r).critics[0].order_z) for r in (None, 2)] == [1, 2]


def test_memmaps_images_and_seeds(tmp_path):
    x = normal(300, 6)
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "s.npy", 0.1 - x.numpy())
    on_disk = [np.load(tmp_path / name, mmap_mode="r") for name in ("x.npy", "s.npy")]
    ours = gof_test(x, 0.1 - x, critics=CHEAP)
    assert gof_test(*on_disk, critics=CHEAP).pvalue == ours.pvalue
    assert gof_test(x.view(300, 2, 3), (0.1 - x).view(300, 2, 3), critics=CHEAP).pvalue == ours.pvalue
    assert gof_test(x, 0.1 - x, critics=CHEAP, seed=1).pvalue != ours.pvalue
    state = torch.get_rng_state()
    gof_test(x, 0.1 - x)
    assert torch.equal(torch.get_rng_state(), state)


def test_points_of_numpy_and_a_model_in_single_precision():
    """NumPy's numbers are double, parameters of models are single by default. All critics must cope with both."""
    rbm = RBM.random(4, 3, seed=1)
    x = rbm.sample(600, seed=2)
    double = gof_test(x.double().numpy(), rbm)
    # This RBM has one mode.
    assert [critic.name for critic in double.critics] == [name for name in CRITICS if name != "modes"]
    assert double.statistic == pytest.approx(gof_test(x, rbm).statistic, abs=0.05)


def test_the_result_prints_saves_and_draws(tmp_path):
    x = normal(seed=2)
    result = gof_test(x, -x)
    text = str(result)
    assert "500 points, 5 coordinates" in text and "no misfit was found at level 0.05" in text
    assert "in 4 random orders of the points" in text and "all pairs: mean p = " in text
    assert json.loads(json.dumps(result.to_dict()))["rejected"] is False
    result.plot().savefig(tmp_path / "test.png")
    assert (tmp_path / "test.png").stat().st_size > 5000


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n": 19}, "x: 19 rows are too few for a test, which needs 20"),
        ({"n": 99, "scheme": "split"}, "x: 99 rows are too few to be split, which needs 100"),
        (
            {"n": 99, "critics": "additive"},
            "critics: of 99 points, which are few, only 'mean', 'linear', 'kernel' can test",
        ),
        ({"alpha": 1.0}, "alpha: expected a number between 0 and 1, got 1.0"),
        ({"blocks": 1}, "blocks: expected a whole number from 2 to 20, got 1"),
        ({"blocks": 21}, "blocks: expected a whole number from 2 to 20"),
        ({"repeats": 0}, "repeats: expected a whole number from 1 to 1000, got 0"),
        ({"critics": "deep"}, "critics: expected 'auto', 'closed form' or some of 'mean', 'linear'.*, got 'deep'"),
        ({"critics": ()}, "critics: expected at least one, got none"),
        ({"critics": "model"}, r"critics: 'model' needs a model with features\(x\), and this one has none"),
    ],
)
def test_bad_input(options, message):
    x = normal(options.pop("n", 200), 2)
    with pytest.raises(InputError, match=message):
        gof_test(x, Gaussian(torch.zeros(2)), **options)


@pytest.mark.slow
def test_orders_may_be_gone_through_at_once():
    x = 0.1 + normal(300, 3)
    one, two = (gof_test(x, -x, critics="closed form", jobs=jobs) for jobs in (1, 2))
    assert one.pvalue == two.pvalue and one.findings == two.findings
    for a, b in zip(one.critics, two.critics, strict=True):
        assert (a.order_z == b.order_z).all()
    with pytest.raises(InputError, match="jobs: expected a whole number from 1 on, got 0"):
        gof_test(x, -x, jobs=0)
