"""What devices of a simulated pipeline wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from lengthwise.core.cost import Float64Array
    from lengthwise.core.limits import Int64Array
    from lengthwise.simulate.machines import Machines
    from lengthwise.simulate.timeline import Arrivals, Steps


def target_waits(arrivals: Arrivals, machines: Machines, seconds: float) -> dict[str, float]:
    """Seconds that targets wait, by cause, summed over all of them.

    Returns:
        ``transfer``: it has as many batches as it can, and their features are still leaving;
        ``channel``: no room in the channel for the next batch; ``input``: it has a batch whose
        samples are not read yet; ``end``: no batch is left for it.
    """
    order = np.argsort(arrivals.target, kind="stable")
    mine = arrivals.target[order]
    before = _earlier(arrivals.released[order], mine, 1)
    sent = np.maximum(before, arrivals.dispatched[order])
    # From when the target has room for this batch.
    room = _earlier(arrivals.arrived[order], mine, machines.prefetch_batches)
    room = np.clip(room, before, sent)
    last = _last(arrivals.released[order], mine)
    return {
        "transfer": float((room - before).sum()),
        "channel": float((sent - room).sum()),
        "input": float((arrivals.started[order] - sent).sum()),
        "end": machines.num_targets * seconds - last,
    }


def drafter_waits(steps: Steps, num_lanes: int, seconds: float) -> dict[str, float]:
    """Seconds that drafters wait, by cause, summed over all that take steps of their own.

    Returns:
        ``start``: before its first step's samples have come; ``samples``: before those of later
        ones; ``transfer``: they are being copied; ``end``: no step is left for it.
    """
    order = np.argsort(steps.drafter, kind="stable")
    mine = steps.drafter[order]
    before = _earlier(steps.learnt[order], mine, 1)
    sent = np.maximum(before, steps.delivered[order])
    first = np.append(True, mine[1:] != mine[:-1])
    return {
        "start": float((sent - before)[first].sum()),
        "samples": float((sent - before)[~first].sum()),
        "transfer": float((steps.begun[order] - sent).sum()),
        "end": num_lanes * seconds - _last(steps.learnt[order], mine),
    }


def _earlier(values: Float64Array, device: Int64Array, back: int) -> Float64Array:
    """The value of each device's work ``back`` pieces before; 0 where there is none."""
    result = np.zeros(values.size)
    same = device[back:] == device[:-back]
    result[back:][same] = values[:-back][same]
    return result


def _last(values: Float64Array, device: Int64Array) -> float:
    """The sum over devices of the value of their last piece of work."""
    return float(values[np.append(device[1:] != device[:-1], True)].sum())
