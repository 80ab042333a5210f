"""Public bug reports about making and dealing batches, each as a test of its whole kind."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner, build_plan
from lengthwise.errors import ConfigError, OversizeError, PlanError
from support.check_plan import check_plan

NUMPY = np.random
"""The global generator, on purpose: what a training script seeds with its rank."""

EVERY_STRATEGY = pytest.mark.parametrize(
    "options",
    [
        {"strategy": "pooled"},
        {"strategy": "windowed", "window_size": 16},
        {"strategy": "bucketed", "num_buckets": 3},
        {"strategy": "bucketed", "num_buckets": 3, "batch_sizing": "fixed"},
        {"strategy": "sorted"},
        {"strategy": "random"},
        {"strategy": "random", "batch_sizing": "fixed"},
    ],
    ids=lambda options: " ".join(map(str, options.values())),
)


def heavy_tail(count, seed, most=4000):
    """Pareto of shape 1.1: a few samples hold most of the tokens."""
    values = 20 * (1 + np.random.default_rng(seed).pareto(1.1, count))
    return np.minimum(values, most).astype(np.int64)


def rank_correlation(values):
    """Spearman's correlation of the values with their positions."""
    ranks = np.argsort(np.argsort(np.asarray(values), kind="stable"), kind="stable")
    return float(np.corrcoef(ranks, np.arange(ranks.size))[0, 1])


def indices_of(plan):
    return sorted(int(index) for batch in plan for index in batch)


@EVERY_STRATEGY
@settings(max_examples=15)
@given(st.lists(st.integers(73, 114), min_size=30, max_size=90))
def test_the_budget_counts_the_longest_times_the_number_of_samples(options, lengths):
    """B12 (lhotse 640): lengths summed to 2,990 of 3,000, yet the padded batch cost 3,990."""
    config = BatchingConfig(limits=BatchLimits(3000), **options)
    for batch in build_plan(lengths, config):
        assert max(lengths[i] for i in batch) * len(batch) <= 3000


def test_the_reported_batch_is_cut_although_its_sum_fits():
    """B12: 35 samples of 73 to 114 with a sum below 3,000, as reported, make two batches."""
    lengths = [73] * 17 + [76] * 10 + [114] * 8
    assert sum(lengths) <= 3000 < max(lengths) * len(lengths)
    plan = build_plan(lengths, BatchingConfig(limits=BatchLimits(3000), strategy="random"))
    assert plan.num_batches == 2


@EVERY_STRATEGY
def test_a_sample_over_the_budget_stops_before_training_and_names_its_row(options):
    """B14 (fairseq 2063, 2650, 2998): the assertion came hours later, from the loader."""
    config = BatchingConfig(limits=BatchLimits(200), **options)
    with pytest.raises(OversizeError, match=r"row 1 \(201 tokens\).*oversize='drop'"):
        Planner([10, 201], config)


def test_the_message_lists_the_first_rows_and_counts_the_others():
    """B14: seven rows of eight are too long; five are named, two counted."""
    with pytest.raises(OversizeError, match=r"7 samples .* row 5 .* and 2 more"):
        Planner([10] + [300] * 7, BatchingConfig(limits=BatchLimits(200)))


@EVERY_STRATEGY
@pytest.mark.parametrize(
    ("policy", "planned", "num_dropped", "num_truncated", "real_tokens"),
    [("drop", [0], 1, 0, 10), ("truncate", [0, 1], 0, 1, 210), ("single", [0, 1], 0, 0, 211)],
)
def test_each_policy_for_long_samples_says_what_it_did(
    options, policy, planned, num_dropped, num_truncated, real_tokens
):
    """B14: [10, 201] under a budget of 200; the same rule whatever drop_last and the epoch are."""
    config = BatchingConfig(limits=BatchLimits(200), oversize=policy, **options)
    for epoch in (0, 9):
        plan = build_plan([10, 201], config, epoch=epoch)
        assert indices_of(plan) == planned
        assert plan.stats.num_oversize == 1
        assert plan.stats.num_dropped_oversize == plan.stats.num_left_out == num_dropped
        assert plan.stats.num_truncated == num_truncated
        assert plan.stats.real_tokens == real_tokens


@EVERY_STRATEGY
@pytest.mark.parametrize("policy", ["truncate", "single"])
def test_a_data_set_of_long_samples_only_can_be_planned(options, policy):
    """B14: nothing fits; cut they do, and alone they run. Dropping would leave nothing."""
    config = BatchingConfig(limits=BatchLimits(200), oversize=policy, **options)
    plan = build_plan([201, 500, 300], config)
    assert indices_of(plan) == [0, 1, 2]
    assert plan.num_batches == 3
    with pytest.raises(PlanError, match="leaves nothing: all 3 samples"):
        build_plan([201, 500, 300], BatchingConfig(limits=BatchLimits(200), oversize="drop"))


