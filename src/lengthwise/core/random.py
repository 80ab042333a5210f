"""Keys of random streams: one for every purpose, epoch and place, from one seed.

No module of lengthwise draws from a global generator. Whoever needs randomness derives a key
here, in plain Python integers, and hands it to the kernels of
:mod:`lengthwise.core.kernels.random`. Two keys that differ in any part give unrelated streams.
"""

from __future__ import annotations

from enum import IntEnum, unique

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_START = 0x6C656E6774687731
"""The bytes ``lengthw1``: the version of all streams. Changing it changes every plan."""


@unique
class Purpose(IntEnum):
    """What a stream is for. Values are part of every plan: never renumber, only append."""

    SAMPLES = 1
    """The order of samples: the shuffle of an epoch, or of one of its blocks."""
    BUCKETS = 2
    """What happens inside one bucket; the index is the bucket."""
    WINDOWS = 3
    """Choices about windows: which go up and which go down, where the first begins."""
    BATCHES = 4
    """The order of batches and which replica gets which."""
    REMAINDER = 5
    """Which samples or batches are left out or repeated where a count does not divide."""
    FIXED = 6
    """The keyed permutations of plans of fixed batch sizes; the index is the bucket."""
    SYNTHETIC = 7
    """Made-up data: benchmarks, simulations, examples."""
    POOL = 8
    """Which free slot of the pool a sample takes; the index is the segment."""
    STREAM = 9
    """Which buffered samples of a stream make a batch; the index is the replica that decides."""
    STRATA = 10
    """From which part of the buffer each batch of an optimiser step comes."""
    ANCHORS = 11
    """Which positions of a document a drafter's blocks begin at; the index is the sample."""
    REMIX = 12
    """Which waiting sample a step of a remixed epoch takes next."""
    HELD_OUT = 13
    """Which samples are kept for evaluation."""
    SHARDS = 14
    """The order in which shards are read; the plans of their groups, the index being the group."""


def mix(key: int, counter: int) -> int:
    """Word ``counter`` of the stream ``key``, both in ``[0, 2**64)``: SplitMix64's mixing."""
    word = (key + counter * _GAMMA) & _MASK
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) & _MASK
    return word ^ (word >> 31)


def derive_key(seed: int, *parts: int) -> int:
    """A 64-bit key that depends on every bit of ``seed`` and ``parts``.

    Args:
        seed: any integer, of any size and sign.
        parts: any integers; order and number matter.

    Returns:
        A key in ``[0, 2**64)``.
    """
    key = mix(_START, len(parts))
    for value in (seed, *parts):
        magnitude = abs(int(value))
        limbs = max(1, -(-magnitude.bit_length() // 64))
        key = mix(key, 2 * limbs + (value < 0))
        for limb in range(limbs):
            key = mix(key, (magnitude >> (64 * limb)) & _MASK)
    return key


def stream_key(seed: int, epoch: int, purpose: Purpose, index: int = 0) -> int:
    """The key of one stream of an epoch.

    Args:
        seed: the user's seed, any integer.
        epoch: which epoch, counted from 0.
        purpose: what the stream is for.
        index: tells streams of one purpose apart: a bucket, a block, a window.

    Returns:
        A key in ``[0, 2**64)``, the same on every machine.
    """
    return derive_key(seed, epoch, int(purpose), index)
