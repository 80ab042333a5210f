"""Figures from counts: by hand, on a clock that the test turns."""

from __future__ import annotations

from itertools import pairwise

import pytest

from lengthwise.dflash.training.progress import StepFacts
from lengthwise.dflash.training.setup import load_data
from lengthwise.pipeline.flow import Account, Flow
from lengthwise.pipeline.messages import Arrived, Learnt
from lengthwise.pipeline.setup import set_up_pipeline
from lengthwise.pipeline.telemetry import RunFacts, Telemetry
from support.dflash_runs import small_config, small_run_folder

FACTS = RunFacts(
    total_tokens=100_000,
    done_tokens=10_000,
    planned_efficiency=0.9,
    batch_pages=5,
    page_tokens=8,
    page_bytes=256,
    planned_batch_tokens=95.5,
)


class Run:
    """A pipeline whose every second is the same."""

    def __init__(self, facts=FACTS, **kwargs):
        self.telemetry = Telemetry(facts, **kwargs)
        self.flow = Flow(
            num_pages=20,
            prefetch_room=4,
            workers={"target worker 0 (cpu)": Account(), "target worker 1 (cpu)": Account()},
            ranks={"drafter rank 0 (cpu)": Account()},
        )

    def second(self, *, real=100, padded=125, learnt=0, busy=(1.0, 0.5), drafter=0.25, **now):
        flow = self.flow
        flow.seconds += 1
        flow.num_batches += 1
        flow.real_tokens += real
        flow.padded_tokens += padded
        for account, share in zip(flow.workers.values(), busy, strict=True):
            account.add(share, 1 - share)
        for account in flow.ranks.values():
            account.add(drafter, 1 - drafter)
        for name, value in now.items():
            setattr(flow, name, value)
        if learnt:
            self.telemetry.stepped(StepFacts(3, learnt, 0.1, 0.2))
        self.telemetry.flowed(flow)
        return self.telemetry


def test_rates_are_tokens_over_seconds():
    run = Run()
    for _ in range(40):
        run.second(learnt=80)
    for _ in range(20):
        run.second(real=300, padded=400, learnt=80)
    rates = run.telemetry.rates()
    # The window is 30 seconds: ten of the first kind and twenty of the second.
    assert rates["tokens_per_second"] == pytest.approx((10 * 100 + 20 * 300) / 30)
    assert rates["padded_tokens_per_second"] == pytest.approx((10 * 125 + 20 * 400) / 30)
    assert rates["learnt_tokens_per_second"] == pytest.approx(80)
    assert rates["overall_tokens_per_second"] == pytest.approx((40 * 100 + 20 * 300) / 60)
    assert rates["overall_padded_tokens_per_second"] == pytest.approx((40 * 125 + 20 * 400) / 60)


def test_a_stage_alone_does_what_it_does_in_its_busy_time():
    run = Run()
    for _ in range(20):
        run.second(learnt=90)
    rates = run.telemetry.rates()
    # 100 tokens in 1.5 busy seconds of two workers: 100 / 1.5 * 2 a second without waiting.
    assert rates["target_capacity"] == pytest.approx(100 / 1.5 * 2)
    # 90 in a quarter of a second of one rank.
    assert rates["drafter_capacity"] == pytest.approx(360)
    assert rates["predicted_tokens_per_second"] == rates["target_capacity"]


def test_the_time_to_go_is_of_remaining_real_tokens():
    run = Run()
    telemetry = run.second()
    assert telemetry.eta_seconds is None
    for _ in range(50):
        run.second(learnt=90)
    assert telemetry.remaining_tokens == 100_000 - 10_000 - 50 * 90
    assert telemetry.eta_seconds == pytest.approx(telemetry.remaining_tokens / 90)
    for _ in range(120):  # one half-life: the rate is half way to the new one
        run.second(learnt=30)
    left = telemetry.remaining_tokens
    assert left / 90 < telemetry.eta_seconds < left / 30
    run.second(learnt=10**6)
    assert telemetry.remaining_tokens == 0
    assert telemetry.eta_seconds == 0


def test_time_before_the_first_step_is_no_part_of_the_rate():
    """A minute of loading would make the time to go absurd at first."""
    run = Run()
    for _ in range(60):
        run.second()
    run.second(learnt=90)
    run.second(learnt=90)
    assert run.telemetry.eta_seconds == pytest.approx(run.telemetry.remaining_tokens / 90)


def test_busy_shares_are_recent_and_overall():
    run = Run()
    for _ in range(40):
        run.second(busy=(1.0, 0.0), learnt=1)
    for _ in range(30):
        run.second(busy=(0.5, 0.0), learnt=1)
    first, second, drafter = run.telemetry.devices
    assert (first.key, first.name) == ("target_0", "target worker 0 (cpu)")
    assert first.recent == pytest.approx(0.5)
    assert first.overall == pytest.approx((40 + 15) / 70)
    assert second.recent == 0
    assert drafter.key == "drafter_0"
    assert drafter.recent == pytest.approx(0.25)


def test_a_share_stands_while_a_long_piece_of_work_runs():
    """A batch of a minute ends once in two windows; its device is not idle in between."""
    run = Run()
    run.second(learnt=1)
    for _ in range(80):
        run.flow.seconds += 1
        run.telemetry.flowed(run.flow)
    assert [device.recent for device in run.telemetry.devices] == pytest.approx([1.0, 0.5, 0.25])


