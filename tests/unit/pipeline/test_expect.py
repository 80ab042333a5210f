"""What a pipeline expects, against plain loops over its plan."""

from __future__ import annotations

import pytest
import torch

from lengthwise.calibrate import Measurement, fit_cost
from lengthwise.pipeline.expect import expect, machines_of, workload
from lengthwise.pipeline.setup import set_up_pipeline
from support.dflash_runs import small_run_folder
from support.pipeline_runs import pipeline_config

torch.set_num_threads(1)
SHAPES = [(1, 8), (2, 16), (8, 8), (4, 60), (8, 30)]
TOKENS = (50, 100, 150, 200, 300)


@pytest.fixture(scope="module")
def setup(tmp_path_factory):
    folder = small_run_folder(tmp_path_factory.mktemp("expect"))
    return set_up_pipeline(pipeline_config(folder, folder / "out", workers=2, ranks=1))


def timings(per_token, per_step_token):
    target = [Measurement(n, m, 1e-3 + per_token * n * m) for n, m in SHAPES * 2]
    return target, [Measurement(1, m, 1e-3 + per_step_token * m) for m in TOKENS * 2]


def test_the_workload_is_the_plan_counted_sample_by_sample(setup):
    epoch = setup.plan.epoch(0)
    target, drafter = (fit_cost(one) for one in timings(1e-4, 1e-3))
    work = workload(setup, epoch, target, drafter)
    lengths, page = setup.data.dataset.lengths, setup.arena.page_tokens
    page_bytes = setup.arena.num_bytes // setup.arena.num_pages

    def num_bytes(ids):
        return sum(-(-int(lengths[i]) // page) for i in ids) * page_bytes

    came = {int(i): a for a in range(epoch.num_arrivals) for i in epoch.arrival(a)}
    arrivals = [epoch.arrival(a) for a in range(epoch.num_arrivals)]
    steps = [epoch.step(s) for s in range(epoch.num_steps)]
    assert work.arrival_bytes.tolist() == [num_bytes(ids) for ids in arrivals]
    assert work.arrival_tokens.tolist() == [int(lengths[ids].sum()) for ids in arrivals]
    assert work.step_bytes.tolist() == [num_bytes(ids) for ids in steps]
    assert work.step_ready.tolist() == [max(came[int(i)] for i in ids) for ids in steps]
    assert work.step_seconds == pytest.approx([1e-3 + 1e-3 * lengths[ids].sum() for ids in steps])


def test_a_slow_drafter_sets_the_pace(setup):
    """It learns without a break once the first step is there: its own time, and the first wait."""
    epoch = setup.plan.epoch(0)
    found = expect(setup, 0, *timings(1e-6, 1.0))
    alone = sum(1e-3 + epoch.tokens(step) for step in range(epoch.num_steps))
    epochs = setup.plan.num_steps / setup.plan.steps_per_epoch
    assert epochs * alone <= found.seconds <= epochs * (alone + 0.1)
    assert found.drafter_busy > 0.99
    assert found.bottleneck == "drafter"


def test_slow_targets_set_the_pace_both_at_once(setup):
    found = expect(setup, 0, *timings(1.0, 1e-6))
    epoch = setup.plan.epoch(0)
    lengths = setup.data.dataset.lengths
    costs = [
        1e-3 + len(ids) * int(lengths[ids].max())
        for ids in map(epoch.arrival, range(epoch.num_arrivals))
    ]
    epochs = setup.plan.num_steps / setup.plan.steps_per_epoch
    # Two targets cannot be faster than half of it all, and end at most one batch apart.
    assert epochs * sum(costs) / 2 <= found.seconds * 1.0001
    assert found.seconds <= epochs * (sum(costs) / 2 + max(costs) + 0.1)
    assert found.bottleneck == "targets"
    assert found.num_targets == machines_of(setup).num_targets == 2


def test_there_is_no_forecast_without_timings(setup):
    assert expect(setup, 0, [], []) is None
