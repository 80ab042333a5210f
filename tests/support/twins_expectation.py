"""What greedy packing costs, worked out the long way in plain Python.

`pack` is the definition of greedy packing. `mean_over_orders` averages it over every order of a
few samples: the exact answer for a small bucket. `rates` follows the batch as it fills, sample by
sample, with samples drawn from a fixed distribution: the exact answer per batch for an endless
bucket. Neither knows thresholds, powers or a closed form.
"""

import random
from itertools import permutations


def round_up(length, multiple):
    return -(-length // multiple) * multiple


def pack(lengths, max_tokens, max_batch_size=None, pad_to=1, size_multiple=1):
    """Batches (size, padded longest) of the samples in the order given."""
    lengths = [round_up(length, pad_to) for length in lengths]
    most = max_batch_size or len(lengths)
    most = most if most < size_multiple else most - most % size_multiple
    batches, start = [], 0
    while start < len(lengths):
        size = 1
        while (
            start + size < len(lengths)
            and size < most
            and (size + 1) * max(lengths[start : start + size + 1]) <= max_tokens
        ):
            size += 1
        if size > size_multiple:
            size -= size % size_multiple
        batches.append((size, max(lengths[start : start + size])))
        start += size
    return batches


def mean_over_orders(lengths, cost, **limits):
    """Mean batches and mean cost over all orders of the samples (at most seven or so)."""
    batches = costs = orders = 0
    for order in permutations(lengths):
        packed = pack(order, **limits)
        batches += len(packed)
        costs += sum(cost(size, longest) for size, longest in packed)
        orders += 1
    return batches / orders, costs / orders


def mean_over_shuffles(lengths, epochs, cost, **limits):
    """Means of batches and of cost over random orders, and the standard errors of both."""
    generator = random.Random(1)
    lengths, rows = list(lengths), []
    for _ in range(epochs):
        generator.shuffle(lengths)
        packed = pack(lengths, **limits)
        rows.append((len(packed), sum(cost(size, longest) for size, longest in packed)))
    means = [sum(column) / epochs for column in zip(*rows, strict=True)]
    errors = [
        (sum((value - mean) ** 2 for value in column) / (epochs - 1) / epochs) ** 0.5
        for column, mean in zip(zip(*rows, strict=True), means, strict=True)
    ]
    return means, errors


def rates(shares, max_tokens, max_batch_size, cost, rounds=200):
    """Batches per sample and cost per sample in an endless bucket.

    Args:
        shares: share of samples of each length, a dict.
        max_tokens: the budget.
        max_batch_size: the largest size.
        cost: of (size, longest).
        rounds: batches to follow until the law of the first sample has settled.
    """
    law = dict(shares)
    for _ in range(rounds):
        closed, law = _fill_one(law, shares, max_tokens, max_batch_size)
    mean_size = sum(chance * size for (size, _), chance in closed.items())
    mean_cost = sum(chance * cost(*batch) for batch, chance in closed.items())
    return 1 / mean_size, mean_cost / mean_size


def _fill_one(law, shares, max_tokens, max_batch_size):
    """Law of a closed batch (size, longest), and of the first sample of the next one."""
    opened = {(1, length): chance for length, chance in law.items()}
    closed, following = {}, dict.fromkeys(shares, 0.0)
    while opened:
        grown = {}
        for (size, longest), chance in opened.items():
            for length, share in shares.items():
                wider = max(longest, length)
                if size < max_batch_size and (size + 1) * wider <= max_tokens:
                    grown[size + 1, wider] = grown.get((size + 1, wider), 0.0) + chance * share
                else:
                    closed[size, longest] = closed.get((size, longest), 0.0) + chance * share
                    following[length] += chance * share
        opened = grown
    return closed, following
