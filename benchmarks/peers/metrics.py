"""What batches are worth, from the lists of sample numbers alone; plain numpy.

Every peer's batches and ours go through this code, which shares nothing with lengthwise. Its
numbers are those of ``lengthwise.core.diversity`` by definition, which a test compares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Flat:
    """Batches laid end to end."""

    samples: np.ndarray
    """Sample numbers, int64, batch after batch."""
    sizes: np.ndarray
    """Samples of each batch, at least 1."""

    @classmethod
    def of(cls, batches):
        """From lists of sample numbers; an empty batch is an error of the adapter."""
        sizes = np.array([len(batch) for batch in batches], np.int64)
        if not sizes.size or sizes.min() < 1:
            raise ValueError(f"{np.count_nonzero(sizes < 1)} of {sizes.size} batches are empty")
        return cls(np.concatenate([np.asarray(batch, np.int64) for batch in batches]), sizes)

    @property
    def starts(self):
        """Where each batch begins."""
        return np.cumsum(self.sizes) - self.sizes

    @property
    def batch_of(self):
        """The batch of each entry of ``samples``."""
        return np.repeat(np.arange(self.sizes.size), self.sizes)

    def sums(self, values):
        """Sum of a per-sample quantity over each batch."""
        return np.add.reduceat(values[self.samples], self.starts)

    def padded_tokens(self, lengths, packed=False):
        """Tokens of each batch as the model sees it."""
        if packed:
            return self.sums(lengths)
        return self.sizes * np.maximum.reduceat(lengths[self.samples], self.starts)

    def attention_costs(self, lengths, packed=False):
        """Cost of each batch where attention's square counts, as HF's batch rebalance has it.

        ``n m + 0.001 n m**2`` for ``n`` rows of ``m`` tokens; a packed sample attends to itself.
        """
        if packed:
            return self.sums(lengths + 0.001 * lengths**2)
        longest = np.maximum.reduceat(lengths[self.samples], self.starts)
        return self.sizes * (longest + 0.001 * longest**2)


def padding(flat, lengths, max_tokens, *, packed=False):
    """How full batches are, and how many are larger than allowed and by how much."""
    real, padded = flat.sums(lengths), flat.padded_tokens(lengths, packed)
    over = padded > max_tokens
    return {
        "num_batches": flat.sizes.size,
        "efficiency": float(real.sum() / padded.sum()),
        "utilization": float(real.sum() / (max_tokens * flat.sizes.size)),
        "over_share": float(over.mean()),
        "over_worst": float(padded.max() / max_tokens) if over.any() else 1.0,
        "largest_batch": int(flat.sizes.max()),
    }


def coverage(flat, num_samples):
    """Samples that an epoch leaves out, and entries beyond each sample's first."""
    seen = np.bincount(flat.samples, minlength=num_samples)
    if seen.size > num_samples:
        raise ValueError(f"sample {flat.samples.max()} of {num_samples} was yielded")
    return {"left_out": int((seen == 0).sum()), "repeated": int(np.maximum(seen - 1, 0).sum())}


def repeat_rate(flat, following):
    """Share of the pairs that share a batch in the first epoch and again in the next."""
    slots = int(max(flat.samples.max(), following.samples.max())) + 1
    labels = np.full(slots, -1, np.int64)
    labels[following.samples] = following.batch_of
    theirs = labels[flat.samples]
    kept = theirs >= 0
    together = flat.batch_of[kept] * following.sizes.size + theirs[kept]
    _, counts = np.unique(together, return_counts=True)
    num_pairs = int((flat.sizes * (flat.sizes - 1) // 2).sum())
    return int((counts * (counts - 1) // 2).sum()) / num_pairs if num_pairs else 0.0


def order_correlation(flat, lengths):
    """Pearson's correlation of mean length from one batch to the next."""
    means = flat.sums(lengths) / flat.sizes
    if means.size < 3 or np.ptp(means[:-1]) == 0 or np.ptp(means[1:]) == 0:
        return 0.0
    return float(np.corrcoef(means[:-1], means[1:])[0, 1])


def design_effect(flat, lengths, batches_per_step):
    """Noise of a step's length against as many samples drawn at random (Kish, 1965)."""
    seen = lengths[flat.samples].astype(np.float64)
    if seen.std() == 0:
        return 0.0
    steps = max(1, flat.sizes.size // batches_per_step)
    count = min(flat.sizes.size, steps * batches_per_step)
    edges = np.arange(0, count, batches_per_step)
    sums = np.add.reduceat(flat.sums(lengths)[:count].astype(np.float64), edges)
    sizes = np.add.reduceat(flat.sizes[:count], edges)
    return float(((sums - seen.mean() * sizes) ** 2).mean() / (seen.var() * sizes.mean()))


def replica_balance(ranks):
    """Mean over steps of the largest over the mean cost of the batches that run together.

    Args:
        ranks: for each replica, the cost of each of its batches. Steps that not all replicas have
            are left out.
    """
    num_steps = min(map(len, ranks))
    costs = np.array([rank[:num_steps] for rank in ranks], np.float64)
    return float((costs.max(axis=0) / costs.mean(axis=0)).mean()) if num_steps else None
