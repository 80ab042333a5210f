"""Where the drafter's blocks begin, what they are given and what they are to predict."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch

from lengthwise.core.limits import require_int
from lengthwise.core.random import Purpose, stream_key

if TYPE_CHECKING:
    from lengthwise.core.limits import Int64Array
    from lengthwise.dflash.batch import DraftBatch

MAX_ANCHORS = 512
"""Anchors of a document and epoch: the paper's number."""


@dataclass(frozen=True, slots=True, eq=False)
class Anchors:
    """The columns at which blocks begin, N a row; on the CPU.

    Attributes:
        index: columns, ascending in each row, 0 where there is no block; shape (R, N), int64.
        keep: where there is a block; shape (R, N), bool. N is at least 1, so that a batch without
            any valid anchor goes the same way through the model as every other.
    """

    index: torch.Tensor
    keep: torch.Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """What every position of every block is to predict.

    Position k of a block predicts the token k places after its anchor: its own place, not the
    next. Position 0 is the anchor itself, which is given.

    Attributes:
        token_ids: shape (R, N, B), int64; anything where not valid.
        valid: which of them count; shape (R, N, B), bool. Never at k = 0.
    """

    token_ids: torch.Tensor
    valid: torch.Tensor


def num_valid_anchors(loss_mask: torch.Tensor) -> int:
    """Positions of one document, shape (T,), that a block may begin at.

    The anchor is given and the token after it is the block's first label; both must be supervised.
    """
    return int((loss_mask[:-1] & loss_mask[1:]).sum())


def draw_anchors(
    batch: DraftBatch,
    *,
    max_anchors: int = MAX_ANCHORS,
    seed: int,
    epoch: int,
    multiple_of: int = 1,
) -> Anchors:
    """Choose each document's anchors at random, without replacement; all where it has few.

    Every position has a random key that depends on ``(seed, epoch, sample_id, position)``, and the
    valid positions with the smallest keys win. So what a document gets depends on itself alone,
    not on the batch it stands in, and is drawn anew each epoch.

    Args:
        batch: as made by :mod:`lengthwise.dflash.batch`.
        max_anchors: the most anchors of a document.
        seed: the run's seed, any integer.
        epoch: counted from 0.
        multiple_of: round N up to a multiple of this, for few shapes.

    Returns:
        The anchors of every row.
    """
    require_int("max_anchors", max_anchors, least=1)
    require_int("multiple_of", multiple_of, least=1)
    rows, columns, cuts = _valid_anchors(batch)
    positions = batch.position_ids.numpy()[rows, columns]
    documents = batch.document_ids.numpy()[rows, columns]
    kept: list[Int64Array] = []
    for lo, hi in pairwise(cuts):
        sample_id = int(batch.sample_ids[documents[lo]])
        key = stream_key(seed, epoch, Purpose.ANCHORS, sample_id)
        kept.append(lo + _draw(positions[lo:hi], max_anchors, key))
    chosen = np.concatenate([np.empty(0, np.int64), *kept])
    return _in_rows(rows[chosen], columns[chosen], batch.input_ids.shape[0], multiple_of)


def draft_labels(batch: DraftBatch, anchors: Anchors, block_size: int) -> Labels:
    """The labels of every block; see :class:`Labels`.

    A label counts if its block exists, its token stands in the anchor's document, and the loss
    mask has it. A block that reaches past the end of its document keeps the labels it has.
    """
    num_rows, num_blocks = anchors.index.shape
    num_columns = batch.input_ids.shape[1]
    offsets = torch.arange(block_size)
    columns = anchors.index[:, :, None] + offsets
    inside = columns < num_columns
    flat = columns.clamp(max=num_columns - 1).flatten(1)

    def at_columns(values: torch.Tensor) -> torch.Tensor:
        return values.gather(1, flat).view(num_rows, num_blocks, block_size)

    documents = at_columns(batch.document_ids)
    same = inside & (documents == documents[:, :, :1])
    valid = same & at_columns(batch.loss_mask) & anchors.keep[:, :, None] & (offsets > 0)
    return Labels(at_columns(batch.input_ids), valid)


def draft_inputs(
    batch: DraftBatch, anchors: Anchors, block_size: int, mask_token_id: int
) -> torch.Tensor:
    """Token ids of all blocks: the anchor's token, then masks; shape (R, N * B), int64.

    A block that does not exist is masks alone.
    """
    num_rows, num_blocks = anchors.index.shape
    blocks = batch.input_ids.new_full((num_rows, num_blocks, block_size), mask_token_id)
    given = batch.input_ids.gather(1, anchors.index)
    blocks[:, :, 0] = torch.where(anchors.keep, given, blocks[:, :, 0])
    return blocks.flatten(1)


def _valid_anchors(batch: DraftBatch) -> tuple[Int64Array, Int64Array, list[int]]:
    """Rows and columns of all valid anchors, in reading order, and where each document's begin."""
    loss_mask = batch.loss_mask.numpy()
    documents = batch.document_ids.numpy()
    first, second = documents[:, :-1], documents[:, 1:]
    valid = loss_mask[:, :-1] & loss_mask[:, 1:] & (first == second) & (first >= 0)
    rows, columns = np.nonzero(valid)
    # A document is one run of columns of one row, so its anchors follow each other.
    changes = np.flatnonzero(np.diff(documents[rows, columns])) + 1
    return rows, columns, [0, *changes.tolist(), rows.size] if rows.size else []


def _draw(positions: Int64Array, max_anchors: int, key: int) -> Int64Array:
    """Which of a document's valid positions win, ascending."""
    if positions.size <= max_anchors:
        return np.arange(positions.size)
    from lengthwise.core.kernels.random import mix_at

    words = np.empty(positions.size, np.uint64)
    mix_at(positions, np.uint64(key), words)
    return np.sort(np.argpartition(words, max_anchors - 1)[:max_anchors])


def _in_rows(rows: Int64Array, columns: Int64Array, num_rows: int, multiple_of: int) -> Anchors:
    """Chosen columns, in reading order, as one table with a row each."""
    counts = np.bincount(rows, minlength=num_rows)
    width = max(1, int(counts.max()))
    places = np.arange(rows.size) - np.repeat(np.cumsum(counts) - counts, counts)
    index = np.zeros((num_rows, -(-width // multiple_of) * multiple_of), np.int64)
    keep = np.zeros(index.shape, np.bool_)
    index[rows, places], keep[rows, places] = columns, True
    return Anchors(torch.from_numpy(index), torch.from_numpy(keep))