def test_the_record_has_every_figure_under_one_prefix():
    run = Run()
    for _ in range(20):
        run.second(learnt=90, prefetch=4, hidden_states=0, pages_used=7, busy=(0.9, 0.9))
    run.flow.num_reruns, run.flow.num_bad = 3, 1
    record = run.telemetry.record()
    assert all(name.startswith("flow_") for name in record)
    expected = {
        "flow_seconds": 20.0,
        "flow_prefetch": 4,
        "flow_prefetch_room": 4,
        "flow_hidden_states": 0,
        "flow_pages_used": 7,
        "flow_num_pages": 20,
        "flow_bytes_used": 7 * 256,
        "flow_num_batches": 20,
        "flow_num_reruns": 3,
        "flow_num_bad": 1,
        "flow_real_tokens": 2000,
        "flow_padded_tokens": 2500,
        "flow_efficiency": 0.8,
        "flow_planned_efficiency": 0.9,
        "flow_remaining_tokens": 90_000 - 1800,
        "flow_target_wait_seconds": pytest.approx(4),
        "flow_drafter_wait_seconds": pytest.approx(15),
        "flow_busy_target_0": pytest.approx(0.9),
        "flow_overall_busy_drafter_0": pytest.approx(0.25),
        "flow_bottleneck": "targets",
        "flow_usable_pages": 20 - 5 + 1,
        "flow_learnt_tokens": 1800,
        "flow_learnt_steps": 20,
        "flow_learn_seconds": pytest.approx(20 * 0.2),
        "flow_planned_batch_tokens": 95.5,
        "flow_busy_seconds_target_1": pytest.approx(18),
        "flow_wait_seconds_target_1": pytest.approx(2),
        "flow_busy_seconds_drafter_0": pytest.approx(5),
        "flow_meeting_seconds_drafter_0": 0.0,
    }
    assert {name: record[name] for name in expected} == expected


def test_what_processes_say_adds_up_by_device():
    """Two batches of one worker and a step of a rank; a device's wait bounds what it read in it."""
    flow = Flow(workers={"w": Account()}, ranks={"r": Account()})
    flow.ran("w", Arrived(0, 0, {}, 90, 100, 2.0, 0.5, input_seconds=0.25, longest=25))
    flow.ran("w", Arrived(0, 1, {}, 40, 60, 1.0, 0.0, input_seconds=0.75, longest=30))
    flow.learnt("r", Learnt(0.5, 3.0, input_seconds=0.125, meeting_seconds=1.0))
    assert flow.workers["w"] == Account(3.0, 0.5, input_seconds=0.25, padded_tokens=160)
    assert flow.ranks["r"] == Account(3.0, 0.5, input_seconds=0.125, meeting_seconds=1.0)
    assert (flow.num_batches, flow.real_tokens, flow.padded_tokens) == (2, 130, 160)
    assert flow.token_squares == 100 * 25 + 60 * 30


def test_the_bottleneck_is_silent_while_the_pool_fills_and_when_the_end_runs_out():
    run = Run()
    busy = {"prefetch": 4, "busy": (1.0, 1.0)}
    for _ in range(40):
        assert run.second(**busy).bottleneck is None, "nothing was learnt from yet"
    found = [run.second(**busy, learnt=90).bottleneck for _ in range(12)]
    # A third of the window must have been seen: ten seconds after the first step.
    assert [one is None for one in found] == [True] * 10 + [False] * 2
    assert found[-1].kind == "targets"
    # All that is left lies in the arena: targets have done their part.
    left = run.telemetry.remaining_tokens
    run.second(learnt=left - 50, prefetch=0, pages_used=10)
    assert run.telemetry.bottleneck is None


def test_records_come_less_often_the_longer_a_run_is():
    run = Run()
    due = []
    for _ in range(4000):
        run.second()
        if run.telemetry.due():
            due.append(run.flow.seconds)
    gaps = [later - earlier for earlier, later in pairwise(due)]
    assert gaps[0] == 1
    assert max(gaps) == 30, "never rarer than twice a minute"
    assert gaps == sorted(gaps)
    assert not run.telemetry.due()


def test_facts_of_a_run_are_its_plan_s(tmp_path):
    """Every sample once an epoch, wherever the run goes on."""
    folder = small_run_folder(tmp_path)
    devices = {"target_devices": ["cpu"], "drafter_devices": ["cpu"], "page_tokens": 8}
    values = small_config(folder, tmp_path / "out", epochs=3).model_dump(exclude_unset=True)
    config = type(small_config(folder, tmp_path / "out")).model_validate(
        {**values, "pipeline": devices}
    )
    setup = set_up_pipeline(config)
    tokens = load_data(config).num_tokens
    facts = RunFacts.of(setup)
    assert facts.total_tokens == 3 * tokens
    assert facts.done_tokens == 0
    assert facts.page_bytes == 8 * setup.drafter.feature_size * 4
    arrivals = setup.plan.epoch(0).mix.arrivals
    assert facts.planned_efficiency == tokens / arrivals.padded_tokens.sum()
    steps = setup.plan.steps_per_epoch
    later = RunFacts.of(setup, steps + 2)
    expected = tokens + setup.plan.epoch(1).tokens(0) + setup.plan.epoch(1).tokens(1)
    assert later.done_tokens == expected
