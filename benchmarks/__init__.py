"""Ratios against the textbook form of the same computation, each side measured in turn in one run.

`make bench` prints them and writes them to a file; `make bench-compare` sets the last two files beside each other.
"""
