"""Streams for tests, and runs over them."""

from dataclasses import dataclass

from torch.utils.data import IterableDataset

from lengthwise.loader.streaming import StreamingBucketBatcher


@dataclass(frozen=True)
class Sample:
    """A sample that can be told from all others."""

    number: int
    length: int


def samples_of(lengths):
    return [Sample(number, length) for number, length in enumerate(lengths)]


def batcher_of(source, **options):
    if isinstance(source, list) and source and isinstance(source[0], int):
        source = samples_of(source)
    return StreamingBucketBatcher(source, "length", **options)


def numbers(batch):
    return [sample.number for sample in batch]


def run(batcher):
    """The batches of one pass as lists of numbers."""
    return [numbers(batch) for batch in batcher]


class StatefulStream(IterableDataset):
    """A data set that can go on from any place; counts what it had to make."""

    def __init__(self, lengths, reshuffle=False):
        self.lengths, self.reshuffle = lengths, reshuffle
        self.epoch = self.place = self.num_made = 0
        self.start = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        self.place, self.start = self.start, 0
        samples = samples_of(self.lengths)
        if self.reshuffle and samples:
            turn = self.epoch % len(samples)
            samples = samples[turn:] + samples[:turn]
        while self.place < len(samples):
            self.place += 1
            self.num_made += 1
            yield samples[self.place - 1]

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.start = state["place"]
