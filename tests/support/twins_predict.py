"""What an epoch takes, added up batch by batch in plain Python."""

import numpy as np


def cost_of(batch_size, longest, fixed, linear, squared):
    return fixed + linear * batch_size * longest + squared * batch_size * longest**2


def follow_plan(plan, lengths, coefficients, sync_every=1, sync_seconds=0.0):
    """Seconds on the clock and what they went into, from the samples of every batch."""
    limits, replicas = plan.config.limits, plan.num_replicas
    multiple = limits.pad_to_multiple_of
    parts = dict.fromkeys(("overhead", "tokens", "padding", "attention", "padding_attention"), 0.0)
    fixed, linear, squared = coefficients
    clock = busy = meeting = 0.0
    behind = [0.0] * replicas
    for step in range(plan.num_steps):
        for rank in range(replicas):
            own = [int(lengths[index]) for index in plan.for_rank(rank)[step]]
            longest = -(-max(own) // multiple) * multiple
            behind[rank] += cost_of(len(own), longest, *coefficients)
            parts["overhead"] += fixed / replicas
            for length in own:
                parts["tokens"] += linear * length / replicas
                parts["padding"] += linear * (longest - length) / replicas
                parts["attention"] += squared * length**2 / replicas
                parts["padding_attention"] += squared * (longest**2 - length**2) / replicas
        if (step + 1) % sync_every == 0 or step + 1 == plan.num_steps:
            clock += max(behind) + sync_seconds
            busy += sum(behind) / replicas
            meeting += sync_seconds
            behind = [0.0] * replicas
    parts |= {"waiting": clock - meeting - busy, "synchronising": meeting}
    return clock, parts


class StubFit:
    """A fit whose interval of any sum is known: from ``low`` times it to ``high`` times it.

    It says that it was measured on batches of 1 x 4 and 2 x 6 tokens.
    """

    batch_size = np.array([1, 2])
    longest = np.array([4, 6])

    def __init__(self, cost, low=0.8, high=1.5):
        self.cost, self.low, self.high = cost, low, high
        self.asked = []

    def interval(self, batch_size, longest, level=0.9, total=True):
        assert total
        self.asked.append((batch_size.tolist(), longest.tolist(), level))
        seconds = float(self.cost(batch_size, longest).sum())
        return self.low * seconds, self.high * seconds
