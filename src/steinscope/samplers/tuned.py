"""Samples from a model of this library without a choice of step size: pilot steps find one."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from steinscope.densities import WithSample
from steinscope.errors import InputError
from steinscope.models.ebm import EBM
from steinscope.points import check_rows, read_rows, rows_dtype
from steinscope.samplers.chains import State, mirrored_inside, run_chains
from steinscope.samplers.hmc import HMC
from steinscope.samplers.langevin import MALA
from steinscope.support.checks import check_choice, check_number, check_sample_size, check_seed
from steinscope.support.randomness import make_generator, next_seed

__all__ = ["draw_samples", "tune_step_size"]

_ACCEPTANCE = 0.6
_ROUNDS, _ROUND_STEPS = 20, 10


@torch.inference_mode(False)
def draw_samples(
    model: Any,
    n: int,
    *,
    sampler: str = "mala",
    steps: int = 1000,
    step_size: float | None = None,
    seed: int = 0,
    progress: bool | None = None,
) -> tuple[np.ndarray, str]:
    """n samples of a model.

    Arguments:
        model: A model with `sample(n, seed)`, which is then exact, or an `EBM`, whose chains start at its Gaussian.
        n: The number of samples, each from the end of its own chain.
        sampler: `"mala"` or `"hmc"`.
        steps: Steps of each chain.
        step_size: The size of a step; by default `tune_step_size` finds one.
        seed: The source of all noise.
        progress: As in `run_chains`.

    Example:
        >>> from steinscope.models import Gaussian
        >>> samples, how = draw_samples(Gaussian(torch.zeros(2)), 5)
        >>> samples.shape, how
        ((5, 2), 'exact')
    """
    check_sample_size("n", n)
    if step_size is not None:
        check_number("step_size", step_size, over=0)
    if isinstance(model, torch.distributions.Distribution):
        raise InputError("model", "a distribution of torch has no seed; call its own sample")
    if isinstance(model, WithSample):
        return model.sample(n, seed).numpy(), "exact"
    if not isinstance(model, EBM):
        raise InputError("model", "expected an EBM or a model with sample(n, seed); run_chains takes others")
    generator = make_generator(seed, model.mean.device, purpose="sample")
    noise = torch.randn(n, model.dim, generator=generator, dtype=model.mean.dtype, device=model.mean.device)
    with torch.no_grad():
        x = mirrored_inside((model.mean + model.log_std.exp() * noise).view(n, *model.shape), model)
    state = State(x)
    if step_size is None:
        step_size, state = tune_step_size(model, x, sampler, seed=seed)
    chains = run_chains(_make(sampler, model, step_size), state.x, steps, seed=seed, progress=progress)
    how = f"{steps} steps of {sampler.upper()}, step size {step_size:.3g}, {chains.acceptance.mean():.0%} accepted"
    return chains.trajectory[-1], how


def tune_step_size(model: Any, x: torch.Tensor, sampler: str = "mala", *, seed: int = 0) -> tuple[float, State]:
    """A step size with which about 60% of the steps are accepted, and the ends of the pilot chains that found it.

    Arguments:
        model: An object with `log_prob(x)`.
        x: Where the chains start; their spread is the first guess.
        sampler: `"mala"` or `"hmc"`.
        seed: The source of all noise.

    Example:
        >>> from steinscope.models import Gaussian
        >>> size, _ = tune_step_size(Gaussian(torch.zeros(2)), torch.zeros(100, 2))
        >>> 0.5 < size < 5.0
        True
    """
    check_choice("sampler", sampler, ("mala", "hmc"))
    seed, rows = check_seed("seed", seed), check_rows(x, "x")
    x = read_rows(rows, slice(None), dtype=rows_dtype(rows))
    spread = float(x.double().std()) if x.numel() > 1 else 1.0
    size = 0.1 * (spread or 1.0) ** (2 if sampler == "mala" else 1)
    state = State(x)
    for number in range(_ROUNDS):
        chains = run_chains(
            _make(sampler, model, size), state.x, _ROUND_STEPS, seed=next_seed(seed, number + 1), progress=False
        )
        # Large changes first, small ones later.
        size *= math.exp(3.0 * (float(chains.acceptance.mean()) - _ACCEPTANCE) / math.sqrt(1 + number / 4))
        state = State(chains.x)
    return size, state


def _make(sampler: str, model: Any, step_size: float) -> MALA | HMC:
    check_choice("sampler", sampler, ("mala", "hmc"))
    return MALA(model, step_size) if sampler == "mala" else HMC(model, step_size)
