import json
import math

import numpy as np
import pytest
import torch

from steinscope import InputError, gof_test
from steinscope.critics import MLP, Linear
from steinscope.gof.combination import combined_pvalue, soft_maximum
from steinscope.models import RBM, Gaussian
from steinscope.registries import CRITICS

from helpers import generator

CHEAP = [name for name, entry in CRITICS.items() if entry.is_closed_form]


def normal(n=500, dim=5, seed=0):
    return torch.randn(n, dim, generator=generator(seed))


def test_the_parts_add_up():
    x = normal()
    result = gof_test(x, 0.1 - x)
    assert [critic.name for critic in result.critics] == ["mean", "linear", "sparse", "features", "mlp"]
    for critic in result.critics:
        assert critic.block_n.tolist() == [50] * 9
        assert float(np.square(critic.block_weight).sum()) == pytest.approx(1.0)
        assert float(critic.block_weight @ critic.block_z) == pytest.approx(critic.z)
        assert critic.pvalue == pytest.approx(0.5 * math.erfc(critic.z / math.sqrt(2)))
    z = np.array([critic.z for critic in result.critics])
    assert result.statistic == pytest.approx(0.5 * math.log(np.exp(2 * z).sum()))
    assert result.rejected and result.rejected == (result.pvalue <= 0.05)


def test_a_network_joins_when_there_are_enough_points():
    names = {n: [critic.name for critic in gof_test(x, -x).critics] for n in (499, 500) for x in [normal(n)]}
    assert names == {499: list(CHEAP), 500: [*CHEAP, "mlp"]}


@pytest.mark.parametrize("critics", [("mean",), ("linear",), ("sparse",), ("features",), CHEAP])
def test_level_on_exact_nulls(critics):
    """400 exact nulls at 5%: between .05 ± 4 standard errors, less what skewness may cost, reject."""
    rejections = 0
    for seed in range(400):
        x = normal(300, 8, seed=seed)
        rejections += gof_test(x, -x, critics=critics, seed=seed).rejected
    assert 0.05 - 4 * (0.0475 / 400) ** 0.5 < rejections / 400 < 0.05 + 4 * (0.0475 / 400) ** 0.5


def test_the_default_keeps_its_level():
    pvalues = np.array([gof_test(x, -x, seed=s).pvalue for s in range(60) for x in [normal(500, 4, seed=s)]])
    assert (pvalues <= 0.05).mean() < 0.05 + 4 * (0.0475 / 60) ** 0.5
    assert 0.35 < np.median(pvalues) < 0.7


def laplace(n, dim, seed):
    uniform = torch.rand(n, dim, generator=generator(seed)) - 0.5
    return -torch.sign(uniform) * torch.log1p(-2 * uniform.abs()) / 2**0.5


def bimodal(n, dim, seed):
    x = normal(n, dim, seed)
    signs = torch.randint(2, (n,), generator=generator(seed + 1)) * 2 - 1
    x[:, 7] = 0.8 * signs + 0.6 * x[:, 7]
    return x


def cosine_pair(n, dim, seed):
    x = normal(n, dim, seed)
    x[:, 1] = (x[:, 1] + torch.cos(2 * x[:, 0]) - math.exp(-2)) / (1.5 - math.exp(-4) + 0.5 * math.exp(-8)) ** 0.5
    return x


@pytest.mark.parametrize(
    "draw, dim, coordinates",
    [(laplace, 20, None), (bimodal, 50, (7, 7)), (cosine_pair, 10, (1, 0))],
)
def test_what_kernels_miss_is_found_and_named(draw, dim, coordinates):
    for seed in range(5):
        x = draw(1000, dim, seed)
        result = gof_test(x, -x, seed=seed)
        assert result.rejected
        assert result.strongest is not None and result.strongest.name == "sparse"
        assert "found by: sparse" in str(result)
        if coordinates:
            assert (result.findings[0].output, result.findings[0].input) == coordinates


def test_findings_say_the_direction():
    x = normal(1000, 3)
    x[:, 1] *= 1.5
    x[:, 2] = 0.6 * x[:, 0] + 0.8 * x[:, 2]
    text = "\n".join(str(finding) for finding in gof_test(x, -x, critics="sparse").findings)
    assert "x[1] spreads more than the model says" in text
    assert "x[2] and x[0] are more positively related than the model says" in text


def test_the_models_own_features_are_used():
    rbm = RBM.random(10, 6, seed=1)
    x = rbm.sample(600, seed=2)
    result = gof_test(x, rbm.perturbed(0.3, seed=3), critics="auto")
    assert "model" in [critic.name for critic in result.critics] or len(result.notes) == 2
    alone = gof_test(x, rbm.perturbed(0.3, seed=3), critics="model")
    assert [critic.name for critic in alone.critics] == ["model"] and alone.rejected


