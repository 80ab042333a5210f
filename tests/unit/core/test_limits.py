"""What a batch may hold: validation, and the numbers that follow from the limits."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.limits import MAX_TOKENS_LIMIT, BatchLimits
from lengthwise.errors import ConfigError, LengthwiseError


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"max_tokens": 0}, r"max_tokens must be from 1 to 1,099,511,627,776, got 0"),
        ({"max_tokens": -5}, r"max_tokens must be from 1 .*, got -5"),
        ({"max_tokens": MAX_TOKENS_LIMIT + 1}, r"max_tokens must be .* got 1,099,511,627,777"),
        ({"max_tokens": 1.5}, r"max_tokens must be an integer, got 1.5 \(float\)"),
        ({"max_tokens": "100"}, r"max_tokens must be an integer, got '100' \(str\)"),
        ({"max_tokens": True}, r"max_tokens must be an integer, got True \(bool\)"),
        ({"max_tokens": None}, r"max_tokens must be an integer, got None"),
        ({"max_tokens": 9, "max_batch_size": 0}, r"max_batch_size must be from 1 .*, got 0"),
        ({"max_tokens": 9, "max_batch_size": 2.0}, r"max_batch_size must be an integer, got 2.0"),
        ({"max_tokens": 9, "pad_to_multiple_of": 0}, r"pad_to_multiple_of must be from 1"),
        ({"max_tokens": 9, "pad_to_multiple_of": None}, r"pad_to_multiple_of must be an integer"),
        ({"max_tokens": 9, "batch_size_multiple_of": -8}, r"batch_size_multiple_of must be from 1"),
        ({"max_tokens": 63, "pad_to_multiple_of": 64}, r"\(64\) is above max_tokens \(63\)"),
    ],
)
def test_limits_that_cannot_work_are_refused_with_rule_and_value(arguments, message):
    """The message says which setting, what is allowed and what was given."""
    with pytest.raises(ConfigError, match=message) as caught:
        BatchLimits(**arguments)
    assert isinstance(caught.value, LengthwiseError)
    assert isinstance(caught.value, ValueError)


def test_limits_are_plain_integers_and_frozen():
    """numpy integers come from arrays of settings; JSON and hashing want Python's own."""
    limits = BatchLimits(np.int32(100), np.uint8(4), np.int64(8), np.int16(2))
    assert limits == BatchLimits(100, 4, 8, 2)
    values = (limits.max_tokens, limits.max_batch_size, limits.pad_to_multiple_of)
    assert all(type(value) is int for value in values)
    assert hash(limits) == hash(BatchLimits(100, 4, 8, 2))
    with pytest.raises(FrozenInstanceError):
        limits.max_tokens = 5


@given(
    max_tokens=st.integers(1, 2000),
    max_batch_size=st.none() | st.integers(1, 50),
    pad_to=st.sampled_from([1, 2, 7, 64]),
    multiple=st.sampled_from([1, 2, 8, 100]),
    longest=st.integers(0, 2100),
)
def test_batch_size_is_the_largest_legal_one(max_tokens, max_batch_size, pad_to, multiple, longest):
    """Tried one by one: legal by the rule of the docstring, and a multiple where it can be."""
    pad_to = min(pad_to, max_tokens)
    limits = BatchLimits(max_tokens, max_batch_size, pad_to, multiple)
    padded = next(value for value in range(longest, longest + pad_to) if value % pad_to == 0)
    padded = max(padded, pad_to)
    legal = [
        size
        for size in range(1, max_tokens + 1)
        if size * padded <= max_tokens and size <= (max_batch_size or size)
    ]
    whole = [size for size in legal if size % multiple == 0]
    expected = max(whole or legal, default=0)
    assert limits.batch_size_for(longest) == expected
    assert (longest <= limits.longest_allowed) == (padded <= max_tokens)
    assert limits.size_cap == max(
        size
        for size in range(1, max_tokens + 1)
        if size * pad_to <= max_tokens and size <= (max_batch_size or size)
    )


@given(st.lists(st.integers(1, 2**40), max_size=10), st.integers(1, 1000))
def test_padded_lengths_are_the_next_multiples(lengths, pad_to):
    """Array and scalar by the same rule: not below the length, a multiple, less than one more."""
    limits = BatchLimits(2**40, None, pad_to)
    padded = limits.padded_lengths(np.array(lengths, np.int64)).tolist()
    assert padded == [limits.padded_length(length) for length in lengths]
    for length, value in zip(lengths, padded, strict=True):
        assert value % pad_to == 0
        assert length <= value < length + pad_to
