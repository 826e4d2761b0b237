"""Grids of runs: what they consist of, and how all of them get done."""
