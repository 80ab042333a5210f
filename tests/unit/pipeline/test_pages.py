"""Pages: an allocator against a plain twin, and the size of the arena by brute force."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.core.batches import Batches
from lengthwise.core.remix import remix
from lengthwise.errors import ConfigError
from lengthwise.pipeline.pages import PageAllocator, pages_needed


@settings(max_examples=200)
@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 10**6))
def test_no_page_is_ever_out_twice_and_none_is_lost(num_pages, page_tokens, seed):
    """The twin counts: ceil(tokens / page_tokens) pages a sample, for all of a batch or none."""
    draw, out = random.Random(seed), {}
    pages = PageAllocator(num_pages, page_tokens)
    most = 0
    for batch in range(60):
        if out and draw.random() < 0.5:
            for sample in out.pop(draw.choice(sorted(out))):
                pages.give_back(sample)
        else:
            lengths = [draw.randint(1, 3 * page_tokens) for _ in range(draw.randint(1, 3))]
            wanted = [(length + page_tokens - 1) // page_tokens for length in lengths]
            free = num_pages - sum(len(sample) for taken in out.values() for sample in taken)
            got = pages.take(lengths)
            assert (got is None) == (sum(wanted) > free)
            if got is not None:
                assert list(map(len, got)) == wanted
                out[batch] = got
        everything = [page for taken in out.values() for sample in taken for page in sample]
        assert len(set(everything)) == len(everything)
        assert set(everything) <= set(range(num_pages))
        most = max(most, len(everything))
        assert (pages.num_used, pages.num_free) == (len(everything), num_pages - len(everything))
        assert pages.most_used == most


def test_the_lowest_free_pages_are_taken_so_that_neighbours_stay_together():
    """Pages 0 to 2 and 5 come back out of order; the next four are they, rising."""
    pages = PageAllocator(8, 1)
    pages.take([1, 2, 3])
    for page in (2, 5, 0, 1):
        pages.give_back((page,))
    assert pages.take([3, 1]) == [(0, 1, 2), (5,)]
    assert pages.take([2]) == [(6, 7)]


def test_a_page_cannot_be_given_back_twice():
    pages = PageAllocator(4, 8)
    (taken,) = pages.take([20])
    pages.give_back(taken)
    with pytest.raises(KeyError):
        pages.give_back(taken)


@pytest.mark.parametrize("sizes", [(0, 8), (4, 0), (-1, 8)])
def test_sizes_that_hold_nothing_are_refused(sizes):
    with pytest.raises(ConfigError):
        PageAllocator(*sizes)


def small_plan(seed):
    """A remix of a few batches, and the lengths of its samples."""
    draw = random.Random(seed)
    sizes = [draw.randint(1, 4) for _ in range(draw.randint(1, 8))]
    lengths = np.array([draw.randint(1, 17) for _ in range(sum(sizes))], np.int64)
    order = np.array(draw.sample(range(lengths.size), lengths.size), np.uint32)
    counts = np.array(sizes, np.int64)
    starts = np.cumsum(counts) - counts
    tokens = np.add.reduceat(lengths[order], starts)
    longest = np.maximum.reduceat(lengths[order], starts)
    costs = np.ones_like(lengths)
    return remix(
        Batches(order, starts, counts, longest, tokens), lengths, costs,
        pool_tokens=int(tokens.max()) + draw.randint(0, 60), step_cost=draw.randint(1, 5),
    ), lengths  # fmt: skip


def finishes(mixed, lengths, page_tokens, num_pages):
    """Brute force: batches enter in order while they find room, steps leave in order when whole."""
    pages = [-(-int(length) // page_tokens) for length in lengths]
    free, entered, inside, step = num_pages, 0, set(), 0
    while step < mixed.num_steps:
        batch = mixed.arrivals.batch(entered).tolist() if entered < len(mixed.arrivals) else None
        if batch is not None and sum(pages[one] for one in batch) <= free:
            free -= sum(pages[one] for one in batch)
            inside |= set(batch)
            entered += 1
        elif set(mixed.step(step).tolist()) <= inside:
            taken = mixed.step(step).tolist()
            free += sum(pages[one] for one in taken)
            inside -= set(taken)
            step += 1
        else:
            return False
    return True


def fullest(mixed, lengths, page_tokens):
    """Plain: what the plan's pool holds, in pages, when it is fullest; sample by sample."""
    inside, entered, most = set(), 0, 0
    for step in range(mixed.num_steps):
        while entered < int(mixed.batches_entered[step]):
            inside |= set(mixed.arrivals.batch(entered).tolist())
            entered += 1
        most = max(most, sum(-(-int(lengths[one]) // page_tokens) for one in inside))
        inside -= set(mixed.step(step).tolist())
    return most


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.integers(1, 9))
def test_the_arena_holds_the_plans_pool_and_that_is_enough(seed, page_tokens):
    """Tight to what the pool holds; with it the greediest of orders comes to its end."""
    mixed, lengths = small_plan(seed)
    needed = pages_needed(mixed, lengths, page_tokens, 0)
    assert needed == fullest(mixed, lengths, page_tokens)
    assert finishes(mixed, lengths, page_tokens, needed)


def test_with_too_few_pages_it_would_stand_still():
    """What the brute force can find: the page that the largest batch lacks."""
    mixed, lengths = small_plan(1)
    largest = max(
        sum(-(-int(lengths[one]) // 4) for one in mixed.arrivals.batch(place).tolist())
        for place in range(len(mixed.arrivals))
    )
    assert not finishes(mixed, lengths, 4, largest - 1)


@given(st.integers(0, 10**6), st.integers(0, 5))
def test_prefetching_costs_its_largest_batches(seed, prefetch):
    mixed, lengths = small_plan(seed)
    sums = sorted(
        (sum(-(-int(lengths[one]) // 4) for one in mixed.arrivals.batch(place).tolist())
         for place in range(len(mixed.arrivals))),
        reverse=True,
    )  # fmt: skip
    plain = pages_needed(mixed, lengths, 4, 0)
    assert pages_needed(mixed, lengths, 4, prefetch) == plain + sum(sums[:prefetch])
