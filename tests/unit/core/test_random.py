"""Random streams: addressed, unbiased, and the same for ever."""

from collections import Counter
from itertools import permutations
from math import sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core import random as keys
from lengthwise.core.kernels import random as kernels
from lengthwise.core.random import Purpose, derive_key, stream_key
from support import twins_random as twin

WORD = st.integers(0, 2**64 - 1)
U = np.uint64


def chi_square_score(observed, num_cells):
    """Standard deviations that a chi-square of equal cells lies above its mean."""
    expected = sum(observed) / num_cells
    filled = sum((count - expected) ** 2 / expected for count in observed)
    total = filled + (num_cells - len(observed)) * expected
    return (total - (num_cells - 1)) / sqrt(2 * (num_cells - 1))


def all_of(size, key):
    out = np.empty(size, np.int64)
    kernels.permute_range(0, size, U(key), out)
    return out


def test_mix_gives_the_published_splitmix64_sequence():
    """Seed 1234567 is the test vector that implementations of SplitMix64 share."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [int(kernels.mix(U(1234567), U(i))) for i in (1, 2, 3)] == expected
    assert [keys.mix(1234567, i) for i in (1, 2, 3)] == expected


@given(WORD, st.lists(st.integers(0, 2**62), max_size=5))
def test_words_at_chosen_places_are_those_of_the_stream(key, places):
    out = np.empty(len(places), np.uint64)
    kernels.mix_at(np.array(places, np.int64), U(key), out)
    assert out.tolist() == [twin.mix(key, place) for place in places]


@given(WORD, WORD)
def test_the_kernel_and_the_core_mix_alike(key, counter):
    """Both are the published function; the twin uses integers that cannot wrap by accident."""
    expected = twin.mix(key, counter)
    assert int(kernels.mix(U(key), U(counter))) == expected
    assert keys.mix(key, counter) == expected


@given(WORD, st.integers(1, 2**32))
def test_bounded_is_the_high_half_of_the_exact_product(word, bound):
    """Python multiplies exactly; the kernel has 64 bits only."""
    got = int(kernels.bounded(U(word), U(bound)))
    assert got == twin.bounded(word, bound)
    assert 0 <= got < bound


@given(st.integers(0, 60), st.integers(0, 5), st.integers(0, 5), WORD)
def test_shuffle_range_is_the_twin_inside_and_touches_nothing_outside(size, before, after, key):
    """The result may depend on length and key alone: not on the place or the dtype."""
    expected = [99] * before + twin.shuffled(range(size), key) + [98] * after
    for dtype in (np.uint32, np.int64):
        array = np.array([99] * before + list(range(size)) + [98] * after, dtype)
        kernels.shuffle_range(array, before, before + size, U(key))
        assert array.tolist() == expected


@given(st.integers(0, 6), st.integers(1, 6), WORD)
def test_shuffle_rows_shuffles_each_row_with_its_own_word(rows, columns, key):
    """Row r is what the twin makes of it with word r of the stream as its key."""
    matrix = np.arange(rows * columns).reshape(rows, columns)
    expected = [
        twin.shuffled(row, twin.mix(key, number)) for number, row in enumerate(matrix.tolist())
    ]
    kernels.shuffle_rows(matrix, U(key))
    assert matrix.tolist() == expected


def test_shuffle_gives_every_order_of_five_equally_often():
    """120 cells of 100 each: a chi-square more than 5 deviations off would show a bias."""
    seen = Counter()
    for number in range(12_000):
        array = np.arange(5)
        kernels.shuffle_range(array, 0, 5, U(derive_key(1, number)))
        seen[tuple(array.tolist())] += 1
    assert set(seen) <= set(permutations(range(5)))
    assert abs(chi_square_score(seen.values(), 120)) < 5


@pytest.mark.parametrize("size", range(1, 301))
def test_permute_is_a_bijection_for_every_small_size(size):
    """Each of range(size) is hit once: the definition of a permutation."""
    for key in (0, 1, 2**64 - 1):
        assert sorted(all_of(size, key).tolist()) == list(range(size))


@given(st.integers(1, 20_000), WORD)
def test_permute_is_a_bijection_for_random_sizes(size, key):
    """Both regimes of rounds (below and above 4,096) and grids that are not square."""
    assert np.array_equal(np.sort(all_of(size, key)), np.arange(size))


@given(st.integers(1, 2**62), WORD, st.data())
def test_permute_equals_its_twin_up_to_the_largest_size(size, key, data):
    """The twin takes an exact integer root; the kernel corrects a floating-point one."""
    index = data.draw(st.integers(0, size - 1))
    got = int(kernels.permute(index, size, U(key)))
    assert got == twin.permute(index, size, key)
    assert 0 <= got < size


@pytest.mark.parametrize("size", [1, 2, 4095, 4096, 4097, 65_536, 2**62 - 1, 2**62])
def test_permute_equals_its_twin_at_the_edges_of_its_regimes(size):
    """Squares, and the size at which the number of rounds changes."""
    for index in {0, size // 2, size - 1}:
        assert int(kernels.permute(index, size, U(7))) == twin.permute(index, size, 7)


@pytest.mark.parametrize("size", [2, 3, 4, 5])
def test_permute_reaches_every_permutation_equally_often(size):
    """Six rounds fail this for 3, 4 and 5; odd grids fail it for parity."""
    orders = list(permutations(range(size)))
    draws = 100 * len(orders)
    seen = Counter(tuple(all_of(size, derive_key(2, number)).tolist()) for number in range(draws))
    assert set(seen) <= set(orders)
    assert abs(chi_square_score(seen.values(), len(orders))) < 5


@pytest.mark.parametrize("size", [9, 40, 5000])
def test_permute_sends_neighbours_to_unrelated_places(size):
    """Images of 0 and 1, in a 9 x 9 table: all cells equally likely but for the diagonal's."""
    coarse = np.zeros((9, 9), np.int64)
    num_keys = 20_000
    for number in range(num_keys):
        first, second = (int(kernels.permute(i, size, U(derive_key(3, number)))) for i in (0, 1))
        coarse[first * 9 // size, second * 9 // size] += 1
    in_class = np.bincount(np.arange(size) * 9 // size, minlength=9)
    pairs = np.outer(in_class, in_class) - np.diag(in_class)
    expected = pairs / pairs.sum() * num_keys
    live = expected > 0
    total = float((((coarse - expected) ** 2)[live] / expected[live]).sum())
    freedom = int(live.sum()) - 1
    assert coarse[~live].sum() == 0
    assert abs(total - freedom) < 5 * sqrt(2 * freedom)


def test_permute_range_starts_anywhere():
    """Random access: the middle of a permutation needs nothing of its beginning."""
    out = np.empty(10, np.uint32)
    kernels.permute_range(37, 100, U(5), out)
    assert out.tolist() == all_of(100, 5)[37:47].tolist()


@given(st.integers(), st.lists(st.integers(), max_size=4), st.integers(), st.integers(0, 4))
def test_a_key_depends_on_every_part_and_on_their_number(seed, parts, other, place):
    """Keys of 64 bits: two different inputs that meet would show a mistake, not chance."""
    key = derive_key(seed, *parts)
    assert 0 <= key < 2**64
    assert derive_key(seed, *parts) == key
    assert derive_key(seed, *parts, 0) != key
    changed = [seed, *parts]
    place %= len(changed)
    changed[place] = other
    assert (derive_key(*changed) == key) == (changed == [seed, *parts])


def test_seeds_that_differ_in_sign_or_beyond_64_bits_differ():
    """A seed taken modulo 2**64 would make these equal."""
    seeds = [0, 1, -1, 2**64, 2**64 + 1, -(2**64), 2**128, 2**64 - 1]
    assert len({derive_key(seed) for seed in seeds}) == len(seeds)


def test_streams_of_a_run_do_not_meet():
    """10 seeds x 10 epochs x all purposes x 10 indices: as many keys as combinations."""
    found = {
        stream_key(seed, epoch, purpose, index)
        for seed in range(10)
        for epoch in range(10)
        for purpose in Purpose
        for index in range(10)
    }
    assert len(found) == 1000 * len(Purpose)


def test_the_streams_are_these_and_stay_these():
    """Golden values, taken once: a change here changes every plan and needs a new version."""
    assert derive_key(0) == GOLDEN["derive_key(0)"]
    assert derive_key(-5, 2**70, 3) == GOLDEN["derive_key(-5, 2**70, 3)"]
    assert stream_key(17, 3, Purpose.BATCHES, 2) == GOLDEN["stream_key(17, 3, BATCHES, 2)"]
    shuffle = np.arange(10, dtype=np.uint32)
    kernels.shuffle_range(shuffle, 0, 10, U(42))
    assert shuffle.tolist() == GOLDEN["shuffle of 10, key 42"]
    assert all_of(10, 42).tolist() == GOLDEN["permute 10, key 42"]
    big = [int(kernels.permute(i, 10**12, U(42))) for i in range(3)]
    assert big == GOLDEN["permute 10**12, key 42"]
    assert {name: Purpose[name].value for name in GOLDEN["purposes"]} == GOLDEN["purposes"]


GOLDEN = {
    "derive_key(0)": 12465085301323002209,
    "derive_key(-5, 2**70, 3)": 3628143158118009483,
    "stream_key(17, 3, BATCHES, 2)": 303031339253227074,
    "shuffle of 10, key 42": [2, 9, 5, 4, 8, 0, 6, 1, 7, 3],
    "permute 10, key 42": [5, 4, 6, 8, 1, 3, 7, 0, 9, 2],
    "permute 10**12, key 42": [295264022539, 67054818017, 776005479013],
    "purposes": {
        "SAMPLES": 1,
        "BUCKETS": 2,
        "WINDOWS": 3,
        "BATCHES": 4,
        "REMAINDER": 5,
        "FIXED": 6,
        "SYNTHETIC": 7,
    },
}
