"""Plain-Python twins of streaming: definitions on lists of (length, number) pairs.

A legal batch is small enough for its longest sample. Where the code finds a batch by arithmetic or
bisection, the twin tries all of them.
"""

from support.twins_random import bounded, mix, shuffled


def padded(length, pad_to):
    while length % pad_to:
        length += 1
    return length


def whole(size, multiple):
    return size if size < multiple else size - size % multiple


def cost(size, longest, limits):
    return size * padded(longest, limits.pad_to_multiple_of)


def legal(lengths, limits):
    """Whether these samples may be one batch."""
    multiple = limits.batch_size_multiple_of
    return (
        cost(len(lengths), max(lengths), limits) <= limits.max_tokens
        and (limits.max_batch_size is None or len(lengths) <= limits.max_batch_size)
        and whole(len(lengths), multiple) == len(lengths)
    )


def size_allowed(longest, limits):
    """The largest legal number of samples of this length."""
    best = 0
    for size in range(1, limits.max_tokens + 1):
        if cost(size, longest, limits) > limits.max_tokens:
            break
        if legal([longest] * size, limits):
            best = size
    return best


def runs(lengths, limits, most):
    """All legal runs of neighbours as (start, stop), at most ``most`` samples each."""
    return [
        (start, stop)
        for stop in range(1, len(lengths) + 1)
        for start in range(max(0, stop - most), stop)
        if legal(lengths[start:stop], limits)
    ]


def run_at(lengths, place, limits, most):
    """The fullest run that ends at ``place``, if a batch of that longest sample is full with it.

    Else there are too few samples below, and it is the fullest run at the bottom that contains the
    place (less what a whole multiple leaves over).
    """
    full = whole(min(size_allowed(lengths[place], limits), most), limits.batch_size_multiple_of)
    if full <= place + 1:
        return place + 1 - full, place + 1
    wider = range(place + 2, min(len(lengths), most) + 1)
    sizes = [size for size in wider if size <= size_allowed(lengths[size - 1], limits)]
    sizes.append(place + 1)
    return 0, whole(max(sizes), limits.batch_size_multiple_of)


def place_of(key, word, size, stratum, num_strata):
    inside = [p for p in range(size) if size * stratum // num_strata <= p]
    inside = [p for p in inside if p < size * (stratum + 1) // num_strata] or list(range(size))
    return inside[bounded(mix(key, word), len(inside))]


def neighbours(lengths, key, stratum, num_strata, limits, most, pinned=None):
    """Places of the tighter of two random runs; of the one at ``pinned`` if that is given."""
    if pinned is not None:
        return list(range(*run_at(lengths, pinned, limits, most)))
    first, second = (
        run_at(lengths, place_of(key, word, len(lengths), stratum, num_strata), limits, most)
        for word in (0, 1)
    )
    spans = [lengths[stop - 1] - lengths[start] for start, stop in (first, second)]
    return list(range(*(second if spans[1] < spans[0] else first)))


def tiled(lengths, limits):
    """From the longest down, each run as long as it is legal (or a whole multiple of that)."""
    found, stop = [], len(lengths)
    while stop:
        size = 1
        for wider in range(2, stop + 1):
            if wider <= size_allowed(lengths[stop - 1], limits):
                size = wider
        size = whole(size, limits.batch_size_multiple_of)
        found.append(list(range(stop - size, stop)))
        stop -= size
    return found


def strata_of(num_batches, num_strata, key):
    """The stratum of each batch: every block holds each one once."""
    found = []
    for block in range(-(-num_batches // num_strata)):
        order, stream = list(range(num_strata)), mix(key, block)
        for last in reversed(range(1, num_strata)):
            other = bounded(mix(stream, 2**32 + last), last + 1)
            order[last], order[other] = order[other], order[last]
        found += order
    return found[:num_batches]


__all__ = [
    "cost",
    "legal",
    "neighbours",
    "padded",
    "place_of",
    "run_at",
    "runs",
    "shuffled",
    "size_allowed",
    "strata_of",
    "tiled",
    "whole",
]
