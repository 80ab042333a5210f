"""Plain-Python twins of the random kernels, on integers of any size (no wrap to rely on)."""

from math import isqrt

WORDS = 1 << 64


def mix(key, counter):
    """SplitMix64 as its authors publish it: state = key + counter * gamma, then the finaliser."""
    z = (key + counter * 0x9E3779B97F4A7C15) % WORDS
    z = (z ^ z // 2**30) * 0xBF58476D1CE4E5B9 % WORDS
    z = (z ^ z // 2**27) * 0x94D049BB133111EB % WORDS
    return z ^ z // 2**31


def bounded(word, bound):
    """The high half of the full product."""
    return word * bound // WORDS


def shuffled(values, key):
    """Fisher-Yates from the end; draw ``last`` decides what lands on place ``last``."""
    values = list(values)
    for last in reversed(range(1, len(values))):
        other = bounded(mix(key, last), last + 1)
        values[last], values[other] = values[other], values[last]
    return values


def permute(index, size, key):
    """Feistel on a grid with cycle walking; see the kernel."""
    columns = isqrt(size - 1) + 1
    rows = -(-size // columns)
    rows += rows % 2
    num_rounds = 24 if size < 4096 else 6
    while True:
        row, column = divmod(index, columns)
        for number in range(1, num_rounds + 1):
            stream = (key + number * 0xD1342543DE82EF95) % WORDS
            if number % 2:
                row = (row + bounded(mix(stream, column), rows)) % rows
            else:
                column = (column + bounded(mix(stream, row), columns)) % columns
        index = row * columns + column
        if index < size:
            return index
