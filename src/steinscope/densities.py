"""What a model is: something with a score, which is the gradient of its log-density in x.

A model is any object with `score(x)` or with `log_prob(x)`, which need not be normalised. Distributions of
torch.distributions and modules with `log_prob` are models as they are. Plain functions become models by
`from_log_prob`, `from_energy` and `from_score`. Distributions of scipy.stats (`logpdf`) and density estimators of
scikit-learn (`score_samples`) are models by central differences, and flows of zuko as they are. Where a model is only
evaluated at x, an array of scores is enough.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from traceback import walk_tb
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor, nn

from steinscope.central_differences import are_single, central_differences
from steinscope.draws import Draws
from steinscope.errors import InputError, NonFiniteError, first_line
from steinscope.flows import as_flow, refuse_guide
from steinscope.foreign import check_fitted_columns, foreign_density
from steinscope.frames import check_score_columns, is_frame
from steinscope.kernel_density import as_kernel_sum
from steinscope.support.checks import check_flag
from steinscope.supports import check_support, find_region

__all__ = [
    "Density",
    "WithLogProb",
    "WithSample",
    "WithScoreAlong",
    "as_density",
    "call_model",
    "differentiable_score",
    "evaluating",
    "from_energy",
    "from_log_prob",
    "from_score",
    "is_of_function",
    "knows_log_prob",
    "log_prob_at",
    "model_of",
    "placement",
]


@runtime_checkable
class Density(Protocol):
    """A model with a score: `score(x)` gives the gradient of its log-density at each point."""

    def score(self, x: Tensor) -> Tensor:
        """The score at each point, of the shape of x."""
        ...


@runtime_checkable
class WithLogProb(Protocol):
    """A model that knows its log-density, up to a constant."""

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-density at each point."""
        ...


@runtime_checkable
class WithScoreAlong(Protocol):
    """A model that gives the product of its score with a vector at each point for less than the whole score costs."""

    def score_along(self, x: Tensor, v: Tensor) -> Tensor:
        """s(x) · v at each point, differentiable in the model's parameters."""
        ...


@runtime_checkable
class WithSample(Protocol):
    """A model that can be sampled from exactly."""

    def sample(self, n: int, seed: Any = 0) -> Tensor:
        """n independent points."""
        ...


