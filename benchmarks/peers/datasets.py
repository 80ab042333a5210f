"""The lengths that peers are compared on, and the limits of a batch for each."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
from workloads import PUBLISHED, RUN_LIMITS, run_lengths

from peers.case import Case

EXAMPLES = Path(__file__).parents[2] / "examples"
NUM_SAMPLES, NUM_GENERATED, NUM_QUICK = 100_000, 50_000, 3000
"""Pure-Python peers take up to a minute for so many."""
LONGEST_FUNCTION = 8192


def run(num_samples):
    """Drawn from the run's distribution: six published buckets, a heavy tail."""
    lengths = run_lengths(num_samples)
    return Case(lengths, RUN_LIMITS.max_tokens, RUN_LIMITS.max_batch_size, PUBLISHED)


def stdlib(num_samples):
    """Bytes of the functions of this Python's standard library, cut at 8,192; real data."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    from stdlib_corpus import functions_of, source_files, standard_library

    lengths = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old code about its own escapes
        for path in source_files(standard_library()):
            try:
                found = list(functions_of(path.read_text(encoding="utf-8")))
            except (SyntaxError, ValueError):
                continue
            lengths += [min(LONGEST_FUNCTION, len(text.encode())) for _, text in found]
            if num_samples == NUM_QUICK and len(lengths) > NUM_QUICK:
                break
    lengths = np.random.default_rng(0).permutation(np.array(lengths, np.int64))
    return Case(lengths[:num_samples], 32_768, 64)


def speech(num_samples):
    """Frames, bimodal: most utterances near a limit of the segmenter, the rest spread below."""
    rng = np.random.default_rng(1)
    near = rng.normal(1430, 150, num_samples)
    spread = rng.uniform(150, 1300, num_samples)
    lengths = np.where(rng.random(num_samples) < 0.72, near, spread)
    return Case(np.clip(lengths, 120, 1750).astype(np.int64), 60_000, 128)


def protein(num_samples):
    """Residues, lognormal about a mean near 360, cut at 2,048."""
    lengths = np.random.default_rng(2).lognormal(5.7, 0.6, num_samples)
    return Case(np.clip(lengths, 30, 2048).astype(np.int64), 32_768, 256)


def chat(num_samples):
    """Tokens, lognormal with a long tail: half of the samples are below 245, cut at 4,096."""
    lengths = np.random.default_rng(3).lognormal(5.5, 1.0, num_samples)
    return Case(np.clip(lengths, 16, 4096).astype(np.int64), 16_384, 128)


DATASETS = {"run": run, "stdlib": stdlib, "speech": speech, "protein": protein, "chat": chat}
"""Every one but the standard library's and the run's is generated and stands for no real corpus."""


def load(name, *, quick=False):
    """A data set's lengths and limits by its name."""
    if quick:
        return DATASETS[name](NUM_QUICK)
    return DATASETS[name](NUM_SAMPLES if name in {"run", "stdlib"} else NUM_GENERATED)
