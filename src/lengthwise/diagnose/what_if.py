"""What a run would have done with other devices: its plan simulated at the pace it really had."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.core.cost import StepTime
from lengthwise.diagnose.split import drafter_work
from lengthwise.errors import LengthwiseError
from lengthwise.simulate import Machines, simulate, workload_of_remix

if TYPE_CHECKING:
    from lengthwise.diagnose.account import Account
    from lengthwise.diagnose.plan import RunPlan

Split = tuple[int, int]
"""Targets and drafters."""


class WhatIf:
    """Simulates a pipeline's first epoch with other numbers of devices.

    A batch costs its padded tokens, a rank's part of a step its tokens, both at the mean seconds
    that the run needed for one. Checkpoints, evaluations and slow ranks are left out, with and
    without the change alike.

    Args:
        plan: of the run.
        account: of the run.
    """

    def __init__(self, plan: RunPlan, account: Account) -> None:
        """Find the pace of both stages."""
        targets, ranks = account.stage("target"), account.stage("drafter")
        self.now: Split = (len(targets), len(ranks))
        busy = sum(device.busy for device in targets)
        self._target = StepTime(seconds_per_token=busy / account.padded_tokens)
        work = drafter_work(account)["work"] * len(ranks)
        self._drafter = StepTime(seconds_per_token=work / account.learnt_tokens)
        self._plan = plan
        self._known: dict[Split, float | None] = {}

    def gain(self, split: Split) -> float | None:
        """Tokens a second over those of now, less 1; None where it cannot be simulated."""
        now, then = self._rate(self.now), self._rate(split)
        return None if not now or then is None else then / now - 1

    def _rate(self, split: Split) -> float | None:
        if split not in self._known:
            try:
                self._known[split] = self._simulated(split)
            except LengthwiseError:  # a channel in which such a pipeline stands still
                self._known[split] = None
        return self._known[split]

    def _simulated(self, split: Split) -> float:
        plan, section = self._plan.plan, self._plan.config.pipeline
        batching = self._plan.config.batching
        mix = plan.epoch(0).mix
        # Tokens stand for bytes. What the pool holds, and the batches beyond it.
        prefetch = max(section.num_ahead, 2 * split[0])
        room = mix.peak_tokens + prefetch * batching.max_tokens
        work = workload_of_remix(
            mix,
            plan.data.lengths,
            self._target,
            self._drafter,
            bytes_per_token=1,
            num_drafters=split[1],
        )
        return simulate(
            work, Machines(num_targets=split[0], num_drafters=split[1], channel_bytes=room)
        ).tokens_per_second
