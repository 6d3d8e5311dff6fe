r"""Moves between modes that leave the model as it is, and the flux that they make.

A point of the cell of mode a moves to mode b by the affine map that takes one local shape to the other. The moves from
a to b and from b to a undo each other, so with the acceptance
$\alpha_{ab}(x) = \min(1, q(y) |J| / q(x))$ of Metropolis, detailed balance says
$E_q[1_a \alpha_{ab}] = E_q[1_b \alpha_{ba}]$: under the model as much mass would move one way as the other. The
normalising constant of q is not needed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from steinscope.modes.search import Modes
from steinscope.modes.surface import Surface

__all__ = ["Moves"]

_BATCH_NUMBERS = 2**22
_LEAST_LOG_ACCEPTANCE = -25.0


@dataclass(frozen=True)
class Moves:
    """The moves between all pairs of modes.

    Arguments:
        modes: The modes.
        surface: The log-density.
    """

    modes: Modes
    surface: Surface

    def acceptances(self, z: Float[Tensor, "n d"]) -> tuple[Int[Tensor, " n"], Float[Tensor, "n k"]]:
        """The cell of each point, and the probability that its move to each mode is accepted; 0 for its own."""
        rows = max(1, _BATCH_NUMBERS // (len(self.modes) * z.shape[1]))
        parts = [self._acceptances(part) for part in z.double().split(rows)]
        cells, accepted = zip(*parts, strict=True)
        return torch.cat(cells), torch.cat(accepted)

    def _acceptances(self, z: Tensor) -> tuple[Tensor, Tensor]:
        modes = self.modes
        cells = modes.cells(z)
        local, here = modes.local(z, cells), self.surface.log_prob(z)
        accepted = z.new_zeros(len(z), len(modes))
        for b in range(len(modes)):
            leaves = ((cells != b) & here.isfinite()).nonzero()[:, 0]
            moved = modes.centres[b] + local[leaves] @ modes.roots[b]
            stretch = modes.log_volumes[b] - modes.log_volumes[cells[leaves]]
            gain = self.surface.log_prob(moved) + stretch - here[leaves]
            likely = gain > _LEAST_LOG_ACCEPTANCE
            leaves, moved, gain = leaves[likely], moved[likely], gain[likely]
            # A move that does not end in the cell of b could not be undone.
            arrives = modes.cells(moved) == b
            accepted[leaves[arrives], b] = gain[arrives].clamp_max(0.0).exp()
        return cells, accepted

    def flux(self, z: Float[Tensor, "n d"]) -> tuple[Int[Tensor, " n"], Float[Tensor, "n k"]]:
        """The cell of each point, and what flows from it into each mode less what flows out.

        The flux is zero on average under the model.
        """
        cells, accepted = self.acceptances(z)
        return cells, accepted.scatter_(1, cells[:, None], -accepted.sum(1, keepdim=True))
