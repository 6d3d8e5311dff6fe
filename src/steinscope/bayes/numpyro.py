"""Draws of NumPyro, with scores by the model's own potential energy."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from steinscope.bayes.checks import check_log_prob, some_rows
from steinscope.bayes.containers import Container, Variable, read_container
from steinscope.bayes.density import Posterior
from steinscope.bayes.labels import entry_labels, transformed_labels
from steinscope.bayes.libraries import load_library
from steinscope.bayes.trees import tree_density
from steinscope.draws import Draws
from steinscope.errors import InputError

__all__ = ["from_numpyro"]


def from_numpyro(data: Any, model: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Draws:
    """Draws of a NumPyro model in unconstrained coordinates, with scores.

    Deterministic sites are left out, and discrete ones are refused. Where the sampler's potential energy is at hand,
    the log-density is compared with it at ten draws.

    Arguments:
        data: An `MCMC` that has run. Or draws of a model's sites: a dictionary, as `get_samples` and a guide's
            `sample_posterior` return it, a container of ArviZ, or a netCDF file.
        model: The model, where `data` are draws.
        args: The arguments of the model.
        kwargs: The arguments of the model that have names.
    """
    load_library("numpyro", "numpyro")
    is_mcmc = callable(getattr(data, "get_samples", None)) and hasattr(data, "sampler")
    if is_mcmc:
        if model is not None:
            raise InputError("model", "an MCMC knows its model and data: give it alone, or its get_samples()")
        model, args, kwargs = _run_of(data)
    elif not callable(model):
        came = "none" if model is None else type(model).__name__
        raise InputError("model", f"draws that are not an MCMC need their model and its arguments, got {came}")
    sites = _Sites(model, args, kwargs)
    container = _run_container(data) if is_mcmc else _container(data, sites)
    sites.check_discrete(container)
    x = sites.unconstrained(container.draws_of(list(sites.shapes)))
    density = sites.density()
    values, scores = density.at(x)
    if container.log_prob is not None:
        rows = some_rows(x)
        check_log_prob(values.reshape(-1)[rows], container.log_prob.reshape(-1)[rows])
    elif is_mcmc:
        _check_last_state(data, list(sites.shapes), x, values)
    return Draws(x, scores, tuple(sites.names(container)), values, density, container.diverging)


class _Sites:
    """The continuous sites of a model that are not observed.

    Arguments:
        model: The model.
        args: Its arguments.
        kwargs: Its arguments with names.
    """

    def __init__(self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        handlers = load_library("numpyro.handlers", "numpyro")
        self._util = load_library("numpyro.infer.util", "numpyro")
        self.model, self.args, self.kwargs = handlers.seed(model, 0), args, kwargs
        try:
            trace = handlers.trace(self.model).get_trace(*args, **kwargs)
        except TypeError as error:
            raise InputError("model", f"it cannot be called with the arguments given: {error}") from error
        self.latent = {
            name: site for name, site in trace.items() if site["type"] == "sample" and not site["is_observed"]
        }

    def check_discrete(self, container: Container) -> None:
        """Discrete sites have no score. NumPyro sums over those that it can, of which there are then no draws."""
        for name, site in self.latent.items():
            fn = site["fn"]
            if fn.support.is_discrete and (name in container.variables or not fn.has_enumerate_support):
                raise InputError("model", f"the site {name!r} is discrete: it has no score, and the test needs one")

    @cached_property
    def _info(self) -> Any:
        key = load_library("jax", "numpyro").random.PRNGKey(0)
        return self._util.initialize_model(key, self.model, model_args=self.args, model_kwargs=self.kwargs)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of the unconstrained coordinates of each site."""
        free = self._info.param_info.z
        # In the order of the model, where dictionaries of JAX are sorted.
        return {name: np.shape(free[name]) for name in self.latent if name in free}

    def density(self) -> Posterior:
        """The posterior in unconstrained coordinates."""
        names = list(self.shapes)
        return tree_density(
            load_library("jax", "numpyro"),
            lambda parts: -self._info.potential_fn(dict(zip(names, parts, strict=True))),
            list(self.shapes.values()),
        )

    def unconstrained(self, draws: dict[str, np.ndarray]) -> np.ndarray:
        """Unconstrained coordinates (chains, draws, d) of draws (chains, draws, ...) of each site."""
        jax = load_library("jax", "numpyro")
        chains, count = next(iter(draws.values())).shape[:2]
        for name, values in draws.items():
            expected = np.shape(self.latent[name]["value"])
            if values.shape != (chains, count, *expected):
                raise InputError("data", f"{name!r} has shape {values.shape}, expected {(chains, count, *expected)}")
        flat = {name: values.reshape(-1, *values.shape[2:]) for name, values in draws.items()}
        one = lambda params: self._util.unconstrain_fn(self.model, self.args, self.kwargs, params)  # noqa: E731
        free = jax.jit(jax.vmap(one))(flat)
        return np.concatenate([np.asarray(free[name]).reshape(chains, count, -1) for name in self.shapes], axis=2)

    def names(self, container: Container) -> list[str]:
        """What the unconstrained coordinates are called."""
        transforms = load_library("numpyro.distributions", "numpyro").biject_to
        found = []
        for name, shape in self.shapes.items():
            transform = _transform_name(transforms(self.latent[name]["fn"].support))
            found += transformed_labels(transform, name, container.variables[name].labels, shape)
        return found


