"""Which pages of the arena are free, and how many a plan needs.

The arena is cut into pages of a fixed number of tokens. A sample takes as many as it needs,
anywhere, so nothing fragments: while pages are free they can be used, and the arena's size is the
bound of all that waits between target and drafter.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

import numpy as np

from lengthwise.core.limits import require_int

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.core.limits import Int64Array
    from lengthwise.core.remix import RemixPlan


class PageAllocator:
    """Hands out pages and takes them back.

    Args:
        num_pages: of the arena.
        page_tokens: tokens of a page.

    Attributes:
        most_used: most pages that were ever out at once.
    """

    def __init__(self, num_pages: int, page_tokens: int) -> None:
        """All pages are free."""
        self.num_pages = require_int("num_pages", num_pages, least=1)
        self.page_tokens = require_int("page_tokens", page_tokens, least=1)
        # A heap: the lowest free pages are taken first, so that those of a sample mostly follow
        # each other, and are copied together.
        self._free = list(range(num_pages))
        self._out: set[int] = set()
        self.most_used = 0

    @property
    def num_free(self) -> int:
        """Pages that can be taken now."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Pages that are out."""
        return len(self._out)

    def needed(self, num_tokens: int) -> int:
        """Pages of a sample of ``num_tokens``."""
        return -(-num_tokens // self.page_tokens)

    def take(self, lengths: Sequence[int]) -> list[tuple[int, ...]] | None:
        """Pages for samples of so many tokens each; None, and none taken, if too few are free."""
        counts = list(map(self.needed, lengths))
        if sum(counts) > len(self._free):
            return None
        taken = [tuple(heappop(self._free) for _ in range(count)) for count in counts]
        for pages in taken:
            self._out.update(pages)
        self.most_used = max(self.most_used, len(self._out))
        return taken

    def give_back(self, pages: tuple[int, ...]) -> None:
        """Take pages back; each must be out."""
        for page in pages:
            self._out.remove(page)
            heappush(self._free, page)


def pages_needed(
    mixed: RemixPlan, lengths: Int64Array, page_tokens: int, prefetch_batches: int
) -> int:
    """Pages with which a plan can never come to a standstill.

    A step is sent out when all its samples have arrived; all batches up to its last one must then
    have found room, beside what the steps before have left behind in them. On top of the most of
    that there is room for ``prefetch_batches`` of the largest batches, so that targets run ahead.

    Args:
        mixed: an epoch's plan.
        lengths: tokens of every sample that the plan speaks of.
        page_tokens: tokens of a page.
        prefetch_batches: batches that may be under way or ready beyond the next step's.
    """
    pages = -(-np.asarray(lengths, np.int64) // page_tokens)
    arrivals = _sums(pages, mixed.arrivals.gather(np.arange(len(mixed.arrivals))))
    steps = _sums(pages, mixed.steps.gather(np.arange(mixed.num_steps)))
    entered = np.cumsum(arrivals)[mixed.batches_entered - 1]
    left = np.concatenate(([0], np.cumsum(steps)[:-1]))
    largest = np.sort(arrivals)[::-1][:prefetch_batches].sum()
    return int((entered - left).max()) + int(largest)


def _sums(pages: Int64Array, gathered: tuple[Int64Array, Int64Array]) -> Int64Array:
    samples, edges = gathered
    return np.add.reduceat(pages[samples], edges[:-1])
