"""Draws of posteriors from the samplers that people use, with scores in unconstrained coordinates.

PyMC, NumPyro, BlackJAX, BridgeStan, ArviZ and xarray are imported when they are needed, and none of them is needed
otherwise.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
