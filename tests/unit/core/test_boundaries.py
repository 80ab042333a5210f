"""Evaluating and optimising boundaries: the best there are, on small data and on the run's."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.core.baselines import BASELINES, compare_baselines, equal_count, equal_tokens
from lengthwise.core.boundaries import evaluate_boundaries, optimize_boundaries
from lengthwise.core.cost import StepTime
from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.limits import BatchLimits
from lengthwise.errors import ConfigError, DataError, OversizeError
from support.brute_force import ceiling_cost, every_boundaries
from support.twins_expectation import pack

RUN = Path(__file__).parents[3] / "data" / "dflash_run_histogram.csv"
RUN_LIMITS = BatchLimits(49_152, 64)
PUBLISHED = [0, 770, 1216, 1728, 2432, 3296, 8192]

small = st.lists(st.integers(1, 40), min_size=1, max_size=14)
objectives = st.sampled_from(
    [
        "padding",
        "steps",
        StepTime(fixed_seconds=3.0, seconds_per_token=0.1),
        lambda n, m: n + m**1.5,
    ]
)


@pytest.fixture(scope="module")
def run():
    lengths, counts = np.loadtxt(RUN, delimiter=",", skiprows=1, dtype=np.int64).T
    return LengthHistogram(lengths, counts)


@given(
    small,
    st.integers(1, 5),
    st.integers(40, 120),
    st.integers(1, 8),
    st.sampled_from([1, 4]),
    objectives,
)
@settings(max_examples=60)
def test_no_boundaries_at_all_cost_less(lengths, most, max_tokens, size, multiple, objective):
    """Every set of edges is evaluated, each on its own; the optimum is not above any of them."""
    hist = LengthHistogram.from_lengths(lengths)
    limits = BatchLimits(max_tokens, size, multiple)
    best = optimize_boundaries(hist, limits, most, objective)
    assert best.num_buckets <= most
    costs = [
        evaluate_boundaries(hist, limits, edges, objective).cost
        for edges in every_boundaries(lengths, most)
    ]
    assert best.cost == pytest.approx(min(costs), rel=1e-9)
    assert best.search.exhaustive


@given(small, st.integers(1, 5), st.integers(40, 120), st.integers(1, 8), st.booleans())
@settings(max_examples=60)
def test_no_boundaries_to_pad_to_cost_less(lengths, most, max_tokens, size, steps):
    """Padding to the bucket's longest has a closed cost, so the oracle is plain arithmetic."""

    def cost(n, m):
        return 1 if steps else n * m

    hist = LengthHistogram.from_lengths(lengths)
    limits = BatchLimits(max_tokens, size)
    objective = "steps" if steps else "padding"
    best = optimize_boundaries(hist, limits, most, objective, pad_to_boundary=True)
    costs = [
        ceiling_cost(lengths, edges, max_tokens, size, cost)
        for edges in every_boundaries(lengths, most)
    ]
    assert best.cost == min(costs)
    assert best.cost == ceiling_cost(lengths, best.boundaries, max_tokens, size, cost)


@given(
    st.lists(st.integers(1, 4000), min_size=1, max_size=400),
    st.integers(1, 12),
    st.sampled_from(["padding", "steps"]),
    st.booleans(),
)
@settings(max_examples=40)
def test_no_baseline_beats_the_optimum(lengths, number, objective, ceiling):
    """On data too large to try everything. A hair is left to rounding on either side."""
    hist = LengthHistogram.from_lengths(lengths)
    limits = BatchLimits(8000, 32, pad_to_multiple_of=8)
    best = optimize_boundaries(hist, limits, number, objective, pad_to_boundary=ceiling)
    others = compare_baselines(hist, limits, number, objective, pad_to_boundary=ceiling)
    assert set(others) == {"equal_count", "equal_tokens", "geometric", "powers_of_two"}
    for other in others.values():
        assert other.num_buckets <= number
        assert best.cost <= other.cost * (1 + 2e-3)


@given(st.lists(st.integers(1, 4000), min_size=1, max_size=300), st.integers(1, 9))
def test_every_sample_is_in_a_bucket_and_every_token_is_counted(lengths, number):
    hist = LengthHistogram.from_lengths(lengths)
    best = optimize_boundaries(hist, BatchLimits(4000), number)
    assert sum(bucket.num_samples for bucket in best.buckets) == len(lengths)
    assert best.real_tokens == sum(lengths)
    assert best.boundaries[0] == 0
    assert best.boundaries[-1] == max(lengths) + 1
    assert [(b.lo, b.hi) for b in best.buckets] == list(
        zip(best.boundaries[:-1], best.boundaries[1:], strict=True)
    )
    for bucket in best.buckets:
        inside = [length for length in lengths if bucket.lo <= length < bucket.hi]
        assert bucket.num_samples == len(inside)
        assert bucket.mean_length == pytest.approx(sum(inside) / len(inside))
        assert max(inside) == bucket.hi - 1
        assert bucket.batch_size == pytest.approx(len(inside) / bucket.num_batches)


def test_the_runs_six_buckets_reach_their_figure(run):
    """The figure that issue 2 asks for; the published boundaries are 0.8735."""
    best = optimize_boundaries(run, RUN_LIMITS, 6)
    published = evaluate_boundaries(run, RUN_LIMITS, PUBLISHED)
    assert best.efficiency >= 0.8741
    assert published.efficiency == pytest.approx(0.8735, abs=2e-4)
    assert published.num_batches == pytest.approx(44_471, rel=2e-4)
    assert best.search.refinement_gain >= 0.0
    assert best.search.finer_grid_gain < 1e-3


@pytest.mark.parametrize(("number", "wanted"), [(16, 0.951), (64, 0.9865)])
def test_more_buckets_reach_their_figures(run, number, wanted):
    assert optimize_boundaries(run, RUN_LIMITS, number).efficiency >= wanted


def test_a_simulated_epoch_of_the_run_agrees_with_the_expectation(run):
    """One epoch of 902,087 samples, packed by the plain-Python definition."""
    best = optimize_boundaries(run, RUN_LIMITS, 6)
    generator = np.random.default_rng(3)
    lengths = run.to_lengths()
    padded = batches = 0
    for lo, hi in zip(best.boundaries[:-1], best.boundaries[1:], strict=True):
        inside = lengths[(lengths >= lo) & (lengths < hi)]
        packed = pack(generator.permutation(inside).tolist(), 49_152, 64)
        padded += sum(size * longest for size, longest in packed)
        batches += len(packed)
    assert run.num_tokens / padded == pytest.approx(best.efficiency, abs=5e-4)
    assert batches == pytest.approx(best.num_batches, rel=1e-3)


def test_fewest_batches_and_least_padding_are_two_objectives(run):
    padding = optimize_boundaries(run, RUN_LIMITS, 6)
    steps = optimize_boundaries(run, RUN_LIMITS, 6, "steps")
    assert steps.num_batches < padding.num_batches
    assert padding.padded_tokens < steps.padded_tokens
    assert steps.cost == steps.num_batches


def test_an_optimum_does_not_depend_on_the_number_of_threads(run, monkeypatch):
    from lengthwise.core import programme

    results = []
    for threads in (1, 3):
        monkeypatch.setattr(programme, "default_threads", lambda threads=threads: threads)
        results.append(optimize_boundaries(run, RUN_LIMITS, 5))
    assert results[0] == results[1]


def test_a_result_is_plain_json_with_the_contracts_keys():
    best = optimize_boundaries(LengthHistogram.from_lengths([5, 9, 9, 30]), BatchLimits(60), 2)
    values = json.loads(json.dumps(best.to_dict()))
    assert list(values) == [
        *("boundaries", "efficiency", "utilization", "num_batches", "padded_tokens"),
        *("real_tokens", "objective", "cost", "buckets", "search", "notes"),
    ]
    assert list(values["buckets"][0]) == [
        *("lo", "hi", "num_samples", "mean_length", "batch_size", "num_batches"),
        *("padded_tokens", "efficiency"),
    ]
    assert values["real_tokens"] == 53
    assert values["boundaries"] == list(best.boundaries)


def test_token_totals_are_exact_beyond_53_bits():
    """Report B08: sums that pass 2**31, and here 2**53, where a float would round."""
    count = 2**44 + 1
    hist = LengthHistogram.from_counts([4095, 4096], [count, 1])
    result = evaluate_boundaries(hist, BatchLimits(2**20), [0, 4097])
    assert result.real_tokens == count * 4095 + 4096
    million = LengthHistogram.from_counts([4096], [1_000_000])
    whole = evaluate_boundaries(million, BatchLimits(40_960), [0, 5000])
    assert (whole.padded_tokens, whole.num_batches) == (4_096_000_000, 100_000)


def test_a_batch_size_comes_from_the_longest_sample_not_from_the_boundary():
    """Report B15: boundary 128, budget 100, longest 90: batches of one, not of none."""
    hist = LengthHistogram.from_lengths([90, 90, 80])
    for ceiling in (False, True):
        result = evaluate_boundaries(hist, BatchLimits(100), [0, 128], pad_to_boundary=ceiling)
        assert result.num_batches == 3


@pytest.mark.parametrize(
    ("lengths", "number", "distinct"),
    [([7] * 50, 6, 1), ([1, 2, 3] * 20, 500, 3), ([8], 6, 1)],
)
def test_more_buckets_than_lengths_give_fewer_and_say_so(lengths, number, distinct):
    """Report B17: no sample is lost, whatever the number of buckets."""
    best = optimize_boundaries(LengthHistogram.from_lengths(lengths), BatchLimits(10), number)
    assert best.num_buckets == distinct
    assert sum(bucket.num_samples for bucket in best.buckets) == len(lengths)
    assert f"only {distinct} distinct lengths" in best.notes[-1]


