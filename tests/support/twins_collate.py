"""Padding and packing in plain Python: one token at a time, lists in, lists out."""

from __future__ import annotations

from itertools import pairwise


def padded_rows(rows, width, fill, side="right"):
    """Each row filled up to ``width``."""
    found = []
    for row in rows:
        padding = [fill] * (width - len(row))
        found.append(padding + list(row) if side == "left" else list(row) + padding)
    return found


def mask_rows(rows, width, side="right"):
    """1 where a row has a token."""
    return padded_rows([[1] * len(row) for row in rows], width, 0, side)


def rounded_up(length, multiple):
    """The next multiple, counted up to."""
    while length % multiple:
        length += 1
    return length


def packed_row(rows, multiple, fill, label_fill):
    """ids, labels, positions, owners, edges and the longest segment of one packed row."""
    segments = [list(row) for row in rows]
    rest = rounded_up(sum(map(len, segments)), multiple) - sum(map(len, segments))
    ids, labels, positions, owners, edges = [], [], [], [], [0]
    for owner, segment in enumerate([*segments, [None] * rest] if rest else segments):
        for place, token in enumerate(segment):
            ids.append(fill if token is None else token)
            labels.append(label_fill if token is None or place == 0 else token)
            positions.append(place)
            owners.append(owner)
        edges.append(len(ids))
    longest = max(b - a for a, b in pairwise(edges))
    return ids, labels, positions, owners, edges, longest
