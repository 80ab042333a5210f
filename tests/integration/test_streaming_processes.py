"""Streams on two real processes that meet in every step: equal counts, or they would hang."""

import pytest

from support.streaming_ranks import CASES, SHARDS, run_ranks

pytestmark = pytest.mark.slow

NUM_SAMPLES = sum(map(len, SHARDS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("streams")


@pytest.fixture(scope="module")
def whole(folder):
    """Two uninterrupted epochs of each case."""
    return run_ranks(folder / "whole")


@pytest.fixture(scope="module")
def interrupted(folder, whole):
    """The same, stopped in the middle of the second epoch and gone on with by new processes."""
    stops = {case: ranks[0]["ends"][0] + 7 for case, ranks in whole.items()}
    first = run_ranks(folder / "first", stop_after=stops)
    return first, run_ranks(folder / "second", resume=folder / "first")


@pytest.mark.parametrize("case", ["replicated", "strided", "sharded"])
def test_two_processes_with_unequal_shards_end_together_and_see_every_sample_once(case, whole):
    """B22. One shard has 300 samples, the other 45; with a stream of both, all are in one."""
    ranks = whole[case]
    assert ranks[0]["ends"] == ranks[1]["ends"]
    first_end, second_end = ranks[0]["ends"]
    for start, stop in ((0, first_end), (first_end, second_end)):
        seen = [i for rank in ranks for batch in rank["batches"][start:stop] for i in batch]
        assert sorted(seen) == list(range(NUM_SAMPLES))


def test_with_drop_last_two_processes_stop_when_the_shorter_stream_ends(whole):
    """45 samples of 25 tokens at most: the short shard makes 5 to 25 batches of 100 tokens."""
    ranks = whole["dropped"]
    assert ranks[0]["ends"] == ranks[1]["ends"]
    assert 5 <= ranks[0]["ends"][0] <= 25
    assert ranks[0]["num_dropped"] > 0


@pytest.mark.parametrize("case", CASES)
def test_new_processes_go_on_exactly_where_the_others_were_stopped(case, whole, interrupted):
    first, second = interrupted
    for rank in (0, 1):
        joined = first[case][rank]["batches"] + second[case][rank]["batches"]
        assert joined == whole[case][rank]["batches"]