def test_lengths_that_pad_alike_are_not_split():
    """1 to 8 tokens all become 8: a second bucket could not save anything."""
    hist = LengthHistogram.from_lengths([1, 3, 5, 8])
    best = optimize_boundaries(hist, BatchLimits(64, pad_to_multiple_of=8), 4)
    assert best.boundaries == (0, 9)


def test_an_empty_bucket_is_removed_and_named():
    """Report B18: [8, 16, 32] over lengths above 20 divides by no zero."""
    hist = LengthHistogram.from_lengths([21, 25, 30])
    result = evaluate_boundaries(hist, BatchLimits(100), [8, 16, 32])
    assert result.boundaries == (8, 32)
    assert result.notes == ("removed 1 empty bucket: [8, 16)",)


def test_no_samples_are_a_clear_error():
    empty = LengthHistogram.from_lengths([])
    with pytest.raises(DataError, match="no samples"):
        optimize_boundaries(empty, BatchLimits(100))
    with pytest.raises(DataError, match="no samples"):
        evaluate_boundaries(empty, BatchLimits(100), [0, 10])


def test_a_sample_over_the_budget_is_an_error_with_a_way_out():
    hist = LengthHistogram.from_lengths([10, 201])
    with pytest.raises(OversizeError, match=r"1 samples .*the longest has 201.*between\(0, 201\)"):
        optimize_boundaries(hist, BatchLimits(200))
    with pytest.raises(OversizeError, match="oversize policy"):
        evaluate_boundaries(hist, BatchLimits(200), [0, 300])


def test_settings_that_cannot_work_are_refused():
    hist = LengthHistogram.from_lengths([10, 20])
    with pytest.raises(ConfigError, match="num_buckets"):
        optimize_boundaries(hist, BatchLimits(200), 0)
    with pytest.raises(ConfigError, match="objective"):
        optimize_boundaries(hist, BatchLimits(200), 2, "speed")
    with pytest.raises(ConfigError, match="end with at least 21"):
        evaluate_boundaries(hist, BatchLimits(200), [0, 20])


def test_an_edge_inside_a_padded_length_is_evaluated_as_given():
    """5 and 7 both pad to 8 but lie in two buckets: each is a batch of its own."""
    hist = LengthHistogram.from_lengths([5, 7])
    result = evaluate_boundaries(hist, BatchLimits(64, pad_to_multiple_of=8), [0, 6, 10])
    assert [bucket.num_samples for bucket in result.buckets] == [1, 1]
    assert (result.num_batches, result.padded_tokens) == (2, 16)


def test_hundreds_of_thousands_of_distinct_lengths_are_searched_and_summed_exactly():
    """Speech in samples: 60,000 distinct lengths; no baseline is better, no token is lost."""
    lengths = 16_000 + 9 * np.arange(60_000)
    hist = LengthHistogram.from_counts(lengths, np.ones(60_000, np.int64))
    limits = BatchLimits(4_800_000)
    best = optimize_boundaries(hist, limits, 8)
    assert best.real_tokens == int(lengths.sum())
    assert not best.search.exhaustive
    for other in compare_baselines(hist, limits, 8).values():
        assert best.cost <= other.cost
    assert evaluate_boundaries(hist, limits, best.boundaries).cost == pytest.approx(best.cost)


@pytest.mark.parametrize("name", sorted(BASELINES))
@given(lengths=st.lists(st.integers(1, 500), min_size=1, max_size=60), number=st.integers(1, 9))
def test_baselines_are_boundaries_of_at_most_that_many_buckets(name, lengths, number):
    edges = BASELINES[name](LengthHistogram.from_lengths(lengths), number)
    assert edges[0] == 0
    assert edges[-1] == max(lengths) + 1
    assert list(edges) == sorted(set(edges))
    assert len(edges) - 1 <= number


def test_equal_counts_and_equal_tokens_cut_where_their_names_say():
    """Ten of length 1, one of length 10: half the samples end in length 1, half the tokens too."""
    hist = LengthHistogram.from_counts([1, 2, 5, 10], [4, 4, 1, 1])
    assert equal_count(hist, 2) == (0, 3, 11)  # 5 of 10 samples lie in [0, 3)
    assert equal_tokens(hist, 2) == (0, 6, 11)  # 4 + 8 + 5 = 17 of 27 tokens lie in [0, 6)


def test_given_boundaries_stand_beside_the_baselines():
    hist = LengthHistogram.from_lengths([5, 9, 30])
    table = compare_baselines(hist, BatchLimits(60), 2, given=[0, 10, 31])
    assert table["given"].boundaries == (0, 10, 31)
