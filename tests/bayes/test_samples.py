import inspect
import json
import math
import re

import numpy as np
import pytest
import torch

from steinscope import InputError
from steinscope.bayes import compare_samples, from_arrays
from steinscope.models import Gaussian

MODEL = Gaussian(torch.zeros(2).double())


def points(seed, n=1000):
    return np.random.default_rng(seed).normal(size=(n, 2))


def chains(seed, rho=0.8):
    noise = np.random.default_rng(seed).normal(size=(4, 1000, 2))
    x = noise.copy()
    for t in range(1, 1000):
        x[:, t] = rho * x[:, t - 1] + math.sqrt(1 - rho**2) * noise[:, t]
    return x


def ranked(samples, model=MODEL, **options):
    return compare_samples(samples, model, critics="closed form", **options)


def test_samples_are_ranked_by_their_distance():
    narrow, shifted = 0.7 * points(1), points(2) + [0.0, 0.3]
    draws = from_arrays(chains(3), -chains(3), names=["mu", "tau"])
    ranking = ranked({"narrow": narrow, "right": draws, "shifted": shifted})
    assert ranking.names == ("right", "shifted", "narrow")
    assert ranking.best_is_better()[1] > 0.99 and ranking.difference("narrow", "right").value > 0
    text = str(ranking)
    # Both coordinates spread 30% less; the surer of the two findings comes first.
    assert re.search("spreads (29|30)% less than the posterior says", text) and "sd above the posterior" in text
    found = json.loads(json.dumps(ranking.to_dict(), allow_nan=False))
    assert [row["sample"] for row in found["samples"]] == list(ranking.names)


def test_distances_are_in_the_same_coordinates():
    """The Fisher divergence of N(0, σ²) from N(0, 1) is d (σ - 1/σ)² in the units of the model."""
    wide, narrow = 1.5 * points(1, 4000), 0.5 * points(2, 4000)
    ranking = ranked({"wide": wide, "narrow": narrow})
    spread = math.sqrt((1.5**2 + 0.5**2) / 2)
    for name, scale in (("wide", 1.5), ("narrow", 0.5)):
        one, truth = ranking.estimates[name], 2 * (scale - 1 / scale) ** 2 * spread**2
        assert one.fisher_bound == pytest.approx(truth, abs=5 * one.stderr + 0.02 * truth)


def test_errors_know_that_draws_depend_on_each_other_and_that_samples_differ():
    """The same draws in another order are independent points to `compare_samples`."""
    x = chains(5, rho=0.9) + [0.5, 0.0]
    mixed = np.random.default_rng(0).permutation(x.reshape(-1, 2))
    ranking = ranked({"chains": x, "mixed": mixed})
    slow, quick = (ranking.estimates[name].stderr for name in ("chains", "mixed"))
    assert slow > 2 * quick
    both = ranking.difference("chains", "mixed").stderr
    assert both == pytest.approx(math.sqrt(ranking.variance("chains") + ranking.variance("mixed")))
    # The differences of two sets of draws of one sampler are within their errors.
    z = [
        abs(d.value) / d.stderr
        for seed in range(8)
        for d in [ranked({"a": chains(seed) + 0.3, "b": chains(seed + 100) + 0.3}).difference("a", "b")]
    ]
    assert max(z) < 4 and np.mean(np.square(z)) < 3


def test_errors_know_in_how_many_parts_chains_were_held_out():
    """Five folds of four chains are eight: two stretches of each. So a seventh of what is learned from is held out."""
    ranking = ranked({"chains": chains(1), "points": points(2)})
    one, other = ranking.estimates["chains"], ranking.estimates["points"]
    assert one.parts == 8 and other.parts == 5
    assert ranking.variance("chains") == pytest.approx(one.stderr**2 * (1 + 1 / 7), rel=0.01)
    assert ranking.variance("points") == pytest.approx(other.stderr**2 * (1 + 1 / 4))


def test_what_cannot_be_ranked():
    short = from_arrays(points(0, 30), -points(0, 30))
    ranking = ranked({"right": points(1), "short": short})
    assert ranking.names == ("right",) and "failed: " in str(ranking) and "short" in ranking.failures
    for samples, model, problem in (
        ({}, MODEL, "samples: expected at least one sample, got none"),
        ({1: points(0)}, MODEL, "samples: expected names that are strings, got 1"),
        ({"a": points(0)}, -points(0), "model: expected an object .*, got scores, and each sample has its own: give"),
        (
            {"a": from_arrays(points(0), -points(0)), "b": from_arrays(points(0)[:, :1], -points(0)[:, :1])},
            None,
            "samples: expected as many coordinates in each, got {'a': 2, 'b': 1}",
        ),
        ({"a": points(0)}, None, "samples: none of the 1 could be ranked; a: model: needed, because this sample is no"),
    ):
        with pytest.raises(InputError, match=problem):
            inspect.unwrap(compare_samples)(samples, model)
    with pytest.raises(InputError, match="a: expected one of right, got 'left'"):
        ranking.difference("left", "right")


def test_a_ranking_is_drawn_nearest_first():
    ranking = ranked({"narrow $": 0.7 * points(1), "right": points(2)})
    left, right = ranking.plot().axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["right", r"narrow \$"]
    drawn = [line.get_xdata() for line in (left.lines[0], right.lines[0])]
    np.testing.assert_allclose(drawn[0], ranking.values)
    np.testing.assert_allclose(drawn[1], [0.0, ranking.difference("narrow $", "right").value])
    # Samples are other points each: nothing is paired.
    assert right.get_xlabel() == "difference to the nearest"


def test_two_coordinates_of_one_name_are_no_fault_of_the_samples():
    with pytest.raises(InputError, match="^names: two coordinates are called 'a'$"):
        ranked({"one": points(0), "two": points(1)}, names=["a", "a"])
