"""Where the drafter's blocks begin, what they are given and what they are to predict."""

from __future__ import annotations

from dataclasses import dataclass
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
    """The columns at which blocks begin, N a row.

    Attributes:
        index: columns, ascending in each row, 0 where there is no block; shape (R, N), int64.
        keep: where there is a block; shape (R, N), bool. N is at least 1, so that a batch without
            any valid anchor goes the same way through the model as every other.
    """

    index: torch.Tensor
    keep: torch.Tensor

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Anchors:
        """The anchors on a device."""
        return Anchors(
            self.index.to(device, non_blocking=non_blocking),
            self.keep.to(device, non_blocking=non_blocking),
        )


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
        batch: on any device; the draw is on the CPU.
        max_anchors: the most anchors of a document.
        seed: the run's seed, any integer.
        epoch: counted from 0.
        multiple_of: round N up to a multiple of this, for few shapes.

    Returns:
        Anchors on the CPU.
    """
    require_int("max_anchors", max_anchors, least=1)
    require_int("multiple_of", multiple_of, least=1)
    raise NotImplementedError


def draft_labels(batch: DraftBatch, anchors: Anchors, block_size: int) -> Labels:
    """The labels of every block; see :class:`Labels`.

    A label counts if its block exists, its token stands in the anchor's document, and the loss
    mask has it. A block that reaches past the end of its document keeps the labels it has.
    """
    raise NotImplementedError


def draft_inputs(
    batch: DraftBatch, anchors: Anchors, block_size: int, mask_token_id: int
) -> torch.Tensor:
    """Token ids of all blocks: the anchor's token, then masks; shape (R, N * B), int64."""
    raise NotImplementedError
