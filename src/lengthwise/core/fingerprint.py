"""Short names for data and settings that change when these do."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    import numpy.typing as npt

    from lengthwise.core.limits import Int64Array
    from lengthwise.core.stored import StoredLengths

PLAN_VERSION = 2
"""Version of the planning rules. It grows whenever equal inputs would give another plan."""

_CHUNK = 1 << 20


def lengths_fingerprint(lengths: npt.NDArray[np.integer[Any]]) -> str:
    """A hash of the lengths in their order, the same on every platform; 32 hex digits.

    Args:
        lengths: each from 0 to 2**32 - 1, shape (N,), of any integer dtype.
    """
    return parts_fingerprint([lengths], lengths.size)


def parts_fingerprint(parts: Iterable[npt.NDArray[np.integer[Any]]], num_lengths: int) -> str:
    """As :func:`lengths_fingerprint`, of lengths that lie in several arrays.

    Args:
        parts: the arrays in order, of any integer dtype; each length from 0 to 2**32 - 1.
        num_lengths: of all of them together.
    """
    digest = hashlib.sha256(f"lengths:{num_lengths}:".encode())
    for whole in parts:
        for start in range(0, whole.size, _CHUNK):
            part = np.ascontiguousarray(whole[start : start + _CHUNK], dtype="<u4")
            digest.update(part.data)
    return digest.hexdigest()[:32]


def data_fingerprint(lengths: StoredLengths, shard_edges: Int64Array) -> str:
    """A hash of the lengths, and of the shards where there are several; 32 hex digits.

    Args:
        lengths: in their order.
        shard_edges: samples before each shard, and all of them; shape (K + 1,).
    """
    found = parts_fingerprint((part for _, part in lengths.parts()), lengths.size)
    if shard_edges.size == 2:
        return found
    shards = np.ascontiguousarray(shard_edges, dtype="<i8")
    return hashlib.sha256(found.encode() + shards.tobytes()).hexdigest()[:32]


def plan_fingerprint(lengths_hash: str, config: dict[str, Any], num_replicas: int) -> str:
    """A hash of all that decides a run's plans apart from the epoch; 32 hex digits."""
    content = json.dumps(
        {
            "version": PLAN_VERSION,
            "lengths": lengths_hash,
            "config": config,
            "num_replicas": num_replicas,
        },
        sort_keys=True,
    )
    return hashlib.sha256(content.encode()).hexdigest()[:32]
