"""A Ray cluster of several nodes on one machine, in its own process: python -m tests.support.ray_cluster COUNT.

It prints its address and the process id of each node's raylet as JSON, the head node first. It shuts down when its
standard input closes.
"""

import json
import sys


def main(count: int) -> None:
    """Start `count` nodes with one CPU each, and wait."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    nodes = [cluster.head_node, *(cluster.add_node(num_cpus=1) for _ in range(count - 1))]
    pids = [node.all_processes["raylet"][0].process.pid for node in nodes]
    sys.stdout.write(json.dumps({"address": cluster.address, "raylets": pids}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main(int(sys.argv[1]))
