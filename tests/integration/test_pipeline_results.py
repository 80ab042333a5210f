"""The pipeline learns what one process learns, however many workers and ranks there are."""

from __future__ import annotations

import pytest
import torch

from lengthwise.dflash.formats.load import load_native
from lengthwise.dflash.training.setup import assemble, set_up, store_of
from lengthwise.pipeline.entries import Entries
from support.dflash_runs import Silent, small_config, small_run_folder
from support.pipeline_runs import (
    check_nothing_left,
    quick_processes,
    recording_train,
    run,
    slow_work,
    taken,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run_folder(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module")
def alone(folder, tmp_path_factory):
    """The same run in one process: its observer, its plan, its output."""
    output = tmp_path_factory.mktemp("alone")
    config = small_config(folder, output)
    setup, observer = set_up(config), Silent()
    assemble(setup, store_of(config), observer).run()
    return observer, setup, output


def losses(observer):
    return [result.sums.loss for _, result, _ in observer.steps]


def weights(output):
    return load_native(output / "drafter").state_dict()


@pytest.mark.parametrize("workers", [1, 2])
def test_with_one_rank_every_figure_is_the_same_to_the_last_bit(workers, folder, alone, tmp_path):
    """Workers dawdle at random. Losses, weights, and what held-out prompts gave."""
    with quick_processes():
        outcome, seen = run(folder, tmp_path, entries=Entries(work=slow_work), workers=workers)
    expected, setup, output = alone
    assert outcome.position.num_steps == setup.plan.num_steps > 6
    assert not outcome.interrupted
    assert losses(seen) == losses(expected)
    ours, theirs = weights(tmp_path), weights(output)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert [position for position, _, _ in seen.steps] == [p for p, _, _ in expected.steps]
    for (place, found, sums), (place_alone, found_alone, sums_alone) in zip(
        seen.evaluations, expected.evaluations, strict=True
    ):
        assert place == place_alone
        assert found.overall.tokens_per_verify == found_alone.overall.tokens_per_verify
        assert found.overall.mismatches == ()
        assert sums.loss == sums_alone.loss
    assert [path.name for path in seen.paths] == [path.name for path in expected.paths]
    assert not (tmp_path / "snapshots").exists() or not list((tmp_path / "snapshots").iterdir())
    check_nothing_left(seen)


def test_two_ranks_share_every_sample_and_get_the_same_losses(folder, alone, tmp_path):
    """What ranks took, by their own record: each sample once an epoch, in the plan's step."""
    with quick_processes():
        entries = Entries(train=recording_train)
        pipeline = {"probe_rounds": 1}  # of which nothing must stay
        outcome, seen = run(
            folder, tmp_path, entries=entries, workers=2, ranks=2, pipeline=pipeline
        )
    expected, setup, _ = alone
    assert not outcome.interrupted
    assert losses(seen) == pytest.approx(losses(expected), rel=1e-5)
    steps = taken(tmp_path)
    assert len(steps) == setup.plan.num_steps
    everything = {0: [], 1: []}
    for (epoch, step), by_rank in steps.items():
        assert sorted(by_rank) == [0, 1]
        together = by_rank[0] + by_rank[1]
        assert sorted(together) == sorted(setup.plan.epoch(epoch).step(step).tolist())
        everything[epoch] += together
    # Forty samples, of which two have nothing to learn and three are held out.
    held_out = set(setup.data.held_out.sample_ids.tolist())
    wanted = [sample for sample in range(38) if sample not in held_out]
    assert {epoch: sorted(ids) for epoch, ids in everything.items()} == {0: wanted, 1: wanted}
    check_nothing_left(seen)
