"""Diversity by definition: sets, exact fractions and the standard library's statistics."""

from fractions import Fraction
from itertools import combinations
from math import sqrt
from statistics import correlation, fmean, pstdev

import numpy as np

from lengthwise.core.batches import Batches


def make_batches(groups, lengths, spare=()):
    """Batches from lists of sample numbers; ``spare`` stands in ``order`` but in no batch.

    The groups are laid down last to first, since batches need not lie in ``order`` in turn.
    """
    flat, starts = list(spare), []
    for group in reversed(groups):
        starts.append(len(flat))
        flat.extend(group)
    return Batches(
        np.array(flat, np.uint32),
        np.array(starts[::-1], np.int64),
        np.array([len(group) for group in groups], np.int64),
        np.array([max(lengths[i] for i in group) for group in groups], np.int64),
        np.array([sum(lengths[i] for i in group) for group in groups], np.int64),
    )


def pairs(groups):
    return {pair for group in groups for pair in combinations(sorted(group), 2)}


def repeat_rate(groups, next_groups):
    first = pairs(groups)
    return len(first & pairs(next_groups)) / len(first) if first else 0.0


def lag_correlation(groups, lengths, stride):
    means = [fmean(lengths[i] for i in group) for group in groups]
    first, second = means[:-stride], means[stride:]
    if len(first) < 2 or len(set(first)) == 1 or len(set(second)) == 1:
        return 0.0
    return correlation(first, second)


def spread(groups, lengths):
    everything = pstdev(lengths[i] for group in groups for i in group)
    return fmean(pstdev([lengths[i] for i in group]) for group in groups) / (everything or 1.0)


def effect(groups, values, per_step):
    everything = [Fraction(values[i]) for group in groups for i in group]
    mean = sum(everything) / len(everything)
    variance = sum((value - mean) ** 2 for value in everything) / len(everything)
    if not variance:
        return 0.0
    steps = [
        [i for group in groups[start : start + per_step] for i in group]
        for start in range(0, len(groups), per_step)
    ]
    if len(groups) > per_step and len(groups) % per_step:
        steps.pop()
    noise = sum((sum(Fraction(values[i]) for i in step) - mean * len(step)) ** 2 for step in steps)
    return float(noise / (variance * sum(len(step) for step in steps)))


def variation(amounts, per_step):
    totals = [sum(amounts[i : i + per_step]) for i in range(0, len(amounts), per_step)]
    if len(amounts) > per_step and len(amounts) % per_step:
        totals.pop()
    mean = Fraction(sum(totals), len(totals))
    return sqrt(sum((total - mean) ** 2 for total in totals) / len(totals)) / mean if mean else 0.0
