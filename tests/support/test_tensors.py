import pytest
import torch

from steinscope import InputError
from steinscope.support.tensors import check_coordinates, check_numbers


def test_points_become_vectors():
    assert check_coordinates(torch.ones(3, 2, 2), 4).shape == (3, 4)
    assert check_coordinates(torch.ones(3), 1).shape == (3, 1)


@pytest.mark.parametrize(
    "x, message",
    [
        (torch.ones(3, 2), "x: this model takes points of 1 coordinate, got 2"),
        (torch.tensor(1.0), "x: this model takes points of 1 coordinate, got a single number"),
        (torch.ones(3, dtype=torch.int64), "x: expected a tensor of a floating type, got a tensor of int64"),
        ([[1.0]], "x: expected a tensor of a floating type, got an object of type list"),
        (torch.ones(3, 1, device="meta"), "x: expected a dense tensor, got one of layout torch.strided on meta"),
    ],
)
def test_points_that_are_none_are_refused(x, message):
    with pytest.raises(InputError, match=message):
        check_coordinates(x, 1, "this model")


@pytest.mark.parametrize(
    "value, message",
    [
        ("a", "mean: expected numbers, got str"),
        (torch.ones(2, dtype=torch.complex64), "mean: expected real numbers, got a tensor of complex64 on cpu"),
        (torch.ones(2, device="meta"), "mean: expected real numbers, got a tensor of float32 on meta"),
        ([1.0, float("inf")], r"mean: expected finite numbers, got \[1.0, inf\]"),
    ],
)
def test_what_is_no_finite_number_is_refused(value, message):
    with pytest.raises(InputError, match=message):
        check_numbers("mean", value)
