"""Work on other machines, by Ray: joining a cluster, and whether its nodes can do the work."""
