"""The simulation against event-by-event models that share nothing with it."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from lengthwise.simulate.model import simulate
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
