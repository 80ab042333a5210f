"""Lhotse's DynamicBucketingSampler, as icefall's recipes set it."""

from __future__ import annotations

from lhotse import CutSet, MonoCut
from lhotse.dataset import DynamicBucketingSampler

from peers.case import About, Reading


def about():
    """What it promises."""
    return About(
        package="lhotse",
        settings="num_buckets=30, buffer_size=60,000, shuffle_buffer_size=150,000 (added to the "
        "buffer since 1.20), shuffle=True, drop_last=True; a token is a second",
        source="icefall, egs/librispeech/ASR/tdnn_lstm_ctc/asr_datamodule.py",
        dealing="drop_last=True drops the last step that is not complete",
        resume="state",
        leaves_out="what is left in buckets at the end (drop_last=True)",
    )


def prepare(lengths):
    """A cut a sample, its duration the number of tokens."""
    return CutSet.from_cuts(
        MonoCut(id=str(index), start=0, duration=float(length), channel=0)
        for index, length in enumerate(lengths.tolist())
    ).to_eager()


class Noting(DynamicBucketingSampler):
    """Notes every batch that it forms: each rank forms those of all ranks and keeps its own."""

    def _next_batch(self):
        batch = super()._next_batch()
        self.formed.append([int(cut.id) for cut in batch])
        return batch


def whole_steps(sampler):
    """The batches of all ranks, step after step."""
    sampler.formed = []
    for _ in sampler:
        yield from sampler.formed
        sampler.formed.clear()


def make(cuts, case, replica):
    """The sampler of rank 0."""
    sampler = Noting(
        cuts,
        max_duration=case.max_tokens,
        max_cuts=case.max_batch_size,
        num_buckets=30,
        buffer_size=30 * 2000,
        shuffle_buffer_size=30 * 5000,
        shuffle=True,
        drop_last=True,
        seed=case.seed,
        world_size=replica.num_replicas,
        rank=0,
    )
    sampler.formed = []  # loading a state forms batches too
    return Reading(sampler, whole_steps)
