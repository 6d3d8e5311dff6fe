"""One verdict about draws of a posterior, from all diagnostics of them."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from steinscope.bayes.convergence import bulk_ess, rhat, tail_ess
from steinscope.chains import TooFewDraws
from steinscope.draws import Draws
from steinscope.errors import InputError
from steinscope.findings import spoken
from steinscope.gof.driver import gof_test
from steinscope.portfolio.choice import Critics
from steinscope.results import TestResult, equals_pvalue

__all__ = ["PosteriorCheck", "Verdict", "check_posterior"]

Verdict = Literal["misfit", "nothing found", "cannot tell"]

# The limits of Vehtari et al. (2021): r̂, and the effective draws of each chain. Beyond the second limit of r̂ chains
# are not slow but elsewhere.
MOST_RHAT, SURELY_APART = 1.01, 1.05
LEAST_ESS = 100
_LEAST_DRAWS = 4
# Of shorter chains r̂ is large by chance.
_ENOUGH_FOR_RHAT = 100


@dataclass(frozen=True)
class PosteriorCheck:
    """Diagnostics of draws of a posterior, with one verdict.

    Arguments:
        verdict: "misfit", "nothing found" or "cannot tell".
        reasons: Why, in words.
        test: The Stein test; None if it could not be made.
        problem: Why it could not be made.
        rhat: The rank-normalised split r̂ of each coordinate.
        bulk_ess: Effective draws for the centre of each coordinate.
        tail_ess: Effective draws for its 5% and 95% quantiles.
        divergences: How many draws end a divergent trajectory; None where the sampler does not say.
        names: What the coordinates are called.
        chains: How many chains there are.
        draws: How many draws each has.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    test: TestResult | None
    problem: str | None
    rhat: np.ndarray = field(repr=False)
    bulk_ess: np.ndarray = field(repr=False)
    tail_ess: np.ndarray = field(repr=False)
    divergences: int | None
    names: tuple[str, ...] = field(repr=False)
    chains: int
    draws: int

    @property
    def least_ess(self) -> int:
        """How many effective draws there should be: 100 for each chain."""
        return LEAST_ESS * self.chains

    def rows(self) -> list[tuple[str, str, str, str]]:
        """The diagnostics: name, value, limit, and what each detects."""
        test, modes = self.test, None if self.test is None else self.test.modes
        found = f"p {equals_pvalue(test.pvalue)}" if test is not None else "none"
        limit = f"{test.alpha:g}" if test is not None else ""
        rows = [
            ("Stein test", found, limit, "wrong density, approximation, biased sampler"),
            ("largest r̂", _worst(self.rhat, self.names, largest=True), f"{MOST_RHAT}", "chains that do not mix"),
            ("smallest bulk ESS", _worst(self.bulk_ess, self.names), f"{self.least_ess}", "too few draws for means"),
            ("smallest tail ESS", _worst(self.tail_ess, self.names), f"{self.least_ess}", "too few for quantiles"),
        ]
        divergent = "not recorded" if self.divergences is None else str(self.divergences)
        rows.append(("divergences", divergent, "0", "places that the sampler cannot enter"))
        weights = "not looked at" if modes is None else f"{len(modes.count)}, p = {modes.pvalue:.3g}"
        rows.append(("modes", weights, "" if modes is None else f"{modes.alpha:g}", "mass between separated modes"))
        return rows

    def to_dict(self) -> dict[str, Any]:
        """Numbers, strings and lists, ready for JSON."""
        return {
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "test": None if self.test is None else self.test.to_dict(),
            "problem": self.problem,
            "divergences": self.divergences,
            "chains": self.chains,
            "draws": self.draws,
            "coordinates": [
                {"name": name, "rhat": float(one), "bulk_ess": float(bulk), "tail_ess": float(tail)}
                for name, one, bulk, tail in zip(self.names, self.rhat, self.bulk_ess, self.tail_ess, strict=True)
            ],
        }

    def __str__(self) -> str:
        lines = [
            f"{self.chains} chain{'s' if self.chains > 1 else ''} × {self.draws} draws, {len(self.names)} coordinates",
            f"verdict: {self.verdict}",
            *(f"  {reason}" for reason in self.reasons),
            "",
        ]
        rows = [("diagnostic", "value", "limit", "detects"), *self.rows()]
        widths = [max(map(_width, column)) for column in zip(*rows, strict=True)]
        for row in rows:
            cells = [cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=True)]
            lines.append("  ".join(cells).rstrip())
        if self.test is not None:
            lines += [f"note: {note}" for note in self.test.notes]
        return "\n".join(lines)


