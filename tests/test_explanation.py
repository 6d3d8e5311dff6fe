import json
import pickle

import numpy as np
import pytest
import torch

from steinscope import FitSettings, InputError, discrepancy, gof_test
from steinscope.critics import MLP, Linear
from steinscope.kernels import ksd_test
from steinscope.registries import CRITICS
from steinscope.support.randomness import next_seed

from helpers import generator


def correlated(n=600, dim=5, seed=0):
    """Standard normal, but for a correlation of coordinates 1 and 2."""
    x = torch.randn(n, dim, generator=generator(seed))
    x[:, 1] = 0.6 * x[:, 1] + 0.8 * x[:, 2]
    return x


@pytest.mark.parametrize("name", [name for name, entry in CRITICS.items() if entry.needs is None])
def test_contributions_add_up_to_the_z_score(name):
    x = correlated()
    result = gof_test(x, 0.1 - x, critics=name, repeats=1)
    explanation = result.explain()
    assert explanation.critic == name and explanation.quantity == "z-score"
    assert explanation.total == pytest.approx(result.critics[0].z, rel=1e-4, abs=1e-4)
    assert explanation.coordinates.sum() == pytest.approx(explanation.total, rel=1e-6)
    assert explanation.points.sum() == pytest.approx(explanation.total, rel=1e-6)
    assert len(explanation.points) == 540 and len(set(explanation.index.tolist())) == 540
    best = explanation.points.argmax()
    assert explanation.worst[0].index == explanation.index[best]
    for point in explanation.worst:
        assert point.coordinates.sum() == pytest.approx(point.contribution, rel=1e-6)
        np.testing.assert_array_equal(point.x, x[point.index].numpy())


def test_the_guilty_coordinates_are_found():
    x = correlated(1000, 10)
    explanation = gof_test(x, -x).explain()
    assert set(explanation.order[:2].tolist()) == {1, 2}
    low, high = explanation.intervals()[explanation.order[0]]
    assert 0 < low < explanation.coordinates.max() < high
    others = explanation.coordinates[[i for i in range(10) if i not in (1, 2)]]
    assert np.abs(others).max() < 0.1 * explanation.total


def test_standard_errors_are_those_of_other_samples():
    """Contributions of 60 data sets spread as their standard errors say, given about the same critic."""
    found = [gof_test(x, 0.3 - x, critics="mean").explain() for s in range(60) for x in [correlated(400, 3, seed=s)]]
    spread = np.std([one.coordinates for one in found], axis=0, ddof=1)
    claimed = np.mean([one.stderr for one in found], axis=0)
    # The critic is estimated, too, which the standard errors leave out: they may be too small, but not by much.
    assert np.all(claimed < 1.3 * spread) and np.all(spread < 2.0 * claimed)


def test_the_split_scheme_is_explained_by_its_held_out_points(short_split):
    x = correlated(300, 3)
    result = gof_test(x, 0.5 - x, scheme="split")
    explanation = result.explain(worst=3)
    assert explanation.total == pytest.approx(result.statistic, rel=1e-4)
    assert len(explanation.points) == 30 and len(explanation.worst) == 3


@pytest.mark.parametrize("folds", [None, 3])
def test_a_discrepancy_is_explained_by_its_held_out_points(folds):
    x = correlated(300, 4).view(300, 2, 2)
    estimate = discrepancy(x, 0.5 - x, folds=folds, settings=FitSettings(steps=50))
    explanation = estimate.explain()
    assert explanation.total == pytest.approx(estimate.value, rel=1e-4)
    assert explanation.coordinates.sum() == pytest.approx(estimate.value, rel=1e-4)
    np.testing.assert_array_equal(explanation.index, estimate.index)
    np.testing.assert_allclose(explanation.points * len(estimate.values), estimate.values, rtol=1e-3, atol=1e-3)
    assert explanation.critic_at(np.zeros((2, 4))).shape == (2, 4)


def test_critics_of_your_own_and_of_choice():
    x = correlated(300, 3)
    result = gof_test(x, 0.5 - x, critics=[Linear(3), MLP(3, width=8)])
    for critic in result.critics:
        assert result.explain(critic=critic.name).total == pytest.approx(critic.z, rel=1e-4)
    with pytest.raises(InputError, match="critic: expected one of Linear, MLP, which were run, got 'deep'"):
        result.explain(critic="deep")


def test_an_explanation_is_the_mean_over_the_orders():
    x = correlated(200, 3)
    merged = gof_test(x, 0.2 - x, critics="linear", repeats=3).explain()
    seeds = [next_seed(0, number) for number in range(3)]
    single = [gof_test(x, 0.2 - x, critics="linear", seed=seed, repeats=1).explain() for seed in seeds]
    np.testing.assert_allclose(merged.coordinates, np.mean([one.coordinates for one in single], 0), rtol=1e-4)
    contributions = np.zeros(200)
    for one in single:
        contributions[one.index] += one.points / 3
    np.testing.assert_allclose(merged.points, contributions[merged.index], rtol=1e-3, atol=1e-5)
    assert merged.worst[0].index == contributions.argmax()


def test_memmaps_are_explained_like_arrays(tmp_path):
    x = correlated(300, 3)
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "s.npy", 0.2 - x.numpy())
    on_disk = [np.load(tmp_path / name, mmap_mode="r") for name in ("x.npy", "s.npy")]
    ours = gof_test(x, 0.2 - x).explain()
    np.testing.assert_allclose(gof_test(*on_disk).explain().coordinates, ours.coordinates, rtol=1e-4, atol=1e-5)


def test_the_explanation_prints_saves_and_draws(tmp_path):
    x = correlated()
    explanation = gof_test(x, -x).explain(worst=2)
    text = str(explanation)
    assert "x[1] " in text and f"row {explanation.worst[0].index} " in text
    saved = json.loads(json.dumps(explanation.to_dict()))
    assert len(saved["worst"]) == 2 and sum(saved["coordinates"]) == pytest.approx(saved["total"])
    explanation.plot().savefig(tmp_path / "explanation.png")
    assert (tmp_path / "explanation.png").stat().st_size > 5000
    with pytest.raises(InputError, match="level: expected a number between 0 and 1, got 2"):
        explanation.intervals(2)


def test_a_result_that_was_saved_has_no_points_left():
    x = correlated(300, 5)
    result = gof_test(x, -x, critics="linear")
    saved = pickle.dumps(result)
    with pytest.raises(InputError, match="explain: a result that was saved and loaded has no points left"):
        pickle.loads(saved).explain()


def test_what_cannot_be_explained_says_so():
    x = correlated(200, 3)
    with pytest.raises(InputError, match="explain: KSD test.* has no critic that could be explained; gof_test has"):
        ksd_test(x, -x).explain()
    result = gof_test(x, -x)
    with pytest.raises(InputError, match="worst: expected a whole number from 0 on, got -1"):
        result.explain(worst=-1)
    x += 1.0
    with pytest.raises(InputError, match="explain: x or the model has changed since the test; test again"):
        result.explain()
