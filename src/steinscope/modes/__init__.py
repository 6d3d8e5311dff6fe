"""Modes of a model: where they are, moves between them, and how much mass each of them holds."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
