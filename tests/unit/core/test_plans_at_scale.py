"""What plans of fixed sizes cost at any size: bytes and look-ups are counted, not seconds."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner
from lengthwise.core.resharding import Segment, deal_rest
from lengthwise.errors import PlanMismatchError

LIMITS = BatchLimits(16_384, 64)
FIXED = BatchingConfig(limits=LIMITS, boundaries=(0, 300, 600, 1001), batch_sizing="fixed")
LOCKSTEP = replace(FIXED, balance="cost", accumulation_steps=2)


def lengths(count):
    """Of 1 to 1,000 tokens, two bytes each, well mixed; from no generator."""
    return (np.arange(count) * 2_654_435_761 % 2**32 % 1000 + 1).astype(np.uint16)


def traced(function):
    """What a call returns, and the bytes that it took at most, above what there was."""
    tracemalloc.start()
    try:
        result = function()
        return result, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture(scope="module")
def planner():
    return Planner(lengths(2_000_000), FIXED, num_replicas=8)


@pytest.mark.parametrize("shards", [1, 3])
def test_set_up_takes_two_bytes_a_sample_and_a_constant(shards):
    """Of three million samples more, 6 MB more: the index. One int64 array would be 24 MB.

    Tables of blocks and groups are below a hundredth of a byte a sample. While it is set up, parts
    of 2 MB are read; how many are held does not depend on the number of samples.
    """
    small, large = (np.array_split(lengths(count), shards) for count in (1_000_000, 4_000_000))
    Planner(small, FIXED, num_threads=1)  # compiled or loaded now
    (first, low), (second, high) = (
        traced(lambda given=given: Planner(given, FIXED, num_threads=1)) for given in (small, large)
    )
    assert second.prepared.words.nbytes == 8_000_000
    assert high - low < 2.01 * 3_000_000 + 100_000
    index = second.prepared.index
    assert index.blocks.nbytes + index.shards.nbytes < 0.01 * 4_000_000
    assert first.prepared.words.nbytes == 2_000_000


def test_no_batch_looks_at_a_length():
    """So pages of mapped lengths are read at set-up and never again: they may be gone."""
    given = lengths(100_000)
    planner = Planner(given, FIXED, num_replicas=4)
    before = [batch.tolist() for batch in planner.plan(3).for_rank(2)]
    given[:] = 1
    assert [batch.tolist() for batch in planner.plan(3).for_rank(2)] == before


@pytest.mark.parametrize("num_replicas", [1, 10_000])
def test_a_rank_and_its_batches_take_the_same_at_any_number_of_replicas(planner, num_replicas):
    """A view, an epoch's keys, and single batches: some kilobytes, of which none grow."""
    other = planner.with_replicas(num_replicas)
    other.plan(0).batch(0)

    def read():
        total = 0
        for epoch in range(3):
            own = other.plan(epoch).for_rank(num_replicas - 1)
            total += sum(own[step].size for step in range(0, len(own), max(1, len(own) // 5)))
        return total

    total, peak = traced(read)
    assert total > 0
    assert peak < 60_000


def test_equal_counts_for_ten_thousand_replicas(planner):
    """Batches are cut in two until ten thousand divide their number; every sample is there."""
    other = planner.with_replicas(10_000)
    plan = other.plan(1)
    assert plan.num_batches % 10_000 == 0
    assert 0 <= plan.num_batches - planner.plan(1).num_batches < 10_000
    assert other.prepared is planner.prepared
    seen = np.concatenate([plan.batch(index) for index in range(0, plan.num_batches, 97)])
    assert np.unique(seen).size == seen.size


@pytest.mark.parametrize("config", [FIXED, LOCKSTEP], ids=["stratified", "lockstep"])
def test_another_number_of_replicas_within_an_epoch_lays_out_nothing(config):
    """Two million samples are 8 MB of indices; what is done is skipped, the rest is looked up.

    What is looked at are four batches for each that is missing, at the end: 10,000 replicas, some
    hundred bytes each.
    """
    planner = Planner(lengths(2_000_000), config, num_replicas=10_000)
    done = [Segment(8, 3_000), Segment(6, 1_001)]
    deal_rest(planner, 0, done)
    rest, peak = traced(lambda: deal_rest(planner, 0, done))
    assert peak < 10_000 * 4 * 100
    assert len(rest.source) % 10_000 == 0
    whole = planner.with_replicas(8).plan(0)
    assert rest.source.batch(0).tolist() == whole.batch(8 * 3_000 + 6 * 1_001).tolist()


@pytest.mark.parametrize("config", [FIXED, LOCKSTEP], ids=["stratified", "lockstep"])
def test_after_any_changes_every_sample_is_seen_once(config):
    """Each part by itself, as the ranks of that part would: nothing twice, nothing lost."""
    planner = Planner(lengths(20_000), config)
    seen, done = [], []
    for num_replicas, num_steps in ((4, 31), (7, 20), (5, 9), (64, 2), (3, None)):
        own = planner.with_replicas(num_replicas)
        source = deal_rest(own, 2, done).source if done else own.plan(2).source
        assert len(source) % num_replicas == 0
        stop = len(source) if num_steps is None else num_replicas * num_steps
        seen += [source.batch(index) for index in range(stop)]
        if num_steps is not None:
            done.append(Segment(num_replicas, num_steps))
    assert np.sort(np.concatenate(seen)).tolist() == list(range(20_000))


def test_a_part_longer_than_the_epoch_is_refused():
    """It was another plan's."""
    planner = Planner(lengths(20_000), FIXED, num_replicas=2)
    with pytest.raises(PlanMismatchError, match="9,999 steps on 4 replicas were done, but"):
        deal_rest(planner, 0, [Segment(4, 9_999)])


def test_a_part_and_all_of_it_are_told_alike():
    """The table of single batches is cut from that of all."""
    plan = Planner(lengths(20_000), FIXED, num_replicas=2).plan(0)
    some = np.array([5, 0, 77])
    part, whole = plan.source.table(1, some), plan.batches.select(some)
    for name in ("sizes", "padded", "tokens"):
        assert getattr(part, name).tolist() == getattr(whole, name).tolist()
    assert [part.batch(i).tolist() for i in range(3)] == [whole.batch(i).tolist() for i in range(3)]
