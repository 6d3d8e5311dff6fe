import pytest
import torch
from matplotlib.image import imread

from steinscope import InputError
from steinscope.experiments.image_data import fresh_logits, restore, save_grid, take_images
from steinscope.models import EBM

from helpers import generator


def test_pixels_get_fresh_noise():
    draw = fresh_logits(torch.full((3, 4, 4), 100, dtype=torch.uint8), flat=True)
    first, second = draw(5, generator(0)), draw(5, generator(1))
    assert first.shape == (5, 16) and not torch.equal(first, second)
    pixels = 256 * torch.sigmoid(torch.cat([first, second]))
    assert 100 <= pixels.min() and pixels.max() <= 101


def test_a_model_that_was_not_trained_is_said_to_be_missing(tmp_path):
    with pytest.raises(InputError, match="out: .* holds no checkpoint of step 7"):
        restore(EBM.perceptron(4), tmp_path, 7)


def test_images_by_name():
    assert take_images("synthetic", "train", 3, 8).shape == (3, 8, 8)
    assert not torch.equal(take_images("synthetic", "train", 3, 8), take_images("synthetic", "test", 3, 8))


def test_a_grid_of_logits_goes_into_a_new_directory(tmp_path):
    save_grid(tmp_path / "new" / "grid.png", torch.zeros(2, 16), 4)
    grid = (255 * imread(tmp_path / "new" / "grid.png")[..., 0]).round()
    # Two images of 4 by 4 pixels; a logit of zero is half of 256.
    assert grid[1, 1] == 128 and grid.shape[0] == 6 * 17
