"""All that a plan promises, recomputed from the raw lengths with lists and Python integers."""

from collections import defaultdict
from itertools import pairwise


def round_up(length, multiple):
    return (length + multiple - 1) // multiple * multiple


class Expected:
    """What the rules say about a data set: what each sample counts as, buckets, padding."""

    def __init__(self, lengths, config):
        limits = config.limits
        self.limits, self.config = limits, config
        self.most = limits.max_tokens // limits.pad_to_multiple_of * limits.pad_to_multiple_of
        self.oversize = {i for i, length in enumerate(lengths) if length > self.most}
        cut = config.oversize == "truncate"
        self.counted = [min(length, self.most) if cut else length for length in lengths]
        dropped = self.oversize if config.oversize == "drop" else set()
        self.plannable = set(range(len(lengths))) - dropped
        self.alone = self.oversize if config.oversize == "single" else set()
        self.tops = defaultdict(int)
        for i in self.plannable - self.alone:
            bucket = self.bucket_of(i)
            self.tops[bucket] = max(self.tops[bucket], self.counted[i])

    def bucket_of(self, sample):
        """The bucket's number; None for a sample that only the policy ``single`` lets through."""
        if sample in self.alone:
            return None
        edges = self.config.boundaries
        if edges is None:
            return 0
        return sum(edge <= self.counted[sample] for edge in edges)

    def padded(self, batch):
        """What each sample of a batch is padded to: the longest, or the longest of its bucket."""
        longest = max(self.counted[i] for i in batch)
        if self.config.pad_to_boundary and not self.alone.intersection(batch):
            longest = self.tops[self.bucket_of(batch[0])]
        return round_up(longest, self.limits.pad_to_multiple_of)

    def full_size(self, batch):
        """Samples of a full batch of fixed sizing in this batch's bucket."""
        limits = self.limits
        if self.alone.intersection(batch):
            return 1
        top = self.tops[self.bucket_of(batch[0])]
        size = limits.max_tokens // round_up(top, limits.pad_to_multiple_of)
        size = min(size, limits.max_batch_size or size)
        multiple = limits.batch_size_multiple_of
        return size - size % multiple if size >= multiple else size


def check_plan(plan, lengths, config, num_replicas):
    """Assert guarantees 1, 2, 4 and 7 of a plan, and that its parts agree with each other."""
    expected = Expected(lengths, plan.config)
    batches = [batch.tolist() for batch in plan]
    check_batches(batches, expected)
    check_coverage(batches, plan.stats, expected, len(lengths))
    check_counts(plan, batches, num_replicas)
    check_totals(plan, batches, expected)
    check_kind(batches, plan, expected)
    if config.num_buckets is None or expected.plannable == expected.alone:
        assert plan.config == config
    else:
        assert plan.config.num_buckets is None


def check_batches(batches, expected):
    """The limits of every batch; the only exception is one oversize sample alone."""
    limits = expected.limits
    for batch in batches:
        size, multiple = len(batch), limits.batch_size_multiple_of
        assert size >= 1
        assert size < multiple or size % multiple == 0
        assert limits.max_batch_size is None or size <= limits.max_batch_size
        if expected.alone.intersection(batch):
            assert size == 1
        else:
            assert size * expected.padded(batch) <= limits.max_tokens


def check_coverage(batches, stats, expected, num_samples):
    """Exactly once each; what is missing is counted by reason, and the counts add up."""
    planned = [sample for batch in batches for sample in batch]
    assert len(set(planned)) == len(planned)
    assert set(planned) <= expected.plannable
    policy, config = expected.config.oversize, expected.config
    assert stats.num_oversize == len(expected.oversize)
    assert stats.num_dropped_oversize == (len(expected.oversize) if policy == "drop" else 0)
    assert stats.num_truncated == (len(expected.oversize) if policy == "truncate" else 0)
    assert stats.num_dropped_samples == len(expected.plannable) - len(planned)
    assert stats.num_samples == len(planned)
    assert stats.num_samples + stats.num_left_out == num_samples
    if config.drop_last and config.num_batches is None:
        assert stats.num_split_batches == 0
        assert (stats.num_dropped_batches > 0) == (stats.num_dropped_samples > 0)
    else:
        assert stats.num_left_out == stats.num_dropped_oversize
        assert stats.num_dropped_batches == 0


def check_counts(plan, batches, num_replicas):
    """As many batches for every replica, and what is yielded is what ``len`` says."""
    assert plan.num_replicas == num_replicas
    assert plan.num_batches == plan.num_steps * num_replicas == len(plan) == len(batches)
    assert plan.num_steps >= 1
    assert plan.stats.num_batches == plan.num_batches
    assert plan.stats.num_steps == plan.num_steps
    if plan.config.num_batches is None:
        assert plan.stats.num_split_batches < num_replicas
    else:
        assert plan.num_batches - num_replicas < plan.config.num_batches <= plan.num_batches
    for rank in range(num_replicas):
        own = plan.for_rank(rank)
        assert len(own) == plan.num_steps
        assert [batch.tolist() for batch in own] == batches[rank::num_replicas]


def check_totals(plan, batches, expected):
    """Flat arrays say the same as single batches, and totals are exact integers."""
    flat = plan.batches
    order = flat.order.tolist()
    real = padded = 0
    for number, batch in enumerate(batches):
        start, size = int(flat.starts[number]), int(flat.sizes[number])
        assert order[start : start + size] == batch
        assert plan.batch(number).tolist() == batch
        assert int(flat.padded[number]) == expected.padded(batch)
        tokens = sum(expected.counted[i] for i in batch)
        assert int(flat.tokens[number]) == tokens
        real += tokens
        padded += size * expected.padded(batch)
    stats = plan.stats
    assert (stats.real_tokens, stats.padded_tokens) == (real, padded)
    assert type(stats.real_tokens) is type(stats.padded_tokens) is int
    assert stats.efficiency == real / padded
    assert stats.utilization == real / (len(batches) * expected.limits.max_tokens)


def check_kind(batches, plan, expected):
    """What the strategy or the sizing adds to the promises of all."""
    config, stats = plan.config, plan.stats
    for batch in batches:
        assert len({expected.bucket_of(i) for i in batch}) == 1
    if config.strategy == "sorted":
        spans = sorted(_span(batch, expected.counted) for batch in batches)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
    if config.batch_sizing == "fixed":
        groups = {expected.bucket_of(i) for i in expected.plannable}
        short = [batch for batch in batches if len(batch) != expected.full_size(batch)]
        assert all(len(batch) <= expected.full_size(batch) for batch in batches)
        # A rest may be one whole multiple and what remains of it; every split adds two at most.
        assert len(short) <= 2 * len(groups) + 2 * stats.num_split_batches
        if config.drop_last:
            assert not short


def _span(batch, counted):
    return min(counted[i] for i in batch), max(counted[i] for i in batch)
