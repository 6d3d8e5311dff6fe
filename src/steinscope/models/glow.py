"""A small multi-scale Glow with additive coupling (Kingma and Dhariwal 2018), as in the paper's flow experiment."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional

from steinscope.errors import InputError
from steinscope.support.checks import check_count, check_depth, check_sample_size, check_width
from steinscope.support.randomness import Seed, make_generator

__all__ = ["Glow"]

Images = Float[Tensor, "n channels height width"]


class Glow(nn.Module):
    """A normalising flow of images with an exact log-density, exact samples and an exact inverse.

    Each stage may first squeeze 2 × 2 pixels into channels, and then applies blocks of actnorm, reversal of the
    channels and additive coupling. After every stage but the last, half of the channels go to the latent vector. The
    latent density is standard normal. The activation is Swish, and not ReLU, so that the score is differentiable.

    Arguments:
        shape: Channels, height and width of an image, or height and width.
        squeezes: For each stage, whether it squeezes.
        blocks: Blocks in each stage.
        channels: Channels of the hidden layers.
        seed: The source of the first weights.

    Example:
        >>> flow = Glow((4, 4), squeezes=(True, False), blocks=2, channels=8)
        >>> x = flow.sample(3)
        >>> x.shape, flow.log_prob(x).shape
        (torch.Size([3, 4, 4]), torch.Size([3]))
    """

    def __init__(
        self,
        shape: Sequence[int] = (28, 28),
        *,
        squeezes: Sequence[bool] = (True, True, False),
        blocks: int = 4,
        channels: int = 128,
        seed: Seed = 0,
    ) -> None:
        super().__init__()
        if not isinstance(shape, Sequence) or len(shape) not in (2, 3):
            raise InputError("shape", f"expected channels, height and width, got {shape!r}")
        self.shape = tuple(check_count("shape", size) for size in shape)
        if not isinstance(squeezes, Sequence) or not squeezes:
            raise InputError("squeezes", f"expected True or False for each stage, got {squeezes!r}")
        blocks, channels = check_depth("blocks", blocks), check_width("channels", channels)
        generator = make_generator(seed)
        depth, height, width = self.shape if len(self.shape) == 3 else (1, *self.shape)
        self.image_shape = (depth, height, width)
        self.latent_shapes: list[tuple[int, int, int]] = []
        self.stages = nn.ModuleList()
        self.squeezes = tuple(squeezes)
        for number, squeeze in enumerate(squeezes, start=1):
            if squeeze:
                if height % 2 or width % 2:
                    raise InputError("squeezes", f"stage {number} cannot squeeze {height} × {width} pixels")
                depth, height, width = 4 * depth, height // 2, width // 2
            if depth % 2:
                raise InputError("squeezes", f"stage {number} has {depth} channels, and coupling needs an even number")
            self.stages.append(nn.ModuleList(_Block(depth, channels, generator) for _ in range(blocks)))
            if number < len(squeezes):
                depth //= 2
                self.latent_shapes.append((depth, height, width))
        self.latent_shapes.append((depth, height, width))
        # On a processor convolutions are a quarter faster with the channels last.
        self.to(memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.register_state_dict_post_hook(_contiguous)

    def forward(self, x: Float[Tensor, "n *shape"]) -> tuple[Float[Tensor, "n d"], Float[Tensor, ""]]:
        """The latent vector of each image, and the log-determinant of the map, which is the same for all images."""
        h, log_det, latents = self._as_images(x), x.new_zeros(()), []
        for number, (stage, squeeze) in enumerate(zip(self.stages, self.squeezes, strict=True)):
            h = functional.pixel_unshuffle(h, 2) if squeeze else h
            for block in stage:  # pyright: ignore[reportGeneralTypeIssues]
                h = block(h)
                log_det = log_det + block.log_scale.sum() * h.shape[2] * h.shape[3]
            if number < len(self.stages) - 1:
                latent, h = h.chunk(2, 1)
                latents.append(latent.flatten(1))
        return torch.cat([*latents, h.flatten(1)], 1), log_det

    def inverse(self, z: Float[Tensor, "n d"]) -> Float[Tensor, "n *shape"]:
        """The image of each latent vector."""
        sizes = [math.prod(shape) for shape in self.latent_shapes]
        parts = [part.view(-1, *shape) for part, shape in zip(z.split(sizes, 1), self.latent_shapes, strict=True)]
        h = parts.pop()
        for number in reversed(range(len(self.stages))):
            if number < len(self.stages) - 1:
                h = torch.cat([parts.pop(), h], 1)
            for block in reversed(list(self.stages[number])):  # pyright: ignore[reportArgumentType]
                h = block.inverse(h)
            h = functional.pixel_shuffle(h, 2) if self.squeezes[number] else h
        return h.reshape(-1, *self.shape)

    def log_prob(self, x: Float[Tensor, "n *shape"]) -> Float[Tensor, " n"]:
        """The log-density of each image, normalised."""
        z, log_det = self(x)
        return log_det - 0.5 * z.square().sum(1) - 0.5 * z.shape[1] * math.log(2 * math.pi)

    @torch.no_grad()
    def sample(self, n: int, seed: Seed = 0, temperature: float = 1.0) -> Float[Tensor, "n *shape"]:
        """n independent images; below temperature 1 the latent vectors are shrunk."""
        n, like = check_sample_size("n", n), next(self.parameters())
        generator = make_generator(seed, like.device, purpose="sample")
        size = math.prod(self.shape)
        z = torch.randn(n, size, generator=generator, dtype=like.dtype, device=like.device)
        return self.inverse(temperature * z)

    @torch.no_grad()
    def initialise(self, x: Float[Tensor, "n *shape"]) -> None:
        """Set every actnorm so that the channels of these images have mean 0 and standard deviation 1 after it."""
        h = self._as_images(x)
        for number, (stage, squeeze) in enumerate(zip(self.stages, self.squeezes, strict=True)):
            h = functional.pixel_unshuffle(h, 2) if squeeze else h
            for block in stage:  # pyright: ignore[reportGeneralTypeIssues]
                block.initialise(h)
                h = block(h)
            if number < len(self.stages) - 1:
                h = h.chunk(2, 1)[1]

    def _as_images(self, x: Tensor) -> Images:
        if math.prod(x.shape[1:]) != math.prod(self.shape):
            raise InputError("x", f"expected images of shape {self.shape}, got {tuple(x.shape[1:])}")
        return x.reshape(-1, *self.image_shape).contiguous(memory_format=torch.channels_last)


class _Block(nn.Module):
    """Actnorm, reversal of the channels, and additive coupling by 3 × 3, 1 × 1 and 3 × 3 convolutions."""

    def __init__(self, depth: int, channels: int, generator: torch.Generator) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(depth, 1, 1, dtype=torch.float32))
        self.log_scale = nn.Parameter(torch.zeros(depth, 1, 1, dtype=torch.float32))
        half = depth // 2
        self.enter = _convolution(half, channels, 3, generator)
        self.middle = _convolution(channels, channels, 1, generator)
        # Zero at first, so that the flow starts as an affine map.
        self.leave = _convolution(channels, half, 3, generator)
        for parameter in self.leave.parameters():
            nn.init.zeros_(parameter)

    def forward(self, h: Images) -> Images:
        h = ((h + self.bias) * self.log_scale.exp()).flip(1)
        kept, moved = h.chunk(2, 1)
        return torch.cat([kept, moved + self._shift(kept)], 1)

    def inverse(self, h: Images) -> Images:
        kept, moved = h.chunk(2, 1)
        h = torch.cat([kept, moved - self._shift(kept)], 1)
        return h.flip(1) * (-self.log_scale).exp() - self.bias

    def initialise(self, h: Images) -> None:
        std, mean = torch.std_mean(h.transpose(0, 1).flatten(1), 1)
        self.bias.copy_(-mean[:, None, None])
        self.log_scale.copy_(-std.clamp_min(1e-6).log()[:, None, None])

    def _shift(self, kept: Images) -> Images:
        return self.leave(functional.silu(self.middle(functional.silu(self.enter(kept)))))


def _contiguous(module: nn.Module, state: dict[str, Tensor], prefix: str, metadata: Any) -> None:
    """Weights in the usual order, as safetensors wants them."""
    for name, value in state.items():
        state[name] = value.contiguous()


def _convolution(inputs: int, outputs: int, size: int, generator: torch.Generator) -> nn.Conv2d:
    """A convolution that keeps height and width, with torch's usual first weights, drawn from `generator`."""
    layer = nn.Conv2d(inputs, outputs, size, padding=size // 2, device="meta", dtype=torch.float32).to_empty(
        device="cpu"
    )
    bound = 1 / math.sqrt(inputs * size * size)
    for parameter in layer.parameters():
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer
