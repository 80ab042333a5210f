"""The optimiser's parts: programme, divide and conquer, local search, coarser points."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.cost import PaddedTokens, Steps
from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.kernels.expectation import CEILING, bucket_cost
from lengthwise.core.kernels.programme import refine, solve, solve_padding_ceiling
from lengthwise.core.limits import BatchLimits
from lengthwise.core.programme import SEARCH_WORK, Problem
from lengthwise.core.support import build_support, build_table, coarsen, spread_cuts
from support.brute_force import least_totals

histograms = st.dictionaries(st.integers(1, 400), st.integers(1, 50), min_size=1, max_size=40)


def as_histogram(counts):
    return LengthHistogram.from_counts(list(counts), list(counts.values()))


@given(st.integers(2, 6), st.data())
def test_the_programme_finds_the_cheapest_way_through_any_costs(size, data):
    """A recursion over all ways of k steps from edge 0 to the last edge."""
    costs = [
        [data.draw(st.integers(0, 50)) if i < j else float("inf") for j in range(size)]
        for i in range(size)
    ]
    totals, _ = solve(np.array(costs, np.float64), size - 1)
    assert totals[1:].tolist() == least_totals(costs, size - 1)


@given(histograms, st.integers(1, 12))
def test_divide_and_conquer_equals_the_plain_programme(counts, most):
    """The cost samples x longest satisfies the quadrangle inequality, so nothing is missed."""
    hist = as_histogram(counts)
    support = build_support(hist, BatchLimits(400))
    number = min(most, len(support))
    size = len(support) + 1
    costs = np.full((size, size), np.inf)
    for i in range(size - 1):
        for j in range(i + 1, size):
            costs[i, j] = (support.cum[j] - support.cum[i]) * support.padded[j - 1]
    plain, _ = solve(costs, number)
    quick, came = solve_padding_ceiling(support.cum, support.padded, number)
    assert quick.tolist() == plain.tolist()
    for k in range(1, number + 1):  # and the choices add up to the total
        end, total = size - 1, 0.0
        for steps in range(k, 0, -1):
            total += costs[came[steps, end], end]
            end = came[steps, end]
        assert end == 0
        assert total == plain[k]


@given(histograms, st.integers(2, 8), st.sampled_from([CEILING, SEARCH_WORK]))
def test_after_refinement_no_single_move_helps(counts, number, work):
    """Each inner edge is moved by one point either way, and the bucket costs compared."""
    hist = as_histogram(counts)
    limits = BatchLimits(1000, 16)
    support = build_support(hist, limits)
    number = min(number, len(support))
    table = build_table(support, limits, PaddedTokens())
    edges = np.linspace(0, len(support), number + 1).astype(np.int64)

    def total(places):
        return sum(bucket_cost(int(a), int(b), table, work)[1] for a, b in pairwise(places))

    before = total(edges)
    after = refine(edges, max(1, len(support) // 4), table, work)
    assert after == pytest.approx(total(edges))
    assert after <= before * (1 + 1e-12)
    for at in range(1, number):
        for shift in (-1, 1):
            moved = edges.copy()
            moved[at] += shift
            if moved[at - 1] < moved[at] < moved[at + 1]:
                assert total(moved) >= after * (1 - 1e-9)


@given(histograms, st.integers(2, 60))
def test_a_grid_begins_at_the_first_point_and_ends_after_the_last(counts, number):
    support = build_support(as_histogram(counts), BatchLimits(400))
    cuts = spread_cuts(support, number)
    assert cuts[0] == 0
    assert cuts[-1] == len(support)
    assert bool(np.all(np.diff(cuts) > 0))
    assert cuts.size <= max(number + 2, 3)


def test_a_grid_takes_every_edge_where_there_are_few():
    support = build_support(LengthHistogram.from_lengths([3, 5, 9]), BatchLimits(400))
    assert spread_cuts(support, 10).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("ceiling", [False, True])
@pytest.mark.parametrize("model", [PaddedTokens(), Steps()])
def test_putting_lengths_together_hardly_changes_a_cost(ceiling, model):
    """4,000 lengths in about 600 points: counts and thresholds stay exact, lengths become means.

    The longest of 30 samples leans to the upper end of a point; hence the tenth of a percent.
    """
    lengths = np.arange(100, 4100)
    counts = 1 + (lengths * lengths) % 37
    limits = BatchLimits(20_000, 32)
    support = build_support(LengthHistogram(lengths, counts), limits)
    edges = np.array([0, 700, 1900, 4000])
    coarse, places = coarsen(support, limits, edges, 512, top=ceiling)
    assert len(coarse) < 1000
    assert coarse.cum[places].tolist() == support.cum[edges].tolist()
    work = CEILING if ceiling else 0
    fine_table = build_table(support, limits, model)
    coarse_table = build_table(coarse, limits, model)
    for k in range(3):
        exact = bucket_cost(int(edges[k]), int(edges[k + 1]), fine_table, work)
        rough = bucket_cost(int(places[k]), int(places[k + 1]), coarse_table, work)
        assert rough == pytest.approx(exact, rel=1e-3)


def test_batch_sizes_in_the_thousands_are_told_apart_to_one_in_4096():
    """A million one-token samples fit; a bucket of one length still has its very own size."""
    hist = LengthHistogram.from_counts([1, 3, 7], [10**7, 10**7, 10**7])
    table = build_table(build_support(hist, BatchLimits(10**6)), BatchLimits(10**6), Steps())
    assert table.sizes.size < 40_000
    assert {10**6, 10**6 // 3, 10**6 // 7} <= set(table.sizes.tolist())
    assert float(np.max(table.sizes[1:] / table.sizes[:-1])) == 2.0
    assert float(np.max(table.sizes[4096:] / table.sizes[4095:-1])) < 1.0005


def test_the_search_sees_every_length_up_to_some_thousands():
    hist = LengthHistogram.from_lengths(np.arange(1, 8001))
    problem = Problem.build(hist, BatchLimits(8000), PaddedTokens(), ceiling=False)
    assert len(problem.support) == 8000
