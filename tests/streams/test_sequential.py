"""Tests while points arrive."""

import numpy as np
import pytest
import torch
from torch.distributions import Independent, Laplace, LogNormal

from steinscope import InputError, SequentialTest, from_log_prob, from_score
from steinscope.models import Gaussian
from steinscope.streams.sequential import _next_stop

from helpers import DISTRIBUTIONS, normal, sample, student

MODEL = Gaussian(torch.zeros(3))


def looks(test, x, score=None, size=50):
    """The state after each batch."""
    starts = range(0, len(x), size)
    return [test.update(x[i : i + size], None if score is None else score[i : i + size]) for i in starts]


@pytest.mark.slow
@pytest.mark.parametrize("is_exact", [True, False])
def test_the_level_holds_over_many_looks(is_exact):
    """40 streams of 20 looks: more than 7 rejections at 5% have a probability of 1 in 1000."""
    rejected, kinds = 0, list(DISTRIBUTIONS)
    for seed in range(40):
        model = DISTRIBUTIONS[kinds[seed % 4]](3)
        x = sample(model, 500, 10_000 + seed)
        test = SequentialTest(from_log_prob(model.log_prob)) if is_exact else SequentialTest()
        score = None if is_exact else from_log_prob(model.log_prob).score(x)
        rejected += looks(test, x, score, 25)[-1].rejected
    assert rejected <= 7


def test_a_wrong_model_is_rejected_by_the_critic_that_sees_it():
    x = sample(Independent(Laplace(torch.zeros(3), torch.full((3,), 0.5**0.5)), 1), 1000)
    for test, score in ((SequentialTest(MODEL), None), (SequentialTest(), -x)):
        state = looks(test, x, score)[-1]
        assert state.rejected and state.is_exact == (score is None)
        assert max(state.critics, key=state.critics.__getitem__) == "additive"


def test_a_drift_is_found_soon():
    """The mean moves by .5 of a standard deviation in one coordinate after 2500 points that fit."""
    x = normal(3500, 3)
    x[2500:, 0] += 0.5
    states = looks(SequentialTest(MODEL), x, size=100)
    assert not states[24].rejected
    # A test of the mean that knows where to look and when the drift began needs z = 3 or so: (3 / .5)² = 36 points.
    assert states[-1].rejected and 2500 < states[-1].rejected_at < 2500 + 12 * 36


def test_p_never_rises_and_a_rejection_stays():
    x = torch.cat([normal(400, 3) + 0.5, normal(400, 3, seed=1)])
    states = looks(SequentialTest(MODEL), x)
    p = [state.p for state in states]
    assert p == sorted(p, reverse=True) and p[0] == 1.0
    is_rejected = [state.rejected for state in states]
    assert is_rejected == sorted(is_rejected) and is_rejected[-1]
    assert all(state.rejected == (state.p <= state.alpha) for state in states)
    assert [state.n for state in states] == list(range(50, 801, 50))


def test_where_batches_end_does_not_matter():
    x = 0.1 + normal(300, 3).double()
    whole = SequentialTest(MODEL).update(x)
    for size in (3, 37, 150):
        state = looks(SequentialTest(MODEL), x, size=size)[-1]
        assert state.evalue == pytest.approx(whole.evalue, rel=1e-6) and state.rejected_at == whole.rejected_at


@pytest.mark.parametrize("is_exact", [True, False])
@pytest.mark.parametrize("stop", [20, 330, 2330])
def test_a_saved_test_goes_on_bit_for_bit(tmp_path, is_exact, stop):
    """Before the first critics, with old ones alone, and with young ones beside them, in the middle of blocks."""
    x = 0.02 + normal(2600, 3)
    model, score = (MODEL, None) if is_exact else (None, -x)
    first, other = SequentialTest(model, 0.01, seed=3), SequentialTest(model, 0.01, seed=3)

    def go_on(test, begin, end):
        for start in range(begin, end, 165):
            rows = slice(start, min(start + 165, end))
            test.update(x[rows], None if score is None else score[rows])
        return test.state

    go_on(first, 0, stop)
    first.notes = {"rows": {"file": stop}}
    first.save(tmp_path)
    go_on(other, 0, stop)
    assert other.state == first.state
    loaded = SequentialTest.load(tmp_path, model)
    assert loaded.notes == first.notes and loaded.state == first.state
    assert go_on(loaded, stop, 2600) == go_on(first, stop, 2600) == go_on(other, stop, 2600)


def test_nothing_is_pickled(tmp_path):
    test = SequentialTest(MODEL)
    test.update(normal(100, 3))
    test.save(tmp_path)
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".safetensors"]


