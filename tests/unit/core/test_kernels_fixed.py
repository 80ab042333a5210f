"""Random access to the batches of an epoch, against the whole epoch written down as a list."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.course import NO_REST, Course
from lengthwise.core.index import index_by_group
from lengthwise.core.kernels import fixed
from lengthwise.core.stored import StoredLengths
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


def course_of(layout, *, per_unit=1, per_step=1, key=0, keys=None):
    """An epoch of one window and one shard, whose samples lie as they are numbered."""
    groups, tails = tables(layout)
    counts = np.array(num_samples(layout), np.int64)
    offsets = np.cumsum(counts) - counts
    listed = twin.places_of_batches(layout)
    begins = np.append(groups[:, 0], len(listed))[None]
    return Course(
        words=np.arange(counts.sum(), dtype=np.uint16),
        blocks=np.column_stack((offsets, offsets + counts)),
        marks=np.zeros(2, np.int32),
        counts=np.column_stack((np.zeros_like(counts), counts)),
        firsts=offsets[:, None],
        shards_per_group=1,
        keys=np.zeros(len(layout), np.uint64) if keys is None else np.array(keys, np.uint64),
        groups=groups,
        tails=tails,
        bounds=np.array([0, len(listed)]),
        begins=begins,
        cuts=np.zeros((1, len(layout)), np.int64),
        per_unit=per_unit,
        per_step=per_step,
        order_key=U(key),
        first=0,
        num_computed=len(listed),
        rest=NO_REST,
    )


@given(st.lists(st.integers(0, 9), min_size=1, max_size=12), st.data())
def test_the_last_entry_that_is_at_most_a_value_is_found(steps, data):
    """In any part of a rising row that begins at most at the value; equal entries too."""
    row = np.cumsum(steps)
    low = data.draw(st.integers(0, row.size - 1))
    high = data.draw(st.integers(low, row.size - 1))
    value = data.draw(st.integers(int(row[low]), int(row[-1]) + 2))
    expected = max(place for place in range(low, high + 1) if row[place] <= value)
    assert fixed.last_at_most(row, low, high, value) == expected


@given(layouts(), st.integers(1, 5), st.integers(1, 6), WORD)
def test_a_place_of_the_epoch_finds_its_group_place_and_size(layout, per_unit, per_step, key):
    """The twin lists all batches of all groups in turn; groups without batches are passed over."""
    listed = twin.places_of_batches(layout)
    if len(listed) % per_unit:
        per_unit = 1
    ranks = twin.ranks_of_batches(len(listed), per_unit, per_step, key)
    course = course_of(layout, per_unit=per_unit, per_step=per_step, key=key)
    got = [tuple(map(int, fixed.place_of_batch(i, course))) for i in range(len(listed))]
    assert got == [listed[rank] for rank in ranks]
    places = np.zeros((len(listed), 3), np.int64)
    places[:, 0] = np.arange(len(listed))
    fixed.place_some(course, places)
    assert [tuple(row) for row in places.tolist()] == got


@given(layouts(), st.data())
def test_batches_at_the_end_may_be_written_down(layout, data):
    """What is left of an epoch: from some batch on, to some batch; then the rows of a table."""
    whole = course_of(layout, key=3)
    first = data.draw(st.integers(0, whole.num_computed))
    number = data.draw(st.integers(0, whole.num_computed - first))
    rest = np.array([[0, 5, 2], [0, 1, 1]])
    part = whole._replace(first=first, num_computed=number, rest=rest)
    expected = [fixed.place_of_batch(first + i, whole) for i in range(number)]
    got = [fixed.place_of_batch(i, part) for i in range(number + 2)]
    assert got == [*expected, (0, 5, 2), (0, 1, 1)]


@given(layouts(), WORD)
def test_the_batches_of_an_epoch_hold_each_sample_once(layout, key):
    """fill_all only loops: batch by batch it must agree with the twin of a single one."""
    keys = [twin.mix(key, group) for group in range(len(layout))]
    course = course_of(layout, key=key, keys=keys)
    places = np.zeros((course.num_computed, 3), np.int64)
    places[:, 0] = np.arange(len(places))
    fixed.place_some(course, places)
    starts = np.cumsum(places[:, 2]) - places[:, 2]
    order = np.full(places[:, 2].sum(), 999, np.uint32)
    fixed.fill_all(course, places, starts, order)
    edges = [*starts.tolist(), order.size]
    offsets = np.concatenate(([0], np.cumsum(num_samples(layout))))
    for batch, ((lo, hi), (group, start, size)) in enumerate(
        zip(pairwise(edges), places.tolist(), strict=True)
    ):
        members = list(range(int(offsets[group]), int(offsets[group + 1])))
        assert order[lo:hi].tolist() == twin.fill_batch(members, start, size, keys[group])
        assert fixed.batch_at(batch, course).tolist() == order[lo:hi].tolist()
    assert sorted(order.tolist()) == list(range(offsets[-1]))


@given(
    sizes=st.lists(st.integers(0, 7), min_size=1, max_size=8).filter(any),
    each=st.integers(1, 4),
    key=WORD,
    data=st.data(),
)
def test_a_row_of_shard_groups_permutes_each_by_itself(sizes, each, key, data):
    """One group by length, whose samples lie in shards that the epoch takes in another order.

    The twin writes the shards of each group in a row and permutes that; any part of the row may be
    asked for. The key of group k is the group's own for k = 0, else its word k.
    """
    order = data.draw(st.permutations(range(len(sizes))))
    begins = np.cumsum(sizes) - sizes
    row = []
    for number, first in enumerate(range(0, len(sizes), each)):
        members = [
            int(begins[shard]) + i
            for shard in order[first : first + each]
            for i in range(sizes[shard])
        ]
        own = key if number == 0 else twin.mix(key, number)
        row += twin.fill_batch(members, 0, len(members), own)
    total = sum(sizes)
    in_order = np.array(sizes)[order]
    course = course_of([(1, total, [])], keys=[key])._replace(
        counts=np.concatenate(([0], np.cumsum(in_order)))[None],
        firsts=begins[order][None],
        shards_per_group=each,
    )
    start = data.draw(st.integers(0, total - 1))
    out = np.empty(data.draw(st.integers(1, total - start)), np.int64)
    fixed.fill_batch(0, start, course, out)
    assert out.tolist() == row[start : start + out.size]


def test_an_index_of_two_bytes_names_every_sample():
    """Three blocks of 2**16 samples; two groups, of which one has none of the second block.

    Groups begin and end anywhere between marks, as here: about 43,000 words, then 153,000.
    """
    sparse = [i for i in range(3 << 16) if i % 3 == 0 and i >> 16 != 1]
    dense = sorted(set(range(3 << 16)) - set(sparse))
    numbers = np.zeros(3 << 16, np.int64)
    numbers[dense] = 1
    lengths = StoredLengths.of(numbers + 1)
    words, kept, index = index_by_group(
        lengths, lambda part: (part - 1).astype(np.int32), 2, np.array([0, 3 << 16]), 1
    )
    assert kept.tolist() == [0, 1]
    assert words.dtype == np.uint16
    course = course_of([(1, len(sparse), []), (1, len(dense), [])], keys=[9, 8])._replace(
        words=words,
        blocks=index.blocks,
        marks=index.marks,
        firsts=np.array([[0], [len(sparse)]]),
    )
    for group, samples in enumerate((sparse, dense)):
        out = np.empty(len(samples), np.int64)
        fixed.fill_batch(group, 0, course, out)
        assert sorted(out.tolist()) == samples