def check_posterior(draws: Any, *, alpha: float = 0.05, critics: Critics = "auto", seed: int = 0) -> PosteriorCheck:
    """One verdict on draws of a posterior from the Stein test, r̂, effective sample sizes, divergences and modes.

    Each diagnostic sees something that the others miss. r̂ and ESS see chains that mix slowly; then the p-value cannot
    be trusted either. They look at the draws alone, so they miss an approximation or a biased sampler. The Stein test
    sees it, because it compares draws with the density. Divergences hint at regions that no draw has reached, which
    cannot be seen in the draws.

    Arguments:
        draws: The draws, as `steinscope.bayes` makes them.
        alpha: The level of the test.
        critics: As in `gof_test`.
        seed: As in `gof_test`.

    Example:
        >>> x = np.random.default_rng(1).normal(size=(4, 500, 2))
        >>> check_posterior(Draws(x, -x), critics="closed form").verdict
        'nothing found'
        >>> check_posterior(Draws(0.7 * x, -0.7 * x), critics="closed form").verdict
        'misfit'
    """
    if not isinstance(draws, Draws):
        raise InputError("draws", f"expected Draws, as from_pymc and others make them, got {type(draws).__name__}")
    if draws.length < _LEAST_DRAWS:
        raise InputError("draws", f"expected at least {_LEAST_DRAWS} draws in each chain, got {draws.length}")
    columns = np.moveaxis(draws.x.astype(np.float64), 2, 0)
    test, problem = _tested(draws, alpha, critics, seed)
    known = {
        "rhat": np.array([rhat(one) for one in columns]),
        "bulk_ess": np.array([bulk_ess(one) for one in columns]),
        "tail_ess": np.array([tail_ess(one) for one in columns]),
        "divergences": None if draws.diverging is None else int(np.sum(draws.diverging)),
    }
    verdict, reasons = _judge(test, problem, draws.x.shape[:2], **known)
    return PosteriorCheck(
        verdict, reasons, test, problem, **known, names=draws.names, chains=draws.chains, draws=draws.length
    )


def _tested(draws: Draws, alpha: float, critics: Critics, seed: int) -> tuple[TestResult | None, str | None]:
    try:
        return gof_test(draws, alpha=alpha, critics=critics, seed=seed, progress=False), None
    except TooFewDraws as error:
        return None, error.problem


def _judge(
    test: TestResult | None,
    problem: str | None,
    shape: tuple[int, ...],
    rhat: np.ndarray,
    bulk_ess: np.ndarray,
    tail_ess: np.ndarray,
    divergences: int | None,
) -> tuple[Verdict, tuple[str, ...]]:
    """One verdict: each diagnostic counts for what it detects best."""
    chains, length = shape
    worst, least = float(rhat.max()), min(float(bulk_ess.min()), float(tail_ess.min()))
    if worst > SURELY_APART and length >= _ENOUGH_FOR_RHAT:
        who = "chains" if chains > 1 else "the halves of the chain"
        return "misfit", (f"{who} disagree with each other (r̂ = {worst:.3f}): they cannot all be of the posterior",)
    doubts = []
    if worst > MOST_RHAT:
        doubts.append(f"chains mix slowly (r̂ = {worst:.3f}): run longer ones")
    if least < LEAST_ESS * chains:
        doubts.append(f"the draws are worth {least:.0f} independent ones, {LEAST_ESS * chains} are needed: draw more")
    if test is not None and test.rejected:
        found = f"the Stein test rejects (p {equals_pvalue(test.pvalue)}): these are not draws of the posterior"
        said = tuple(f"  {line}" for line in spoken(test.findings))
        if worst <= MOST_RHAT:
            return "misfit", (found, *said, *doubts)
        # Chains that remember more than can be seen make p-values too small.
        return "cannot tell", (
            *doubts,
            f"the Stein test rejects (p {equals_pvalue(test.pvalue)}), but may do so for that reason",
        )
    if problem is not None:
        doubts.append(f"there is no Stein test: {problem}")
    if divergences:
        doubts.append(
            f"{divergences} trajector{'y' if divergences == 1 else 'ies'} diverged: places that no draw has reached "
            "would not be seen by anybody here"
        )
    if doubts:
        return "cannot tell", tuple(doubts)
    return "nothing found", ("the draws agree with the density, and chains agree with each other",)


def _width(text: str) -> int:
    """How wide a text is: the hat of r̂ is a character of its own that takes no room."""
    return sum(not unicodedata.combining(character) for character in text)


def _worst(values: np.ndarray, names: tuple[str, ...], *, largest: bool = False) -> str:
    place = int(values.argmax() if largest else values.argmin())
    return f"{values[place]:.3f} ({names[place]})" if largest else f"{values[place]:.0f} ({names[place]})"
