"""Batches of like lengths from a stream, whose lengths nobody knows beforehand.

python examples/05_stream.py
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from torch.utils.data import DataLoader

from lengthwise.loader import StreamingBucketBatcher
from tiny_language_model import COLLATE, samples

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_TOKENS = 4096


def documents(epoch: int) -> Iterator[dict[str, list[int]]]:
    """Functions of the standard library, from another place on in every epoch."""
    rows = samples(2_000)
    start = 700 * epoch % len(rows)
    yield from rows[start:] + rows[:start]


def batcher() -> StreamingBucketBatcher:
    """A buffer of 512 samples is what is looked at together."""
    return StreamingBucketBatcher(documents, "input_ids", max_tokens=MAX_TOKENS, buffer_samples=512)


def main() -> None:
    """One pass, then a stop and going on."""
    stream = batcher()
    sizes = []
    for batch in DataLoader(stream, batch_size=None, collate_fn=COLLATE):
        assert batch["input_ids"].numel() <= MAX_TOKENS
        sizes.append(len(batch["input_ids"]))
    print(f"{len(sizes)} batches, {stream.stats.efficiency:.1%} of the tokens are real")

    first = batcher()
    begun = [len(batch) for batch in islice(first, 10)]
    resumed = batcher()
    resumed.load_state_dict(first.state_dict())
    assert begun + [len(batch) for batch in resumed] == sizes
    print("stopped after 10 batches and went on: the same batches")


if __name__ == "__main__":
    main()
