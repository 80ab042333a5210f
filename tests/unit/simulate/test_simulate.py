"""What a simulation says, on cases whose answer is known beforehand."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.errors import ConfigError
from lengthwise.simulate import Machines, Workload, simulate, simulate_band
from support.workloads import cases


def alike(count, target, drafter, **changes):
    """So many batches that are all alike, each with 10 bytes and 5 tokens, each one step."""
    values = {
        "arrival_seconds": np.full(count, float(target)),
        "arrival_bytes": np.full(count, 10),
        "arrival_tokens": np.full(count, 5),
        "step_seconds": np.full(count, float(drafter)),
        "step_ready": np.arange(count),
        "step_bytes": np.full(count, 10),
    }
    return Workload(**(values | changes))


def test_one_of_each_works_in_turn_and_the_slower_decides():
    # The first batch takes 3 s; from then on the drafter has one every 3 s and learns 1 s.
    found = simulate(alike(10, 3, 1), Machines(num_targets=1))
    assert found.seconds == 10 * 3 + 1
    assert found.tokens_per_second == 50 / 31
    assert found.target_busy == pytest.approx(30 / 31)
    assert found.drafter_busy == pytest.approx(10 / 31)


def test_a_slow_drafter_fills_the_channel_and_holds_the_targets_up():
    # Room for 3 batches. Batch k + 3 goes out when step k is copied, that is, delivered: two steps
    # are with the drafter, so step k is delivered when step k - 2 is learnt.
    found = simulate(alike(20, 1, 5), Machines(num_targets=1, channel_bytes=30))
    assert found.seconds == 1 + 20 * 5
    assert found.peak_channel_bytes == 30
    assert found.waits["target"]["channel"] > 0
    assert found.bottleneck.kind == "drafter"
    # A step is delivered every 5 s, and one batch then goes out.
    sent = np.diff(found.arrivals.dispatched)
    assert set(sent[6:].tolist()) == {5.0}


def test_two_targets_are_twice_as_quick_and_ranks_that_learn_apart_too():
    one = simulate(alike(64, 4, 1), Machines(num_targets=1))
    two = simulate(alike(64, 4, 1), Machines(num_targets=2))
    assert (one.seconds, two.seconds) == (64 * 4 + 1, 32 * 4 + 2)
    together = simulate(alike(64, 1, 8), Machines(num_targets=1, num_drafters=4))
    apart = simulate(alike(64, 1, 8), Machines(num_targets=1, num_drafters=4, independent=True))
    assert together.seconds == 1 + 64 * 8
    # The last of each four begins 4 s after the start, and learns 16 times.
    assert apart.seconds == 4 + 16 * 8


def test_a_target_that_is_twice_as_quick_runs_twice_as_many_batches():
    machines = Machines(num_targets=2, target_speeds=(2.0, 1.0))
    found = simulate(alike(300, 2, 0.1), machines)
    assert np.bincount(found.arrivals.target).tolist() == pytest.approx([200, 100], abs=2)


def test_one_feeder_for_all_reads_one_batch_after_the_other():
    # 10 batches of 2 s to read: with a feeder of its own each of two targets reads five.
    workload = alike(10, 1, 0, feed_seconds=np.full(10, 2.0))
    apart = simulate(workload, Machines(num_targets=2))
    shared = simulate(workload, Machines(num_targets=2, shared_feeder=True))
    assert (apart.seconds, shared.seconds) == (5 * 2 + 1, 10 * 2 + 1)
    assert shared.feeder_busy == pytest.approx(20 / 21)
    # Of 2 x 11 s targets work 10.
    assert apart.waits["target"]["input"] == 12
    assert shared.bottleneck.kind == "reading"


def test_transfers_take_the_target_s_time_unless_they_overlap():
    # 10 bytes at 5 bytes a second: 2 s out of a target, beside its 3 s; and 2 s to the drafter.
    quick = Machines(num_targets=1, transfer_bytes_per_second=5.0)
    slow = replace(quick, transfers_overlap=False)
    assert simulate(alike(10, 3, 0), quick).seconds == 10 * 3 + 2 + 2
    assert simulate(alike(10, 3, 0), slow).seconds == 10 * (3 + 2) + 2
    # Where transfers take longer than batches, they decide, and targets wait for them.
    found = simulate(alike(10, 1, 0), quick)
    assert found.seconds == 1 + 10 * 2 + 2
    assert found.waits["target"]["transfer"] > 0


@pytest.mark.parametrize(
    ("target", "drafter", "changes", "expected"),
    [
        (4, 1, {}, "targets"),
        (1, 4, {}, "drafter"),
        (2, 2, {}, "balanced"),
        (1, 1, {"feed_seconds": np.full(200, 8.0)}, "reading"),
    ],
)
def test_the_bottleneck_is_the_stage_that_needs_longest(target, drafter, changes, expected):
    workload = alike(200, target, drafter, **changes)
    machines = Machines(num_targets=1, channel_bytes=60)
    assert simulate(workload, machines).bottleneck.kind == expected


def test_a_channel_with_room_for_one_batch_is_named():
    # A batch goes out when the one before is copied, and that takes as long as all else.
    machines = Machines(num_targets=3, channel_bytes=10, transfer_bytes_per_second=5.0)
    assert simulate(alike(200, 1, 1), machines).bottleneck.kind == "channel"


@settings(max_examples=60, deadline=None)
@given(cases())
def test_work_and_waits_of_a_stage_make_up_all_its_time(case):
    # Nothing may be counted twice or left out: devices x seconds is all the time there is.
    workload, machines = case
    found = simulate(workload, machines)
    for stage, busy, devices in (
        ("target", found.target_busy, machines.num_targets),
        ("drafter", found.drafter_busy, machines.num_lanes),
    ):
        waits = found.waits[stage]
        assert all(seconds > -1e-9 for seconds in waits.values()), waits
        whole = devices * found.seconds
        assert sum(waits.values()) + busy * whole == pytest.approx(whole)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_channel_is_never_fuller_than_its_bound_and_queues_never_longer(case):
    workload, machines = case
    found = simulate(workload, machines)
    if machines.channel_bytes is not None:
        assert found.peak_channel_bytes <= machines.channel_bytes
    depths = found.depths(500)
    assert depths["prefetch"].max() <= machines.prefetch_batches * machines.num_targets
    assert min(values.min() for values in depths.values()) >= 0
    assert depths["channel_bytes"].max() <= found.peak_channel_bytes


@settings(max_examples=60, deadline=None)
@given(cases())
def test_the_channel_s_least_size_is_enough_and_one_byte_less_is_not(case):
    # What stops a pipeline is that an arrival finds no room and no step can free any.
    workload, machines = case
    least = workload.least_channel_bytes
    simulate(workload, replace(machines, channel_bytes=least))
    with pytest.raises(ConfigError, match=f"at least {least:,} are needed"):
        simulate(workload, replace(machines, channel_bytes=least - 1))


@settings(max_examples=60, deadline=None)
@given(cases(), st.floats(0.1, 10.0))
def test_all_times_scale_with_all_costs(case, factor):
    # Nothing in the model has seconds of its own; so twice as slow is twice as long.
    workload, machines = case
    slower = replace(
        workload.scaled(target=factor, drafter=factor),
        feed_seconds=workload.feed_seconds * factor,
    )
    rate = machines.transfer_bytes_per_second / factor
    found = simulate(slower, replace(machines, transfer_bytes_per_second=rate))
    assert found.seconds == pytest.approx(simulate(workload, machines).seconds * factor)


def test_a_band_has_the_slow_end_below_and_the_quick_end_above():
    workload, machines = alike(100, 3, 1), Machines(num_targets=1)
    band = simulate_band(workload, machines, target=(0.5, 2.0))
    assert band.middle.tokens_per_second == 500 / 301
    assert (band.low, band.high) == (500 / 601, 500 / 151)
    with pytest.raises(ConfigError, match="factors of the drafter must be around 1"):
        simulate_band(workload, machines, drafter=(1.1, 1.2))


def test_the_depths_are_those_at_the_times_they_are_sampled_at():
    # One target with two batches at once: 2 until the last but one is over, then 1, then none.
    found = simulate(alike(4, 2, 1), Machines(num_targets=1))
    depths = found.depths(10)  # at 0, 1, ... 9 seconds
    assert depths["seconds"].tolist() == list(range(10))
    assert depths["prefetch"].tolist() == [2, 2, 2, 2, 2, 2, 1, 1, 0, 0]
    assert depths["hidden_states"].tolist() == [0] * 10


def test_a_run_without_any_time_has_no_rate_and_no_bottleneck():
    found = simulate(alike(3, 0, 0), Machines(num_targets=1))
    assert (found.seconds, found.tokens_per_second, found.bottleneck) == (0.0, 0.0, None)


def test_all_figures_are_plain_numbers():
    found = simulate(alike(10, 3, 1), Machines(num_targets=2, channel_bytes=100)).to_dict()
    assert json.loads(json.dumps(found)) == found
    assert found["num_tokens"] == 50
