"""Where a run's time went: against runs whose course is known, with faults planted in them."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.diagnose import diagnose, split_time
from lengthwise.diagnose.account import account_of
from lengthwise.diagnose.candidates import Candidates
from lengthwise.diagnose.comparison import compare
from lengthwise.diagnose.prediction import Promise
from lengthwise.diagnose.records import RunRecords, read_records
from support.planted_runs import Course, Planted, step_row, write_run

GOOD = Planted()
LATE_ROOM = Planted(
    batches_per_step=4, channel_batches=4, late_room=True, step_seconds=(0.28, 0.28)
)
STEPS = 60


def seconds(causes):
    return {one.name: one.seconds for one in causes}


def times(folder, run, **written):
    """Causes of all the run's time, and of the difference to what a run without fault would do."""
    course = write_run(folder, run, **written)
    found = diagnose(folder)
    compared = seconds(found.comparison.causes) if found.comparison else {}
    return course, found, seconds(found.time), compared


def close(expected):
    return pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_a_run_as_predicted_has_nothing_to_explain(tmp_path):
    _, found, _, compared = times(tmp_path, GOOD, promised=GOOD)
    assert found.comparison.measured == close(found.comparison.predicted)
    assert all(value == close(0.0) for value in compared.values())


def test_slow_targets_are_the_pace_of_the_target(tmp_path):
    # Each of 60 batches a worker takes 0.6 of its time more.
    slow = replace(GOOD, target_factors=(1.6, 1.6))
    _, found, time, compared = times(tmp_path, slow, promised=GOOD)
    assert compared["target_pace"] == close(0.6 * GOOD.batch_seconds * 60)
    assert compared["imbalance"] == compared["padding"] == close(0.0)
    work = 1.6 * GOOD.batch_seconds * 60
    assert time["real_tokens"] == close(work * 0.95)
    assert time["padding"] == close(work * 0.05)
    assert (found.advice.kind, found.bottleneck.split(" are")[0]) == ("target_pace", "the targets")


def test_without_a_prediction_slow_targets_ask_for_another_device(tmp_path):
    slow = replace(GOOD, target_factors=(1.6, 1.6))
    _, found, _, compared = times(tmp_path, slow)
    assert compared == {}
    assert found.advice.kind == "targets"
    assert found.advice.needs_device
    # Three targets take two thirds of the time of two, and the drafter is not slower than that.
    saved = found.account.busy("target") / 3
    assert found.advice.gain == close(found.account.seconds / (found.account.seconds - saved) - 1)
    assert any("no prediction" in note for note in found.notes)


def test_a_target_worker_that_is_slow_alone_is_named(tmp_path):
    slow = replace(GOOD, target_factors=(1.0, 2.0))
    course, found, time, _ = times(tmp_path, slow, promised=GOOD)
    # The slow one took twice as long for its batches; mean of two workers.
    batches = len(course.targets[1]["pieces"])
    assert 0 < batches < 60
    assert time["imbalance"] == close(batches * GOOD.batch_seconds / 2)
    assert found.advice.kind == "slow_device"
    assert "target worker 1" in found.advice.reason


def test_a_slow_drafter_is_the_pace_of_the_drafter(tmp_path):
    slow = replace(GOOD, step_seconds=(0.5, 0.5))
    _, found, time, compared = times(tmp_path, slow, promised=GOOD)
    assert compared["drafter_pace"] == close(0.35 * STEPS)
    assert time["learning"] == close(0.5 * STEPS)
    assert time["exchange"] == close(0.01 * STEPS)
    # The drafter was to wait for the targets, and does not any more.
    assert compared["slack"] < -1
    assert found.advice.kind == "drafter_pace"
    assert "drafter" in found.bottleneck


def test_a_slow_rank_is_named_with_what_the_others_wait(tmp_path):
    slow = replace(GOOD, step_seconds=(0.15, 0.5))
    _, found, time, compared = times(tmp_path, slow, promised=GOOD)
    assert time["imbalance"] == compared["imbalance"] == close(0.35 * STEPS)
    assert time["learning"] == close(0.15 * STEPS)
    assert compared["drafter_pace"] == close(0.0)
    assert found.advice.kind == "slow_device"
    assert "drafter rank 1" in found.advice.change


