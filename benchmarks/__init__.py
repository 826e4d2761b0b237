"""Measurements: each prints what it found as JSON."""
