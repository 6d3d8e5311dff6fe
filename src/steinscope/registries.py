"""One registry for each kind: critics of the test, objectives of training, kernel tests.

A member is one class in one file plus its line here. Functions, help texts, reports, experiments, docs and tests read
these tables. Nothing here imports torch: an entry knows where its member lives and loads it when it is asked to.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Generic, Literal, TypeVar

from steinscope.errors import InputError

__all__ = [
    "CRITICS",
    "KERNEL_TESTS",
    "OBJECTIVES",
    "CriticEntry",
    "Entry",
    "KernelTestEntry",
    "ObjectiveEntry",
    "Registry",
]


@dataclass(frozen=True)
class Entry:
    """A member of a registry.

    Arguments:
        name: What users call it.
        home: Where it is defined, as `package.module:name`; or the member itself.
        text: What it is, in a few words.
    """

    name: str
    home: Any
    text: str

    def load(self) -> Any:
        """The member."""
        if not isinstance(self.home, str):
            return self.home
        module, _, name = self.home.partition(":")
        return getattr(import_module(module), name)


@dataclass(frozen=True)
class CriticEntry(Entry):
    """A critic that learns from block to block: a `Learner`, or a `ValueLearner` for tests alone.

    Its text says what kind of misfit it sees.

    Arguments:
        needs: The method that a model must have; None where scores are enough.
        least_points: The number of points from which `"auto"` takes the critic.
        is_closed_form: Whether it is solved, and so takes milliseconds. Such critics run first.
        purposes: The purposes for which `"auto"` takes it.
        may_be_absent: Whether it may turn out, by the first block, to have nothing to test.
    """

    needs: str | None = None
    least_points: int = 0
    is_closed_form: bool = True
    purposes: tuple[str, ...] = ("test", "estimate", "ranking")
    may_be_absent: bool = False

    def applies(self, model: Any, n: int, purpose: str) -> bool:
        """Whether `"auto"` takes it for this model, this number of points and this purpose."""
        return self.suits(model) and n >= self.least_points and purpose in self.purposes

    def suits(self, model: Any) -> bool:
        """Whether the model has what the critic needs."""
        return self.needs is None or callable(getattr(model, self.needs, None))


@dataclass(frozen=True)
class ObjectiveEntry(Entry):
    """An objective of training: a `TrainingObjective`.

    Arguments:
        settings: The settings that this name stands for.
        is_for_normalised: Whether it needs a model whose log-density is normalised.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    is_for_normalised: bool = False

    def make(self) -> Any:
        """The objective, with the settings of this name."""
        return self.load()(**self.settings)


@dataclass(frozen=True)
class KernelTestEntry(Entry):
    """A kernel test of fit: a function of points and of what it compares them with.

    Arguments:
        label: How figures call it.
        against: What it compares the points with: the model's scores, or samples of it.
    """

    label: str = ""
    against: Literal["scores", "samples"] = "scores"


Member = TypeVar("Member", bound=Entry)


class Registry(Mapping[str, Member], Generic[Member]):
    """Entries by name, in the order in which they are listed.

    Arguments:
        kind: What the entries are, for messages.
        entries: The entries.
    """

    def __init__(self, kind: str, *entries: Member) -> None:
        self.kind = kind
        self._entries: dict[str, Member] = {}
        for entry in entries:
            self.register(entry)

    def register(self, entry: Member) -> None:
        """Add an entry. Its name must be free."""
        if not isinstance(getattr(entry, "name", None), str):
            raise InputError("entry", f"expected an entry with a name, got {type(entry).__name__}")
        if entry.name in self._entries:
            raise InputError("name", f"there is {self.kind} {entry.name!r} already")
        self._entries[entry.name] = entry

    def remove(self, name: str) -> None:
        """Take an entry out again."""
        if name not in self._entries:
            raise InputError("name", f"expected one of {', '.join(self._entries)}, got {name!r}")
        del self._entries[name]

    def __getitem__(self, name: str) -> Member:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def listed(self) -> str:
        """All entries with their texts, for help: `a (text), b (text)`."""
        return ", ".join(f"{entry.name} ({entry.text})" for entry in self.values())


