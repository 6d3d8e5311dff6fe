import math

import numpy as np
import pytest
import torch

from steinscope.data import write_idx
from steinscope.data.images import FILES, LABEL_FILES
from steinscope.experiments.image_judge import Judge, make_judge


def stripes(labels, seed):
    """Images of ten classes: a bright stripe at one of ten heights, with noise."""
    images = np.random.default_rng(seed).integers(0, 100, (len(labels), 28, 28))
    for image, label in zip(images, labels, strict=True):
        image[2 * label + 3 : 2 * label + 6] += 150
    return images.astype(np.uint8)


def logits_of(images):
    return torch.logit((torch.from_numpy(images).double() + 0.5) / 256).float()


@pytest.fixture
def data(tmp_path, monkeypatch):
    monkeypatch.setenv("STEINSCOPE_DATA", str(tmp_path))
    for split, count, seed in (("train", 2000, 0), ("test", 300, 1)):
        labels = (np.arange(count) % 10).astype(np.uint8)
        write_idx(tmp_path / FILES[split], stripes(labels, seed))
        write_idx(tmp_path / LABEL_FILES[split], labels)
    return tmp_path


def test_samples_are_judged_by_a_classifier_of_real_images_and_by_distances(data):
    before = torch.get_rng_state()
    judge = Judge("mnist")
    assert torch.equal(torch.get_rng_state(), before)
    assert judge.error < 0.02
    good = judge.judge(logits_of(stripes(np.arange(50) % 10, 2)))
    assert good.sure > 0.9 and good.entropy == pytest.approx(math.log(10), abs=0.05)
    assert good.near_duplicates == good.copies == 0
    # Always the same image, of the training set.
    one = judge.judge(logits_of(np.repeat(stripes((np.arange(2000) % 10), 0)[3:4], 20, axis=0)))
    assert one.entropy == 0 and one.near_duplicates == one.copies == 20 and one.nearest == 0
    noise = judge.judge(torch.randn(40, 784, generator=torch.Generator().manual_seed(0)))
    assert noise.sure < good.sure


def test_without_labels_nobody_judges(data):
    (data / LABEL_FILES["test"]).unlink()
    assert make_judge("mnist") is None
