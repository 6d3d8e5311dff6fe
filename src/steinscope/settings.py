"""Settings of a fit and of a training run, as objects that functions, commands and checkpoints share.

Nothing here imports torch, so that the command line can list them without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, NamedTuple

from steinscope.errors import InputError
from steinscope.registries import OBJECTIVES
from steinscope.support.checks import (
    check_choice,
    check_count,
    check_depth,
    check_flag,
    check_level,
    check_number,
    check_seed,
    check_steps,
    check_width,
)

__all__ = [
    "SELECTIONS",
    "SUPPORT_WORDS",
    "FitSettings",
    "RunSettings",
    "Select",
    "TrainSettings",
    "Validation",
    "read_support",
]

SUPPORT_WORDS = ("real", "positive", "unit", "simplex")


class Validation(NamedTuple):
    """What the validation points say about a critic: mean and standard deviation of its Stein values, its mean squared
    norm, and the penalty λ of the objective."""

    mean: float
    std: float
    norm: float
    l2: float


# More than this is a slip of the keyboard, which would fill the memory before anything is said.
_MOST_BATCH = 2**20

Select = str | Callable[[Validation], float]

SELECTIONS: dict[str, Callable[[Validation], float]] = {
    "mu-sigma": lambda seen: seen.mean - seen.std,
    "objective": lambda seen: seen.mean - seen.l2 * seen.norm,
    "power": lambda seen: seen.mean / (seen.std + 1e-12),
    "mean": lambda seen: seen.mean,
}


def _keep(settings: Any, check: Callable[[str, Any], Any], *names: str) -> None:
    """Check settings, and keep them as plain numbers, which a checkpoint can save. Some may be None by default."""
    defaults = {field.name: field.default for field in fields(settings)}
    for name in names:
        value = getattr(settings, name)
        if value is not None or defaults[name] is not None:
            object.__setattr__(settings, name, check(name, value))


@dataclass(frozen=True)
class FitSettings:
    """How a critic is trained. Critics that are solved in closed form use `select` alone.

    Arguments:
        steps: Steps of Adam at most.
        batch_size: Points in each step; by default all of them if there are at most 1024, then 256, and 1024 from
            16 384 points on.
        lr: The learning rate; by default 0.001 where each step sees all points, as in the paper, 0.002 for batches, and
            0.003 for batches of 1024 points or more.
        lr_decay: Whether the learning rate falls to zero along half a cosine.
        weight_decay: Added to the gradient as weight_decay times the weights.
        every: Steps between two validations. The untrained critic is not a candidate.
        select: How validation points choose among the critics along the way: "objective" by the penalised mean,
            "mu-sigma" by mean minus standard deviation of the Stein values (the paper's rule), "power" by their ratio,
            "mean" by the mean alone, or a function of a `Validation`.
        patience: Stop after this number of validations without a better one; None for never.
    """

    steps: int = 1000
    batch_size: int | None = None
    lr: float | None = None
    lr_decay: bool = True
    weight_decay: float = 0.0
    every: int = 25
    select: Select = "objective"
    patience: int | None = 8

    def __post_init__(self) -> None:
        _keep(self, check_steps, "steps")
        _keep(self, check_count, "every", "batch_size", *(["patience"] if self.patience is not None else []))
        _keep(self, partial(check_number, least=0), "weight_decay")
        _keep(self, partial(check_number, over=0), "lr")
        _keep(self, check_flag, "lr_decay")
        if self.select not in SELECTIONS if isinstance(self.select, str) else not callable(self.select):
            choices = ", ".join(map(repr, SELECTIONS))
            raise InputError("select", f"expected {choices} or a function, got {self.select!r}")

    @property
    def choose(self) -> Callable[[Validation], float]:
        """The rule that `select` names."""
        return SELECTIONS[self.select] if isinstance(self.select, str) else self.select


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How a model is trained.

    Arguments:
        steps: The total number of steps of the model, including those before a resumed checkpoint.
        batch_size: Points in each batch. Steps of the critic draw their own batches.
        lr: The learning rate; by default what the objective suggests: 0.005 for lsd, otherwise 0.001.
        auxiliary_lr: The learning rate of the critic or log-normaliser; by default 0.001 for lsd, otherwise the same.
        betas: Adam's coefficients.
        lr_decay: Let both learning rates fall to zero along half a cosine; by default for lsd.
        weight_decay: Added to the model's gradient as weight_decay times the weights.
        average: Keep an exponential average of the model's parameters with this coefficient, such as 0.999.
        noise: Add Gaussian noise of this standard deviation to the points at first. It falls to zero over the first 80%
            of the steps, and helps if modes lie apart. By default lsd adds a little to points that come again; 0 for
            none.
        clip: The largest norm of the model's gradient; a longer one is shortened to it.
        seed: The source of all that is random.
    """

    steps: int = 2000
    batch_size: int = 128
    lr: float | None = None
    auxiliary_lr: float | None = None
    betas: tuple[float, float] = (0.5, 0.9)
    lr_decay: bool | None = None
    weight_decay: float = 0.0
    average: float | None = None
    noise: float | None = None
    clip: float | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        _keep(self, check_steps, "steps")
        _keep(self, check_count, "batch_size")
        _keep(self, partial(check_number, over=0), "lr", "auxiliary_lr", "clip")
        _keep(self, partial(check_number, least=0), "weight_decay", "noise")
        _keep(self, check_level, "average")
        _keep(self, check_seed, "seed")
        _keep(self, check_flag, "lr_decay")
        if isinstance(self.betas, str) or not isinstance(self.betas, Sequence) or len(self.betas) != 2:
            raise InputError("betas", f"expected two numbers, got {self.betas!r}")
        betas = tuple(check_number("betas", beta, least=0, under=1) for beta in self.betas)
        object.__setattr__(self, "betas", betas)

    def with_suggestions(self, suggestions: Mapping[str, Any]) -> TrainSettings:
        """These settings, with those of an objective where nothing was said."""
        names = [name for name in ("lr", "auxiliary_lr", "lr_decay") if getattr(self, name) is None]
        return replace(self, **{name: suggestions[name] for name in names})

    def fixed(self) -> dict[str, Any]:
        """What must stay the same when a run is resumed. The number of steps may grow unless something falls to zero
        over it."""
        return {
            "batch_size": self.batch_size,
            "lr": self.lr,
            "auxiliary_lr": self.lr if self.auxiliary_lr is None else self.auxiliary_lr,
            "betas": list(self.betas),
            "lr_decay": self.steps if self.lr_decay else False,
            "weight_decay": self.weight_decay,
            "clip": self.clip,
            "average": self.average,
            "noise": [self.noise, self.steps] if self.noise else self.noise,
            "seed": self.seed,
        }


@dataclass(frozen=True, kw_only=True)
class RunSettings(TrainSettings):
    """What `steinscope train` is asked for: a model and its data beside the settings of training.

    Arguments:
        data: The name of a two-dimensional data set, or a file with points.
        header: Whether the first line of a .csv file holds names; by default it does if none of them is a number.
        model: An energy-based model, "ebm", or a "gaussian".
        width: Units in each hidden layer of the EBM.
        depth: Its hidden layers.
        objective: One of the objectives of `train`.
        l2: The penalty λ of the critic, for the objective lsd.
        critic_steps: Steps of the critic for each step of the model, for the objective lsd.
        checkpoint_every: Steps between two checkpoints.
        log_every: Steps between two log points.
        support: Where the model's density is positive: positive, unit, simplex, LOW,HIGH, or such a word for each
            coordinate, separated by spaces. By default everywhere.
    """

    data: str
    header: bool | None = None
    model: str = "ebm"
    width: int = 128
    depth: int = 2
    objective: str = "lsd"
    l2: float | None = None
    critic_steps: int | None = None
    checkpoint_every: int = 500
    log_every: int = 50
    support: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.support is not None:
            read_support(self.support)
            if self.model != "ebm":
                raise InputError("support", f"only an EBM can have one, got the model {self.model!r}")
        check_choice("model", self.model, ("ebm", "gaussian"))
        _keep(self, check_count, "checkpoint_every", "log_every", "critic_steps")
        _keep(self, check_width, "width")
        _keep(self, check_depth, "depth")
        _keep(self, partial(check_count, most=_MOST_BATCH), "batch_size")
        _keep(self, partial(check_number, over=0), "l2")
        if self.objective not in OBJECTIVES:
            raise InputError("objective", f"expected one of {', '.join(OBJECTIVES)}, got {self.objective!r}")
        if self.model == "ebm" and OBJECTIVES[self.objective].is_for_normalised:
            raise InputError(
                "objective",
                f"{self.objective} is for normalised models, and an EBM is not one; "
                "take another objective, such as contrastive-divergence, or the model gaussian",
            )
        for name in ("l2", "critic_steps"):
            if getattr(self, name) is not None and self.objective != "lsd":
                raise InputError(name, f"this is a setting of the objective lsd, got objective {self.objective!r}")


def read_support(text: str) -> Any:
    """A support as it is typed on a command line or in a file: a word, LOW,HIGH, or one of them for each coordinate.

    Example:
        >>> read_support("positive"), read_support("0,inf"), read_support("real -1,1")
        ('positive', (0.0, inf), ['real', (-1.0, 1.0)])
    """
    found: list[Any] = []
    for word in text.split():
        low, comma, high = word.partition(",")
        try:
            found.append((float(low), float(high)) if comma else word)
        except ValueError:
            raise InputError("support", f"expected LOW,HIGH such as 0,1, got {word!r}") from None
    if not found or any(isinstance(part, str) and part not in SUPPORT_WORDS for part in found):
        raise InputError(
            "support",
            f"expected {', '.join(SUPPORT_WORDS)}, LOW,HIGH, or one of them for each coordinate, got {text!r}",
        )
    return found[0] if len(found) == 1 else found
