import numpy as np
import pytest
import torch

from steinscope import gof_test
from steinscope.scoring import make_points
from steinscope.ties import tie_notes

from helpers import normal


def notes(x, **options):
    return tie_notes(make_points(x, torch.ones_like(x), **options))


def test_points_of_a_density_have_none():
    assert notes(normal(5000, 3)) == notes(normal(5000, 1)) == notes(normal(50, 200)) == []
    # Rounded to a tenth of the spread, the most frequent value is that of 4% of the points.
    assert notes(normal(2000, 1).mul(10).round() / 10) == []


def test_rows_that_are_copies_are_counted():
    x = normal(400, 2)
    assert notes(torch.cat([x, x[:100]])) == [
        "20% of the rows are copies of others; the test takes all for independent"
    ]
    assert notes(torch.cat([x, x[:15]])) == []


def test_coordinates_with_a_frequent_value_are_named():
    x = normal(1000, 6)
    x[:300, 1] = 0.5
    x[:, 2] = x[:, 2].round()
    assert [note.partition(", which")[0] for note in notes(x, names=list("abcdef"))] == [
        f"one value comes again and again in b (30%), c ({100 * (x[:, 2] == 0).double().mean():.0f}%)"
    ]
    # A constant coordinate is a finding of its own.
    x[:, 1:] = 2.0
    assert notes(x) == []


def test_they_are_said_in_the_coordinates_of_the_user():
    x = normal(1000, 2).exp()
    x[:200, 1] = 3.0
    assert "in x[1] (20%)," in notes(x, support="positive")[0]


@pytest.mark.parametrize("n", [60, 300])
def test_a_test_says_so_unless_points_are_chains(n):
    x = normal(n, 2).round()
    assert any("again and again" in note for note in gof_test(x, -x, critics="kernel").notes)
    draws = np.repeat(np.random.default_rng(0).normal(size=(4, 500, 2)), 2, axis=1)
    assert not any("copies" in note for note in gof_test(draws, -draws, chains=True, critics="closed form").notes)
    assert any("copies" in note for note in gof_test(draws.reshape(-1, 2), -draws.reshape(-1, 2), critics="mean").notes)
