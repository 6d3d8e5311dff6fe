import numpy as np
import pytest
from matplotlib.image import imread

from steinscope import InputError
from steinscope.plots import save_image_grid


def test_a_grid_puts_images_row_by_row(tmp_path):
    images = np.arange(5, dtype=np.uint8)[:, None, None] * np.full((5, 2, 3), 40, dtype=np.uint8)
    save_image_grid(tmp_path / "grid.png", images, columns=3)
    grid = (255 * imread(tmp_path / "grid.png")[..., 0]).round().astype(int)
    assert grid.shape == (7, 13)
    assert [grid[1, 1], grid[1, 5], grid[1, 9], grid[4, 1], grid[4, 5], grid[4, 9]] == [0, 40, 80, 120, 160, 128]
    with pytest.raises(InputError, match=r"images: expected bytes of shape \(n, height, width\), got float64"):
        save_image_grid(tmp_path / "no.png", images / 2)
    assert not (tmp_path / "no.png").exists()
