"""From tokenised documents to samples with their target's features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from lengthwise.dflash.batch import Sample
from lengthwise.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from lengthwise.dflash.target.model import Target

    Row = Sequence[int] | npt.NDArray[np.integer] | torch.Tensor


def samples_of(
    target: Target,
    input_ids: Sequence[Row],
    loss_masks: Sequence[Row],
    sample_ids: Sequence[int],
    layer_ids: Sequence[int],
) -> list[Sample]:
    """Run documents through the target as one right-padded batch, and strip the padding.

    Args:
        target: the frozen target.
        input_ids: token ids of each document, T of them.
        loss_masks: 1 where a token counts in the loss, T of them.
        sample_ids: which sample of the data each document is; kept with its features.
        layer_ids: the tapped layers.

    Returns:
        One sample a document, in the order given. Features are (T, F), on the target's device,
        and hold no memory of the padded batch; tokens and masks stay on the CPU.

    Raises:
        DataError: lists of unequal length, an empty document, an id outside the vocabulary, or
            a mask that does not fit its document; the message names the sample.
    """
    counts = len(input_ids), len(loss_masks), len(sample_ids)
    if len(set(counts)) != 1 or not counts[0]:
        raise DataError(
            "input_ids, loss_masks and sample_ids must be one each a document, and not empty;"
            f" got {counts[0]}, {counts[1]} and {counts[2]}"
        )
    rows = [_row(ids).long().cpu() for ids in input_ids]
    masks = [_row(mask).bool().cpu() for mask in loss_masks]
    for ids, mask, sample_id in zip(rows, masks, sample_ids, strict=True):
        _check(target, ids, mask, sample_id)
    # Any id will do under the padding: 0 exists in every vocabulary.
    padded = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=0)
    lengths = torch.tensor([len(ids) for ids in rows])
    attention_mask = (torch.arange(padded.shape[1]) < lengths[:, None]).long()
    features = target.features(padded, attention_mask, layer_ids)
    return [
        Sample(
            sample_id=int(sample_id),
            input_ids=ids,
            loss_mask=mask,
            features=features[row, : len(ids)].clone(),
        )
        for row, (sample_id, ids, mask) in enumerate(zip(sample_ids, rows, masks, strict=True))
    ]


def _row(values: Row) -> torch.Tensor:
    return torch.as_tensor(np.asarray(values) if not isinstance(values, torch.Tensor) else values)


def _check(target: Target, ids: torch.Tensor, mask: torch.Tensor, sample_id: int) -> None:
    if ids.ndim != 1 or not len(ids):
        raise DataError(
            f"sample {sample_id}: input_ids must be a list of at least one token; got shape"
            f" {tuple(ids.shape)}"
        )
    if mask.shape != ids.shape:
        raise DataError(
            f"sample {sample_id}: loss_mask must be as long as input_ids, {len(ids)} tokens; got"
            f" shape {tuple(mask.shape)}"
        )
    target.ends.check_ids(ids, f"sample {sample_id}: input_ids")
