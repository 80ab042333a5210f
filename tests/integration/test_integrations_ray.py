"""The promise of every integration, held in real workers of Ray Train and with Ray Data."""

import pytest

from lengthwise.loader import BucketBatchSampler
from support.loader_runs import flat
from support.ray_train_runs import EPOCHS, SAVE_AFTER, SAVE_EPOCH, run_stream, run_workers
from support.trainer_kinds import OPTIONS, all_lengths
from support.trainer_ranks import NUM_SAMPLES

pytestmark = pytest.mark.slow


def planned(rank):
    """(epoch, samples) of every batch of one of two replicas: a plan knows no framework."""
    sampler = BucketBatchSampler(all_lengths(), **OPTIONS, num_replicas=2, rank=rank)
    return [(epoch, batch) for epoch in range(EPOCHS) for batch in sampler]


@pytest.fixture(scope="module")
def hurt(local_ray, tmp_path_factory):
    """A run of two workers; one is killed a little after the checkpoint in epoch 1."""
    folder = tmp_path_factory.mktemp("ray") / "hurt"
    before = sum(epoch < SAVE_EPOCH for epoch, _ in planned(1)) + SAVE_AFTER + 2
    return folder, run_workers(folder, 2, die_after=before)


def test_a_run_goes_on_at_its_checkpoint_after_a_worker_was_killed(hurt):
    """Ray Train starts both again; what they are given is the rest of the plan (B25, B30, B33)."""
    folder, workers = hurt
    assert (folder / "died").exists()
    for rank, (first, second) in enumerate(workers):
        plan = planned(rank)
        saved = sum(epoch < SAVE_EPOCH for epoch, _ in plan) + SAVE_AFTER
        assert len(first) >= saved + 1  # processes fetch ahead of the checkpoint (B36)
        assert first == plan[: len(first)]
        assert second == plan[saved:]
    # Equal numbers of batches (B22), and every sample once an epoch.
    assert len(planned(0)) == len(planned(1))
    last = [batch for rank in (0, 1) for epoch, batch in planned(rank) if epoch == EPOCHS - 1]
    assert sorted(flat(last)) == list(range(NUM_SAMPLES))


def test_another_number_of_workers_sees_the_rest_once(hurt, tmp_path):
    """Elastic: what two did of epoch 1, and its rest by three, are all samples."""
    folder, _ = hurt
    workers = [attempt for (attempt,) in run_workers(tmp_path / "rest", 3, resume=folder)]
    done = [
        [batch for epoch, batch in planned(rank) if epoch == SAVE_EPOCH][:SAVE_AFTER]
        for rank in (0, 1)
    ]
    left = [[batch for epoch, batch in seen if epoch == SAVE_EPOCH] for seen in workers]
    assert sorted(flat(flat(done + left))) == list(range(NUM_SAMPLES))
    later = [[batch for epoch, batch in seen if epoch == SAVE_EPOCH + 1] for seen in workers]
    assert sorted(flat(flat(later))) == list(range(NUM_SAMPLES))
    assert [len({len(batches) for batches in part}) for part in (left, later)] == [1, 1]


def test_shards_of_ray_data_become_equally_many_batches_of_every_row(local_ray, tmp_path):
    """301 rows do not divide by 2 workers; the budget is samples x longest, 200 tokens."""
    import ray.data

    rows = [{"id": i, "tokens": [0] * (1 + i * 37 % 50)} for i in range(301)]
    workers = run_stream(tmp_path / "run", ray.data.from_items(rows), 2)
    for epoch in range(2):
        first, second = (seen["epochs"][epoch] for seen in workers)
        assert len(first) == len(second)
        both = first + second
        assert sorted(row for batch in both for row, _ in batch) == list(range(301))
        padded = [len(batch) * max(length for _, length in batch) for batch in both]
        assert max(padded) <= 200
        tokens = sum(length for batch in both for _, length in batch)
        assert tokens / sum(padded) > 0.8  # rows of mixed lengths would give about half
    assert [seen["next"] for seen in workers] == [2, 2]