def test_critics_of_your_own():
    x = normal(300, 3)
    result = gof_test(x, 0.5 - x, critics=[Linear(3), MLP(3, width=8)])
    assert [critic.name for critic in result.critics] == ["Linear", "MLP"] and result.rejected


def test_beyond_doubt_the_mlp_is_not_run():
    x = normal(500, 5)
    result = gof_test(x, 1.0 - x)
    assert [critic.name for critic in result.critics] == list(CHEAP) and "beyond doubt" in result.notes[1]
    assert result.pvalue == pytest.approx(4 * min(critic.pvalue for critic in result.critics))


def test_the_largest_of_correlated_normals():
    for rho in (0.0, 0.5, 0.95):
        correlation = np.full((3, 3), rho) + (1 - rho) * np.eye(3)
        draws = np.random.default_rng(0).multivariate_normal(np.zeros(3), correlation, size=400_000)
        soft = 0.5 * np.log(np.exp(2 * draws).sum(1))
        for z in ([0.5, 0.0, -1.0], [1.5, 1.0, 0.0], [0.0, 2.2, 0.1]):
            expected = (soft >= soft_maximum(np.array(z))).mean()
            tolerance = 4 * (expected / 2**15) ** 0.5 + 1e-3
            assert combined_pvalue(np.array(z), correlation) == pytest.approx(expected, abs=tolerance)
    # Far out Bonferroni's bound is used, with the most by which the soft maximum can exceed the largest.
    far = combined_pvalue(np.array([6.0, -9.0, -9.0]), np.eye(3))
    assert far == pytest.approx(3 * 0.5 * math.erfc((6 - 0.5 * math.log(3)) / 2**0.5), rel=1e-3)
    assert far > 3 * 0.5 * math.erfc(6 / 2**0.5)


def test_repeats_merge_by_twice_the_mean():
    x = normal(200, 3)
    single = [gof_test(x, 0.2 - x, critics=CHEAP, seed=seed).pvalue for seed in (5, 6, 7)]
    merged = gof_test(x, 0.2 - x, critics=CHEAP, seed=5, repeats=3)
    assert merged.pvalue == pytest.approx(min(1.0, 2 * np.mean(single)))
    assert "3 random orders" in str(merged)


def test_split_is_the_papers_scheme():
    x = normal(200, 2)
    result = gof_test(x, 1.5 - x, scheme="split")
    assert "160/20/20" in result.method and result.critics[0].block_n.tolist() == [20]
    assert result.rejected and result.to_dict() == gof_test(x, 1.5 - x, scheme="split").to_dict()


def test_memmaps_images_and_seeds(tmp_path):
    x = normal(300, 6)
    np.save(tmp_path / "x.npy", x.numpy())
    np.save(tmp_path / "s.npy", 0.1 - x.numpy())
    on_disk = [np.load(tmp_path / name, mmap_mode="r") for name in ("x.npy", "s.npy")]
    ours = gof_test(x, 0.1 - x, critics=CHEAP)
    assert gof_test(*on_disk, critics=CHEAP).pvalue == ours.pvalue
    assert gof_test(x.view(300, 2, 3), (0.1 - x).view(300, 2, 3), critics=CHEAP).pvalue == ours.pvalue
    assert gof_test(x, 0.1 - x, critics=CHEAP, seed=1).pvalue != ours.pvalue
    state = torch.get_rng_state()
    gof_test(x, 0.1 - x)
    assert torch.equal(torch.get_rng_state(), state)


def test_the_result_prints_saves_and_draws(tmp_path):
    x = normal()
    result = gof_test(x, -x)
    text = str(result)
    assert "500 points, 5 coordinates" in text and "no misfit was found at level 0.05" in text
    assert "depends on the random order" in text
    assert json.loads(json.dumps(result.to_dict()))["rejected"] is False
    result.plot().savefig(tmp_path / "test.png")
    assert (tmp_path / "test.png").stat().st_size > 5000


@pytest.mark.parametrize(
    "options, message",
    [
        ({"n": 99}, "x: 99 rows are too few for a learned test.*needs 100; the KSD test takes fewer"),
        ({"alpha": 1.0}, "alpha: expected a number between 0 and 1, got 1.0"),
        ({"blocks": 1}, "blocks: expected a whole number from 2 to 20, got 1"),
        ({"blocks": 21}, "blocks: expected a whole number from 2 to 20"),
        ({"repeats": 0}, "repeats: expected a whole number from 1 on, got 0"),
        ({"critics": "deep"}, "critics: expected 'auto' or some of 'mean', 'linear'.*, got 'deep'"),
        ({"critics": ()}, "critics: expected at least one, got none"),
        ({"critics": "model"}, r"critics: 'model' needs a model with features\(x\), and this one has none"),
    ],
)
def test_bad_input(options, message):
    x = normal(options.pop("n", 200), 2)
    with pytest.raises(InputError, match=message):
        gof_test(x, Gaussian(torch.zeros(2)), **options)
