"""Workloads and machines to simulate, drawn at random, for Hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from lengthwise.simulate.machines import Machines
from lengthwise.simulate.workload import StepNeeds, Workload


def random_workload(seed, num_arrivals, num_steps, *, exact, slow=1.0):
    """Batches and steps of continuous random times, so that no two things happen at one moment.

    Every arrival's bytes are shared out among the steps that need it, as samples are.
    """
    rng = np.random.default_rng(seed)
    needs, edges = [], [0]
    shares = np.zeros(num_steps, np.int64)
    arrival_bytes = rng.integers(1, 1000, num_arrivals)
    members = [set() for _ in range(num_steps)]
    for arrival in range(num_arrivals):
        own = int(arrival * num_steps / num_arrivals)
        takers = np.minimum(own + rng.integers(0, 3, 3), num_steps - 1)
        for taker, part in zip(
            takers, np.diff([0, *sorted(rng.integers(0, 9, 2)), 9]), strict=True
        ):
            shares[taker] += int(arrival_bytes[arrival]) * int(part) // 9
            members[taker].add(arrival)
    for step in range(num_steps):
        needs += sorted(members[step]) or [int(rng.integers(0, num_arrivals))]
        edges.append(len(needs))
    step_needs = StepNeeds(np.array(needs), np.array(edges))
    return Workload(
        arrival_seconds=rng.uniform(0.1, 2.0, num_arrivals),
        arrival_bytes=arrival_bytes,
        arrival_tokens=rng.integers(1, 100, num_arrivals),
        step_seconds=rng.uniform(0.1, 2.0, num_steps) * slow,
        step_ready=np.maximum.reduceat(step_needs.arrivals, step_needs.edges[:-1]),
        step_bytes=shares,
        feed_seconds=rng.uniform(0.0, 0.5, num_arrivals) * rng.integers(0, 2),
        step_needs=step_needs if exact else None,
    )


@st.composite
def cases(draw):
    """A workload, and machines whose channel is from just large enough to without bound."""
    seed = draw(st.integers(0, 2**32))
    workload = random_workload(
        seed,
        draw(st.integers(1, 40)),
        draw(st.integers(1, 30)),
        exact=draw(st.booleans()),
        slow=draw(st.sampled_from([0.05, 0.5, 1.0, 3.0])),
    )
    num_targets = draw(st.integers(1, 5))
    spare = draw(st.sampled_from([0, 500, 3000, None]))
    speeds = tuple(np.random.default_rng(seed).uniform(0.5, 2.0, num_targets).tolist())
    machines = Machines(
        num_targets=num_targets,
        num_drafters=draw(st.integers(1, 4)),
        independent=draw(st.booleans()),
        channel_bytes=None if spare is None else workload.least_channel_bytes + spare,
        prefetch_batches=draw(st.integers(1, 3)),
        step_depth=draw(st.integers(1, 3)),
        transfer_bytes_per_second=draw(st.sampled_from([np.inf, 500.0, 5000.0])),
        transfers_overlap=draw(st.booleans()),
        shared_feeder=draw(st.booleans()),
        target_speeds=draw(st.sampled_from([None, speeds])),
    )
    return workload, machines
