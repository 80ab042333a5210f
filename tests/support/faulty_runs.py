"""Real runs of the pipeline, whose devices are imitated and in which a fault is planted."""

from __future__ import annotations

import numpy as np
from pipeline_stages import Stages, stage_config, write_run_folder

from lengthwise.calibrate import Measurement
from lengthwise.cli.dflash.pipeline_view import PipelineView
from lengthwise.core.cost import StepTime
from lengthwise.dflash.training.log import RunLog
from lengthwise.pipeline.expect import expect
from lengthwise.pipeline.run import run_pipeline
from lengthwise.pipeline.setup import set_up_pipeline
from lengthwise.pipeline.telemetry import RunFacts, Telemetry

LONGEST = 200
TARGET = StepTime(fixed_seconds=0.02, seconds_per_token=2e-4)
DRAFTER = StepTime(fixed_seconds=0.02, seconds_per_token=2e-4)
"""What stages cost without a fault: seconds by (batch size, longest)."""


def write_folder(folder, count=700):
    """A target and samples of 20 to 200 tokens, few of them long."""
    draw = np.random.default_rng(0)
    lengths = np.minimum(LONGEST, 20 + draw.exponential(40, count)).astype(int)
    return write_run_folder(folder, lengths)


def config_of(folder, output, *, workers=1, ranks=1, **sections):
    """Batches and steps that take some tenths of a second; no probing: stages are imitated."""
    common = {
        "batching": {"max_tokens": 2000, "max_batch_size": 64, **sections.pop("batching", {})},
        "remix": {"pool_batches": 4, "mixed_batches": 2},
        "step": {"anchors_per_step": 400, "max_anchors": 16, "max_anchors_per_batch": 400},
        "logging": {"every_steps": 1},
    }
    config = stage_config(folder, output, workers=workers, ranks=ranks, **common, **sections)
    pipeline = config.pipeline.model_copy(update={"probe_rounds": 0})
    return config.model_copy(update={"pipeline": pipeline})


def run_with(folder, output, stages=None, *, workers=1, ranks=1, **sections):
    """Train as the command does; the prediction is made from the costs without a fault."""
    config = config_of(folder, output, workers=workers, ranks=ranks, **sections)
    setup = set_up_pipeline(config)
    drafter = StepTime(
        fixed_seconds=DRAFTER.fixed_seconds,
        seconds_per_token=DRAFTER.seconds_per_token / ranks,
    )
    shapes = timings(TARGET, (1, 4, 8, 16), (40, 120, 200))
    expectation = expect(setup, 0, shapes, timings(drafter, (1,), range(500, 4000, 500)))
    expectation.write(config.output_dir)
    log = RunLog(config, setup.data.length_boundaries())
    telemetry = Telemetry(RunFacts.of(setup))
    view = PipelineView(setup.plan.num_steps, log, telemetry, num_done=0, quiet=True)
    try:
        with view:
            run_pipeline(setup, None, view, (stages or Stages(TARGET, DRAFTER)).entries)
    finally:
        log.close()
    return expectation


def timings(cost, sizes, lengths):
    """What devices of a cost would be timed at, each shape twice."""
    shapes = [(size, longest) for size in sizes for longest in lengths] * 2
    seconds = cost(*np.array(shapes, np.int64).T)
    return [Measurement(n, m, float(s), None) for (n, m), s in zip(shapes, seconds, strict=True)]
