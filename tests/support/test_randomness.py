import numpy as np
import pytest
import torch

from steinscope import InputError, gof_test
from steinscope.support.randomness import (
    PartGenerator,
    default_generator,
    derive_generator,
    make_generator,
    next_seed,
    normal_rows,
    uniform_rows,
)

LIKE = torch.empty(4, 3)


def numbers(generator):
    return torch.randn(5, generator=generator)


def test_a_seed_and_its_purpose_fix_the_numbers():
    ours, same = numbers(make_generator(3)), numbers(make_generator(3))
    assert torch.equal(ours, same)
    others = [make_generator(4), make_generator(3, purpose="sample"), torch.Generator().manual_seed(3)]
    assert all(not torch.equal(ours, numbers(other)) for other in others)


def test_a_generator_is_taken_as_it_is():
    generator = torch.Generator().manual_seed(1)
    assert make_generator(generator) is generator


def test_the_global_state_is_left_alone():
    state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    normal_rows(LIKE, default_generator("cpu"))
    uniform_rows(LIKE, derive_generator(1, 2))
    assert torch.equal(torch.get_rng_state(), state) and np.array_equal(np.random.get_state()[1], numpy_state)
    assert default_generator("cpu") is default_generator(torch.device("cpu"))


def test_each_step_has_numbers_of_its_own():
    draws = [numbers(derive_generator(*key)) for key in ((1, 2), (1, 3), (2, 2), (1, 2, 1), (12,))]
    assert len({tuple(draw.tolist()) for draw in draws}) == 5
    assert torch.equal(draws[0], numbers(derive_generator(1, 2)))


@pytest.mark.parametrize("draw", [normal_rows, uniform_rows])
def test_processes_together_draw_what_one_draws(draw):
    whole = draw(torch.empty(12, 3, dtype=torch.float64), derive_generator(5, 1))
    parts = [
        draw(torch.empty(4, 3, dtype=torch.float64), derive_generator(5, 1, part=part, parts=3)) for part in range(3)
    ]
    for part, rows in enumerate(parts):
        assert torch.equal(rows, whole[part::3])
    assert isinstance(derive_generator(5, 1, part=1, parts=3), PartGenerator)


def test_shapes_types_and_distributions():
    like = torch.empty(50_000, 2, dtype=torch.float64)
    normal, uniform = normal_rows(like, make_generator(1)), uniform_rows(like, make_generator(1))
    assert normal.shape == uniform.shape == like.shape and normal.dtype == uniform.dtype == like.dtype
    # 100 000 numbers: 4 standard errors of means and variances.
    assert abs(float(normal.mean())) < 4 / 100_000**0.5 and abs(float(normal.var()) - 1) < 4 * (2 / 100_000) ** 0.5
    assert abs(float(uniform.mean()) - 0.5) < 4 * (1 / 12 / 100_000) ** 0.5
    assert abs(float(uniform.var()) - 1 / 12) < 4 * (1 / 180 / 100_000) ** 0.5
    assert 0 <= float(uniform.min()) and float(uniform.max()) < 1


@pytest.mark.parametrize("seed", [-1, 2**63, True])
def test_bad_seeds(seed):
    with pytest.raises(InputError, match=r"seed: expected a whole number from 0 to 2\^63 - 1"):
        make_generator(seed)


def test_after_the_largest_seed_comes_zero():
    series = [[next_seed(seed, number) for number in range(4)] for seed in (5, 6, 2**63 - 1)]
    assert [one[0] for one in series] == [5, 6, 2**63 - 1]
    assert len({seed for one in series for seed in one}) == 12 and max(map(max, series)) < 2**63
    x = torch.zeros(200, 2) + torch.arange(400.0).reshape(200, 2).sin()
    assert gof_test(x, -x, critics="mean", seed=2**63 - 1).pvalue <= 1
