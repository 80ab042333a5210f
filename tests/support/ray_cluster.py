"""Several machines of a cluster, imitated on this one: each has a Ray daemon and an object store.

What is small would travel with the messages; here it waits in the object stores, as large features
do, so that it is lost with its machine.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager

import pytest

from support import local_ray

STORE_BYTES = 80 << 20
ENVIRONMENT = {
    **local_ray.ENVIRONMENT,
    "RAY_worker_niceness": "0",  # Ray's workers would come after everything else
    "RAY_max_direct_call_object_size": "2000",
    # A machine that is silent for two seconds is lost; otherwise half a minute.
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_failure_threshold": "4",
}


@contextmanager
def running_cluster(*machines):
    """Start the machines, connect to the first, yield the cluster and its nodes in order.

    Args:
        machines: custom resources of each; 8 CPUs, as Ray believes, have all.
    """
    with local_ray.surroundings(ENVIRONMENT) as folder:
        yield from _started(machines, folder)


def _started(machines, folder):
    cluster = None
    patch = pytest.MonkeyPatch()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray
            from ray.cluster_utils import Cluster

            # Nobody else is to find this cluster by looking for one on this machine.
            patch.setattr(ray._private.utils, "write_ray_address", lambda *_: None)
            patch.setattr(ray._common.utils, "reset_ray_address", lambda *_: None)
            cluster = Cluster()
            nodes = [
                cluster.add_node(
                    num_cpus=8,
                    num_gpus=0,
                    resources=resources,
                    object_store_memory=STORE_BYTES,
                    include_dashboard=False,
                    **({"temp_dir": folder} if number == 0 else {}),
                )
                for number, resources in enumerate(machines)
            ]
            ray.init(address=cluster.address, configure_logging=False, log_to_driver=False)
            cluster.wait_for_nodes()
        yield cluster, nodes
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray

            ray.shutdown()
            if cluster is not None:
                cluster.shutdown()
        patch.undo()
