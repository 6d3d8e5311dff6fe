import pytest

from steinscope import NonFiniteError, gof_test

from helpers import normal


@pytest.mark.parametrize("critic", ["linear", "kernel"])
def test_values_that_cannot_be_squared_are_an_error_and_no_verdict(critic):
    """Points that are next to nothing beside their scores. Divided by an infinite scale all values are zero."""
    x = 1e-200 * normal(200, 2).double()
    with pytest.raises(NonFiniteError, match=f"Learned Stein test: its scale of {critic} is (inf|nan)"):
        gof_test(x, -1e300 * x, critics=critic, repeats=1)
