"""Maps with derivatives in closed form: activations, layers, divergences, and feature maps for critics."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
