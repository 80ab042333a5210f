"""Whether a target can verify several tokens at once and take some of them back: tried out."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch

from lengthwise.dflash.decoding.generation import context_limit
from lengthwise.dflash.decoding.target_cache import TargetCache
from lengthwise.errors import ModelError

if TYPE_CHECKING:
    from lengthwise.dflash.target import Target

_PREFIX = 12
_BLOCK = 4
_KEPT = 2
_TOLERANCE = {torch.float32: 0.01, torch.float64: 0.01}
"""Largest mean total variation between next-token distributions that rounding may explain."""
_TOLERANCE_OF_OTHERS = 0.2

_checked: WeakKeyDictionary[Target, None] = WeakKeyDictionary()


def check_rewinding(target: Target) -> None:
    """Run a few tokens in one go and one by one, take some back, and compare what comes next.

    Some models drop their state when several tokens come at once (Mamba 2 in transformers 5.24
    does); with them verification would change the output. A target is tried once; later calls cost
    nothing.

    Raises:
        ModelError: the results differ by more than rounding.
    """
    if target in _checked:
        return
    context = context_limit(target.config) or _PREFIX + _BLOCK
    length = max(1, min(_PREFIX, context - _BLOCK))
    ids = torch.arange(length + _BLOCK, device=target.device) * 7 + 1
    ids %= min(target.vocab_size, target.ends.num_embeddings)
    prefix, block = ids[:length], ids[length:]
    with torch.no_grad():
        expected = _one_by_one(target, prefix, block)
        cache = TargetCache(target)
        cache.extend(prefix, last_only=True)
        found, _ = cache.extend(block, revocable=True)
        _compare(target, found, expected, "run several tokens at once")
        cache.keep(_KEPT)
        found, _ = cache.extend(block[_KEPT:])
        _compare(target, found, expected[_KEPT:], "take tokens back")
    _checked[target] = None


def _one_by_one(target: Target, prefix: torch.Tensor, block: torch.Tensor) -> torch.Tensor:
    cache = TargetCache(target)
    cache.extend(prefix, last_only=True)
    return torch.cat([cache.extend(token[None])[0] for token in block])


def _compare(target: Target, found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    one, other = found.float().softmax(-1), expected.float().softmax(-1)
    distance = float((one - other).abs().sum(-1).mean() / 2)
    limit = _TOLERANCE.get(found.dtype, _TOLERANCE_OF_OTHERS)
    if not distance <= limit:
        raise ModelError(
            f"{type(target.model).__name__} cannot {what} with its cache: the distributions of "
            f"the next token differ by {distance:.2f} (total variation; rounding explains "
            f"{limit:g}) from those of one token at a time, so speculative decoding would change "
            "the output. Plain decoding works"
        )