CRITICS: Registry[CriticEntry] = Registry(
    "a critic",
    CriticEntry("mean", "steinscope.portfolio.moments:MeanLearner", "wrong means", purposes=("test",)),
    CriticEntry("linear", "steinscope.portfolio.moments:LinearLearner", "wrong means and covariances"),
    CriticEntry("additive", "steinscope.portfolio.additive:AdditiveLearner", "wrong marginals, scales and pairs"),
    CriticEntry("kernel", "steinscope.portfolio.kernel:KernelLearner", "smooth misfit in any direction"),
    CriticEntry(
        "mlp",
        "steinscope.portfolio.trained:NetworkLearner",
        "what is left, by a network",
        # A network that has seen few points gives skewed Stein values, with which the test rejects too often, and
        # finds little.
        least_points=500,
        is_closed_form=False,
    ),
    CriticEntry(
        "model",
        "steinscope.portfolio.features:ModelFeatureLearner",
        "misfit in the model's own features",
        needs="features",
        # A model's features may be costly to differentiate.
        is_closed_form=False,
        # In a ranking they would look more closely at models that have features than at others.
        purposes=("test", "estimate"),
    ),
    CriticEntry(
        "modes",
        "steinscope.portfolio.modes:ModeLearner",
        "wrong weights of separated modes",
        needs="log_prob",
        # It calls log_prob several times for each point.
        is_closed_form=False,
        # It is no field, so it has no part in a discrepancy.
        purposes=("test",),
        may_be_absent=True,
    ),
)

OBJECTIVES: Registry[ObjectiveEntry] = Registry(
    "an objective",
    ObjectiveEntry("lsd", "steinscope.objectives.learned_stein:LearnedStein", "the learned Stein discrepancy"),
    ObjectiveEntry("score-matching", "steinscope.objectives.matching:ScoreMatching", "score matching, exact"),
    ObjectiveEntry(
        "sliced-score-matching",
        "steinscope.objectives.matching:ScoreMatching",
        "score matching along random directions",
        {"trace": "sliced"},
    ),
    ObjectiveEntry(
        "denoising-score-matching",
        "steinscope.objectives.matching:DenoisingScoreMatching",
        "score matching of noisy points",
    ),
    ObjectiveEntry("nce", "steinscope.objectives.noise_contrast:NoiseContrast", "noise contrast with a Gaussian"),
    ObjectiveEntry(
        "cnce",
        "steinscope.objectives.noise_contrast:ConditionalNoiseContrast",
        "noise contrast with noisy copies of the points",
    ),
    ObjectiveEntry(
        "likelihood",
        "steinscope.objectives.likelihood:MaximumLikelihood",
        "maximum likelihood of a normalised model",
        is_for_normalised=True,
    ),
    ObjectiveEntry(
        "contrastive-divergence",
        "steinscope.objectives.likelihood:ContrastiveDivergence",
        "likelihood by short chains from the data",
    ),
    ObjectiveEntry(
        "short-run",
        "steinscope.objectives.likelihood:ContrastiveDivergence",
        "likelihood by short chains from noise",
        {"steps": 30, "start": "noise"},
    ),
)

KERNEL_TESTS: Registry[KernelTestEntry] = Registry(
    "a kernel test",
    KernelTestEntry("ksd", "steinscope.kernels.ksd:ksd_test", "quadratic KSD, wild bootstrap", "KSD"),
    KernelTestEntry("linear-ksd", "steinscope.kernels.ksd:linear_ksd_test", "KSD of disjoint pairs", "LKSD"),
    KernelTestEntry("fssd", "steinscope.kernels.fssd:fssd_test", "Stein witness at a few locations", "FSSD"),
    KernelTestEntry("ksdagg", "steinscope.kernels.aggregated:ksdagg_test", "KSD over many bandwidths", "KSDAgg"),
    KernelTestEntry("mmd", "steinscope.kernels.mmd:mmd_test", "samples of the model, permutations", "MMD", "samples"),
)
