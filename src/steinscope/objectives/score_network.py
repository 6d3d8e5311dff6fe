"""A network that learns the score of the data, by score matching, in coordinates in which they are round."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from steinscope.critics.base import Critic
from steinscope.critics.preconditioned import shrunk_covariance
from steinscope.shapes import PerPoint, Points, Scalar, flattened

__all__ = ["ScoreNetwork"]


class ScoreNetwork(nn.Module):
    r"""$g(x) = L^\top (n(z) - z)$ with $z = L (x - m)$: the score of a Gaussian, and a network n for the rest.

    Where held-out points are looked at now and then, g is the network that was best on them, and not the last one.

    Arguments:
        network: The network n.
        x: The points that mean and covariance are taken from.
        shrinkage: How far the covariance is moved towards a multiple of the identity; None for as far as points that
            are left out of it say.
        is_whitened: Whether z are whitened coordinates; otherwise z = x.
    """

    def __init__(self, network: Critic, x: Points, shrinkage: float | None, *, is_whitened: bool = True) -> None:
        super().__init__()
        flat = flattened(x)
        mean, whitening = flat.new_zeros(flat.shape[1]), torch.eye(flat.shape[1], dtype=x.dtype, device=x.device)
        if is_whitened:
            covariance = shrunk_covariance(flat, shrinkage)
            eigenvalues, vectors = torch.linalg.eigh(covariance)
            mean = flat.double().mean(0).to(x.dtype)
            whitening = ((vectors * eigenvalues.rsqrt()) @ vectors.T).to(x.dtype)
        self.mean: Tensor
        self.whitening: Tensor
        self.correction: Tensor
        self.is_kept: Tensor
        self.register_buffer("mean", mean)
        self.register_buffer("whitening", whitening)
        self.register_buffer("correction", torch.zeros((), dtype=torch.float64, device=x.device))
        self.register_buffer("is_kept", torch.zeros((), dtype=torch.bool, device=x.device))
        self.network = network
        self.kept = copy.deepcopy(network).requires_grad_(False)

    def losses(self, x: Points, network: Critic, generator: torch.Generator) -> PerPoint:
        """The score matching objective of g at each point, in the coordinates z."""
        z = self._standard(x)
        value, divergence = network.value_and_divergence(z, generator)
        return 0.5 * flattened(value - z).square().sum(1) + divergence - z[0].numel()

    def loss(self, x: Points, generator: torch.Generator) -> Scalar:
        """What the network learns by."""
        return self.losses(x, self.network, generator).mean()

    def forward(self, x: Points) -> Points:
        """g at each point, without dropout."""
        z = self._standard(x)
        network = self.kept if bool(self.is_kept) else self.network
        return (flattened(network(z) - z) @ self.whitening).view(x.shape)

    @torch.no_grad()
    def keep_better(self, x: Points, generator: torch.Generator) -> None:
        """Keep the network as it is if it is better at these points than the one that was kept."""
        self.eval()
        is_better = True
        if bool(self.is_kept):
            new, old = (self.losses(x, network, generator).double() for network in (self.network, self.kept))
            is_better = bool((new - old).mean() < 0)
        if is_better:
            self.kept.load_state_dict(self.network.state_dict())
            self.is_kept.fill_(True)
        self.train()
        self.kept.eval()

    def _standard(self, x: Points) -> Points:
        return ((flattened(x) - self.mean) @ self.whitening).view(x.shape)
