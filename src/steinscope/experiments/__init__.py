"""The experiments of the paper: one module for each figure or table, and the runner."""
