"""The recurrence of :mod:`lengthwise.simulate.model`."""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.kernels import kernel

if TYPE_CHECKING:
    from lengthwise.core.cost import Float64Array
    from lengthwise.core.limits import Int64Array

    Heap = list[tuple[float, int]]


@kernel
def run_pipeline(
    arrival_bytes: Int64Array,
    arrival_seconds: Float64Array,
    steps: Int64Array,
    step_seconds: Float64Array,
    needs: Int64Array,
    speeds: Float64Array,
    settings: Int64Array,
) -> tuple[Float64Array, Int64Array, Float64Array, Int64Array, int]:
    """When everything happens in a pipeline, one arrival after the other.

    Arrivals and steps are both handed out in order, and nothing that is handed out later can hold
    up what was handed out before: so all times of an arrival are known when it is handed out.

    Args:
        arrival_bytes: of each arrival; (A,).
        arrival_seconds: of each arrival to read, to run and to transfer it; (A, 3).
        steps: of each step its bytes, the last arrival it needs, and the edges of its arrivals in
            ``needs``; (S, 4). Equal edges: it needs all arrivals up to the last.
        step_seconds: of each step to copy and to learn from it; (S, 2).
        needs: arrivals that steps need.
        speeds: of each target; (W,).
        settings: drafters; batches that a target has at once; steps that a drafter has at once;
            bytes of the channel; whether all targets share a feeder; whether transfers overlap.

    Returns:
        Of each arrival when it was handed out, began to be read, was read, began to run, ended, and
        arrived, (A, 6), and its target, (A,). Of each step when its last arrival came, when it was
        handed out, copied, begun and learnt, (S, 5), and its drafter, (S,). How many arrivals were
        handed out: fewer than all where the channel is too small for a step.
    """
    num_arrivals, num_drafters = arrival_bytes.size, settings[0]
    arrivals, target_of = np.zeros((num_arrivals, 6)), np.zeros(num_arrivals, np.int64)
    learning, drafter_of = np.zeros((len(steps), 5)), np.zeros(len(steps), np.int64)
    rooms = np.full(speeds.size, settings[1]), np.full(num_drafters, settings[2])
    free = np.zeros((speeds.size, 3)), np.zeros((num_drafters, 2))
    running, learners, freeing = [(0.0, 0)], [(0.0, 0)], [(0.0, 0)]
    for heap in (running, learners, freeing):
        heap.clear()  # what is in it tells the compiler its type
    newest = np.zeros(num_arrivals)  # arrival of the last one so far
    step, used, now = 0, 0, 0.0
    for arrival in range(num_arrivals + 1):
        # First the steps that need nothing more: they may make room.
        while step < len(steps) and steps[step, 1] < arrival:
            ready = _ready(steps[step], needs, arrivals[:, 5], newest)
            before = learning[step - 1, 1] if step else 0.0
            drafter, at = _take_room(learners, rooms[1], max(before, ready))
            learning[step, 0], learning[step, 1], drafter_of[step] = ready, at, drafter
            _learn(learning[step], step_seconds[step], free[1][drafter])
            heapq.heappush(learners, (learning[step, 4], drafter))
            heapq.heappush(freeing, (learning[step, 2], steps[step, 0]))
            step += 1
        if arrival == num_arrivals:
            break
        used, now = _wait_for_bytes(freeing, used, now, settings[3] - arrival_bytes[arrival])
        if used + arrival_bytes[arrival] > settings[3]:
            return arrivals, target_of, learning, drafter_of, arrival
        target, now = _take_room(running, rooms[0], now)
        used += arrival_bytes[arrival]
        arrivals[arrival, 0], target_of[arrival] = now, target
        reader = free[0][0] if settings[4] else free[0][target]
        seconds = arrival_seconds[arrival]
        _run(arrivals[arrival], seconds, speeds[target], reader, free[0][target], settings[5])
        heapq.heappush(running, (arrivals[arrival, 5], target))
        newest[arrival] = max(newest[arrival - 1] if arrival else 0.0, arrivals[arrival, 5])
    return arrivals, target_of, learning, drafter_of, num_arrivals


@kernel
def _ready(
    step: Int64Array, needs: Int64Array, arrived: Float64Array, newest: Float64Array
) -> float:
    """When all arrivals of a step have come."""
    if step[2] == step[3]:
        return float(newest[step[1]])
    ready = 0.0
    for place in range(step[2], step[3]):
        ready = max(ready, arrived[needs[place]])
    return ready


@kernel
def _take_room(busy: Heap, rooms: Int64Array, now: float) -> tuple[int, float]:
    """The one with most room, at the first moment from ``now`` on at which anyone has room."""
    while busy and (busy[0][0] <= now or rooms.max() == 0):
        now = max(now, busy[0][0])
        rooms[heapq.heappop(busy)[1]] += 1
    chosen = int(np.argmax(rooms))
    rooms[chosen] -= 1
    return chosen, now


@kernel
def _wait_for_bytes(freeing: Heap, used: int, now: float, most: int) -> tuple[int, float]:
    """Bytes in use, and the first moment from ``now`` on when they are ``most``, if ever."""
    while freeing and (freeing[0][0] <= now or used > most):
        now = max(now, freeing[0][0])
        used -= heapq.heappop(freeing)[1]
    return used, now


@kernel
def _run(
    times: Float64Array,
    seconds: Float64Array,
    speed: float,
    reader: Float64Array,
    target: Float64Array,
    overlap: int,
) -> None:
    """Read, run and transfer an arrival; the columns of both are from when each part is free."""
    times[1] = max(times[0], reader[0])
    times[2] = times[1] + seconds[0]
    reader[0] = times[2]
    times[3] = max(times[2], target[1])
    times[4] = times[3] + seconds[1] / speed
    begin = max(times[4], target[2]) if overlap else times[4]
    times[5] = begin + seconds[2]
    target[1] = times[4] if overlap else times[5]
    target[2] = times[5]


@kernel
def _learn(times: Float64Array, seconds: Float64Array, drafter: Float64Array) -> None:
    """Copy a step and learn from it."""
    times[2] = max(times[1], drafter[0]) + seconds[0]
    times[3] = max(times[2], drafter[1])
    times[4] = times[3] + seconds[1]
    drafter[0], drafter[1] = times[2], times[4]
