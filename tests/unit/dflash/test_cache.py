"""The context's keys and values: appended, cropped, grown."""

from __future__ import annotations

import pytest
import torch

from lengthwise.dflash.cache import ContextCache
from lengthwise.dflash.layers import KeyValues


def tokens(start: int, count: int) -> list[KeyValues]:
    """Two layers whose keys and values name the layer and the token."""
    numbers = torch.arange(start, start + count, dtype=torch.float32)
    of_one = numbers.view(1, 1, -1, 1).expand(1, 2, -1, 4)
    return [KeyValues(of_one + 1000 * layer, -of_one - 1000 * layer) for layer in (0, 1)]


def held(cache: ContextCache, layer: int) -> list[float]:
    keys, values = cache.layer(layer)
    assert torch.equal(values, -keys)
    assert keys.shape == (1, 2, cache.length, 4)
    return keys[0, 0, :, 0].tolist()


def test_tokens_stay_in_order_however_they_come() -> None:
    """Pieces from one token to more than the first room of 64."""
    cache, at = ContextCache(2), 0
    for count in (1, 0, 5, 60, 1, 200, 3):
        cache.extend(tokens(at, count))
        at += count
        assert cache.length == at
    assert held(cache, 0) == list(range(270))
    assert held(cache, 1) == list(range(1000, 1270))


def test_cropped_tokens_are_forgotten_and_replaced() -> None:
    cache = ContextCache(2)
    cache.extend(tokens(0, 10))
    cache.crop(4)
    assert held(cache, 1) == [1000, 1001, 1002, 1003]
    cache.extend(tokens(50, 2))
    assert held(cache, 0) == [0, 1, 2, 3, 50, 51]
    cache.crop(cache.length)
    assert cache.length == 6
    cache.crop(0)
    assert held(cache, 0) == []


def test_room_doubles_so_that_appending_copies_each_token_a_few_times_only() -> None:
    """1,000 single tokens: rooms of 64, 128, ... 1,024, not 1,000 of them."""
    cache, rooms = ContextCache(2), set()
    for at in range(1000):
        cache.extend(tokens(at, 1))
        rooms.add(cache.layer(0).keys.untyped_storage().nbytes())
    assert len(rooms) == 5


@pytest.mark.parametrize("length", [-1, 4])
def test_a_crop_to_what_it_does_not_hold_is_refused(length: int) -> None:
    cache = ContextCache(2)
    cache.extend(tokens(0, 3))
    with pytest.raises(ValueError, match=rf"takes 0 to 3, the tokens in the cache, got {length}"):
        cache.crop(length)


def test_every_layer_must_be_extended() -> None:
    with pytest.raises(ValueError, match="2 layers, got 1"):
        ContextCache(2).extend(tokens(0, 3)[:1])
