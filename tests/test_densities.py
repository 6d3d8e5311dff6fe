import inspect

import numpy as np
import pytest
import torch
from scipy import stats
from torch import nn
from torch.distributions import Gamma, Independent, Normal

from steinscope import InputError, compare, discrepancy, from_energy, from_log_prob, from_score, gof_test
from steinscope.densities import as_density, differentiable_score, placement
from steinscope.models import Gaussian
from steinscope.objectives import score_matching
from steinscope.points import check_rows
from steinscope.scoring import score_rows

from helpers import DISTRIBUTIONS, generator, normal, sample


def scores(model, x, **options):
    rows = check_rows(x, "x")
    return score_rows(model, rows, dtype=torch.float64, device=torch.device("cpu"), **options)


def quartic(x):
    return -0.25 * (x**4).sum(1) + x[:, 0] * x[:, 1]


def quartic_score(x):
    score = -(x**3)
    score[:, 0] += x[:, 1]
    score[:, 1] += x[:, 0]
    return score


class Flow(nn.Module):
    """A module with `log_prob`, as flow libraries make them."""

    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([2.0, 0.5, 1.0]))

    def log_prob(self, x):
        return Independent(Normal(torch.zeros(3), self.scale), 1).log_prob(x)


MODELS = {
    "log_prob": from_log_prob(quartic),
    "energy": from_energy(lambda x: -quartic(x)),
    "score": from_score(lambda x: quartic_score(x.clone())),
    "numpy log_prob": from_log_prob(quartic, numpy=True),
    "numpy energy": from_energy(lambda x: -quartic(x), numpy=True),
    "numpy score": from_score(lambda x: quartic_score(x.copy()), numpy=True),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_way_to_give_a_model_has_the_same_score(name):
    x = torch.randn(20, 3, dtype=torch.float64, generator=generator())
    tolerance = 1e-7 if "numpy" in name else 1e-12
    torch.testing.assert_close(scores(MODELS[name], x), quartic_score(x.clone()), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_torch_distributions_are_models(name):
    distribution = DISTRIBUTIONS[name](4)
    x = sample(distribution, 10)
    if name == "gaussian":
        expected = -(x - distribution.mean) @ torch.linalg.inv(distribution.covariance_matrix)
    else:
        log_prob = from_log_prob(lambda x: distribution.log_prob(torch.from_numpy(x)).numpy(), numpy=True)
        expected = scores(log_prob, x)
    torch.testing.assert_close(scores(distribution, x), expected.double(), rtol=1e-4, atol=1e-4)


def test_modules_compute_in_their_own_type_and_keep_their_gradients():
    model, x = Flow(), torch.randn(5, 3, dtype=torch.float64, generator=generator())
    with torch.inference_mode():
        score = scores(model, x)
    torch.testing.assert_close(score, -x / torch.tensor([4.0, 0.25, 1.0]), rtol=1e-5, atol=1e-5)
    assert model.scale.grad is None and score.dtype == torch.float64


def test_a_module_is_given_points_of_the_type_of_its_parameters():
    class Picky(Flow):
        def log_prob(self, x):
            assert x.dtype == self.scale.dtype
            return super().log_prob(x)

    for dtype in (torch.float32, torch.float64):
        assert scores(Picky().to(dtype), torch.ones(5, 3, dtype=torch.float64)).dtype == torch.float64
    assert placement(Flow(), torch.float64, torch.device("cpu"))[0] == torch.float32
    assert placement(nn.Flatten(), torch.float64, torch.device("cpu"))[0] == torch.float64


def test_one_dimensional_points():
    x = np.linspace(-2, 2, 7)
    torch.testing.assert_close(scores(Normal(0.0, 1.0), x), torch.from_numpy(-x))
    torch.testing.assert_close(scores(Normal(0.0, 1.0), x[:, None]), torch.from_numpy(-x[:, None]))


def test_each_point_is_scored_once_and_in_batches():
    sizes = []

    def score(x):
        sizes.append(len(x))
        return -x

    x = torch.randn(1000, 2, generator=generator())
    scores(from_score(score), x, batch_size=300)
    assert sizes == [300, 300, 300, 100]
    sizes.clear()
    scores(from_score(score), torch.randn(300_000, 50, generator=generator()))
    assert sum(sizes) == 300_000 and max(sizes) * 50 * 8 <= 2**24


def test_a_memmap_is_scored_to_a_file(tmp_path):
    values = np.random.default_rng(0).normal(size=(1000, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    x = np.load(tmp_path / "x.npy", mmap_mode="r")
    score = score_rows(Gaussian(torch.zeros(3)), x, dtype=torch.float32, device=torch.device("cpu"), batch_size=300)
    assert isinstance(score, np.memmap)
    np.testing.assert_allclose(score, -values, rtol=1e-6)


def test_an_array_of_scores_is_a_model():
    x = np.random.default_rng(0).normal(size=(10, 2))
    assert torch.equal(scores(-x, x), torch.from_numpy(-x))


class Sklearn:
    """Something with a `score` of another meaning."""

    def score(self, x):
        return 1.0


@pytest.mark.parametrize(
    "model, message",
    [
        (quartic, r"model: got the function or callable quartic; say what it computes: from_log_prob"),
        (3.0, "model: expected an object with score.*, log_prob.* or energy.*, got an object of type float"),
        (Sklearn(), "model: score returned float, expected a tensor"),
        (Normal(torch.zeros(2), 1.0), r"one number for each of the 4 points, got \(4, 2\); sum over the coordinates"),
        (from_log_prob(lambda x: torch.zeros(4)), "model: does not depend on x"),
        (from_log_prob(lambda x: x.detach().sum(1)), "model: log_prob does not depend on x through torch operations"),
        (from_log_prob(lambda x: torch.zeros(4) * x.sum(1)), "model: does not depend on x: its score is zero at all 4"),
        (
            from_log_prob(lambda x: x.sum(1).numpy(force=True)),
            "log_prob returned a NumPy array.*by from_log_prob",
        ),
        (from_log_prob(lambda x: x.log().sum(1)), "model: the score at row 2 of x is inf; every score must be finite"),
        (from_score(lambda x: x[:2]), r"score\(x\) must be a tensor of the shape of x, \(4, 2\), got \(2, 2\)"),
        (
            from_score(lambda x: x.numpy(force=True)),
            "score returned a NumPy array, expected a tensor.*by from_score",
        ),
        (np.ones((3, 2)), r"model: an array of scores must have the shape of x, \(4, 2\), got \(3, 2\)"),
        (np.full((4, 2), np.nan), r"model \(array of scores\): row 0 holds nan"),
        (np.zeros((4, 2)), "model: does not depend on x"),
        (
            Independent(Gamma(torch.ones(2), torch.ones(2)), 1),
            "model: log_prob failed at x: Expected value argument",
        ),
    ],
)
def test_bad_models(model, message):
    x = torch.tensor([[1.0, 1.0], [2.0, 1.0], [0.0, 1.0], [1.0, 3.0]])
    if isinstance(model, Independent):
        x = x - 2
    with pytest.raises(InputError, match=message):
        scores(model, x)


def test_only_functions_are_wrapped():
    with pytest.raises(InputError, match="fn: expected a function, got an object of type int"):
        inspect.unwrap(from_score)(3)


def test_an_object_with_a_score_is_asked_for_it():
    model, x = Gaussian(torch.ones(2)), torch.zeros(3, 2)
    density = as_density(model)
    assert torch.equal(density.score(x), model.score(x)) and as_density(density) is density
    # The score is mean - x, at three points.
    density.score(x).sum().backward()
    assert model.mean.grad.tolist() == [3.0, 3.0]


def halve_in_place(z):
    z /= 2
    return -z


class InPlace:
    """A model that works on the points that it is given."""

    def __init__(self, name):
        setattr(self, name, halve_in_place if name == "score" else lambda z: halve_in_place(z).square().sum(1))


@pytest.mark.parametrize(
    "model, expected",
    [
        (from_score(halve_in_place), -0.5),
        (from_score(halve_in_place, numpy=True), -0.5),
        (from_log_prob(lambda z: -halve_in_place(z).__pow__(2).sum(1), numpy=True), -0.5),
        (from_energy(lambda z: halve_in_place(z).square().sum(1)), -0.5),
        (InPlace("score"), -0.5),
        (InPlace("log_prob"), 0.5),
    ],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_model_that_works_in_place_changes_nothing(model, expected, dtype):
    x = np.random.default_rng(0).normal(size=(50, 2)).astype(dtype)
    before = x.copy()
    torch.testing.assert_close(scores(model, x), torch.from_numpy(expected * before).double(), rtol=1e-5, atol=1e-6)
    assert np.array_equal(x, before)


def raising(error):
    def fail(x):
        raise error

    return fail


@pytest.mark.parametrize(
    "error, message",
    [
        (KeyError("weights"), "KeyError: 'weights'"),
        (RuntimeError("first\nsecond"), "RuntimeError: first$"),
        (ZeroDivisionError(), "ZeroDivisionError$"),
        (ValueError("outside of the support"), "outside of the support$"),
        (TypeError(""), "TypeError$"),
    ],
)
@pytest.mark.parametrize("make", [from_score, from_log_prob, from_energy])
@pytest.mark.parametrize("numpy", [False, True])
def test_a_model_that_raises_is_one_line_with_its_name(make, numpy, error, message):
    name = make.__name__.removeprefix("from_")
    with pytest.raises(InputError, match=f"mine: {name} failed at x: {message}") as caught:
        scores(make(raising(error), numpy=numpy), torch.ones(3, 2), name="mine")
    assert caught.value.__cause__ is error


@pytest.mark.parametrize(
    "model, message",
    [
        (from_score(lambda x: x + 1j), "score returned complex numbers, expected real ones"),
        (from_score(lambda x: x + 1j, numpy=True), "score returned numbers of type complex128, expected real numbers"),
        (from_log_prob(lambda x: x.sum(1) + 1j, numpy=True), "log_prob returned numbers of type complex128"),
        (from_score(lambda x: np.ma.masked_less(x, 2), numpy=True), "score returned masked values"),
        (from_score(lambda x: [[1.0], [1.0, 2.0]], numpy=True), "score returned what is not an array"),
        (Gaussian(torch.zeros(3)), "model: this model takes points of 3 coordinates, got 2"),
    ],
)
def test_what_a_model_must_not_return(model, message):
    with pytest.raises(InputError, match=message):
        scores(model, torch.ones(3, 2))


class Estimator:
    """What scikit-learn calls an estimator: its `score` is a mean log-likelihood, and no gradient."""

    def fit(self, x):
        return self

    def get_params(self):
        return {}

    def score(self, x, y=None):
        return -0.5 * float((x**2).sum(1).mean())


class DensityEstimator(Estimator):
    def score_samples(self, x):
        assert isinstance(x, np.ndarray) and x.dtype == np.float64
        return -0.5 * (x**2).sum(1)


class OutlierDetector(DensityEstimator):
    def decision_function(self, x):
        return self.score_samples(x)


FOREIGN = {
    "multivariate_normal": (stats.multivariate_normal(np.zeros(2), [[2.0, 0.5], [0.5, 1.0]]), 2),
    "norm": (stats.norm(1.0, 2.0), 1),
    "multivariate_t": (stats.multivariate_t([0.0, 1.0, 0.0], df=5), 3),
    "score_samples": (DensityEstimator(), 3),
}
SCORES = {
    "multivariate_normal": lambda x: -x @ np.linalg.inv([[2.0, 0.5], [0.5, 1.0]]),
    "norm": lambda x: -(x - 1) / 4,
    "multivariate_t": lambda x: -8 * (c := x - [0, 1, 0]) / (5 + (c**2).sum(1, keepdims=True)),
    "score_samples": lambda x: -x,
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("n", [1, 50])
def test_densities_of_scipy_and_of_estimators_are_models_as_they_are(name, n):
    model, dim = FOREIGN[name]
    x = np.random.default_rng(0).normal(size=(n, dim))
    score = as_density(model).score(torch.from_numpy(x)).numpy()
    # The error of central differences is about the two thirds power of the precision.
    assert np.allclose(score, SCORES[name](x), atol=1e-7)


def test_where_a_distribution_of_scipy_lives_is_known():
    x = np.random.default_rng(0).exponential(size=(400, 1))
    result = gof_test(x, stats.expon(), critics="closed form")
    # A right model has a smaller p-value once in a thousand cases. In x itself Stein's identity fails.
    assert result.pvalue > 1e-3 and any("log x" in note for note in result.notes)
    assert gof_test(x, stats.expon(), support="real", critics="closed form").pvalue < 1e-9
    assert gof_test(x, stats.gamma(1.5), critics="closed form").rejected
    assert compare({"gamma": stats.gamma(1.5), "expon": stats.expon()}, x, critics="closed form").names[0] == "expon"


@pytest.mark.parametrize("model", [Estimator(), OutlierDetector()])
def test_the_score_of_an_estimator_is_not_taken_for_a_gradient(model):
    with pytest.raises(InputError, match="model: (Estimator|OutlierDetector) of scikit-learn has no log-density"):
        gof_test(np.zeros((200, 2)), model)


class JaxArray:
    """An array of another library: NumPy reads it, and torch does not know it."""

    def __init__(self, values):
        self._values = values

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self._values, dtype=dtype)


def test_arrays_of_other_libraries_are_points_and_scores():
    x = np.random.default_rng(0).normal(size=(300, 2))
    how = {"critics": "closed form"}
    assert gof_test(JaxArray(x), JaxArray(-x), **how).pvalue == gof_test(x, -x, **how).pvalue


def test_a_function_of_jax_is_told_what_it_needs():
    def jax_function(x):
        raise TypeError(f"sub requires ndarray or scalar arguments, got {type(x)} at position 0.")

    x = torch.zeros(200, 2)
    with pytest.raises(InputError, match=r"score failed at x: TypeError: sub requires.*from_score\(fn, numpy=True\)"):
        gof_test(x, from_score(jax_function))
    with pytest.raises(InputError, match=r"score returned JaxArray, expected a tensor.*from_score\(fn, numpy=True\)"):
        gof_test(x, from_score(lambda x: JaxArray(-x.numpy())))
    x = torch.randn(200, 2, generator=torch.Generator().manual_seed(0))
    model = from_score(lambda x: JaxArray(-x), numpy=True)
    assert not gof_test(x, model, critics="closed form").rejected


@pytest.mark.parametrize("make", [from_log_prob, from_energy, from_score])
@pytest.mark.parametrize("numpy", [np.zeros(3), "yes", 1, None])
def test_whether_a_function_works_on_numpy_is_true_or_false(make, numpy):
    with pytest.raises(InputError, match="numpy: expected True or False, got "):
        inspect.unwrap(make)(len, numpy=numpy)


class NoBackward(torch.autograd.Function):
    """A function that has a value and no gradient."""

    @staticmethod
    def forward(ctx, x):
        return x.sum(1)

    @staticmethod
    def backward(ctx, gradient):
        raise RuntimeError("no\nbackward")


def changed_in_place(x):
    y = x.exp()
    value = y.sum(1)
    y.mul_(2)
    return value


@pytest.mark.parametrize("log_prob", [NoBackward.apply, changed_in_place])
def test_a_density_that_cannot_be_differentiated_is_one_line(log_prob):
    x = torch.ones(3, 2)
    with pytest.raises(InputError, match="model: log_prob cannot be differentiated at x: RuntimeError: ") as caught:
        scores(from_log_prob(log_prob), x)
    assert "\n" not in str(caught.value)
    with pytest.raises(InputError, match="model: log_prob cannot be differentiated at x: RuntimeError: "):
        differentiable_score(from_log_prob(log_prob), x)


@pytest.mark.parametrize("score", [from_score(lambda x: -x.detach()), from_score(lambda x: -x, numpy=True)])
def test_a_score_without_a_derivative_is_not_taken_for_constant(score):
    x = torch.randn(50, 2, generator=generator())
    with pytest.raises(InputError, match="model: its score has no derivative in x"):
        score_matching(x, score)


def test_a_score_that_is_constant_has_derivative_zero():
    x = torch.randn(50, 2, generator=generator())
    assert score_matching(x, from_score(lambda x: -torch.ones_like(x))).value == pytest.approx(1.0)


def test_a_class_is_no_model():
    with pytest.raises(InputError, match=r"model: got the class Gaussian, expected an object, such as Gaussian\(...\)"):
        scores(Gaussian, torch.ones(3, 2))


def test_a_sparse_score_is_refused():
    with pytest.raises(InputError, match="model: score returned a tensor of layout torch.sparse_coo on cpu"):
        scores(from_score(lambda x: x.to_sparse()), torch.ones(3, 2))


class Dropping(torch.nn.Module):
    """A model that is random while it trains, with a part that never trains."""

    def __init__(self):
        super().__init__()
        self.dropout, self.still = torch.nn.Dropout(0.5), torch.nn.Dropout(0.5).eval()

    def log_prob(self, x):
        return -0.5 * self.still(self.dropout(x)).square().sum(1)


def test_modules_are_judged_as_they_are_used_and_left_as_they_were():
    x, model = normal(300, 2), Dropping()
    expected = gof_test(x, Gaussian(torch.zeros(2)), critics="closed form")
    found = gof_test(x, model, critics="closed form")
    assert found.pvalue == pytest.approx(expected.pvalue, rel=1e-4)
    assert discrepancy(x, model, critics="linear").value == discrepancy(x, model, critics="linear").value
    assert model.training and model.dropout.training and not model.still.training
