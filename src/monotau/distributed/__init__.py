"""Distributed training with Ray: actors, connecting to a cluster, and checks of its nodes."""
