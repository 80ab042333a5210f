"""The rest of an epoch on another number of replicas: every sample once, equal counts."""

import warnings

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lengthwise.core.resharding import Segment
from lengthwise.errors import ConfigError, LengthwiseWarning, PlanError, PlanMismatchError
from lengthwise.loader.state import Position
from support.check_plan import Expected, check_batches
from support.configs import cases
from support.loader_runs import (
    EVERY_KIND,
    expected_batches,
    flat,
    heavy_tail,
    make,
    make_all,
    take,
)

LENGTHS = heavy_tail(120)
SMALL = {"max_tokens": 400, "max_batch_size": 8}


def restored(lengths, state, num_replicas, **options):
    """All ranks of a restarted run, at the state."""
    samplers = make_all(lengths, num_replicas, **options)
    for sampler in samplers:
        sampler.load_state_dict(state)
    return samplers


def run(samplers, num_steps):
    """Batches of ``num_steps`` steps over all ranks, and the state that each rank saves."""
    iterators = [iter(sampler) for sampler in samplers]
    batches = [batch for iterator in iterators for batch in take(iterator, num_steps)]
    states = [sampler.state_dict() for sampler in samplers]
    assert all(state == states[0] for state in states)  # any rank's checkpoint will do
    return batches, states[0]


def finish(samplers):
    """All that is left of the epoch; every rank has as much, and as len says."""
    announced = {len(sampler) for sampler in samplers}
    shares = [list(sampler) for sampler in samplers]
    assert {len(share) for share in shares} == announced
    assert len(announced) == 1
    return [batch for share in shares for batch in share]


@settings(max_examples=60)
@given(
    case=cases(),
    worlds=st.lists(st.integers(1, 4), min_size=2, max_size=4),
    shares=st.lists(st.floats(0, 1), min_size=4, max_size=4),
)
def test_any_chain_of_world_sizes_sees_every_sample_once_within_the_limits(case, worlds, shares):
    """Guarantees 1, 2 and 4 across restarts: saved anywhere, resumed on other numbers of replicas.

    Which samples an epoch has is known without any plan: all but those that a policy drops.
    """
    assume(not case.config.drop_last)
    try:
        samplers = make_all(case.lengths, worlds[0], config=case.config)
        for sampler in samplers:
            sampler.set_epoch(case.epoch)
        batches = []
        for world, share in zip(worlds[1:], shares, strict=False):
            steps = min(int(share * len(samplers[0])), len(samplers[0]) - 1)
            done, state = run(samplers, steps)
            batches += done
            samplers = restored(case.lengths, state, world, config=case.config)
    except PlanError:
        assume(condition=False)
    batches += finish(samplers)
    expected = Expected(case.lengths, samplers[0].config)
    assert sorted(flat(batches)) == sorted(expected.plannable)
    check_batches(batches, expected)
    assert {sampler.epoch for sampler in samplers} == {case.epoch + 1}


@pytest.mark.parametrize("options", EVERY_KIND.values(), ids=EVERY_KIND)
@pytest.mark.filterwarnings("ignore:dealing the rest")
def test_every_kind_of_plan_is_dealt_anew_and_the_next_epoch_is_a_fresh_one(options):
    options = {**SMALL, **options}
    samplers = make_all(LENGTHS, 4, **options)
    whole = flat(batch for share in expected_batches_of(samplers[0], 0, 4) for batch in share)
    done, state = run(samplers, 2)
    samplers = restored(LENGTHS, state, 3, **options)
    more, state = run(samplers, 1)
    samplers = restored(LENGTHS, state, 2, **options)
    rest = finish(samplers)
    seen = flat(done + more + rest)
    assert len(seen) == len(set(seen))
    assert set(seen) <= set(whole)
    if not samplers[0].drop_last:
        assert set(seen) == set(whole)
    following = expected_batches_of(samplers[0], 1, 2)
    assert [list(sampler) for sampler in samplers] == following


def expected_batches_of(sampler, epoch, num_replicas):
    return expected_batches(LENGTHS, sampler.config, epoch, num_replicas)


def test_a_state_says_on_how_many_replicas_each_part_ran():
    samplers = make_all(LENGTHS, 4, **SMALL)
    _, state = run(samplers, 2)
    assert (state["num_replicas"], state["step"], state["history"]) == (4, 2, [])
    _, state = run(restored(LENGTHS, state, 3, **SMALL), 1)
    assert (state["num_replicas"], state["step"], state["history"]) == (3, 1, [[4, 2]])
    _, state = run(restored(LENGTHS, state, 3, **SMALL), 2)
    assert (state["num_replicas"], state["step"], state["history"]) == (3, 3, [[4, 2]])
    _, state = run(restored(LENGTHS, state, 4, **SMALL), 1)
    assert (state["num_replicas"], state["step"], state["history"]) == (4, 1, [[4, 2], [3, 3]])


