"""The simulation against event-by-event models that share nothing with it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.core.cost import StepTime
from lengthwise.pipeline.pages import pages_needed
from lengthwise.simulate.builders import workload_of_remix
from lengthwise.simulate.machines import Machines
from lengthwise.simulate.model import simulate
from support.dispatched_pipeline import (
    PAGE_TOKENS,
    DispatchedPipeline,
    plan_of,
    with_random_seconds,
)
from support.simpy_pipeline import PipelineModel
from support.workloads import cases


@settings(max_examples=150, deadline=None)
@given(cases())
def test_every_time_is_that_of_processes_that_wait_for_each_other(case):
    # simpy runs each part of the machine as a process of its own; only the rules are the same.
    workload, machines = case
    found, model = simulate(workload, machines), PipelineModel(workload, machines).run()
    np.testing.assert_allclose(found.arrivals.started, model.started, rtol=1e-12)
    np.testing.assert_allclose(found.arrivals.arrived, model.arrived, rtol=1e-12)
    np.testing.assert_allclose(found.steps.copied, model.copied, rtol=1e-12)
    np.testing.assert_allclose(found.steps.learnt, model.learnt, rtol=1e-12)
    assert found.peak_channel_bytes == model.peak


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1000),
    count=st.integers(60, 500),
    ahead=st.integers(0, 6),
    ratio=st.sampled_from([0.1, 0.5, 1.0, 3.0]),
    num_workers=st.integers(1, 4),
    num_ranks=st.integers(1, 3),
)
def test_every_time_is_that_of_the_real_dispatcher(
    seed, count, ahead, ratio, num_workers, num_ranks
):
    # The dispatcher, the plan and the pages are the pipeline's own; only its processes are
    # replaced, by a clock. The arena is what the pipeline itself would make.
    plan = plan_of(count, seed)
    mix, lengths = plan.epoch(0).mix, plan.data.lengths
    unit = StepTime(fixed_seconds=1.0)
    workload = workload_of_remix(
        mix, lengths, unit, unit, bytes_per_token=2, page_tokens=PAGE_TOKENS
    )
    workload = with_random_seconds(workload, seed, ratio)
    num_pages = pages_needed(mix, lengths, PAGE_TOKENS, ahead)
    real = DispatchedPipeline(
        plan, workload, num_pages, num_workers=num_workers, num_ranks=num_ranks
    ).run()
    found = simulate(
        workload,
        Machines(
            num_targets=num_workers,
            num_drafters=num_ranks,
            channel_bytes=num_pages * PAGE_TOKENS * 2,
        ),
    )
    assert workload.channel_bytes(ahead) <= num_pages * PAGE_TOKENS * 2
    np.testing.assert_allclose(found.arrivals.arrived, real.arrived, rtol=1e-12)
    np.testing.assert_allclose(found.steps.learnt, real.learnt, rtol=1e-12)