def test_a_model_with_a_score_alone_is_tested_exactly():
    x = normal(600, 3) * 1.3
    known, by_score = SequentialTest(MODEL), SequentialTest(from_score(lambda x: -x))
    states = [looks(test, x)[-1] for test in (known, by_score)]
    assert states[1].is_exact and states[1].rejected_at == states[0].rejected_at
    assert np.log(states[1].evalue) == pytest.approx(np.log(states[0].evalue), abs=0.01)


def test_models_on_a_bounded_set():
    model = Independent(LogNormal(torch.zeros(2), torch.ones(2)), 1)
    right, wrong = sample(model, 500), sample(Independent(LogNormal(torch.zeros(2), 1.4 * torch.ones(2)), 1), 500)
    assert not looks(SequentialTest(model), right)[-1].rejected
    assert looks(SequentialTest(model), wrong)[-1].rejected


def test_points_may_be_images_and_zeros():
    test = SequentialTest(from_log_prob(lambda x: -0.5 * x.square().sum((1, 2))))
    assert test.update(torch.zeros(1, 2, 2)).n == 1
    assert test.update(0.8 + normal(300, 4).reshape(-1, 2, 2)).rejected


def test_critics_are_made_anew_at_numbers_that_are_known_however_long_the_stream_is():
    stops, n = [], 0
    while n < 4000:
        n = _next_stop(n)
        stops.append(n)
    assert stops[:4] == [50, 75, 100, 125] and {2000, 4000} <= set(stops)
    assert all(_next_stop(number) == next(stop for stop in stops if stop > number) for number in range(4000))
    # To go through all numbers before it would take years.
    assert _next_stop(10**15) == 10**15 + 100


def test_points_far_from_the_model_are_rejected():
    """Where log-densities in float32 are 10⁵ apart."""
    test = SequentialTest(Gaussian(torch.zeros(2)))
    assert test.update(1e6 * normal(200, 2)).rejected and str(test) == str(test.state)


def test_a_critic_by_name():
    state = SequentialTest(MODEL, critics=["mean", "linear"]).state
    assert list(state.critics) == ["mean", "linear"] and state.p == 1.0
    assert str(state) == "0 points: p = 1, e = 1: no misfit was found at level 0.05"


@pytest.mark.parametrize(
    "call, problem",
    [
        (lambda: SequentialTest(MODEL, 2), "alpha: expected a number between 0 and 1, got 2"),
        (lambda: SequentialTest(-normal(10)), "model: expected a model or None: scores come with each batch"),
        (lambda: SequentialTest(lambda x: x), "model: got the function or callable"),
        (lambda: SequentialTest(MODEL, critics="mlp"), "critics: expected names of critics in closed form, got 'mlp'"),
        (lambda: SequentialTest(MODEL).update(normal(5, 3), normal(5, 3)), "score: expected none, because this test"),
        (lambda: SequentialTest().update(normal(5, 3)), "score: expected scores with each batch"),
        (lambda: SequentialTest(MODEL).update([[1.0, 2.0, float("nan")]]), "x: row 0 holds nan"),
        (lambda: SequentialTest.load("nowhere"), "directory: there is no saved test in nowhere"),
    ],
)
def test_what_cannot_be_used_is_one_line(call, problem):
    with pytest.raises(InputError) as raised:
        call()
    assert str(raised.value).startswith(problem) and "\n" not in str(raised.value)


def test_points_of_another_shape_are_refused():
    test = SequentialTest(from_log_prob(lambda x: -0.5 * x.square().sum(1)))
    test.update(normal(5, 3))
    with pytest.raises(InputError, match=r"x: expected points of the shape of those before, \(3,\), got \(2,\)"):
        test.update(normal(5, 2))


class Frame:
    """A data frame with two columns."""

    def __init__(self, *columns):
        self.columns = columns

    def to_numpy(self):
        return normal(60, 2).numpy()


def test_columns_keep_their_order(tmp_path):
    model = Gaussian(torch.zeros(2))
    test = SequentialTest(model)
    test.update(normal(60, 2))
    test.update(Frame("a", "b"))
    test.save(tmp_path)
    for again in (test, SequentialTest.load(tmp_path, model)):
        with pytest.raises(InputError, match="x: expected the columns of the points before, a, b, got b, a"):
            again.update(Frame("b", "a"))
        assert again.update(Frame("a", "b")).n == 180


def test_a_saved_test_needs_the_same_kind_of_model_and_is_not_overwritten_by_a_younger_one(tmp_path):
    test = SequentialTest(student(3))
    test.update(sample(student(3), 60))
    test.save(tmp_path)
    with pytest.raises(InputError, match="model: the test in .* had a model; load it with the same"):
        SequentialTest.load(tmp_path)
    with pytest.raises(InputError, match="directory: .* holds a test after 60 points, this one has 0"):
        SequentialTest(MODEL).save(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="directory: .* is a file, expected a directory"):
        test.save(tmp_path / "file")
