"""Moves against quadrature in one dimension, where everything is known."""

import torch

from steinscope.modes import Moves, find_modes

from helpers import gaussians, generator, sample, surface

GRID = torch.linspace(-30.0, 30.0, 60_001, dtype=torch.float64)[:, None]


def moves_of(model):
    flat = surface(model, 1)
    return Moves(find_modes(flat, sample(model, 200).double(), generator(0)), flat)


def test_moves_are_balanced_under_the_model():
    """Modes of other widths and weights: as much mass moves one way as the other, for each pair."""
    model = gaussians([0.2, 0.5, 0.3], [[-9.0], [0.0], [8.0]], [1.0, 2.0, 0.5])
    moves = moves_of(model)
    cells, accepted = moves.acceptances(GRID)
    density = model.log_prob(GRID.float()).exp().double() * (GRID[1] - GRID[0])
    rates = torch.zeros(3, 3, dtype=torch.float64).index_add_(0, cells, density[:, None] * accepted)
    torch.testing.assert_close(rates, rates.T, rtol=1e-3, atol=1e-6)
    # With the right shapes nearly all of the lighter mode's mass moves.
    weights = moves.modes.centres[:, 0].argsort().argsort()
    masses = torch.tensor([0.2, 0.5, 0.3])[weights].double()
    lighter = torch.minimum(masses[:, None], masses).fill_diagonal_(0.0)
    assert (rates >= 0.97 * lighter - 1e-3).all() and rates.diagonal().abs().max() == 0
    _, flux = moves.flux(GRID)
    torch.testing.assert_close(density @ flux, torch.zeros(3, dtype=torch.float64), rtol=0, atol=2e-4)


def test_without_balance_the_flux_says_which_mode_has_too_much():
    model = gaussians([0.25, 0.75], [[0.0], [10.0]], [1.0, 1.0])
    data = gaussians([0.5, 0.5], [[0.0], [10.0]], [1.0, 1.0])
    moves = moves_of(model)
    cells, flux = moves.flux(sample(data, 2000).double())
    full = int(moves.modes.centres[:, 0].argmin())
    # Half of the points move out of the first mode, and a sixth into it.
    assert abs(float(flux[:, full].mean()) + 1 / 3) < 4 / 2000**0.5
    torch.testing.assert_close(flux.sum(1), torch.zeros(2000, dtype=torch.float64))
    assert abs(float((cells == full).double().mean()) - 0.5) < 4 * 0.5 / 2000**0.5


def test_points_outside_of_every_shape_do_not_break_it():
    moves = moves_of(gaussians([0.5, 0.5], [[0.0], [10.0]], [1.0, 1.0]))
    _, accepted = moves.acceptances(torch.tensor([[1e6], [-1e6]], dtype=torch.float64))
    assert accepted.isfinite().all()
