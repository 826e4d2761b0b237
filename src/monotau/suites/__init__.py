"""Suites: grids of runs, and the processes that run them."""
