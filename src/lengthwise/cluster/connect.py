"""Start or join Ray: the one place that does."""

from __future__ import annotations

import os
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lengthwise.errors import ClusterError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Iterator

CONNECT_SECONDS = 10.0
LOCAL = "local"
"""The address of a Ray that is started here, and ended after its use."""


def require_ray() -> Any:
    """The module ``ray``.

    Raises:
        MissingDependencyError: it is not installed.
    """
    # It decides when Ray is imported whether a worker without GPUs may still see those there are.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise MissingDependencyError(
            "work on several machines needs Ray: pip install 'lengthwise[ray]'"
        ) from None
    return ray


@contextmanager
def connected(address: str | None = None, **options: Any) -> Iterator[Any]:
    """Have Ray for a while.

    A connection of this process that is there already is used, and left as it is. Any other one is
    ended afterwards, and so is a Ray that was started here.

    Args:
        address: of a cluster: ``"auto"`` for the one on this machine, ``"host:6379"``, or
            ``"local"`` to start one here, of this machine alone. By default what ``RAY_ADDRESS``
            says, else ``"local"``: nobody's cluster is joined by chance.
        **options: for ``ray.init`` where Ray is started here, such as ``num_cpus``.

    Yields:
        The module ``ray``.

    Raises:
        ClusterError: no Ray can be started or joined.
        MissingDependencyError: Ray is not installed.
    """
    ray = require_ray()
    if ray.is_initialized():
        yield ray
        return
    address = address or os.environ.get("RAY_ADDRESS") or LOCAL
    options = {"include_dashboard": False, **options} if address == LOCAL else {}
    try:
        _knock(address)
        ray.init(address, logging_level="warning", log_to_driver=False, **options)
    except (OSError, RuntimeError, ValueError) as error:
        raise ClusterError(_explained(address, error)) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _knock(address: str) -> None:
    """See whether anybody is there, which Ray itself does for minutes.

    Raises:
        OSError: nobody answers at ``host:port``.
    """
    host, colon, port = address.rpartition(":")
    if colon and port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()


def _explained(address: str, error: Exception) -> str:
    reason = str(error).partition("\n")[0] or type(error).__name__
    if address == LOCAL:
        return f"Ray cannot be started on this machine: {reason}"
    wanted = "on this machine" if address == "auto" else f"at {address!r}"
    return (
        f"there is no Ray cluster {wanted} that can be joined: {reason}. Start one with `ray start "
        f"--head`, give its address (--ray-address HOST:6379, ray_address=, or RAY_ADDRESS), or "
        f"'{LOCAL}' to use this machine alone"
    )
