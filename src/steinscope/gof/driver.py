"""Test whether points come from a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, Literal

import torch

from steinscope.chains import dependence_note, in_chains, measure_chains, scores_in_chains
from steinscope.cluster.points import ClusterPoints, points_on_cluster
from steinscope.densities import model_of
from steinscope.draws import Draws
from steinscope.effects import with_effects
from steinscope.errors import InputError
from steinscope.gof.pairs import few_points_test, fitted_note
from steinscope.gof.prequential import prequential_test
from steinscope.gof.split import split_test
from steinscope.gof.trials import HEAD_ROWS
from steinscope.modes.weights import check_starts
from steinscope.portfolio.choice import (
    CLOSED_FORM,
    CriticChoice,
    Critics,
    choose_critics,
    critic_name,
    is_closed_form,
    is_made_of_sums,
)
from steinscope.registries import CRITICS
from steinscope.results import TestResult, with_support
from steinscope.scoring import make_points
from steinscope.support.checks import check_choice, check_count, check_level, check_seed
from steinscope.ties import tie_notes
from steinscope.unconstrained import unconstrained_model

__all__ = ["gof_test"]

LEAST_POINTS = 100
MOST_REPEATS = 1000
ORDERS = 4
# Beyond so many points one order takes as long as four of fewer, and power is not what is missing.
MANY_POINTS = 50_000


@torch.inference_mode(False)
def gof_test(
    x: Any,
    model: Any = None,
    *,
    support: Any = None,
    chains: bool | None = None,
    scheme: Literal["prequential", "split"] = "prequential",
    critics: Critics = "auto",
    blocks: int = 10,
    alpha: float = 0.05,
    repeats: int | None = None,
    names: Sequence[str] | None = None,
    starts: Any = None,
    jobs: int | None = None,
    seed: int = 0,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> TestResult:
    """A goodness-of-fit test of the hypothesis that the points come from the model.

    By default critics learn block by block, and each block is tested by critics that have not seen it;
    `scheme="split"` is Algorithm 2 of the paper.

    Arguments:
        x: The points, an array (n, ...), a data frame, a memmap, or the path of a directory of .npy or Parquet
            shards (or a list of such files), or a Dask array or data frame; or `Draws` of a posterior. If a Dask client
            is active, shards and partitions stay where they are. At least 20 points; fewer than 100 are too few for
            critics to learn from, and all pairs of points are tested instead.
        model: An object with `score(x)` or `log_prob(x)`, or an array of scores at x; not needed for `Draws`.
        support: Where the model's density is positive: `"positive"`, `"unit"`, `(low, high)`, `"simplex"`, a constraint
            of torch.distributions, or a list with one of them for each coordinate. By default what the model declares,
            as those of torch.distributions do; `"real"` to test x as it is.
        chains: Whether x holds draws of Markov chains, which depend on each other. x, and an array of scores, then have
            the shape (chains, draws, ...). By default true for `Draws` and false otherwise.
        scheme: `"prequential"`: critics that have seen only earlier blocks test each block. `"split"`: the paper's
            scheme, one MLP trained on 80% of the points, chosen on 10% and tested on 10%.
        critics: `"auto"` for all that apply, `"closed form"` for those of them that need no training, or some of the
            names in `steinscope.registries.CRITICS` (`"mean"`, `"linear"`, `"additive"`, `"kernel"`, `"mlp"`, `"model"`
            where the model has features, and `"modes"` where it has `log_prob`) and critics or networks of your own.
        blocks: The number of blocks into which the points are divided.
        alpha: The level.
        repeats: The number of random orders of the points in which critics in closed form are tested: 4 by default, and
            1 for more than 50 000 points. Critics that are trained are tested in the first order only; without others,
            in all, by default one. With 1 all pairs of points are not tested either, which is the quickest.
        names: The names of the coordinates in findings and explanations; by default the columns of x if it is a data
            frame.
        starts: Further points, of the shape of those in x, from which to search for modes of the model. By default the
            search starts from some points of x, and from places around them.
        jobs: The number of orders that run at once, in processes with one thread each, which pays off for large x; by
            default one after the other, with all threads. The numbers are the same to the bit for any number. Under
            `joblib.parallel_config(backend="dask")` orders run on a Dask cluster.
        seed: A whole number: the order of the points and all that is random in the critics.
        dtype: The floating type to compute in; by default that of x.
        device: Where to compute; by default where x is.
        progress: Whether to show a progress bar for the split scheme; by default on a terminal.

    Returns:
        The result, with `pvalue`, `rejected` and `findings`; it prints as text.

    Example:
        >>> from steinscope.models import Gaussian
        >>> x = Gaussian(torch.zeros(5)).sample(500)
        >>> gof_test(x, Gaussian(torch.zeros(5))).rejected, gof_test(x, Gaussian(torch.ones(5))).rejected
        (False, True)
    """
    alpha, seed = check_level("alpha", alpha), check_seed("seed", seed)
    if repeats is not None:
        repeats = check_count("repeats", repeats, most=MOST_REPEATS)
    if jobs is not None:
        jobs = check_count("jobs", jobs)
    check_choice("scheme", scheme, ("prequential", "split"))
    x, shape = in_chains(x, chains)
    model = scores_in_chains(model_of(x, model), shape)
    options = {"support": support, "names": names, "dtype": dtype, "device": device}
    # How many blocks there may be depends on the points, so that a wrong number is refused later.
    can_stay = scheme == "prequential" and shape is None and isinstance(blocks, Integral) and blocks > 1
    points = points_on_cluster(x, model, **options, least=int(blocks) * HEAD_ROWS) if can_stay else None
    points = (make_points(x, model, **options) if points is None else points).with_room()
    dependence = None if shape is None else measure_chains(points, shape).checked()
    about = "posterior" if isinstance(x, Draws) else "model"
    if scheme == "split":
        if dependence is not None:
            raise InputError("scheme", "'split' is for independent points; for chains use 'prequential'")
        if len(points) < LEAST_POINTS:
            raise InputError("x", f"{len(points)} rows are too few to be split, which needs {LEAST_POINTS}")
        return with_support(with_effects(split_test(points, alpha, seed, progress), points, about=about), points)
    model = unconstrained_model(model, points.coordinates)
    chosen = choose_critics(critics, model, len(points), "test")
    left: list[str] = []
    if points.is_afar:
        chosen, left = _made_of_sums(chosen, is_choice=critics in ("auto", CLOSED_FORM, ["auto"], [CLOSED_FORM]))
    starts = check_starts(starts, points, model, points.coordinates)
    # Draws of chains depend on each other and stay where they are, and that is known.
    ties = [] if dependence is not None else tie_notes(points)
    if len(points) < LEAST_POINTS:
        few = few_points_test(points, chosen, alpha, seed)
        return with_support(replace(few, about=about, notes=(*few.notes, *ties)), points)
    note = None if dependence is not None or chains is False else dependence_note(points)
    blocks = check_count("blocks", blocks, 2, len(points) // 10)
    if repeats is None:
        repeats = ORDERS if len(points) <= MANY_POINTS and any(map(is_closed_form, chosen)) else 1
    result = prequential_test(points, model, chosen, blocks, repeats, alpha, seed, starts, dependence, jobs)
    notes = (fitted_note(result.pairs), *ties, note)
    result = replace(result, notes=(*result.notes, *(text for text in notes if text is not None)))
    result = with_support(with_effects(result, points, dependence, about), points)
    if isinstance(points, ClusterPoints):
        without = f"; critics that need single points were not run: {', '.join(left)}" if left else ""
        result = replace(result, notes=(*result.notes, f"the points stayed on the cluster: {points.traffic}{without}"))
    return result


def _made_of_sums(critics: list[CriticChoice], is_choice: bool) -> tuple[list[CriticChoice], list[str]]:
    """The critics that need no more than sums over most points, and the names of those that do.

    Arguments:
        critics: The critics that apply.
        is_choice: Whether they were chosen for the user. One that was asked for by name is not left out in silence.
    """
    kept = [critic for critic in critics if is_made_of_sums(critic)]
    left = [critic_name(critic) for critic in critics if not is_made_of_sums(critic)]
    if left and not (kept and is_choice):
        able = ", ".join(repr(name) for name in CRITICS if is_made_of_sums(name))
        raise InputError(
            "critics",
            f"{left[0]!r} learns from single points, and these stay on the cluster; expected some of {able}, or points "
            "in one array",
        )
    return kept, left
