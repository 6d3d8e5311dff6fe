"""Ratios against the textbook form of the same computation, each side measured in turn in one run."""