@pytest.mark.parametrize("sizing", ["greedy", "fixed"])
@pytest.mark.parametrize("pad_to_boundary", [False, True])
def test_batch_size_comes_from_the_longest_sample_not_from_the_boundary(sizing, pad_to_boundary):
    """B15 (fairseq 347): boundary 128 over budget 100 gave a batch size of zero; longest is 90."""
    config = BatchingConfig(
        limits=BatchLimits(100),
        boundaries=(0, 64, 128),
        batch_sizing=sizing,
        pad_to_boundary=pad_to_boundary,
    )
    lengths = [90, 10, 20, 85, 70]
    plan = build_plan(lengths, config)
    check_plan(plan, lengths, config, 1)
    assert sorted(map(len, plan)) == [1, 1, 1, 2]


@pytest.mark.parametrize("sizing", ["greedy", "fixed"])
@pytest.mark.parametrize(
    ("lengths", "num_buckets"),
    [
        (list(range(1, 1001)), 500),
        (list(range(1, 1000)), 500),
        (list(range(1, 8)), 7),
        (list(range(1, 8)), 100),
        ([5] * 100, 10),
        ([3, 9], 3),
        ([4], 6),
        ([1, 2] * 50, 2),
        ([7, 7, 7, 8] * 25, 5),
    ],
    ids=lambda value: str(len(value)) if isinstance(value, list) else str(value),
)
def test_more_buckets_than_lengths_lose_no_sample(lengths, num_buckets, sizing):
    """B17 (lhotse 610): 1,000 items in 500 buckets came out fewer than they went in."""
    config = BatchingConfig(limits=BatchLimits(5000), num_buckets=num_buckets, batch_sizing=sizing)
    plan = build_plan(lengths, config)
    assert indices_of(plan) == list(range(len(lengths)))
    assert len(plan.config.boundaries) - 1 <= min(num_buckets, len(set(lengths)))


@pytest.mark.parametrize("sizing", ["greedy", "fixed"])
@pytest.mark.parametrize("strategy", ["bucketed", "windowed"])
def test_empty_buckets_vanish(strategy, sizing):
    """B18 (vits2 4): nothing in the lowest bucket divided by zero."""
    if (strategy, sizing) == ("windowed", "fixed"):
        with pytest.raises(ConfigError):
            BatchingConfig(
                limits=BatchLimits(64),
                strategy=strategy,
                boundaries=(8, 16, 32),
                batch_sizing=sizing,
            )
        return
    config = BatchingConfig(
        limits=BatchLimits(64), strategy=strategy, boundaries=(8, 16, 32), batch_sizing=sizing
    )
    lengths = [21, 25, 31, 21, 30]
    plan = build_plan(lengths, config)
    check_plan(plan, lengths, config, 1)
    assert plan.num_batches == 3


@EVERY_STRATEGY
def test_one_sample_is_a_plan_of_one_batch(options):
    """B18: n = 1 in every strategy, with statistics that divide by nothing."""
    plan = build_plan([42], BatchingConfig(limits=BatchLimits(64), **options))
    assert [batch.tolist() for batch in plan] == [[0]]
    assert plan.stats.efficiency == 1


@EVERY_STRATEGY
def test_no_samples_are_an_error_that_says_so(options):
    """B18: n = 0; a division by zero would say nothing about the data."""
    with pytest.raises(PlanError, match="no samples to plan"):
        build_plan([], BatchingConfig(limits=BatchLimits(64), **options))


@EVERY_STRATEGY
@pytest.mark.parametrize("num_replicas", [1, 2, 4])
def test_small_data_gives_at_least_one_step(options, num_replicas):
    """B19 (axolotl 3100): buckets smaller than their batch size gave zero steps."""
    lengths = [10, 10, 30, 31, 200]
    config = BatchingConfig(limits=BatchLimits(100_000), **options)
    plan = build_plan(lengths, config, num_replicas=num_replicas)
    assert len(plan) >= num_replicas
    assert len(list(plan)) == len(plan)
    assert indices_of(plan) == list(range(5))


