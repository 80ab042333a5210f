"""Two epochs on real processes: stopped, restarted as new processes, on as many or on others."""

import pytest

from support.loader_ranks import run_ranks
from support.loader_runs import flat

pytestmark = pytest.mark.slow

STOP = (1, 4)
"""In epoch 1, so that a restart that forgets the epoch is noticed (B33)."""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """What two ranks see in three epochs without a stop."""
    return run_ranks(tmp_path_factory.mktemp("whole") / "run", 2, epochs=3)


def streams(*runs):
    """Epoch -> the batches of rank 0 and of rank 1, of runs that followed each other."""
    joined = {}
    for run in runs:
        for rank, seen in enumerate(run):
            for epoch, batches in seen["epochs"].items():
                joined.setdefault(epoch, [[], []])[rank].extend(batches)
    return joined


def test_ranks_share_out_every_epoch_and_take_as_many_steps_as_len_says(uninterrupted):
    """Each step had an all-reduce, so the run would not have ended with unequal counts."""
    for number, (epoch, shares) in enumerate(streams(uninterrupted).items()):
        assert str(number) == epoch
        assert sorted(flat(flat(shares))) == list(range(160))
        for rank, share in enumerate(shares):
            assert uninterrupted[rank]["lens"][number] == len(share)
    assert uninterrupted[0]["epochs"]["0"] != uninterrupted[0]["epochs"]["1"]


@pytest.mark.parametrize(
    "options",
    [["--num-workers", 2], ["--no-set-epoch", "--sampler-first"]],
    ids=["workers ahead", "nobody sets an epoch, sampler before process group"],
)
def test_new_processes_go_on_exactly_where_the_others_were_stopped(
    uninterrupted, tmp_path, options
):
    first = run_ranks(tmp_path / "first", 2, epochs=3, stop_after=STOP, options=options)
    second = run_ranks(tmp_path / "second", 2, epochs=3, resume=tmp_path / "first", options=options)
    assert streams(first, second) == streams(uninterrupted)
    whole = len(uninterrupted[0]["epochs"]["1"])
    assert [seen["lens"][0] for seen in second] == [whole - STOP[1]] * 2


def test_three_processes_go_on_where_two_were_stopped(uninterrupted, tmp_path):
    """Every sample of the epoch once over both runs, and the next epoch is whole."""
    first = run_ranks(tmp_path / "first", 2, epochs=3, stop_after=STOP)
    second = run_ranks(tmp_path / "second", 3, epochs=3, resume=tmp_path / "first")
    assert streams(first)["0"] == streams(uninterrupted)["0"]
    seen = [seen["epochs"]["1"] for seen in (*first, *second)]
    assert sorted(flat(flat(seen))) == list(range(160))
    assert len({len(share) for share in seen[2:]}) == 1
    assert sorted(flat(flat(run["epochs"]["2"] for run in second))) == list(range(160))
