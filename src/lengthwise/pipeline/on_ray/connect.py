"""Ray itself: whether it is installed, and the connection to a cluster."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lengthwise.errors import ConfigError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Iterator


def require_ray() -> Any:
    """The package.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingDependencyError(
            "pipeline.engine: ray needs Ray: pip install 'lengthwise[ray]'"
        ) from error
    return ray


@contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray's package, with a connection to a cluster.

    Where this process has a connection, that one is used, and stays.

    Args:
        address: "auto": the cluster that RAY_ADDRESS names, or one that was started on this machine
            (``ray start``), or else a Ray of this machine alone; "local": always such a one; or
            ``host:port`` of a cluster that this machine belongs to.

    Raises:
        MissingDependencyError: Ray is not installed.
        ConfigError: there is no cluster at that address.
    """
    ray = require_ray()
    if ray.is_initialized():
        yield ray
        return
    if address.startswith("ray://"):
        raise ConfigError(
            f"pipeline.ray.address: {address!r}: a pipeline runs inside its cluster; start it "
            f"there, for example with `ray job submit -- lengthwise dflash train CONFIG`"
        )
    try:
        # What goes wrong in an actor comes as a message; Ray has the rest in its logs.
        ray.init(address=None if address == "auto" else address, log_to_driver=False)
    except ConnectionError as error:
        raise ConfigError(f"pipeline.ray.address: no Ray at {address!r}: {error}") from error
    try:
        yield ray
    finally:
        ray.shutdown()
