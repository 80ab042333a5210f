"""Which columns of the context the blocks of a batch may see, as ranges."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from typing import Self


@dataclass(frozen=True, slots=True, eq=False)
class Visibility:
    """The context that each block sees: columns from ``first``, before ``stop``; on the CPU.

    A document is one run of columns, so that "same document, before the anchor" is a range. Of a
    block that is not kept the range is empty.

    Attributes:
        first: first column of the anchor's document, shape (R, N), int64.
        stop: the anchor's column, shape (R, N), int64.
        block_size: tokens of a block.
        num_columns: columns of a row, S.
        window: positions that a query of a sliding layer sees, itself included; None: all.
    """

    first: torch.Tensor
    stop: torch.Tensor
    block_size: int
    num_columns: int
    window: int | None = None

    @classmethod
    def of(
        cls,
        document_ids: torch.Tensor,
        index: torch.Tensor,
        keep: torch.Tensor,
        block_size: int,
    ) -> Self:
        """Find each anchor's document.

        Args:
            document_ids: shape (R, S), int64, -1 where padded.
            index: anchor columns, shape (R, N), int64.
            keep: which of them are real, shape (R, N), bool.
            block_size: tokens of a block.

        Raises:
            ConfigError: anchors of other rows, outside of them, or in the padding.
        """
        rows, columns = document_ids.shape
        if index.shape != keep.shape or index.ndim != 2 or len(index) != rows:
            raise ConfigError(
                f"anchors must have one row for each of the batch's {rows} rows, got index "
                f"{tuple(index.shape)} and keep {tuple(keep.shape)}"
            )
        inside = (index >= 0) & (index < columns)
        if not bool(inside.all()) or bool((document_ids.gather(1, index)[keep] < 0).any()):
            raise ConfigError(
                f"anchors must be columns of a document, from 0 to {columns - 1} and not in the "
                "padding; they were drawn from another batch"
            )
        begins = torch.ones_like(document_ids, dtype=torch.bool)
        begins[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
        starts = torch.where(begins, torch.arange(columns), 0).cummax(dim=1).values
        nothing = torch.zeros_like(index)
        return cls(
            first=torch.where(keep, starts.gather(1, index), nothing),
            stop=torch.where(keep, index, nothing),
            block_size=block_size,
            num_columns=columns,
        )

    def begin(self, place: int) -> torch.Tensor:
        """First column that the query at ``place`` of each block sees, shape (R, N).

        Where it is ``stop`` or more, the query sees no context.
        """
        if self.window is None:
            return self.first
        return torch.maximum(self.first, self.stop + place - self.window + 1)


def own_block_mask(size: int, window: int | None, device: torch.device) -> torch.Tensor:
    """What a block's tokens see of their block, shape (size, size), bool: query, key.

    Everything; in a sliding layer, what is not after them and inside the window.
    """
    if window is None:
        return torch.ones(size, size, dtype=torch.bool, device=device)
    places = torch.arange(size, device=device)
    behind = places[:, None] - places
    return (behind >= 0) & (behind < window)
