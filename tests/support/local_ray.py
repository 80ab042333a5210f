"""One small Ray on this machine for a module of tests: two CPUs, little memory, no dashboard.

Ray's own warnings are dealt with here and nowhere else. What is started is ended, workers too.
"""

import gc
import os
import shutil
import tempfile
import warnings
from contextlib import contextmanager

NUM_CPUS = 2
OBJECT_STORE_BYTES = 150 << 20
ENVIRONMENT = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # the future's rule; without it Ray warns
    "RAY_DEDUP_LOGS": "0",
    "RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_memory_monitor_refresh_ms": "0",  # others' memory is no reason to kill our workers
    "RAY_DATA_DISABLE_PROGRESS_BARS": "1",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "300",  # a busy machine takes its time
    "OMP_NUM_THREADS": "1",
    "PYTHONWARNINGS": "ignore",  # of Ray's processes; ours are set by pytest in the process
}


@contextmanager
def surroundings(environment):
    """Set what Ray's processes find; yield a folder for it. All is as before afterwards."""
    before = {name: os.environ.get(name) for name in (*environment, "PYTHONPATH")}
    os.environ.update(environment)
    # Workers unpickle functions of test modules by name.
    tests = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [tests, before["PYTHONPATH"]]))
    folder = tempfile.mkdtemp(prefix="lw")  # short: a Unix socket's path has 107 bytes
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@contextmanager
def running_ray(num_cpus=NUM_CPUS):
    """Start Ray, yield the module, and end it with all its processes.

    Args:
        num_cpus: which Ray believes it has; more than the machine has do no harm.
    """
    with surroundings(ENVIRONMENT) as folder:
        yield from _started(num_cpus, folder)


def _started(num_cpus, folder):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray

            ray.init(
                address="local",
                num_cpus=num_cpus,
                num_gpus=0,
                object_store_memory=OBJECT_STORE_BYTES,
                include_dashboard=False,
                configure_logging=False,
                log_to_driver=False,
                _temp_dir=folder,
            )
        yield ray
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import ray

            ray.shutdown()
            gc.collect()  # Ray leaves its processes' handles behind, each with a warning
