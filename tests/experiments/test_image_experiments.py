import numpy as np
import pytest
import torch
from matplotlib.image import imread

from steinscope import InputError
from steinscope.data import synthetic_images, write_idx
from steinscope.data.images import FILES
from steinscope.experiments.image_data import fresh_logits, restore, save_grid, take_images
from steinscope.experiments.images import EXPERIMENT, uniform_logits
from steinscope.experiments.runner import reproduce
from steinscope.models import EBM
from steinscope.plots import save_image_grid

from helpers import generator


def test_from_idx_files_to_samples(tmp_path, monkeypatch):
    """Files as they are downloaded, training, sampling, judging, and pictures."""
    for name, count, seed in (("train", 200, 0), ("test", 220, 1)):
        path = tmp_path / "data" / "mnist" / f"{FILES[name]}.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        write_idx(path, synthetic_images(count, 28, seed=seed).numpy())
    monkeypatch.setenv("STEINSCOPE_DATA", str(tmp_path / "data"))
    # The smallest settings, but with images of the real size read from files.
    options = {**EXPERIMENT.scales["smoke"], "data": ["mnist"], "size": 28, "train_images": 200, "test_images": 220}
    out = tmp_path / "out"
    lines = reproduce("images", "smoke", out, jobs=1, options=options)
    for name in (
        "mnist",
        "mnist-data",
        "mnist-noise-0.1",
        "mnist-steps-30",
        "along/mnist-000002",
        "along/mnist-000004",
    ):
        assert imread(out / f"{name}.png").shape[:2] == (2 * 29 + 1, 8 * 29 + 1)
    assert any("Gaussian, full covariance" in line for line in lines)
    data = (255 * imread(out / "mnist-data.png")[..., 0]).round()
    assert np.array_equal(data[1:29, 1:29], synthetic_images(220, 28, seed=1)[0].numpy())


def test_chains_that_diverge_leave_no_grid_and_stop_nothing(tmp_path):
    settings = EXPERIMENT.scales["smoke"]
    lines = reproduce("images", "smoke", tmp_path, jobs=1, options={**settings, "epsilon": 1e30, "chain_steps": 20})
    assert "synthetic: the chains from uniform noise diverged" in lines
    assert not (tmp_path / "synthetic.png").exists() and (tmp_path / "synthetic-steps-30.png").exists()


def test_a_grid_puts_images_row_by_row(tmp_path):
    images = np.arange(5, dtype=np.uint8)[:, None, None] * np.full((5, 2, 3), 40, dtype=np.uint8)
    save_image_grid(tmp_path / "grid.png", images, columns=3)
    grid = (255 * imread(tmp_path / "grid.png")[..., 0]).round().astype(int)
    assert grid.shape == (7, 13)
    assert [grid[1, 1], grid[1, 5], grid[1, 9], grid[4, 1], grid[4, 5], grid[4, 9]] == [0, 40, 80, 120, 160, 128]
    with pytest.raises(InputError, match=r"images: expected bytes of shape \(n, height, width\), got float64"):
        save_image_grid(tmp_path / "no.png", images / 2)
    assert not (tmp_path / "no.png").exists()


def test_pixels_get_fresh_noise():
    draw = fresh_logits(torch.full((3, 4, 4), 100, dtype=torch.uint8), flat=True)
    first, second = draw(5, generator(0)), draw(5, generator(1))
    assert first.shape == (5, 16) and not torch.equal(first, second)
    pixels = 256 * torch.sigmoid(torch.cat([first, second]))
    assert 100 <= pixels.min() and pixels.max() <= 101


def test_uniform_noise_as_logits():
    pixels = torch.sigmoid(uniform_logits(2000, 10))
    # 20 000 numbers: standard errors .002 of the mean and, of the variance 1/12, .0005.
    assert float(pixels.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(pixels.var()) == pytest.approx(1 / 12, abs=0.0025)


def test_a_model_that_was_not_trained_is_said_to_be_missing(tmp_path):
    with pytest.raises(InputError, match="out: .* holds no checkpoint of step 7"):
        restore(EBM.perceptron(4), tmp_path, 7)


def test_images_by_name():
    assert take_images("synthetic", "train", 3, 8).shape == (3, 8, 8)
    assert not torch.equal(take_images("synthetic", "train", 3, 8), take_images("synthetic", "test", 3, 8))


def test_a_grid_of_logits_goes_into_a_new_directory(tmp_path):
    save_grid(tmp_path / "new" / "grid.png", torch.zeros(2, 16), 4)
    assert (tmp_path / "new" / "grid.png").stat().st_size > 0
