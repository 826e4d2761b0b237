"""Audits: learned return distributions compared with returns measured from snapshots of the states an agent visits."""
