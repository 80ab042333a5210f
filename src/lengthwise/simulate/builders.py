"""Workloads from plans and what batches cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.cost import evaluate_model
from lengthwise.core.limits import require_int
from lengthwise.simulate.workload import StepNeeds, Workload

if TYPE_CHECKING:
    from lengthwise.core.batches import Batches
    from lengthwise.core.cost import CostModel, Float64Array
    from lengthwise.core.limits import Int64Array
    from lengthwise.core.remix import RemixPlan


def workload_of_batches(
    batches: Batches,
    target: CostModel,
    drafter: CostModel,
    *,
    bytes_per_token: int,
    batches_per_step: int = 1,
    feed_seconds: float = 0.0,
) -> Workload:
    """The drafter learns from the target's batches as they are.

    Args:
        batches: in the order in which the target runs them.
        target: seconds of a target's batch, by (batch size, padded longest).
        drafter: seconds that one drafter device takes for the same batch.
        bytes_per_token: of features.
        batches_per_step: batches that make a step, one a device that trains; the dearest of them
            is what the step takes. Without independent devices: their number.
        feed_seconds: to read a batch.
    """
    group = require_int("batches_per_step", batches_per_step, least=1)
    seconds = evaluate_model(drafter, batches.sizes, batches.padded)
    starts = np.arange(0, len(batches), group)
    edges = np.append(starts, len(batches))
    arrival_bytes = batches.tokens * require_int("bytes_per_token", bytes_per_token, least=0)
    return Workload(
        arrival_seconds=evaluate_model(target, batches.sizes, batches.padded),
        arrival_bytes=arrival_bytes,
        arrival_tokens=batches.tokens,
        step_seconds=np.maximum.reduceat(seconds, starts),
        step_ready=edges[1:] - 1,
        step_bytes=np.add.reduceat(arrival_bytes, starts),
        feed_seconds=np.full(len(batches), feed_seconds),
        step_needs=StepNeeds(np.arange(len(batches)), edges),
    )


def workload_of_remix(
    mix: RemixPlan,
    lengths: Int64Array,
    target: CostModel,
    drafter: CostModel,
    *,
    bytes_per_token: int,
    num_drafters: int = 1,
    page_tokens: int = 1,
    feed_seconds: float = 0.0,
) -> Workload:
    """Batches of the target are mixed again; steps draw from the pool that they fill.

    Args:
        mix: which sample takes part in which step.
        lengths: tokens of every sample that the plan speaks of; int64, shape (N,).
        target: seconds of a target's batch, by (batch size, padded longest).
        drafter: seconds of a device's part of a step, by (1, its real tokens); never less for more.
        bytes_per_token: of features.
        num_drafters: devices that a step is dealt to, by its samples' costs; the part with most
            tokens is what it takes.
        page_tokens: the channel's tokens are given out in pages of so many.
        feed_seconds: to read a batch.
    """
    pages = -(-np.asarray(lengths, np.int64) // require_int("page_tokens", page_tokens, least=1))
    room = pages * page_tokens * require_int("bytes_per_token", bytes_per_token, least=0)
    members, edges = mix.arrivals.gather(np.arange(len(mix.arrivals)))
    entered_with = np.empty(len(pages), np.int64)
    entered_with[members] = np.repeat(np.arange(len(mix.arrivals)), mix.arrivals.sizes)
    drawn, step_edges = mix.steps.gather(np.arange(mix.num_steps))
    needs = StepNeeds(entered_with[drawn], step_edges)
    return Workload(
        arrival_seconds=evaluate_model(target, mix.arrivals.sizes, mix.arrivals.padded),
        arrival_bytes=np.add.reduceat(room[members], edges[:-1]),
        arrival_tokens=mix.arrivals.tokens,
        step_seconds=_step_seconds(mix, lengths, drafter, num_drafters),
        step_ready=np.maximum.reduceat(needs.arrivals, step_edges[:-1]),
        step_bytes=np.add.reduceat(room[drawn], step_edges[:-1]),
        feed_seconds=np.full(len(mix.arrivals), feed_seconds),
        step_needs=needs,
    )


def largest_parts(mix: RemixPlan, lengths: Int64Array, num_drafters: int) -> Int64Array:
    """Real tokens of the device that gets most of them, of every step; int64, shape (S,)."""
    from lengthwise.core.kernels.dealing import most_dealt

    count = require_int("num_drafters", num_drafters, least=1)
    if count == 1:
        return mix.steps.tokens
    drawn, edges = mix.steps.gather(np.arange(mix.num_steps))
    own = np.asarray(lengths, np.int64)[drawn]
    return most_dealt(mix.costs[drawn], own, edges, count)


def _step_seconds(
    mix: RemixPlan, lengths: Int64Array, drafter: CostModel, num_drafters: int
) -> Float64Array:
    parts = largest_parts(mix, lengths, num_drafters)
    return evaluate_model(drafter, np.ones_like(parts), parts)