def test_of_four_ranks_the_slow_one_is_measured_against_the_middle_one(tmp_path):
    slow = replace(GOOD, step_seconds=(0.3, 0.28, 0.6, 0.3))
    _, found, time, _ = times(tmp_path, slow)
    assert time["imbalance"] == close(0.3 * STEPS)
    assert "drafter rank 2" in found.advice.change


def test_late_input_is_reading_and_nothing_else(tmp_path):
    starved = replace(GOOD, reading_seconds=0.5)
    _, found, time, compared = times(tmp_path, starved, promised=GOOD)
    # The first batches of each worker belong to the start.
    assert time["reading"] + time["starting"] == close(0.5 * 60)
    assert 28 < compared["reading"] <= time["reading"]
    assert compared["target_pace"] == close(0.0)
    assert found.advice.kind == "reading"
    assert "reading the data" in found.bottleneck


def test_wrong_boundaries_are_padding(tmp_path):
    # The same real tokens a batch, in nearly twice the padded ones.
    padded = replace(GOOD, efficiency=0.5, longest=190)
    _, found, time, compared = times(tmp_path, padded, promised=GOOD)
    assert time["padding"] == close(time["real_tokens"])
    extra = 120 * (padded.padded - padded.real / 0.95) / 2
    fixed, each, squared = GOOD.cost
    assert compared["padding"] == close(extra * (each + squared * 190))
    # As many real tokens in fewer batches by the plan: each had a fixed cost.
    assert compared["overhead"] == close(fixed * (120 - 120 * 0.5 * 190 / (0.95 * 190)) / 2)
    assert found.advice.kind == "padding"
    assert "50.0 %" in found.advice.reason
    assert not found.advice.needs_device


def test_a_small_channel_is_waiting_for_room(tmp_path):
    course, found, time, _ = times(tmp_path, LATE_ROOM)
    waits = sum(course.total("target", number, "wait") for number in (0, 1)) / 2
    assert time["room"] + time["work"] == close(waits)
    assert time["room"] > 0.9 * waits
    assert found.advice.kind == "channel"
    assert "channel" in found.bottleneck


def test_checkpoints_are_what_others_wait_for_the_first_rank_without_learning(tmp_path):
    saving = replace(GOOD, step_seconds=(0.3, 0.3), saving=dict.fromkeys(range(0, 60, 5), 0.5))
    _, found, time, _ = times(tmp_path, saving)
    assert time["saving"] == close(12 * 0.5)
    assert time["imbalance"] == close(0.0)
    assert time["learning"] == close(0.3 * STEPS)
    assert found.advice.kind == "checkpoints"


def test_what_is_done_after_the_last_step_is_the_end(tmp_path):
    _, _, time, compared = times(
        tmp_path, replace(GOOD, tail_seconds=7.0, step_seconds=(0.5, 0.5)), promised=GOOD
    )
    assert time["ending"] == close(7.0)
    assert time["unexplained"] == close(0.0)
    assert compared["unexplained"] == close(0.0)


def test_time_that_no_count_holds_is_not_explained_and_shown(tmp_path):
    course = write_run(tmp_path, GOOD)
    path = tmp_path / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    # Counts as they are, on a clock that ran two seconds more somewhere in the middle.
    for row in rows[10:]:
        row["flow_seconds"] += 2.0
    path.write_text("\n".join(map(json.dumps, rows)) + "\n")
    found = diagnose(tmp_path)
    assert found.account.seconds == close(course.seconds + 2)
    # The end is at most what lies behind the record before a device's last piece of work.
    assert 1.6 < seconds(found.time)["unexplained"] <= 2.0


