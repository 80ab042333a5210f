"""SpeechBrain's DynamicBatchSampler, as its LibriSpeech recipes set it."""

from __future__ import annotations

import sys
import types
from importlib.machinery import ModuleSpec

from peers.case import About, skip_package_code

skip_package_code("speechbrain", "speechbrain.dataio", "speechbrain.utils")
# It loads torchaudio for reading audio, which the sampler has no use for.
torchaudio = types.ModuleType("torchaudio")
torchaudio.__spec__ = ModuleSpec("torchaudio", None)
sys.modules.setdefault("torchaudio", torchaudio)
from speechbrain.dataio.sampler import DynamicBatchSampler  # noqa: E402 - see above


def about():
    """What it promises."""
    return About(
        package="speechbrain",
        settings='num_buckets=200, shuffle=True, batch_ordering="random"',
        source="recipes/LibriSpeech/ASR/transformer/hparams/conformer_large.yaml",
        dealing="DistributedSamplerWrapper repeats batches until the replicas are even",
    )


def prepare(lengths):
    """Lengths as a list."""
    return lengths.tolist()


def make(lengths, case, _replica):
    """The sampler; batches of the next epoch are formed when one ends."""
    return DynamicBatchSampler(
        range(len(lengths)),
        case.max_tokens,
        num_buckets=200,
        shuffle=True,
        batch_ordering="random",
        max_batch_ex=case.max_batch_size,
        lengths_list=lengths,
        seed=case.seed,
    )
