"""Rotary positions whose frequencies depend on the longest row of a batch.

Two kinds of rotary scaling look at the length of what is run. ``longrope`` takes its long
frequencies for the whole batch as soon as one row is longer than the length of pre-training, so a
short row's states would depend on its neighbours. ``dynamic`` goes further: its frequencies
depend on the longest input since the last short one, which no batching can make repeatable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lengthwise.errors import ModelError


def check_length_free(config: Any, columns: int) -> None:
    """Refuse rows whose states would depend on what was run before.

    Raises:
        ModelError: ``dynamic`` scaling, and more columns than pre-training had.
    """
    limit = _limit(config, "dynamic")
    if limit is not None and columns > limit:
        raise ModelError(
            f"rows of {columns} columns: with rotary scaling of type 'dynamic' the states of rows"
            f" longer than {limit} (the length of pre-training) depend on what ran before them."
            f" Keep rows at {limit} tokens or fewer, or load the target with another scaling"
        )


def rows_alone(config: Any, lengths: Sequence[int], columns: int) -> bool:
    """Whether rows must run one by one: columns, padded or not, make longrope change short rows."""
    limit = _limit(config, "longrope")
    return limit is not None and min(lengths) <= limit < columns


def _limit(config: Any, kind: str) -> int | None:
    """Shortest length of pre-training among rotary settings of type ``kind``; None without."""
    found: Any = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(found, Mapping):
        return None
    nested = [v for v in found.values() if isinstance(v, Mapping)]
    # transformers measures `dynamic` against max_position_embeddings, whatever else is there.
    own = "original_max_position_embeddings" if kind == "longrope" else ""
    limits = [
        int(settings.get(own) or config.max_position_embeddings)
        for settings in (found, *nested)
        if settings.get("rope_type", settings.get("type")) == kind
    ]
    return min(limits, default=None)
