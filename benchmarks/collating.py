"""Collators beside transformers', on batches of the run's shape, in one process and one run."""

from __future__ import annotations

from importlib.metadata import version

import numpy as np
import torch
from workloads import RUN_LIMITS, run_lengths, summary, times

import lengthwise as lw
from lengthwise.loader.pack import PackCollator
from lengthwise.loader.pad import PadCollator

KINDS = {"lists": np.ndarray.tolist, "arrays": np.asarray, "tensors": torch.from_numpy}
VOCABULARY = 150_000
NUM_BATCHES = 8
"""Spread over the lengths' whole range."""


def measure(quick):
    """Ratios of seconds for lists, numpy arrays and tensors of token ids."""
    torch.set_num_threads(1)
    batches = _batches()
    repeats = 3 if quick else 15
    rows = {"transformers": version("transformers"), "torch": version("torch")}
    pairs = {"pad": (PadCollator(0), _padding()), "pack": (PackCollator(), _flattening())}
    for kind, make in KINDS.items():
        samples = [[{"input_ids": make(row)} for row in rows_of] for rows_of in batches]
        for name, (ours, theirs) in pairs.items():
            # They may change a sample's dict, so both get fresh ones.
            own = summary(times(lambda c=ours, s=samples: _run(c, s), repeats))
            other = summary(times(lambda c=theirs, s=samples: _run(c, s), repeats))
            ratio = other["median_seconds"] / own["median_seconds"]
            rows[f"{name}_{kind}"] = {"ours": own, "transformers": other, "ratio": ratio}
            print(
                f"{name:4} {kind:8} {own['median_seconds'] / len(samples) * 1e3:7.3f} ms a batch, "
                f"transformers {other['median_seconds'] / len(samples) * 1e3:7.2f} ms: "
                f"{ratio:.1f} x as fast"
            )
    return rows


def _run(collate, batches):
    for samples in batches:
        collate([dict(sample) for sample in samples])


def _batches():
    """Token ids of batches that the default plan makes, from the shortest to the longest."""
    lengths = run_lengths(100_000)
    plan = lw.build_plan(lengths, lw.BatchingConfig(limits=RUN_LIMITS))
    by_length = np.argsort(plan.batches.padded)
    places = by_length[np.linspace(0, by_length.size - 1, NUM_BATCHES).astype(int)]
    rng = np.random.default_rng(0)
    return [[rng.integers(0, VOCABULARY, lengths[i]) for i in plan.batch(p)] for p in places]


def _padding():
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast

    words = Tokenizer(WordLevel({"[PAD]": 0, "[UNK]": 1}, unk_token="[UNK]"))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, pad_token="[PAD]")
    return DataCollatorWithPadding(tokenizer)


def _flattening():
    from transformers import DataCollatorWithFlattening

    return DataCollatorWithFlattening(return_flash_attn_kwargs=True)
