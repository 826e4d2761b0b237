"""Distributional reinforcement learning with quantile functions that cannot cross."""
