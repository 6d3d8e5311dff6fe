"""Trees of JAX arrays as flat vectors, and densities on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from steinscope.bayes.density import Posterior

__all__ = ["tree_density"]


def tree_density(jax: Any, log_prob: Callable[[list[Any]], Any], shapes: Sequence[tuple[int, ...]]) -> Posterior:
    """A density on flat vectors from one on lists of arrays.

    Arguments:
        jax: The module.
        log_prob: Takes arrays of these shapes to their log-density.
        shapes: The shape of each array.
    """
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])

    def flat_log_prob(vector: Any) -> Any:
        parts = [
            vector[end - int(np.prod(shape)) : end].reshape(shape) for end, shape in zip(ends, shapes, strict=True)
        ]
        return log_prob(parts)

    return Posterior(jax.jit(jax.vmap(jax.value_and_grad(flat_log_prob))))
