from itertools import combinations

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from steinscope import InputError, compare
from steinscope.plots import COLOURS, PAGE_WIDTH, SERIES, new_figure, rates_with_intervals, save_figure, save_image_grid

from helpers import normal

# Linear RGB as it is seen without one kind of cones (Machado, Oliveira and Fernandes 2009, severity 1).
VISION = {
    "all": np.eye(3),
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


def lab(colour, vision):
    """A colour of the screen in CIE L*a*b* (D65), as an eye of this kind sees it."""
    srgb = np.array(to_rgb(colour))
    linear = np.where(srgb <= 0.04045, srgb / 12.92, ((srgb + 0.055) / 1.055) ** 2.4)
    linear = np.clip(np.array(VISION[vision]) @ linear, 0, 1)
    xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) @ linear
    t = xyz / np.array([0.9505, 1.0, 1.089])
    f = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


@pytest.mark.parametrize("vision", VISION)
def test_the_colour_blind_can_tell_curves_apart(vision):
    # A distance of 2.3 is just noticeable side by side; thin lines and small markers need several times that.
    drawn_together = [COLOURS[name] for name in ("train", "validation", "truth", "selected", "other")]
    for colours in ([colour for colour, _, _ in SERIES], drawn_together):
        distances = [np.linalg.norm(lab(a, vision) - lab(b, vision)) for a, b in combinations(colours, 2)]
        assert min(distances) > 10


def test_curves_differ_in_markers_and_lines_as_well():
    _, markers, lines = zip(*SERIES, strict=True)
    assert len(set(markers)) == len(set(lines)) == len(SERIES)


def test_rates_stand_side_by_side_with_their_intervals():
    figure, ((ax,),) = new_figure(1, 1, width=PAGE_WIDTH)
    rows = [
        {"method": method, "sigma": sigma, "rate": 0.5, "low": 0.25, "high": 0.875}
        for method in ("a", "b")
        for sigma in (0.0, 0.1, 0.4)
    ]
    rates_with_intervals(ax, rows, ["a", "b"], [0.0, 0.1, 0.4], "sigma")
    places = np.array([container.lines[0].get_xdata() for container in ax.containers])
    assert (places[0] < places[1]).all() and np.allclose(places.mean(0), [0, 1, 2])
    for container in ax.containers:
        # Markers alone: a line would say what lies between two perturbations.
        assert container.lines[0].get_linestyle() == "None"
        for segment in container.lines[2][0].get_segments():
            assert sorted(segment[:, 1]) == [0.25, 0.875]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "0.1", "0.4"]


def test_a_page_has_letters_of_the_same_size(tmp_path):
    figure, axes = new_figure(1, 3, width=PAGE_WIDTH / 3, height=2.0)
    for ax in axes.flat:
        ax.set(title="A title", xlabel="below")
    save_figure(figure, tmp_path / "figure.png")
    assert imread(tmp_path / "figure.png").shape[:2] == (320, 1200)
    assert {ax.title.get_fontsize() for ax in axes.flat} == {10}
    assert {ax.xaxis.label.get_fontsize() for ax in axes.flat} == {9}


def test_one_bad_model_does_not_squash_the_others():
    x = normal(200, 2)
    ranking = compare({"right": -x, "wide": -0.5 * x, "narrow": -100 * x}, x, critics="linear", progress=False)
    left, right = ranking.plot().axes
    assert left.get_xscale() == right.get_xscale() == "symlog" and left.get_xlabel().endswith("log scale")
    for ax, worst in ((left, ranking.values.max()), (right, ranking.difference("narrow", "right").value)):
        low, high = ax.get_xlim()
        assert -1 < low <= 0 and worst < high < 3 * worst
    ranking = compare({"wide": -0.5 * x, "narrow": -2 * x}, x, critics="linear", progress=False)
    assert {ax.get_xscale() for ax in ranking.plot().axes} == {"linear"}


def test_a_grid_puts_images_row_by_row(tmp_path):
    images = np.arange(5, dtype=np.uint8)[:, None, None] * np.full((5, 2, 3), 40, dtype=np.uint8)
    save_image_grid(tmp_path / "grid.png", images, columns=3)
    grid = (255 * imread(tmp_path / "grid.png")[..., 0]).round().astype(int)
    assert grid.shape == (7, 13)
    assert [grid[1, 1], grid[1, 5], grid[1, 9], grid[4, 1], grid[4, 5], grid[4, 9]] == [0, 40, 80, 120, 160, 128]
    save_image_grid(tmp_path / "large.png", images, columns=3, zoom=3)
    large = (255 * imread(tmp_path / "large.png")[..., 0]).round().astype(int)
    assert (large == np.kron(grid, np.ones((3, 3), dtype=int))).all()
    with pytest.raises(InputError, match=r"images: expected bytes of shape \(n, height, width\), got float64"):
        save_image_grid(tmp_path / "no.png", images / 2)
    assert not (tmp_path / "no.png").exists()
