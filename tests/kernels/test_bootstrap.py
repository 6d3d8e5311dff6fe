import pytest
import torch

from steinscope import InputError
from steinscope.kernels.bootstrap import bootstrap_pvalue, random_signs, u_statistics
from steinscope.kernels.stein_kernel import stein_kernel, stein_tiles
from steinscope.maps.radial import radial

from helpers import generator, stein_sample


@pytest.mark.parametrize("rows", [7, 30, 100])
def test_tiles_and_signs_equal_the_whole_matrix(rows):
    data = stein_sample()
    phi = radial("imq", 0.8)
    matrix = stein_kernel(phi, data, data).fill_diagonal_(0.0)
    signs = random_signs(30, 50, generator(1), torch.float64)
    expected = torch.einsum("ib,ij,jb->b", signs, matrix, signs) / (30 * 29)
    torch.testing.assert_close(u_statistics(stein_tiles(phi, data, rows), signs), expected)


def test_signs_are_fair_and_the_first_column_is_the_statistic():
    signs = random_signs(500, 200, generator(1), torch.float32)
    assert signs.shape == (500, 201) and (signs[:, 0] == 1).all() and (signs.abs() == 1).all()
    # 100 000 signs: the standard error of their mean is 1 / √100 000.
    assert abs(float(signs[:, 1:].mean())) < 4 / 100_000**0.5
    with pytest.raises(InputError, match="draws: expected a whole number from 1 to 100000, got 0"):
        random_signs(5, 0, generator(1), torch.float32)


@pytest.mark.parametrize("statistic, expected", [(9.0, 1 / 5), (2.0, 3 / 5), (-1.0, 1.0)])
def test_the_statistic_counts_itself(statistic, expected):
    assert bootstrap_pvalue(torch.tensor([statistic, 0.0, 1.0, 2.0, 3.0])) == pytest.approx(expected)
