"""Two-dimensional data sets."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from steinscope.errors import InputError
from steinscope.support.checks import check_count, check_sample_size
from steinscope.support.randomness import Seed, make_generator

__all__ = ["TOY", "draw_toy", "moons", "moons_density"]

PlanePoints = Float[Tensor, "n 2"]

MOONS_NOISE = 0.2
MOONS_SCALE = 2.0


def draw_toy(name: str, n: int, seed: Seed = 0) -> PlanePoints:
    """n points of a two-dimensional data set; `TOY` lists them. All lie within about [-4, 4]².

    Example:
        >>> draw_toy("pinwheel", 5).shape
        torch.Size([5, 2])
    """
    if not isinstance(name, str) or name not in TOY:
        raise InputError("name", f"expected one of {', '.join(TOY)}, got {name!r}")
    return TOY[name](check_sample_size("n", n), make_generator(seed, purpose="sample"))


def moons(n: int, seed: Seed = 0) -> PlanePoints:
    """Two interleaving half circles, with Gaussian noise.

    Example:
        >>> moons(100).shape
        torch.Size([100, 2])
    """
    return _moons(check_sample_size("n", n), make_generator(seed, purpose="sample"))


def moons_density(components: int = 100) -> torch.distributions.MixtureSameFamily:
    """The density of `moons`, as a mixture of Gaussians that are dense along the half circles.

    Example:
        >>> from steinscope import gof_test
        >>> gof_test(moons(500), moons_density(), critics="closed form").rejected
        False
    """
    check_count("components", components, 1, 10**6)
    angle = math.pi * (torch.arange(components, dtype=torch.float32) + 0.5) / components
    centres = torch.cat([_moon(angle, torch.full((components,), upper)) for upper in (True, False)])
    family = torch.distributions
    return family.MixtureSameFamily(
        family.Categorical(torch.ones(len(centres), dtype=torch.float32)),
        family.Independent(family.Normal(centres, MOONS_NOISE), 1),
    )


def _moon(angle: Tensor, upper: Tensor) -> Tensor:
    sign = torch.where(upper, 1.0, -1.0).to(angle)
    x = sign * (torch.cos(angle) - 0.5)
    y = sign * (torch.sin(angle) - 0.25)
    return MOONS_SCALE * torch.stack([x, y], 1)


def _moons(n: int, generator: torch.Generator) -> PlanePoints:
    angle = math.pi * torch.rand(n, generator=generator, dtype=torch.float32)
    upper = torch.rand(n, generator=generator, dtype=torch.float32) < 0.5
    return _moon(angle, upper) + MOONS_NOISE * torch.randn(n, 2, generator=generator, dtype=torch.float32)


def _swissroll(n: int, generator: torch.Generator) -> PlanePoints:
    turn = 1.5 * math.pi * (1 + 2 * torch.rand(n, generator=generator, dtype=torch.float32))
    roll = turn[:, None] * torch.stack([torch.cos(turn), torch.sin(turn)], 1)
    return (roll + torch.randn(n, 2, generator=generator, dtype=torch.float32)) / 5


def _eight_gaussians(n: int, generator: torch.Generator) -> PlanePoints:
    angle = math.pi / 4 * torch.randint(8, (n,), generator=generator).float()
    centres = 4 * torch.stack([torch.cos(angle), torch.sin(angle)], 1)
    return (centres + 0.5 * torch.randn(n, 2, generator=generator, dtype=torch.float32)) / math.sqrt(2)


def _pinwheel(n: int, generator: torch.Generator) -> PlanePoints:
    noise = torch.randn(n, 2, generator=generator, dtype=torch.float32) * torch.tensor([0.3, 0.1], dtype=torch.float32)
    noise[:, 0] += 1.0
    arm = torch.randint(5, (n,), generator=generator).float()
    angle = 2 * math.pi / 5 * arm + 0.25 * torch.exp(noise[:, 0])
    cosine, sine = torch.cos(angle), torch.sin(angle)
    return 2 * torch.stack([cosine * noise[:, 0] + sine * noise[:, 1], cosine * noise[:, 1] - sine * noise[:, 0]], 1)


def _circles(n: int, generator: torch.Generator) -> PlanePoints:
    return _on_circles((3.0, 1.5), 0.24, n, generator)


def _rings(n: int, generator: torch.Generator) -> PlanePoints:
    return _on_circles((3.0, 2.25, 1.5, 0.75), 0.08, n, generator)


def _on_circles(radii: tuple[float, ...], noise: float, n: int, generator: torch.Generator) -> PlanePoints:
    radius = torch.tensor(radii, dtype=torch.float32)[torch.randint(len(radii), (n,), generator=generator)]
    angle = 2 * math.pi * torch.rand(n, generator=generator, dtype=torch.float32)
    points = radius[:, None] * torch.stack([torch.cos(angle), torch.sin(angle)], 1)
    return points + noise * torch.randn(n, 2, generator=generator, dtype=torch.float32)


def _two_spirals(n: int, generator: torch.Generator) -> PlanePoints:
    turn = 3 * math.pi * torch.rand(n, generator=generator, dtype=torch.float32).sqrt()
    spiral = turn[:, None] * torch.stack([-torch.cos(turn), torch.sin(turn)], 1)
    sign = torch.where(torch.rand(n, 1, generator=generator, dtype=torch.float32) < 0.5, 1.0, -1.0).float()
    jitter = torch.rand(n, 2, generator=generator, dtype=torch.float32) * 0.5
    return sign * (spiral + jitter) / 3 + 0.1 * torch.randn(n, 2, generator=generator, dtype=torch.float32)


def _checkerboard(n: int, generator: torch.Generator) -> PlanePoints:
    first = 4 * torch.rand(n, generator=generator, dtype=torch.float32) - 2
    row = 2 * torch.randint(2, (n,), generator=generator)
    second = torch.rand(n, generator=generator, dtype=torch.float32) - row + first.floor() % 2
    return 2 * torch.stack([first, second], 1)


TOY: dict[str, Callable[[int, torch.Generator], PlanePoints]] = {
    "swissroll": _swissroll,
    "8gaussians": _eight_gaussians,
    "pinwheel": _pinwheel,
    "circles": _circles,
    "moons": _moons,
    "2spirals": _two_spirals,
    "checkerboard": _checkerboard,
    "rings": _rings,
}