class _LogProbDensity:
    """A density given by a differentiable log-density; its score comes from autograd."""

    def __init__(self, log_prob: Callable[[Tensor], Tensor], name: str, support: Any = None) -> None:
        self._log_prob = log_prob
        self._name = name
        self.support = check_support(support)

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-density at each point, up to a constant."""
        return _one_per_point(_tensor(call_model(self._log_prob, x, self._name), self._name), x, self._name)

    def score(self, x: Tensor) -> Tensor:
        """The gradient of the log-density at each point."""
        with torch.inference_mode(False), torch.enable_grad():
            # A clone, because x may be an inference tensor, which autograd refuses.
            x = x.detach().clone().requires_grad_()
            value = self.log_prob(x)
            score = _gradient(value, x, self._name) if value.requires_grad else None
        if score is None:
            if bool((value != value[0]).any()):
                raise InputError(
                    "model",
                    f"{self._name} does not depend on x through torch operations; "
                    "give its score by from_score, or pass numpy=True",
                )
            # A uniform density: in unconstrained coordinates it is not constant.
            return torch.zeros_like(x)
        return score


class _NumpyLogProbDensity:
    """A density given by a function on NumPy arrays; its score comes from central differences in float64."""

    def __init__(self, fn: Callable[[np.ndarray], Any], name: str, support: Any, sign: float = 1.0) -> None:
        # The log-density is sign times the function: an energy has -1.
        self._fn, self._sign = fn, sign
        self._name = name
        self.support = check_support(support)

    def log_prob(self, x: Tensor) -> Tensor:
        """The log-density at each point, up to a constant."""
        return torch.from_numpy(self._values(x.detach().cpu().double().numpy())).to(x)

    def _values(self, points: np.ndarray) -> np.ndarray:
        value = _from_numpy(call_model(self._fn, points, self._name), self._name).double()
        return self._sign * _one_per_point(value, torch.from_numpy(points), self._name).numpy()

    def score(self, x: Tensor) -> Tensor:
        """The gradient of the log-density at each point, by 2 d evaluations."""
        points = x.detach().cpu().double().numpy()
        region = None if self.support is None else find_region(None, self, x.shape[1:])
        bounds = () if region is None else (region.low.numpy(), region.high.numpy())
        score, values = central_differences(
            lambda moved: self._values(moved.reshape(points.shape)), points.reshape(len(points), -1), *bounds
        )
        if all(map(are_single, values)):
            raise InputError(
                "model",
                f"{self._name} has the digits of float32, too few for central differences; compute it in float64 "
                '(in JAX: jax.config.update("jax_enable_x64", True)), or give its gradient by from_score',
            )
        return torch.from_numpy(score.reshape(points.shape)).to(x)


class _ScoreDensity:
    """A density given by its score function."""

    def __init__(self, score: Callable[[Any], Any], numpy: bool, support: Any = None) -> None:
        self._score = score
        self._numpy = numpy
        self.support = check_support(support)

    def score(self, x: Tensor) -> Tensor:
        """The gradient of the log-density at each point."""
        if self._numpy:
            return _from_numpy(call_model(self._score, x.detach().cpu().numpy(), "score"), "score").to(x)
        return _tensor(call_model(self._score, x, "score"), "score")


def from_log_prob(fn: Callable[[Any], Any], *, numpy: bool = False, support: Any = None) -> Density:
    """A model from its log-density, which need not be normalised.

    Arguments:
        fn: Takes points (n, ...) to n log-densities.
        numpy: Whether `fn` works on NumPy arrays. The score then comes from central differences, with 2 d evaluations
            for each batch; if you have the gradient, `from_score` is faster and more accurate.
        support: Where the density is positive: `"positive"`, `"unit"`, `(low, high)`, `"simplex"`, a constraint of
            torch.distributions, or a list with one of them for each coordinate; by default everywhere.

    Example:
        >>> model = from_log_prob(lambda x: -0.5 * (x**2).sum(1))
        >>> model.score(torch.tensor([[1.0, 2.0]]))
        tensor([[-1., -2.]])
    """
    _check_callable(fn)
    return (_NumpyLogProbDensity if check_flag("numpy", numpy) else _LogProbDensity)(fn, "log_prob", support)


def from_energy(fn: Callable[[Any], Any], *, numpy: bool = False, support: Any = None) -> Density:
    """A model from its energy, which is minus the log-density.

    Arguments:
        fn: Takes points (n, ...) to n energies.
        numpy: Whether `fn` works on NumPy arrays; see `from_log_prob`.
        support: Where the density is positive; see `from_log_prob`.

    Example:
        >>> model = from_energy(lambda x: 0.5 * (x**2).sum(1))
        >>> model.score(torch.tensor([[1.0, 2.0]]))
        tensor([[-1., -2.]])
    """
    _check_callable(fn)
    if check_flag("numpy", numpy):
        return _NumpyLogProbDensity(fn, "energy", support, sign=-1.0)
    return _LogProbDensity(lambda x: -fn(x), "energy", support)


def from_score(fn: Callable[[Any], Any], *, numpy: bool = False, support: Any = None) -> Density:
    """A model from its score, the gradient of the log-density with respect to x.

    Arguments:
        fn: Takes points (n, ...) to scores of the same shape.
        numpy: Whether `fn` works on NumPy arrays, as functions of JAX, Stan and PyMC do.
        support: Where the density is positive; see `from_log_prob`.

    Example:
        >>> model = from_score(lambda x: -x, numpy=True)
        >>> model.score(torch.tensor([[1.0, 2.0]]))
        tensor([[-1., -2.]])
    """
    _check_callable(fn)
    return _ScoreDensity(fn, check_flag("numpy", numpy), support)


def is_of_function(model: Any) -> bool:
    """Whether a model was made by `from_log_prob`, `from_energy` or `from_score`, which do not know its parameters."""
    return isinstance(model, _ScoreDensity | _LogProbDensity | _NumpyLogProbDensity)


def as_density(model: Any) -> Density:
    """`model` as something with a score, or an `InputError` that says what a model can be."""
    if is_of_function(model):
        return model
    if isinstance(model, type):
        raise InputError("model", f"got the class {_name(model)}, expected an object, such as {_name(model)}(...)")
    model = _foreign_density(model) or model
    if isinstance(model, _NumpyLogProbDensity):
        return model
    if callable(getattr(model, "score", None)):
        return _ScoreDensity(model.score, numpy=False)
    if (log_prob := _log_prob_of(model)) is not None:
        return log_prob
    if callable(model):
        refuse_guide(model)
        raise InputError(
            "model",
            f"got the function or callable {_name(model)}; say what it computes: "
            "from_log_prob(fn), from_energy(fn) or from_score(fn)",
        )
    raise InputError(
        "model",
        "expected an object with score(x), log_prob(x) or energy(x), a function wrapped by from_log_prob, from_energy "
        f"or from_score, or an array of scores at x, got {_name(model)}",
    )


def model_of(x: Any, model: Any) -> Any:
    """The model that points are held against: the one that was given, or that of draws which bring their own.

    Arguments:
        x: The points as the user holds them.
        model: What the user gave, or None.
    """
    if model is None:
        if isinstance(x, Draws):
            return x.model
        raise InputError("model", "expected a model or its scores at x; only Draws of steinscope.bayes bring their own")
    if is_frame(x):
        check_fitted_columns(model, [str(label) for label in x.columns])
        check_score_columns(x, model)
    return _foreign_density(model) or model


def _foreign_density(model: Any) -> Density | WithLogProb | None:
    """A distribution of scipy.stats, an estimator of scikit-learn or a flow of zuko as a model; None for all else."""
    if (kernels := as_kernel_sum(model)) is not None:
        return kernels
    found = foreign_density(model)
    return as_flow(model) if found is None else _NumpyLogProbDensity(*found)


def differentiable_score(model: Any, x: Tensor) -> Tensor:
    """The score at each point, through which gradients reach the model's parameters and x.

    Arguments:
        model: A model; a differentiable `log_prob` is preferred to `score`.
        x: The points.
    """
    if _log_prob_of(model) is None:
        score = as_density(model).score(x)
        if x.requires_grad and not score.requires_grad and bool((score != score[0]).any()):
            raise InputError("model", "its score has no derivative in x: it does not depend on x by torch operations")
        return score
    with torch.enable_grad():
        x = x if x.requires_grad else x.detach().requires_grad_()
        value = log_prob_at(model, x)
        score = _gradient(value, x, "log_prob", keep_graph=True) if value.requires_grad else None
    if score is None:
        raise InputError("model", "log_prob does not depend on x through torch operations")
    return score


def _gradient(value: Tensor, x: Tensor, name: str, *, keep_graph: bool = False) -> Tensor | None:
    """The gradient in x of what a function of the user's returned; None where it does not depend on x."""
    try:
        return torch.autograd.grad(value.sum(), x, create_graph=keep_graph, allow_unused=True)[0]
    except Exception as error:
        raise InputError("model", f"{name} cannot be differentiated at x: {first_line(error)}") from error


