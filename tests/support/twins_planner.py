"""Plain-Python twins of the planning kernels: lists and integers of any size.

A sample is a pair ``(length, index)``. Where a definition and an algorithm differ, the twin takes
the definition: a greedy batch is the longest legal prefix, a place of an epoch is a place in the
whole list.
"""

from fractions import Fraction
from math import floor, sqrt

from support.twins_random import bounded, mix, permute, shuffled


def round_up(length, multiple):
    while length % multiple:
        length += 1
    return length


def whole_multiple(size, multiple):
    return size if size < multiple else size - size % multiple


def as_word(sample):
    length, index = sample
    return length * 2**32 + index


def scatter_groups(lengths, groups, first, cursor, out):
    """Each group's samples in turn, from the group's cursor on; returns the moved cursors."""
    out, moved = list(out), list(cursor)
    for group in range(len(cursor)):
        for i, length in enumerate(lengths):
            if groups[i] == group:
                out[moved[group]] = as_word((length, first + i))
                moved[group] += 1
    return out, moved


def shuffle_group(values, key, group):
    """Inside-out shuffle: each newcomer takes a random place, whose holder moves to the end."""
    stream, out = mix(key, group), []
    for i, value in enumerate(values):
        out.append(value)
        j = bounded(mix(stream, i), i + 1)
        out[i], out[j] = out[j], value
    return out


def block_of(draw, shift, key):
    return mix(key, draw) // 2**shift


def deal_to_blocks(values, first, shift, key):
    """The values of each block, in their order."""
    blocks = [[] for _ in range(2 ** (64 - shift))]
    for i, value in enumerate(values):
        blocks[block_of(first + i, shift, key)].append(value)
    return blocks


def shuffle_blocks(blocks, key):
    return [shuffled(block, mix(key, number)) for number, block in enumerate(blocks)]


def sort_windows(samples, first, last, window_size):
    """Windows ``first .. last - 1`` rise and fall in turn; a falling one is a rising one turned."""
    out = list(samples)
    for window in range(first, last):
        part = sorted(
            samples[window * window_size : (window + 1) * window_size], key=lambda pair: pair[0]
        )
        out[window * window_size : (window + 1) * window_size] = part[:: (1, -1)[window % 2]]
    return out


def padded_length(lengths, multiple, least=0):
    return max(least, round_up(max(lengths), multiple))


def pack_greedily(samples, limits, least=0):
    """Batches as (samples, padded length, real tokens)."""
    max_tokens, max_size, pad_to, multiple = limits
    rest, batches = list(samples), []

    def legal(size):
        padded = padded_length([length for length, _ in rest[:size]], pad_to, least)
        return size <= whole_multiple(max_size, multiple) and size * padded <= max_tokens

    while rest:
        size = 1
        while size < len(rest) and legal(size + 1):
            size += 1
        size = whole_multiple(size, multiple)
        lengths = [length for length, _ in rest[:size]]
        batches.append((rest[:size], padded_length(lengths, pad_to, least), sum(lengths)))
        rest = rest[size:]
    return batches


def deal_from_pool(groups, limits, key):
    """Deal from the last sample to the first; ``groups`` are (samples of a length, free slots)."""
    max_tokens, max_size, pad_to, multiple = limits
    samples = [(sample, wanted) for group, wanted in groups for sample in group]
    batches, pool = [], []
    for left in reversed(range(len(samples))):
        (length, index), wanted = samples[left]
        padded = round_up(length, pad_to)
        size = max(1, whole_multiple(min(max_tokens // padded, max_size), multiple))
        if not pool:
            size = whole_multiple(min(size, left + 1), multiple)
        opens = not pool or len(pool) < wanted
        if opens and len(pool) + size - 1 <= left:
            batches.append(([(length, index)], padded, size))
            pool += [len(batches) - 1] * (size - 1)
            continue
        slot = bounded(mix(key, left), len(pool))
        batches[pool[slot]][0].append((length, index))
        last = pool.pop()
        if slot < len(pool):
            pool[slot] = last
    return batches


def measure(batch_lengths, pad_to, least):
    return padded_length(batch_lengths, pad_to, least), sum(batch_lengths)


def densities(lengths, counts):
    """Widen the range around each length token by token until it holds enough samples."""
    total = sum(counts)
    wanted = min(total, max(32, total // 128))
    result = []
    for middle in lengths:
        reach = 0
        while True:
            held = sum(
                count
                for length, count in zip(lengths, counts, strict=True)
                if abs(length - middle) <= reach
            )
            if held >= wanted:
                break
            reach += 1
        result.append(held / (2 * reach + 1))
    return result


def full_size(length, limits):
    max_tokens, max_size, pad_to, multiple = limits
    return whole_multiple(max(1, min(max_tokens // round_up(length, pad_to), max_size)), multiple)


def slots_for(lengths, density, limits, scale, least_batches):
    result = []
    for length, near in zip(lengths, density, strict=True):
        size = full_size(length, limits)
        wanted = floor(min(scale * size * sqrt(near), 2**40))
        result.append(max(wanted, least_batches * size))
    return result


def expected_repeats(lengths, counts, slots, limits):
    """The mean over pairs of the chance to meet again, in exact fractions."""
    repeats, pairs = Fraction(0), 0
    for length, count, free in zip(lengths, counts, slots, strict=True):
        mates = full_size(length, limits) - 1
        chance = min(1, Fraction(mates, 4 * free))
        if count > 1:
            chance = min(chance, Fraction(mates, count - 1))
        repeats += count * mates * chance
        pairs += count * mates
    return repeats / pairs if pairs else 0


def ranks_of_units(num_units, per_step, key):
    """The whole epoch: whole steps first, one unit of each stratum a step; the rest at the end."""
    steps, left = divmod(num_units, per_step)
    # The middles of ``left`` equal parts of the range.
    spare = [num_units * (2 * part + 1) // (2 * left) for part in range(left)]
    strata_units = [rank for rank in range(num_units) if rank not in spare]
    result = []
    for step in range(steps):
        for place in range(per_step):
            stratum = permute(place, per_step, mix(mix(key, 2), step))
            members = strata_units[stratum * steps : (stratum + 1) * steps]
            result.append(members[permute(step, steps, mix(mix(key, 3), stratum))])
    return result + [spare[permute(i, left, mix(key, 1))] for i in range(left)]


def ranks_of_batches(num_batches, per_unit, per_step, key):
    result = []
    for unit in ranks_of_units(num_batches // per_unit, per_step, key):
        members = range(unit * per_unit, (unit + 1) * per_unit)
        if per_unit == 1:
            result += members
            continue
        stream = mix(mix(key, 4), unit)
        result += [members[permute(i, per_unit, stream)] for i in range(per_unit)]
    return result


def places_of_batches(layout):
    """(group, first place, size) by rank; ``layout`` has (batch size, full batches, tail sizes)."""
    result = []
    for group, (size, num_full, tail) in enumerate(layout):
        first = 0
        for part in [size] * num_full + list(tail):
            result.append((group, first, part))
            first += part
    return result


def fill_batch(group_indices, start, size, key):
    count = len(group_indices)
    return [group_indices[permute(start + i, count, key)] for i in range(size)]