_SHORT_NAMES = {
    "exp": "log",
    "sigmoid": "logit",
    "stickbreaking": "simplex",
    "lowercholesky": "cholesky",
    "corrcholesky": "correlation",
}


def _transform_name(transform: Any) -> str | None:
    """What leads from a constrained value to an unconstrained one, in a word or two."""
    kind = type(transform).__name__.removesuffix("Transform").lower()
    if kind == "independent":
        return _transform_name(transform.base_transform)
    if kind == "compose":
        parts = [type(part).__name__.removesuffix("Transform").lower() for part in transform.parts]
        # A shifted or stretched log or logit, as for a value above a bound or between two.
        inner = [part for part in parts if part not in ("affine", "identity")]
        return {"exp": "bound", "sigmoid": "interval"}.get("+".join(inner), "+".join(inner) or None)
    return None if kind == "identity" else _SHORT_NAMES.get(kind, kind)


def _run_of(mcmc: Any) -> tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]:
    """The model that an MCMC has run, with its arguments."""
    model = getattr(mcmc.sampler, "model", None)
    if model is None:
        raise InputError("data", "this MCMC was made from a potential function: use from_arrays with its gradients")
    args, kwargs = getattr(mcmc, "_args", None), getattr(mcmc, "_kwargs", None)
    if args is None or mcmc.last_state is None:
        raise InputError("data", "this MCMC has not been run")
    return model, tuple(args), dict(kwargs or {})


def _run_container(mcmc: Any) -> Container:
    variables = {name: np.asarray(values) for name, values in mcmc.get_samples(group_by_chain=True).items()}
    fields = {name: np.asarray(values) for name, values in mcmc.get_extra_fields(group_by_chain=True).items()}
    stats = {name: fields[name] for name in ("diverging",) if name in fields}
    if "potential_energy" in fields:
        stats["lp"] = -fields["potential_energy"]
    return Container({name: _variable(name, values) for name, values in variables.items()}, stats)


def _variable(name: str, values: np.ndarray) -> Variable:
    return Variable(values, entry_labels(name, values.shape[2:]))


def _container(data: Any, sites: _Sites) -> Container:
    # Containers of ArviZ are mappings, too.
    if not isinstance(data, dict):
        return read_container(data)
    found = {}
    for name, values in data.items():
        values = np.asarray(values)
        # Draws of one chain, as `get_samples` returns them by default.
        is_one_chain = name in sites.latent and values.ndim == np.ndim(sites.latent[name]["value"]) + 1
        found[name] = _variable(name, values[None] if is_one_chain else values)
    return Container(found)


def _check_last_state(mcmc: Any, sites: list[str], x: np.ndarray, values: np.ndarray) -> None:
    """The sampler's last state, which is the last draw unless chains were thinned, always has a potential energy."""
    state = mcmc.last_state
    if not hasattr(state, "potential_energy") or set(getattr(state, "z", ())) != set(sites):
        return
    z = np.concatenate([np.asarray(state.z[name]).reshape(len(x), -1) for name in sites], axis=1)
    if np.allclose(z, x[:, -1], rtol=1e-3, atol=1e-3):
        # Both have the same constant, so that one chain is enough: with zeros beside them the constant is zero.
        theirs = -np.asarray(state.potential_energy).reshape(len(x))
        check_log_prob(np.append(values[:, -1], 0.0), np.append(theirs, 0.0))
