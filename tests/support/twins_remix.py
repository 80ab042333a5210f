"""A plain-Python twin of the pool that steps draw from. Shares no code with it."""

from __future__ import annotations

from fractions import Fraction

from support.twins_random import bounded, mix


def remix_twin(batches, lengths, costs, pool_tokens, step_cost, key):
    """Lists of lists: samples of each step, and how many batches had entered by its end."""
    total = sum(costs[s] for batch in batches for s in batch)
    num_steps = max(1, total // step_cost)
    width = Fraction(total, num_steps)
    steps, entered_by = [[] for _ in range(num_steps)], [0] * num_steps
    coming, pool, entered, spent = [list(b) for b in batches], [], 0, 0
    for draw in range(sum(len(batch) for batch in batches)):
        while coming and (not pool or sum(lengths[s] for s in pool + coming[0]) <= pool_tokens):
            pool += coming.pop(0)
            entered += 1
        place = bounded(mix(key, draw), len(pool))
        pool[place], pool[-1] = pool[-1], pool[place]
        sample = pool.pop()
        middle = spent + Fraction(costs[sample], 2)
        # The step's end is rounded up to a whole cost, as costs are whole.
        step = next(
            s for s in range(num_steps) if s == num_steps - 1 or middle < -(-width * (s + 1) // 1)
        )
        spent += costs[sample]
        steps[step].append(sample)
        entered_by[step] = entered
    return steps, entered_by
