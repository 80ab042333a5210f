"""The best boundaries by trying all of them."""

from itertools import combinations, pairwise


def every_boundaries(lengths, most):
    """All boundaries of at most ``most`` buckets that split the distinct lengths differently."""
    distinct = sorted(set(lengths))
    for inner in range(min(most, len(distinct))):
        for cuts in combinations(distinct[1:], inner):
            yield (0, *cuts, distinct[-1] + 1)


def ceiling_cost(lengths, boundaries, max_tokens, max_batch_size, cost):
    """Cost of an epoch in which each batch is padded to the longest length of its bucket."""
    total = 0
    for lo, hi in pairwise(boundaries):
        inside = [length for length in lengths if lo <= length < hi]
        if not inside:
            continue
        longest = max(inside)
        size = min(max_tokens // longest, max_batch_size)
        full, rest = divmod(len(inside), size)
        total += full * cost(size, longest) + (cost(rest, longest) if rest else 0)
    return total


def least_totals(costs, most):
    """Least total of exactly 1, 2, ... ``most`` steps through a cost matrix, by recursion."""
    size = len(costs)

    def least(steps, end):
        if steps == 0:
            return 0.0 if end == 0 else float("inf")
        return min(
            (least(steps - 1, begin) + costs[begin][end] for begin in range(end)),
            default=float("inf"),
        )

    return [least(steps, size - 1) for steps in range(1, most + 1)]
