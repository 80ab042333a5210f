"""When the stages of a pipeline worked, and what the slowest of them lost to the others."""

from __future__ import annotations

import heapq
import shutil
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path

from pipeline_stages import read_logs

from lengthwise.pipeline.run import run_pipeline
from lengthwise.pipeline.setup import set_up_pipeline
from support.pipeline_runs import quick_processes


class Seeing:
    """An observer that keeps how things flow, and nothing else."""

    def __init__(self):
        """Nothing has flowed."""
        self.flow = None

    def flowed(self, flow):
        """Keep it."""
        self.flow = flow

    def stepped(self, *_):
        """Nothing."""

    evaluated = saved = expected = stepped


@dataclass(frozen=True)
class Stage:
    """One stage of a run that is over.

    Attributes:
        busy_seconds: of all its devices.
        alone_seconds: from begin to end if none of its devices had ever waited for another stage.
        span_seconds: from its first piece of work to the end of its last.
        num_pieces: batches of the target, or steps.
    """

    busy_seconds: float
    alone_seconds: float
    span_seconds: float
    num_pieces: int


@dataclass(frozen=True)
class Timing:
    """How a run went.

    Attributes:
        target: workers together.
        drafter: ranks together.
        real_tokens: that the target ran.
        padded_tokens: the same with padding.
        whole_seconds: from the first batch to the end of the last step.
        fill_seconds: of it, until the first step began: the pool filled.
        drain_seconds: of it, after the end of the last batch: the pool emptied.
        start_seconds: before it: processes and models.
        busy_shares: of every process, as the pipeline counts them itself.
    """

    target: Stage
    drafter: Stage
    real_tokens: int
    padded_tokens: int
    whole_seconds: float
    fill_seconds: float
    drain_seconds: float
    start_seconds: float
    busy_shares: dict[str, float]

    @property
    def slowest(self):
        """The stage that takes longest alone."""
        return max(self.target, self.drafter, key=lambda stage: stage.alone_seconds)

    @property
    def share(self):
        """Of the throughput that the slowest stage has alone."""
        return self.slowest.alone_seconds / self.slowest.span_seconds

    def to_dict(self):
        """All of it, as plain values."""
        return {**asdict(self), "share": self.share}


def timed_run(config, stages, *, imported=True):
    """Run a pipeline anew, and say how it went.

    Args:
        config: of it; what its output folder holds is removed.
        stages: what they cost.
        imported: whether processes come from a server that has imported everything.
    """
    shutil.rmtree(config.output_dir, ignore_errors=True)
    setup = set_up_pipeline(config)
    began, seen = time.monotonic(), Seeing()
    with quick_processes() if imported else nullcontext():
        outcome = run_pipeline(setup, None, seen, stages.entries)
    assert outcome.position.num_steps == setup.plan.num_steps
    timing = timing_of(config.output_dir, began, seen.flow)
    assert timing.real_tokens == config.epochs * setup.data.num_tokens, "not all of the data ran"
    return timing


def timing_of(output, began, flow):
    """From what the processes of a run wrote down."""
    logs = read_logs(Path(output))
    targets, ranks = logs["target"], logs["drafter"]
    first, last = (min(log[0, 0] for log in part) for part in (targets, ranks))
    through, over = (max(log[-1, 1] for log in part) for part in (targets, ranks))
    return Timing(
        target=_stage(targets, _on_devices(targets)),
        drafter=_stage(ranks, sum(_longest_of_ranks(ranks))),
        real_tokens=int(sum(log[:, 2].sum() for log in targets)),
        padded_tokens=int(sum(log[:, 3].sum() for log in targets)),
        whole_seconds=over - first,
        fill_seconds=last - first,
        drain_seconds=over - through,
        start_seconds=first - began,
        busy_shares={
            name: account.busy_share
            for accounts in (flow.workers, flow.ranks)
            for name, account in accounts.items()
        },
    )


def _stage(logs, alone):
    busy = sum(float((log[:, 1] - log[:, 0]).sum()) for log in logs)
    span = max(log[-1, 1] for log in logs) - min(log[0, 0] for log in logs)
    return Stage(busy, alone, float(span), sum(map(len, logs)))


def _on_devices(logs):
    """Each batch to the device that is free first, in the order in which they began."""
    pieces = sorted((began, ended - began) for log in logs for began, ended, _, _ in log.tolist())
    free = [0.0] * len(logs)
    for _, seconds in pieces:
        heapq.heapreplace(free, free[0] + seconds)
    return max(free)


def _longest_of_ranks(logs):
    """Of every step the seconds of the rank that took longest: the others wait for it."""
    seconds = [(log[:, 1] - log[:, 0]).tolist() for log in logs]
    return [max(step) for step in zip(*seconds, strict=True)]
