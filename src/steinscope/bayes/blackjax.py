"""States of BlackJAX, which hold the log-density and its gradient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from steinscope.bayes.arrays import check_dims, from_arrays
from steinscope.bayes.libraries import load_library
from steinscope.bayes.trees import tree_density
from steinscope.draws import Draws
from steinscope.errors import InputError

__all__ = ["from_blackjax"]


def from_blackjax(
    states: Any,
    logdensity_fn: Callable[[Any], Any] | None = None,
    *,
    dims: Sequence[str] | None = None,
    names: Sequence[str] | None = None,
    diverging: Any = None,
) -> Draws:
    """Draws from the states of a BlackJAX sampler: NUTS, HMC, MALA, and others that keep the gradient.

    Arguments:
        states: The states of all steps after warm-up, as `jax.lax.scan` stacks them.
        logdensity_fn: The log-density that was sampled, which takes one position. With it states without a gradient
            will do, those of others are compared with it at ten draws, and the weights of modes can be looked at.
        dims: What the first axes of the states are: `("draw",)`, `("draw", "chain")` where all chains make a step at a
            time, or `("chain", "draw")` where whole chains were mapped. Needed where there are chains.
        names: What the coordinates are called; by default after the tree of positions, `theta[0]`.
        diverging: `infos.is_divergent`, if at hand.
    """
    tree = load_library("jax", "blackjax", "states").tree_util
    if not hasattr(states, "position") or not hasattr(states, "logdensity"):
        raise InputError("states", f"expected states with position and logdensity, got {type(states).__name__}")
    values = np.asarray(states.logdensity)
    axes = _axes(values.ndim, dims)
    paths, structure = tree.tree_flatten_with_path(states.position)
    labels = [tree.keystr(path, simple=True, separator=".") or "x" for path, _ in paths]
    leaves = [np.asarray(leaf) for _, leaf in paths]
    shapes = [leaf.shape[len(axes) :] for leaf in leaves]
    density = None
    if logdensity_fn is not None:
        density = tree_density(
            load_library("jax", "blackjax", "states"),
            lambda parts: logdensity_fn(tree.tree_unflatten(structure, parts)),
            shapes,
        )
    gradient = getattr(states, "logdensity_grad", None)
    if gradient is not None:
        slopes = [np.asarray(leaf) for leaf in tree.tree_leaves(gradient)]
    elif density is not None:
        flat = np.concatenate([leaf.reshape(values.size, -1) for leaf in leaves], axis=1)
        scores = density.values(flat)[1]
        ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
        slopes = [part.reshape(leaf.shape) for part, leaf in zip(np.split(scores, ends, axis=1), leaves, strict=True)]
    else:
        raise InputError(
            "states", f"a {type(states).__name__} holds no gradient: give logdensity_fn, from which it is computed"
        )
    return from_arrays(
        dict(zip(labels, leaves, strict=True)),
        dict(zip(labels, slopes, strict=True)),
        dims=axes,
        names=names,
        log_prob=values,
        density=density,
        diverging=diverging,
    )


def _axes(count: int, dims: Any) -> tuple[str, ...]:
    if dims is None:
        if count == 1:
            return ("draw",)
        raise InputError(
            "dims",
            "these states have several chains: say ('draw', 'chain') where all chains made a step at a time, or "
            "('chain', 'draw') where whole chains were mapped",
        )
    axes = check_dims(dims)
    if len(axes) != count:
        raise InputError("dims", f"the states have {count} axes before their positions, got {axes}")
    return axes
