import numpy as np
import pytest
import torch
from matplotlib.image import imread

from steinscope.data import synthetic_images, write_idx
from steinscope.data.images import FILES
from steinscope.experiments.images import EXPERIMENT, uniform_logits
from steinscope.experiments.runner import reproduce


@pytest.mark.slow
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
        # Two rows of eight images with lines between them, each pixel three dots wide.
        assert imread(out / f"{name}.png").shape[:2] == (3 * (2 * 29 + 1), 3 * (8 * 29 + 1))
    assert any("Gaussian, full covariance" in line for line in lines)
    data = (255 * imread(out / "mnist-data.png")[::3, ::3, 0]).round()
    assert np.array_equal(data[1:29, 1:29], synthetic_images(220, 28, seed=1)[0].numpy())


def test_chains_that_diverge_leave_no_grid_and_stop_nothing(tmp_path):
    settings = EXPERIMENT.scales["smoke"]
    lines = reproduce("images", "smoke", tmp_path, jobs=1, options={**settings, "epsilon": 1e30, "chain_steps": 20})
    assert "synthetic: the chains from uniform noise diverged" in lines
    assert not (tmp_path / "synthetic.png").exists() and (tmp_path / "synthetic-steps-30.png").exists()


def test_uniform_noise_as_logits():
    pixels = torch.sigmoid(uniform_logits(2000, 10))
    # 20 000 numbers: standard errors .002 of the mean and, of the variance 1/12, .0005.
    assert float(pixels.mean()) == pytest.approx(0.5, abs=0.01)
    assert float(pixels.var()) == pytest.approx(1 / 12, abs=0.0025)
