"""The density of a model in the plane, as a chart."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from steinscope.frames import Names, coordinate_label
from steinscope.report.charts import density_chart

__all__ = ["model_density"]

_GRID = 120


def model_density(model: Any, points: np.ndarray, title: str, names: Names = None) -> Markup:
    """The density of a model with `log_prob(x)`, which need not be normalised, below points (n, 2)."""
    import torch

    from steinscope.densities import log_prob_at, placement
    from steinscope.supports import find_region

    points = np.asarray(points, dtype=np.float64)
    low, high = np.quantile(points, [0.002, 0.998], axis=0)
    # Points that are all the same have no spread of their own.
    margin = np.where(high > low, 0.1 * (high - low), np.maximum(1.0, np.abs(low)))
    low, high = low - margin, high + margin
    axes = [np.linspace(low[i], high[i], _GRID) for i in (0, 1)]
    grid = np.stack(np.meshgrid(*axes), -1).reshape(-1, 2)
    dtype, device = placement(model, torch.float32, torch.device("cpu"))
    with torch.no_grad():
        places = torch.as_tensor(grid, dtype=dtype, device=device)
        log_density = log_prob_at(model, places).double().cpu()
    if (region := find_region(None, model, (2,))) is not None:
        log_density[((places.cpu() <= region.low) | (places.cpu() >= region.high)).any(1)] = -torch.inf
    log_density = log_density.numpy().reshape(_GRID, _GRID)
    highest = log_density.max()
    # Where the model has no mass at all near the points its density is zero.
    density = np.exp(log_density - highest) if np.isfinite(highest) else np.zeros_like(log_density)
    extent = (float(low[0]), float(high[0]), float(low[1]), float(high[1]))
    labels = coordinate_label(names, 0), coordinate_label(names, 1)
    return density_chart(title, density, extent, points, labels, f"{min(len(points), 1500)} points")
