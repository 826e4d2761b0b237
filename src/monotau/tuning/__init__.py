"""Searches for good settings with Optuna: the space, the trials, the page and the command `monotau tune`."""
