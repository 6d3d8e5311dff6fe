"""What every kernel test of the registry does."""

import inspect
import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch

from steinscope import InputError, kernels
from steinscope.models import Gaussian
from steinscope.registries import KERNEL_TESTS

TRUTH, OTHER = Gaussian(torch.zeros(3)), Gaussian(torch.full((3,), 0.6))
# Fewer steps and draws where many tests are made.
QUICK = {"fssd": {"steps": 15}, "mmd": {"draws": 200}}


def run(name, x, model, seed=0, **options):
    """The test of points against a model, or against as many samples of it where it takes samples."""
    entry = KERNEL_TESTS[name]
    target = model if entry.against == "scores" else model.sample(len(x), seed=seed + 5000)
    return entry.load()(x, target, seed=seed, **options)


@pytest.mark.parametrize("name", KERNEL_TESTS)
def test_contract(name):
    """A clear shift is rejected, the truth is not; the result is whole, and nothing else changes."""
    x = TRUTH.sample(200, seed=1)
    before, state = x.clone(), torch.get_rng_state()
    right, wrong = run(name, x, TRUTH), run(name, x, OTHER)
    assert wrong.rejected and not right.rejected and wrong.statistic > right.statistic
    for result in (right, wrong):
        assert 0 < result.pvalue <= 1 and math.isfinite(result.statistic)
        assert (result.n, result.dim, result.alpha) == (200, 3, 0.05)
        assert "200 points, 3 coordinates" in str(result)
    assert run(name, x, TRUTH) == right
    assert torch.equal(x, before) and torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("name", KERNEL_TESTS)
def test_another_seed_gives_another_result(name):
    x, target = TRUTH.sample(80), TRUTH if KERNEL_TESTS[name].against == "scores" else TRUTH.sample(80, seed=3)
    test = KERNEL_TESTS[name].load()
    results = [(result.statistic, result.pvalue) for seed in (1, 2) for result in [test(x, target, seed=seed)]]
    assert results[0] != results[1]


@pytest.mark.parametrize("name", KERNEL_TESTS)
def test_arrays_images_and_single_numbers(name, tmp_path):
    """All that `check_rows` takes, with one answer."""
    x, target = TRUTH.sample(60, seed=1), OTHER.sample(60, seed=2)
    target = -x + 0.1 if KERNEL_TESTS[name].against == "scores" else target
    test = KERNEL_TESTS[name].load()
    np.save(tmp_path / "x.npy", x.numpy())
    expected = test(x, target)
    for points in (x.numpy(), np.load(tmp_path / "x.npy", mmap_mode="r")):
        assert test(points, target) == expected
    assert test(x.view(60, 1, 3), target.view(60, 1, 3)) == expected
    line = test(x[:, 0], target[:, 0])
    assert line.dim == 1 and line == test(x[:, :1], target[:, :1])


@pytest.mark.parametrize("name", KERNEL_TESTS)
def test_level_and_power(name):
    """200 exact nulls at level 5% give 2 to 20 rejections (99.9% of a binomial); a shift of 0.6 is found."""
    options = QUICK.get(name, {})
    nulls = (run(name, TRUTH.sample(100, seed=seed), TRUTH, seed, **options) for seed in range(200))
    assert 2 <= sum(result.rejected for result in nulls) <= 20
    found = (run(name, TRUTH.sample(200, seed=seed), OTHER, seed, **options) for seed in range(20))
    assert sum(result.rejected for result in found) >= 18


BAD = {
    "alpha": (2, 0, 1, -0.1, "nan", "many", None),
    "draws": (0, -1, 1.5, True, "many", None),
    "seed": (-1, 2**63, 1.5, True, "many", None),
    "bandwidth": (0, -1.0, True, "nan", "inf", "many", None),
}
# In a process without the checks of types, which would refuse some of these first.
CALLS = """
import json, sys, torch
from steinscope.errors import InputError
from steinscope.registries import KERNEL_TESTS
x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
for name, argument, value in json.loads(sys.argv[1]):
    try:
        KERNEL_TESTS[name].load()(x, 0.5 - x, **{argument: float(value) if value in ("nan", "inf") else value})
        print("nothing")
    except InputError as error:
        print(error)
"""


def test_what_cannot_be_meant_is_refused():
    calls = [
        (name, argument, value)
        for name, entry in KERNEL_TESTS.items()
        for argument, values in BAD.items()
        for value in values
        if argument in inspect.signature(entry.load()).parameters
    ]
    command = [sys.executable, "-c", CALLS, json.dumps(calls)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for (name, argument, value), message in zip(calls, said, strict=True):
        assert message.startswith(f"{argument}: expected "), (name, argument, value, message)


@pytest.mark.parametrize("name", ["ksd_test", "ksdagg_test"])
def test_bootstraps_are_the_same_to_the_bit_for_any_number_of_jobs(name):
    """More than one strip of rows for the one, several bandwidths for the other."""
    n = 2500 if name == "ksd_test" else 200
    x = torch.randn(n, 3, generator=torch.Generator().manual_seed(0))
    one, two = (getattr(kernels, name)(x, 0.1 - x, draws=50, jobs=jobs) for jobs in (1, 2))
    assert (one.statistic, one.pvalue) == (two.statistic, two.pvalue)
    alone = getattr(kernels, name)(x, 0.1 - x, draws=50)
    assert (alone.statistic, alone.pvalue) == pytest.approx((one.statistic, one.pvalue), rel=1e-5)
    with pytest.raises(InputError, match="jobs: expected a whole number"):
        getattr(kernels, name)(x, 0.1 - x, jobs=0)