def knows_log_prob(model: Any) -> bool:
    """Whether a model has a log-density, as `log_prob(x)` or as `energy(x)`."""
    return _log_prob_of(model) is not None


def log_prob_at(model: Any, x: Tensor) -> Tensor:
    """The model's log-density at each point: n finite or infinite numbers, or an `InputError` that says what came."""
    log_prob = _log_prob_of(model)
    if log_prob is None:
        raise InputError("model", f"expected an object with log_prob(x), got {_name(model)}")
    return log_prob.log_prob(x)


def _log_prob_of(model: Any) -> _LogProbDensity | None:
    """What knows the log-density of an object: its `log_prob`, or minus its `energy`; None where it has neither."""
    if callable(getattr(model, "log_prob", None)):
        return _LogProbDensity(model.log_prob, "log_prob")
    if callable(getattr(model, "energy", None)):
        return _LogProbDensity(lambda x: -model.energy(x), "energy")
    return None


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Put a module, and all that it is made of, into evaluation mode, and back to the modes that they had."""
    training = [part for part in model.modules() if part.training] if isinstance(model, nn.Module) else []
    for part in training:
        part.training = False
    try:
        yield
    finally:
        for part in training:
            part.training = True


def placement(model: Any, dtype: torch.dtype, device: torch.device) -> tuple[torch.dtype, torch.device]:
    """Where and in which type the model computes: as its parameters do, otherwise as x."""
    if isinstance(model, nn.Module):
        for tensor in [*model.parameters(), *model.buffers()]:
            if tensor.is_floating_point():
                return tensor.dtype, tensor.device
    return dtype, device


def call_model(fn: Callable[[Any], Any], x: Any, name: str) -> Any:
    """A function of the user's at points.

    It gets a copy, so that it may work in place. One that fails at float64 is tried at float32: the weights of its
    network may be of that type. Whatever it raises becomes one line, with the error as its cause.
    """
    copy = x.copy() if isinstance(x, np.ndarray) else x.clone()
    try:
        try:
            return fn(copy)
        except RuntimeError:
            if isinstance(x, np.ndarray) or x.dtype != torch.float64:
                raise
            return fn(x.float())
    except (InputError, NonFiniteError):
        raise
    except Exception as error:
        raise InputError("model", f"{name} failed at x: {first_line(error)}{_kind_hint(error, x, name)}") from error


def _kind_hint(error: Exception, x: Any, name: str) -> str:
    """What to say where a function on arrays got tensors, or one on tensors got arrays."""
    if isinstance(x, np.ndarray):
        wants_tensors = "numpy.ndarray" in str(error) and isinstance(error, TypeError | AttributeError)
        return "; it was said to work on NumPy arrays: leave out numpy=True if it works on tensors" * wants_tensors
    # Functions of JAX name the class of what they cannot take, and those of NumPy and scipy fail inside of these.
    is_of_jax = isinstance(error, TypeError) and "torch.Tensor" in str(error)
    inside = {frame.f_globals.get("__name__", "").partition(".")[0] for frame, _ in walk_tb(error.__traceback__)}
    is_of_numpy = "numpy()" in str(error) or bool(inside & {"numpy", "scipy"})
    return _numpy_hint(name) if is_of_jax or is_of_numpy else ""


def _numpy_hint(name: str) -> str:
    return f"; a function on arrays of NumPy or JAX becomes a model by from_{name}(fn, numpy=True)"


def _tensor(value: Any, name: str) -> Tensor:
    """What a function of the user's returned, if it is a tensor of real numbers."""
    if not isinstance(value, Tensor):
        came = "a NumPy array" if isinstance(value, np.ndarray) else type(value).__name__
        hint = _numpy_hint(name) if hasattr(type(value), "__array__") else ""
        raise InputError("model", f"{name} returned {came}, expected a tensor{hint}")
    if value.is_complex():
        raise InputError("model", f"{name} returned complex numbers, expected real ones")
    if value.layout != torch.strided or value.is_meta:
        raise InputError(
            "model", f"{name} returned a tensor of layout {value.layout} on {value.device}, expected a dense one"
        )
    return value


