"""Greedy packing and dealing from a pool against plain Python, on small and hostile arrays."""

from itertools import groupby

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.kernels import pack
from lengthwise.core.kernels.random import bounded_range
from support import twins_planner as twin
from support.twins_random import bounded, mix

U = np.uint64
WORD = st.integers(0, 2**64 - 1)
BASE = 5
"""Where a part begins in the shared ``order``: entries before and after belong to other tasks."""


@st.composite
def packings(draw):
    """Limits, and lengths of which most fit: 1, the budget itself, its divisors, ties."""
    pad_to = draw(st.sampled_from([1, 1, 2, 8]))
    max_tokens = pad_to * draw(st.integers(1, 60)) + draw(st.integers(0, pad_to - 1))
    most = max_tokens // pad_to * pad_to
    max_size = min(draw(st.sampled_from([1, 2, 5, 8, 1000])), max_tokens // pad_to)
    multiple = draw(st.sampled_from([1, 1, 2, 3, 8, 64]))
    length = st.one_of(
        st.integers(1, most), st.sampled_from([1, most, max(1, most // 2), max(1, most // 3)])
    )
    lengths = draw(
        st.one_of(
            st.lists(length, max_size=40),
            st.integers(0, 40).flatmap(lambda n: length.map(lambda value: [value] * n)),
        )
    )
    return lengths, (max_tokens, max_size, pad_to, multiple)


def words_of(samples):
    return np.array([twin.as_word(sample) for sample in samples], np.uint64)


def indices_of(samples):
    return np.array([index for _, index in samples], np.uint32)


def unpack(order, table, count):
    return [
        (order[start : start + size].tolist(), padded, tokens)
        for start, size, padded, tokens in table[:count].tolist()
    ]


def greedily(samples, limits, least):
    """Pack a part that lies inside a larger ``order``."""
    order = np.full(len(samples) + BASE + 3, 999, np.uint32)
    table = np.full((len(samples) + 1, 4), -1, np.int64)
    numbers = np.array(limits, np.int64)
    count = pack.pack_greedily(words_of(samples), BASE, numbers, least, order, table)
    assert order[:BASE].tolist() + order[BASE + len(samples) :].tolist() == [999] * (BASE + 3)
    assert (table[count:] == -1).all()
    return unpack(order, table, count)


@given(packings(), st.integers(0, 3))
def test_a_greedy_batch_is_the_longest_legal_prefix(case, floor_steps):
    """The twin tries every prefix; the kernel keeps a running maximum and may give back a rest."""
    lengths, limits = case
    least = min(floor_steps * limits[2], limits[0] // limits[2] * limits[2])
    samples = [(length, 3 * i) for i, length in enumerate(lengths)]
    got = greedily(samples, limits, least)
    expected = [
        ([index for _, index in batch], padded, tokens)
        for batch, padded, tokens in twin.pack_greedily(samples, limits, least)
    ]
    assert got == expected


@given(st.lists(st.integers(1, 300), min_size=1, max_size=30))
def test_a_sample_over_the_budget_is_packed_alone(lengths):
    """The policy ``single`` lets such samples through; they must not drag others along."""
    samples = [(length, i) for i, length in enumerate(lengths)]
    batches = greedily(samples, (100, 10, 1, 1), 0)
    for indices, padded, _ in batches:
        assert len(indices) * padded <= 100 or len(indices) == 1


def dealt(samples, groups, limits, key, base=0):
    """Deal groups (first place, end, free slots, length) of the samples; the batches, the order."""
    order = np.full(base + len(samples), 999_999, np.uint32)
    numbers, rows = np.array(limits, np.int64), np.array(groups, np.int64)
    table = pack.deal_from_pool(indices_of(samples), rows, base, numbers, U(key), order)
    return unpack(order, table, len(table)), order.tolist()


@given(packings(), st.data(), WORD)
def test_dealing_from_a_pool_is_the_twins_deal(case, data, key):
    """Each length gives a part of its samples, as where several streams share the data set."""
    lengths, limits = case
    samples = [(length, 3 * i) for i, length in enumerate(sorted(lengths))]
    rows, groups = [], []
    for length in sorted(set(lengths)):
        places = [i for i, sample in enumerate(samples) if sample[0] == length]
        first = data.draw(st.integers(places[0], places[-1] + 1))
        end = data.draw(st.integers(first, places[-1] + 1))
        wanted = data.draw(st.integers(0, 60))
        rows.append((first, end, wanted, length))
        groups.append((samples[first:end], wanted))
    if not rows:
        return
    got, order = dealt(samples, rows, limits, key, BASE)
    expected = twin.deal_from_pool(groups, limits, key)
    assert got == [
        ([sample for _, sample in batch], padded, sum(length for length, _ in batch))
        for batch, padded, _ in expected
    ]
    assert all(len(batch) == size for batch, _, size in expected)
    num_dealt = sum(len(group) for group, _ in groups)
    unused = order[:BASE] + order[BASE + num_dealt :]
    assert unused == [999_999] * len(unused)


def test_the_table_of_dealt_batches_grows_as_long_as_there_are_more():
    """A batch a sample, where room was made for a 32nd of them at first."""
    samples = [(9, i) for i in range(500)]
    batches, order = dealt(samples, [(0, 500, 0, 9)], (10, 1, 1, 1), 3, base=2)
    assert batches == [([i], 9, 9) for i in range(499, -1, -1)]
    assert order[2:] == list(range(499, -1, -1))


@given(packings(), st.integers(0, 2**41), WORD)
def test_a_dealt_batch_is_full_legal_and_padded_to_its_own_longest(case, slots, key):
    """What dealing promises, without a twin: any pool, from none to more slots than samples."""
    lengths, limits = case
    max_tokens, max_size, pad_to, multiple = limits
    samples = [(length, i) for i, length in enumerate(sorted(lengths))]
    rows = []
    for length, run in groupby(samples, key=lambda sample: sample[0]):
        places = [i for _, i in run]
        rows.append((places[0], places[-1] + 1, slots, length))
    batches, order = dealt(samples, np.array(rows, np.int64).reshape(-1, 4), limits, key)
    assert sorted(order) == list(range(len(samples)))
    for indices, padded, tokens in batches:
        held = [samples[index][0] for index in indices]
        assert padded == twin.round_up(max(held), pad_to)
        assert tokens == sum(held)
        assert len(held) <= max_size
        assert len(held) * padded <= max_tokens
        assert len(held) < multiple or len(held) % multiple == 0


@given(st.integers(1, 2**32), st.integers(0, 20), WORD)
def test_a_range_of_bounded_draws_is_the_draws_one_by_one(bound, count, key):
    """Streams share each length by these draws; the twin multiplies exactly."""
    out = np.empty(count, np.int64)
    bounded_range(bound, U(key), out)
    assert out.tolist() == [bounded(mix(key, i), bound) for i in range(count)]


@given(
    st.lists(st.lists(st.integers(1, 2**32 - 1), min_size=1, max_size=5), max_size=8),
    st.sampled_from([1, 7, 64]),
    st.integers(0, 2**33),
)
def test_measuring_a_table_anew_gives_padded_length_and_tokens(groups, pad_to, least):
    """Batches laid down last to first; totals beyond 32 bits must not wrap."""
    lengths = [length for group in groups for length in group]
    order, rows, first = [], [], len(lengths)
    for group in reversed(groups):
        first -= len(group)
        rows.append((len(order), len(group), -1, -1))
        order += range(first, first + len(group))
    table = np.array(rows[::-1], np.int64).reshape(-1, 4)
    floors = np.array([least * (i % 2) for i in range(len(groups))], np.int64)
    pack.measure_table(
        np.array(order, np.uint32), np.array(lengths, np.int64), pad_to, floors, table
    )
    expected = [twin.measure(group, pad_to, least * (i % 2)) for i, group in enumerate(groups)]
    assert [tuple(row) for row in table[:, 2:].tolist()] == expected
