"""Data sets, settings and replica counts that belong together, hostile ones included."""

from dataclasses import dataclass, replace

import numpy as np
from hypothesis import strategies as st

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits

STRATEGIES = ("pooled", "windowed", "bucketed", "sorted", "random")


@dataclass(frozen=True)
class Case:
    """What a plan is made from."""

    lengths: list[int]
    config: BatchingConfig
    num_replicas: int
    epoch: int

    def changed(self, **fields):
        """The same case with other settings."""
        return replace(self, config=replace(self.config, **fields))


def hostile_lengths(most=300):
    """One sample, equal ones, one giant, a heavy tail, two values, sorted, all different."""
    length = st.integers(1, most)
    count = st.integers(1, 120)
    return st.one_of(
        st.lists(length, min_size=1, max_size=120),
        length.map(lambda value: [value]),
        st.tuples(length, count).map(lambda pair: [pair[0]] * pair[1]),
        st.tuples(st.lists(st.integers(1, 10), max_size=60), st.just(most)).map(
            lambda pair: [*pair[0][:30], pair[1], *pair[0][30:]]
        ),
        st.tuples(count, st.integers(0, 2**32 - 1)).map(lambda pair: _heavy_tail(*pair, most)),
        st.tuples(length, length, st.lists(st.booleans(), min_size=1, max_size=80)).map(
            lambda triple: [triple[:2][choice] for choice in triple[2]]
        ),
        st.lists(length, min_size=1, max_size=80).map(sorted),
        st.tuples(st.integers(1, 100), count).map(
            lambda pair: list(range(pair[0], pair[0] + pair[1]))
        ),
        # A few long lists, to have many batches, windows and steps.
        st.tuples(st.integers(300, 1500), st.integers(0, 2**32 - 1)).map(
            lambda pair: _heavy_tail(*pair, most)
        ),
    )


def _heavy_tail(count, seed, most):
    values = 10 * np.random.default_rng(seed).pareto(1.0, count) + 1
    return np.minimum(values, most).astype(int).tolist()


@st.composite
def limits(draw, shortest, longest, *, fits_all):
    """Limits around the data: a budget below the longest length only where a policy handles it."""
    pad_to = draw(st.sampled_from([1, 1, 2, 8, 64]))
    least = -(-longest // pad_to) * pad_to
    if not fits_all:
        least = draw(st.integers(-(-shortest // pad_to), max(1, least // pad_to))) * pad_to
    max_tokens = draw(
        st.one_of(st.just(least), st.integers(least, 4 * least), st.integers(least, 40 * least))
    )
    return BatchLimits(
        max_tokens=max_tokens,
        max_batch_size=draw(st.sampled_from([None, None, 1, 2, 3, 7, 16, 64])),
        pad_to_multiple_of=pad_to,
        batch_size_multiple_of=draw(st.sampled_from([1, 1, 1, 2, 4, 8])),
    )


@st.composite
def buckets(draw, shortest, top, *, required):
    """Keyword arguments: boundaries that cover the data (edges may coincide with it), or a number.

    ``top`` is the longest length that batches are made of; some buckets stay empty.
    """
    kinds = ["boundaries", "boundaries", "num_buckets"] + ([] if required else ["none", "none"])
    kind = draw(st.sampled_from(kinds))
    if kind == "none":
        return {}
    if kind == "num_buckets":
        return {"num_buckets": draw(st.sampled_from([1, 2, 3, 6, 400]))}
    inside = draw(st.lists(st.integers(1, top + 20), max_size=6))
    ends = [draw(st.integers(0, min(shortest, top))), top + draw(st.integers(1, 50))]
    return {"boundaries": tuple(sorted({*inside, *ends} - set(range(ends[0]))))}


@st.composite
def cases(draw, strategies=STRATEGIES, *, sizings=("greedy", "fixed")):
    """A data set, a config that can exist, a replica count (now and then too large), an epoch."""
    lengths = draw(hostile_lengths())
    oversize = draw(st.sampled_from(["error", "error", "drop", "truncate", "single"]))
    shortest, longest = min(lengths), max(lengths)
    batch_limits = draw(limits(shortest, longest, fits_all=oversize == "error"))
    strategy = draw(st.sampled_from(strategies))
    fields = {}
    if strategy in ("bucketed", "windowed"):
        top = min(longest, batch_limits.longest_allowed)
        fields |= draw(buckets(shortest, top, required=strategy == "bucketed"))
    if strategy == "windowed":
        fields["window_size"] = draw(st.sampled_from([None, 1, 2, 5, 32, 10**6]))
    if strategy == "pooled":
        fields["target_efficiency"] = draw(st.sampled_from([None, 0.05, 0.7, 0.9, 0.999]))
    fixed = strategy in ("bucketed", "random") and draw(st.sampled_from(sizings)) == "fixed"
    has_buckets = "boundaries" in fields or "num_buckets" in fields
    if not fixed and draw(st.integers(0, 4)) == 0:
        fields["num_batches"] = draw(st.integers(1, len(lengths) + 2))
    orders = ["shuffled", "stratified"] + ([] if fixed else ["balanced", "balanced"])
    config = BatchingConfig(
        limits=batch_limits,
        strategy=strategy,
        batch_sizing="fixed" if fixed else "greedy",
        order=draw(st.sampled_from([None, *orders])),
        balance=draw(st.sampled_from([None, "none", "cost"] + ["bucket"] * has_buckets)),
        accumulation_steps=draw(st.sampled_from([1, 1, 2, 3, 8, 1000])),
        pad_to_boundary=has_buckets and draw(st.booleans()),
        oversize=oversize,
        drop_last=draw(st.booleans()),
        seed=draw(st.integers(-(2**63), 2**64 - 1)),
        **fields,
    )
    replicas = draw(st.one_of(st.integers(1, 9), st.integers(1, 2 * len(lengths) + 1)))
    return Case(lengths, config, replicas, draw(st.sampled_from([0, 1, 7, 10**9])))