def test_a_restart_that_did_nothing_leaves_no_trace():
    """Started on three replicas by mistake and stopped at once: on four all is as it was."""
    samplers = make_all(LENGTHS, 4, **SMALL)
    _, state = run(samplers, 2)
    _, after = run(restored(LENGTHS, state, 3, **SMALL), 0)
    assert after == state
    assert finish(restored(LENGTHS, after, 4, **SMALL)) == finish(
        restored(LENGTHS, state, 4, **SMALL)
    )


def test_a_resharded_run_is_resumed_exactly_too():
    """In the same dealing: what was dealt to three goes on among the same three."""
    _, state = run(make_all(LENGTHS, 4, **SMALL), 2)
    whole = [list(sampler) for sampler in restored(LENGTHS, state, 3, **SMALL)]
    for steps in range(len(whole[0])):
        _, later = run(restored(LENGTHS, state, 3, **SMALL), steps)
        samplers = restored(LENGTHS, later, 3, **SMALL)
        assert {len(sampler) for sampler in samplers} == {len(whole[0]) - steps}
        assert {sampler.num_steps for sampler in samplers} == {2 + len(whole[0])}
        assert [list(sampler) for sampler in samplers] == [share[steps:] for share in whole]


def test_the_rest_is_arranged_by_the_configs_order_not_left_as_it_lay():
    """With lockstep by bucket, ranks still run batches of one bucket together after a restart."""
    options = {**SMALL, "boundaries": (0, 15, 40, 400), "balance": "bucket"}
    lengths = heavy_tail(600)
    _, state = run(make_all(lengths, 4, **options), 3)
    samplers = restored(lengths, state, 3, **options)
    shares = [list(sampler) for sampler in samplers]
    buckets = [
        [np.searchsorted((15, 40), lengths[batch[0]], side="right") for batch in share]
        for share in shares
    ]
    mixed = sum(len(set(step)) > 1 for step in zip(*buckets, strict=True))
    # Blocks of three cross a bucket's end at most once a bucket; without arranging, most would.
    assert mixed <= 2
    assert len(buckets[0]) > 12


@pytest.mark.parametrize("batch_sizing", ["greedy", "fixed"])
def test_drop_last_drops_less_than_one_batch_a_replica_and_says_how_many_samples(batch_sizing):
    options = {**SMALL, "num_buckets": 2, "drop_last": True, "batch_sizing": batch_sizing}
    samplers = make_all(LENGTHS, 2, **options)
    whole = set(flat(flat(expected_batches_of(samplers[0], 0, 2))))
    left = len(samplers[0]) * 2
    for steps in range(1, 6):
        done, state = run(make_all(LENGTHS, 2, **options), steps)
        surplus = (left - 2 * steps) % 3
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            samplers = restored(LENGTHS, state, 3, **options)
        rest = finish(samplers)
        assert len(rest) == left - 2 * steps - surplus
        missing = len(whole) - len(set(flat(done + rest)))
        told = [str(warning.message) for warning in caught]
        expected = [f"dropped {missing} samples (drop_last=True)"] * (3 if surplus else 0)
        assert [text.partition("replicas ")[2] for text in told] == expected


def test_with_drop_last_too_small_a_rest_is_dropped_and_the_next_epoch_begins():
    options = {**SMALL, "num_buckets": 2, "drop_last": True}
    samplers = make_all(LENGTHS, 2, **options)
    _, state = run(samplers, len(samplers[0]) - 1)  # two batches are left
    sampler = make(LENGTHS, rank=1, num_replicas=5, **options)
    with pytest.warns(LengthwiseWarning, match=r"dropped \d+ samples"):
        sampler.load_state_dict(state)
    assert sampler.epoch == 1
    assert list(sampler) == expected_batches_of(sampler, 1, 5)[1]


def test_a_rest_of_fewer_samples_than_replicas_is_refused_with_the_ways_out():
    """Without drop_last nothing may be left out, and one sample is no batch for three replicas."""
    lengths = [5, 5, 5, 5]
    options = {"max_tokens": 10, "max_batch_size": 1}
    _, state = run(make_all(lengths, 1, **options), 2)
    sampler = make(lengths, rank=0, num_replicas=3, **options)
    with pytest.raises(PlanMismatchError) as caught:
        sampler.load_state_dict(state)
    message = str(caught.value)
    assert "the rest of epoch 0 cannot be dealt to 3 replicas: 2 samples cannot" in message
    assert "resume on 1 replicas" in message
    assert "set_epoch(1)" in message


def test_positions_that_continue_alike_are_equal():
    start = Position(2)
    assert start.after(3, 0) is start
    assert start.after(3, 2).after(3, 5) == start.after(3, 7)
    assert start.after(3, 2).after(4, 1) != start.after(4, 1).after(3, 2)
    assert start.after(3, 2).split(3) == ((), 2)
    assert start.after(3, 2).split(4) == ((Segment(3, 2),), 0)
    with pytest.raises(ConfigError, match="num_steps must be"):
        Segment(3, 0)
