"""A real Ray cluster of several nodes, all on this machine."""

import contextlib
import os

STORE = 80 * 2**20  # bytes of each node's object store, about the least that Ray takes


@contextlib.contextmanager
def nodes(count):
    """A cluster with so many nodes of one core each."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    settings = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False}
    # A node that went away is missed after two seconds, not after half a minute.
    soon = {"health_check_initial_delay_ms": 500, "health_check_period_ms": 1000, "health_check_failure_threshold": 2}
    cluster = Cluster(initialize_head=True, head_node_args=settings | {"_system_config": soon})
    try:
        for _ in range(count - 1):
            node(cluster)
        yield cluster
    finally:
        cluster.shutdown()


def node(cluster):
    """One more."""
    return cluster.add_node(num_cpus=1, object_store_memory=STORE, include_dashboard=False)


def raylet(node):
    """The process that starts a node's workers."""
    return node.all_processes["raylet"][0].process.pid