def test_a_run_that_was_resumed_is_the_sum_of_its_lives(tmp_path):
    first, second = Course(GOOD), Course(replace(GOOD, num_batches=60, target_factors=(2.0, 2.0)))
    records = [step_row(60), *first.records(), *second.records()]
    account = account_of(RunRecords.of(records))
    assert account.seconds == close(first.seconds + second.seconds)
    assert account.num_steps == 60 + 30
    for stage in ("target", "drafter"):
        expected = sum(c.total(stage, n, "busy") for c in (first, second) for n in (0, 1)) / 2
        assert account.busy(stage) == close(expected)
    assert sum(one.seconds for one in split_time(account)) == close(account.seconds)


RUNS = st.builds(
    Planted,
    num_batches=st.integers(2, 20).map(lambda steps: 4 * steps),
    batches_per_step=st.sampled_from([1, 2, 4]),
    efficiency=st.floats(0.3, 1),
    planned_efficiency=st.floats(0.3, 1),
    target_factors=st.lists(st.floats(0.5, 3), min_size=1, max_size=3).map(tuple),
    reading_seconds=st.floats(0, 0.3),
    step_seconds=st.lists(st.floats(0.05, 0.6), min_size=1, max_size=3).map(tuple),
    exchange_seconds=st.floats(0, 0.05),
    saving=st.dictionaries(st.integers(0, 20), st.floats(0, 1), max_size=4),
    channel_batches=st.integers(4, 12),
    tail_seconds=st.floats(0, 3),
)


@given(RUNS, st.floats(0.1, 20_000), st.floats(0, 1), st.floats(0, 1), st.booleans())
@settings(max_examples=60, deadline=None)
def test_causes_add_up_whatever_happened_and_whatever_was_promised(
    run, rate, target_busy, drafter_busy, with_cost
):
    course = Course(run)
    account = account_of(RunRecords.of([step_row(1), *course.records()]))
    assert sum(one.seconds for one in split_time(account)) == pytest.approx(account.seconds)
    cost = None
    if with_cost:
        from lengthwise.core.cost import StepTime

        cost = StepTime(fixed_seconds=0.02, seconds_per_token=1e-4, seconds_per_token_squared=1e-8)
    promise = Promise(
        tokens_per_second=rate, target_busy=target_busy, drafter_busy=drafter_busy, target_cost=cost
    )
    found = compare(account, promise)
    difference = found.measured_seconds - found.predicted_seconds
    whole = found.measured_seconds + found.predicted_seconds
    assert sum(one.seconds for one in found.causes) == pytest.approx(difference, abs=1e-9 * whole)
    rates = sum(one.tokens_per_second for one in found.causes)
    assert rates == pytest.approx(found.measured - found.predicted, rel=1e-6, abs=1e-6 * rate)


@given(RUNS)
@settings(max_examples=60, deadline=None)
def test_little_is_left_unexplained_where_all_is_counted(run):
    """Counts are complete here, so what is left is rounding; the end may hide nothing either."""
    account = account_of(RunRecords.of([step_row(1), *Course(run).records()]))
    found = seconds(split_time(account))
    assert found["unexplained"] == pytest.approx(0.0, abs=1e-6 + 1e-9 * account.seconds)


def test_records_without_seconds_by_device_give_no_account(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1, "loss": 2.0}\n')
    found = diagnose(tmp_path)
    assert found.account is None
    assert found.time == ()
    assert found.advice.kind == "nothing"
    assert any("no seconds by device" in note for note in found.notes)
    assert read_records(tmp_path / "metrics.jsonl").kind == "alone"


def test_what_a_simulation_gains_counts_for_what_it_simulates():
    """Half of the time is the start and the end, which another device does not change."""
    slow = replace(GOOD, step_seconds=(0.5, 0.5), tail_seconds=30.0)
    account = account_of(RunRecords.of([step_row(60), *Course(slow).records()]))
    (advice,) = [
        one
        for one in Candidates(account, 1.0, None, lambda _split: 0.5).all()
        if one.kind == "drafter" and one.needs_device
    ]
    pauses = 30.0 + account.devices["drafter_0"].waits["starting"]
    left = pauses + (account.seconds - pauses) / 1.5
    assert advice.gain == close(account.seconds / left - 1)
