"""One micro-batch of drafter training: from a batch and its anchors to sums with a gradient."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from lengthwise.dflash.anchors import draft_inputs, draft_labels
from lengthwise.dflash.attention import BlockAttention
from lengthwise.dflash.length_classes import length_classes
from lengthwise.dflash.loss import draft_loss

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

    from lengthwise.dflash.anchors import Anchors
    from lengthwise.dflash.attention import Backend
    from lengthwise.dflash.batch import DraftBatch
    from lengthwise.dflash.config import DrafterConfig
    from lengthwise.dflash.loss import LossConfig
    from lengthwise.dflash.metrics import DraftSums
    from lengthwise.dflash.target.ends import FrozenEnds


def draft_step(
    drafter: nn.Module,
    ends: FrozenEnds,
    batch: DraftBatch,
    anchors: Anchors,
    loss_config: LossConfig,
    *,
    backend: Backend = "auto",
    boundaries: Sequence[int] | None = None,
) -> DraftSums:
    """Run the drafter on all blocks of a batch and add up the loss.

    A batch without any valid anchor takes the same way with one block that does not count: its
    sums are zero and still carry a (zero) gradient for every parameter, in training and evaluation
    alike. So ranks never disagree on which collective comes next.

    Args:
        drafter: a Drafter, or a module around one (compiled, or with it as ``.module``).
        ends: the target's embedding and head.
        batch: its features on the drafter's device.
        anchors: of this batch.
        loss_config: weighting and chunk size.
        backend: attention's.
        boundaries: K + 1 rising lengths, for sums by the length of documents; None for none.

    Returns:
        Sums of this micro-batch. Call ``backward`` on ``loss_sum``, or hand them to
        :meth:`~lengthwise.dflash.update.Update.backward`, and divide gradients by the
        ``weight_sum`` of the whole step: a mean of means would weight small batches too much.
    """
    config = _config(drafter)
    device = batch.features.device
    attention = BlockAttention(batch, anchors, config, backend, device=device)
    input_ids = draft_inputs(batch, anchors, config.block_size, config.mask_token_id)
    embeddings = ends.embed(input_ids.to(device, non_blocking=True))
    hidden = drafter(embeddings, batch.features, attention)
    labels = draft_labels(batch, anchors, config.block_size)
    classes = None if boundaries is None else length_classes(batch, anchors, boundaries)
    return draft_loss(hidden, labels, ends, loss_config, classes)


def _config(drafter: nn.Module) -> DrafterConfig:
    inner = getattr(drafter, "module", drafter)
    return cast("DrafterConfig", inner.config)
