"""Which of a machine's network interfaces leads to another machine."""

from __future__ import annotations

import socket
import struct
import sys

_NAME_BYTES, _ADDRESS = 15, slice(20, 24)
_GET_ADDRESS = 0x8915  # SIOCGIFADDR of Linux


def interface_towards(host: str) -> str | None:
    """Name of the interface by which packets to ``host`` leave, such as "eth0"; "lo" to itself.

    None where that cannot be found out: not on Linux, no such host, IPv6.
    """
    if sys.platform != "linux":
        return None
    try:
        own = _address_towards(host)
        return next((name for name in _interfaces() if _address_of(name) == own), None)
    except OSError:
        return None


def _address_towards(host: str) -> str:
    """This machine's address as ``host`` would see it; no packet is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        end.connect((host, 9))
        return str(end.getsockname()[0])


def _interfaces() -> list[str]:
    return [name for _, name in socket.if_nameindex()]


def _address_of(interface: str) -> str | None:
    """Its IPv4 address; None where it has none."""
    import fcntl

    request = struct.pack("256s", interface.encode()[:_NAME_BYTES])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
        try:
            answer = fcntl.ioctl(end.fileno(), _GET_ADDRESS, request)
        except OSError:
            return None
    return socket.inet_ntoa(answer[_ADDRESS])