@EVERY_STRATEGY
@pytest.mark.parametrize("drop_last", [False, True])
def test_fewer_samples_than_replicas_is_an_error_with_a_way_out(options, drop_last):
    """B19: five samples cannot give six replicas a batch each; zero steps would be silent."""
    config = BatchingConfig(limits=BatchLimits(100_000), drop_last=drop_last, **options)
    with pytest.raises(PlanError, match="fewer replicas"):
        build_plan([10, 10, 30, 31, 200], config, num_replicas=6)


@pytest.mark.parametrize("num_replicas", [1, 2])
@pytest.mark.parametrize(
    ("options", "least_efficiency"),
    [
        ({"strategy": "pooled"}, 0.95),
        ({"strategy": "pooled", "target_efficiency": 0.97}, 0.967),
        ({"strategy": "windowed"}, 0.78),
        ({"num_buckets": 16}, 0.85),
        ({"num_buckets": 16, "batch_sizing": "fixed", "order": "shuffled"}, 0.8),
    ],
    ids=["pooled", "pooled with a target", "windowed", "bucketed", "fixed"],
)
def test_length_does_not_rise_or_fall_over_an_epoch(options, least_efficiency, num_replicas):
    """B20 (lhotse 364, LLaVA 988): sorted order gave a loss like a saw.

    The rank correlation of step and mean length of independent batches has standard deviation
    ``1 / sqrt(steps - 1)``; four of them are allowed. Neighbours may not be alike either.
    """
    lengths = heavy_tail(30_000, seed=8)
    config = BatchingConfig(limits=BatchLimits(16_384, 64), **options)
    planner = Planner(lengths, config, num_replicas=num_replicas)
    orders = []
    for epoch in range(3):
        plan = planner.plan(epoch)
        means = [float(lengths[batch].mean()) for batch in plan.for_rank(0)]
        allowed = 4 / np.sqrt(len(means) - 1)
        assert abs(rank_correlation(means)) < allowed
        assert abs(np.corrcoef(means[:-1], means[1:])[0, 1]) < allowed
        assert plan.stats.efficiency > least_efficiency
        orders.append([round(mean, 6) for mean in means])
    assert orders[0] != orders[1] != orders[2] != orders[0]


@EVERY_STRATEGY
def test_every_replica_gets_the_same_number_of_batches_for_200_seeds(options):
    """B22 (axolotl 494): replicas that packed their own share got different counts, and hung."""
    for seed in range(200):
        num_replicas = 2 + seed % 3
        lengths = heavy_tail(60 + seed, seed)
        config = BatchingConfig(limits=BatchLimits(8192, 8), seed=seed, **options)
        plan = build_plan(lengths, config, epoch=seed, num_replicas=num_replicas)
        counts = {len(list(plan.for_rank(rank))) for rank in range(num_replicas)}
        assert counts == {plan.num_steps}
        assert indices_of(plan) == list(range(lengths.size))


@EVERY_STRATEGY
def test_ranks_with_different_global_seeds_make_one_plan(options):
    """B23 (torchaudio 3068, transformers 9574): each rank seeds its generators with its rank."""
    lengths = heavy_tail(500, seed=1)
    config = BatchingConfig(limits=BatchLimits(8192, 8), **options)
    own, plans = [], []
    for rank in range(3):
        random.seed(rank)
        NUMPY.seed(rank)
        plan = build_plan(lengths, config, epoch=2, num_replicas=3)
        plans.append([batch.tolist() for batch in plan])
        own += [index for batch in plan.for_rank(rank) for index in batch.tolist()]
    assert plans[0] == plans[1] == plans[2]
    assert sorted(own) == list(range(500))


@EVERY_STRATEGY
@settings(max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 150), min_size=12, max_size=80),
    num_replicas=st.integers(1, 4),
    drop_last=st.booleans(),
    epoch=st.integers(0, 1000),
    start=st.integers(0, 30),
)
def test_len_is_what_is_yielded(options, lengths, num_replicas, drop_last, epoch, start):
    """B26 (sentence-transformers 3348, accelerate 4122): an upper bound for len broke loops.

    Also for a part: what is left from a step on is exactly len less that step.
    """
    config = BatchingConfig(limits=BatchLimits(300, 5), drop_last=drop_last, **options)
    try:
        plan = build_plan(lengths, config, epoch=epoch, num_replicas=num_replicas)
    except PlanError:
        assert drop_last
        return
    assert len(plan) == len(list(plan)) == plan.num_batches
    for rank in range(num_replicas):
        own = plan.for_rank(rank)
        assert len(own) == len(list(own)) == plan.num_steps
        start = min(start, len(own))
        assert len([own[step] for step in range(start, len(own))]) == len(own) - start
        with pytest.raises(IndexError):
            own[len(own)]
