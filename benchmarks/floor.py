"""The least that any planner does: one greedy scan over the lengths in a given order."""

import numba
import numpy as np


@numba.njit(cache=True)
def greedy_scan(lengths, max_tokens, max_batch_size, starts):
    """Where batches begin; the lengths are visited once, in order."""
    count, size, longest = 0, 0, 0
    starts[0] = 0
    for place in range(lengths.size):
        wide = max(longest, lengths[place])
        if size == max_batch_size or (size + 1) * wide > max_tokens:
            count += 1
            starts[count] = place
            size, wide = 0, lengths[place]
        size, longest = size + 1, wide
    return count + 1


def scan(lengths):
    """The floor on the run's limits."""
    return greedy_scan(lengths, 49_152, 64, np.empty(lengths.size, np.int64))