def _from_numpy(value: Any, name: str) -> Tensor:
    """What a function on NumPy arrays returned, as a tensor."""
    if isinstance(value, Tensor):
        return _tensor(value.detach(), name)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError("model", f"{name} returned what is not an array: {first_line(error)}") from error
    if array.dtype.kind not in "fiub" or np.ma.is_masked(value):
        kind = "masked values" if np.ma.is_masked(value) else f"numbers of type {array.dtype}"
        raise InputError("model", f"{name} returned {kind}, expected real numbers")
    # A copy in the machine's order of bytes, of a type that torch knows.
    return torch.from_numpy(array.astype(np.float32 if array.dtype == np.float32 else np.float64))


def _one_per_point(value: Tensor, x: Tensor, name: str) -> Tensor:
    n = len(x)
    if value.shape == (n,):
        return value
    if value.numel() == n and value.shape[:1] == (n,):
        return value.reshape(n)
    hint = ""
    if value.ndim == 0 and n > 1:
        hint = ", one number for all: sum over the coordinates of each point, sum(1), and not over the points"
    if value.shape == x.shape:
        hint = "; sum over the coordinates (torch.distributions.Independent does)"
    raise InputError(
        "model", f"{name} must return one number for each of the {n} points, got {tuple(value.shape)}{hint}"
    )


def _check_callable(fn: Any) -> None:
    if not callable(fn):
        raise InputError("fn", f"expected a function, got {_name(fn)}")


def _name(value: Any) -> str:
    return getattr(value, "__name__", None) or f"an object of type {type(value).__name__}"
