"""Random access to the batches of an epoch, against the whole epoch written down as a list."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.kernels import fixed
from support import twins_planner as twin

U = np.uint64
WORD = st.integers(0, 2**64 - 1)


@st.composite
def layouts(draw):
    """Groups with and without full batches and tails; at least one batch in all."""
    size = st.integers(1, 5)
    group = st.tuples(size, st.integers(0, 4), st.lists(size, max_size=3))
    layout = draw(st.lists(group, min_size=1, max_size=5))
    return layout if any(full or tail for _, full, tail in layout) else [(1, 1, []), *layout]


def tables(layout):
    """The two tables of a layout, built row by row."""
    groups, tails, rank = [], [], 0
    for size, num_full, tail in layout:
        groups.append((rank, size, num_full, len(tails)))
        first = size * num_full
        for part in tail:
            tails.append((first, part))
            first += part
        rank += num_full + len(tail)
    return np.array(groups, np.int64), np.array(tails, np.int64).reshape(-1, 2)


def num_samples(layout):
    return [size * full + sum(tail) for size, full, tail in layout]


@given(st.integers(1, 60), st.integers(1, 70), WORD)
def test_every_unit_stands_at_one_place_of_the_epoch(num_units, per_step, key):
    """The twin writes the epoch down; place by place the kernel must give the same."""
    got = [int(fixed.rank_of_unit(i, num_units, per_step, U(key))) for i in range(num_units)]
    assert got == twin.ranks_of_units(num_units, per_step, key)
    assert sorted(got) == list(range(num_units))


@given(st.integers(1, 12), st.integers(2, 8), WORD)
def test_every_whole_step_takes_one_unit_of_each_stratum(steps, per_step, key):
    """Ranked by length and cut into as many strata as a step has units: one of each, always."""
    num_units = steps * per_step
    ranks = [int(fixed.rank_of_unit(i, num_units, per_step, U(key))) for i in range(num_units)]
    for step in range(steps):
        members = ranks[step * per_step : (step + 1) * per_step]
        assert sorted(rank // steps for rank in members) == list(range(per_step))


@given(st.integers(1, 20), st.integers(1, 6), st.integers(1, 30), WORD)
def test_units_keep_neighbours_by_length_together(num_units, per_unit, per_step, key):
    """A unit runs at the same time on the replicas, so its batches must be of like length."""
    num_batches = num_units * per_unit
    got = [
        int(fixed.rank_of_batch(i, num_batches, per_unit, per_step, U(key)))
        for i in range(num_batches)
    ]
    assert got == twin.ranks_of_batches(num_batches, per_unit, per_step, key)
    for first in range(0, num_batches, per_unit):
        assert len({rank // per_unit for rank in got[first : first + per_unit]}) == 1


@given(layouts())
def test_a_rank_finds_its_group_place_and_size(layout):
    """The twin lists all batches of all groups in turn; groups without batches are passed over."""
    groups, tails = tables(layout)
    expected = twin.places_of_batches(layout)
    got = [tuple(map(int, fixed.place_of_batch(i, groups, tails))) for i in range(len(expected))]
    assert got == expected


@given(layouts(), st.integers(1, 5), st.integers(1, 6), WORD)
def test_the_whole_table_is_its_single_batches(layout, per_unit, per_step, key):
    """place_all and fill_all only loop: batch by batch they must agree with the single look-up."""
    listed = twin.places_of_batches(layout)
    if len(listed) % per_unit:
        per_unit = 1
    ranks = twin.ranks_of_batches(len(listed), per_unit, per_step, key)
    places = np.empty((len(listed), 3), np.int64)
    fixed.place_all(per_unit, per_step, U(key), *tables(layout), places)
    assert [tuple(row) for row in places.tolist()] == [listed[rank] for rank in ranks]

    counts = num_samples(layout)
    offsets = np.concatenate(([0], np.cumsum(counts)))
    words = np.arange(offsets[-1], dtype=np.uint64) + U(9 << 32)
    keys = [twin.mix(key, group) for group in range(len(layout))]
    starts = np.cumsum(places[:, 2]) - places[:, 2]
    order = np.full(offsets[-1], 999, np.uint32)
    fixed.fill_all(words, offsets, places, starts, np.array(keys, np.uint64), order)
    edges = [*starts.tolist(), order.size]
    for (lo, hi), (group, start, size) in zip(pairwise(edges), places.tolist(), strict=True):
        members = list(range(int(offsets[group]), int(offsets[group + 1])))
        assert order[lo:hi].tolist() == twin.fill_batch(members, start, size, keys[group])
    assert sorted(order.tolist()) == list(range(offsets[-1]))
