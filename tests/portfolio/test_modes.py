import re

import pytest
import torch

from steinscope import InputError, discrepancy, from_score, gof_test
from steinscope.portfolio import ModeLearner
from steinscope.report import report_test

from helpers import context, gaussians, normal, sample, text_of

CENTRES = [[-10.0, 0.0], [10.0, 0.0]]
MODEL = gaussians([0.25, 0.75], CENTRES, [1.0, 1.0])
EVEN = gaussians([0.5, 0.5], CENTRES, [1.0, 1.0])


def test_wrong_weights_of_separated_modes_are_found_and_said():
    result = gof_test(sample(EVEN, 500), MODEL)
    assert result.rejected and result.strongest.name == "modes"
    blind = gof_test(sample(EVEN, 500, 1), from_score(lambda x: -x + torch.tensor([10.0, 0.0]) * x[:, :1].sign()))
    assert not blind.rejected and blind.modes is None
    assert blind.notes[-1] == "weights of separated modes were not looked at: that takes a model with log_prob"
    text = str(result)
    assert "found by: modes" in text and re.search(r"the model gives it 7[45](\.\d)?% ± ", text)
    assert result.to_dict()["modes"]["count"] == result.modes.count.tolist()
    page = text_of(report_test(result))
    assert "How the mass is divided" in page and "The points are divided between them in another way" in page


def test_a_mode_that_the_points_miss_is_found():
    model = gaussians([0.5, 0.5], [[0.0], [6.0]], [1.0, 1.0])
    for seed in range(5):
        assert gof_test(normal(200, 1, seed), model, seed=seed, critics="modes").rejected


def test_starts_of_the_user_are_used():
    model = gaussians([0.5, 0.5], [[0.0, 0.0], [500.0, -300.0]], [1.0, 1.0])
    x = normal(200, 2)
    assert "modes" not in [critic.name for critic in gof_test(x, model).critics]
    assert gof_test(x, model, starts=[[490.0, -310.0]]).rejected
    with pytest.raises(InputError, match=r"starts: they are for the search of modes, .* log_prob"):
        gof_test(x, -x, starts=[[490.0, -310.0]])


@pytest.mark.parametrize("shift", [0.0, 1.5], ids=["null", "beyond doubt"])
def test_where_there_is_one_mode_nothing_changes(shift):
    model = gaussians([1.0], [[shift, 0.0, 0.0]], [1.0])
    x = normal(500, 3)
    score = torch.tensor([shift, 0.0, 0.0]) - x
    with_it, without = gof_test(x, model), gof_test(x, score)
    assert with_it.pvalue == without.pvalue and with_it.statistic == without.statistic
    assert [critic.name for critic in with_it.critics] == [critic.name for critic in without.critics]
    with pytest.raises(InputError, match="critics: the model has one mode as far as can be seen"):
        gof_test(x, model, critics="modes")


def test_it_is_no_field_and_says_so():
    result = gof_test(sample(EVEN, 500), MODEL, critics=("mean", "modes"))
    assert result.explain().critic == "mean"
    with pytest.raises(InputError, match="critic: modes is no vector field: it has no coordinates to explain"):
        result.explain(critic="modes")
    alone = gof_test(sample(EVEN, 500), MODEL, critics="modes")
    with pytest.raises(InputError, match="explain: modes is no vector field"):
        alone.explain()
    assert "How the mass is divided" in report_test(alone)


def test_it_is_for_tests_alone():
    with pytest.raises(InputError, match="critics: 'modes' is no vector field, so it is for tests alone"):
        discrepancy(sample(EVEN, 200), MODEL, critics="modes")
    assert "modes" not in [
        critic.name for critic in discrepancy(sample(EVEN, 200), MODEL, critics="closed form").critics
    ]


def learner(model=MODEL):
    return ModeLearner(context(model, 2))


def taught(learner, x):
    learner.begin(x[:100], x[:100])
    learner.observe(x, x)
    learner.refit()
    return learner


def test_it_keeps_the_contract_of_a_critic():
    """One value a point, the critic stays while a block is taken in, the same bits again, and mean zero."""
    seen, x = sample(EVEN, 300).double(), sample(MODEL, 4000, 1).double()
    critic = taught(learner(), seen)
    values = critic.values(x, x)
    assert values.shape == (4000,) and values.dtype == x.dtype and values.isfinite().all()
    torch.testing.assert_close(critic.values(x[7:8].clone(), x[7:8]), values[7:8])
    critic.observe(x, x)
    assert torch.equal(critic.values(x, x), values)
    assert torch.equal(taught(learner(), seen).values(x, x), values)
    # Where the model is right the mean is zero, within 4 standard errors.
    assert abs(float(values.mean())) < 4 * float(values.std()) / 4000**0.5
    critic.refit()
    assert not torch.equal(critic.values(x, x), values)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [0.02, 0.5])
def test_level_with_a_rare_and_with_an_even_mode(weight):
    """150 exact nulls of 500 points at 5%, within four standard errors; values of rare modes are skewed."""
    model, rejections = gaussians([weight, 1 - weight], CENTRES, [1.0, 2.0]), 0
    for seed in range(150):
        result = gof_test(sample(model, 500, seed), model, critics=("mean", "modes"), seed=seed)
        rejections += any(critic.name == "modes" and critic.pvalue <= 0.05 for critic in result.critics)
    assert rejections / 150 < 0.05 + 4 * (0.0475 / 150) ** 0.5
