"""What the integration with Ray refuses, and where it takes its rank from."""

import pytest

from lengthwise.errors import ConfigError, MissingDependencyError, PlanMismatchError
from lengthwise.integrations import ray as integration
from lengthwise.integrations.ray import ray_loader, ray_stream
from lengthwise.loader import BucketBatchSampler

LENGTHS = [3, 9, 4, 8, 5, 5, 2, 7]


def test_outside_a_worker_the_loader_says_where_it_belongs(local_ray):
    # A single process would otherwise train on all samples, as many times as there are workers.
    sampler = BucketBatchSampler(LENGTHS, max_tokens=20)
    with pytest.raises(ConfigError, match="no worker of Ray Train: call ray_loader in"):
        ray_loader(LENGTHS, sampler)


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_without_torch_distributed_the_rank_is_ray_trains(rank, monkeypatch):
    # The plan for three replicas is that of a sampler that was told so.
    monkeypatch.setattr(integration, "_worker", lambda: (rank, 3))
    options = {"max_tokens": 20, "strategy": "random"}
    loader = ray_loader(LENGTHS, BucketBatchSampler(LENGTHS, **options), collate_fn=list)
    told = BucketBatchSampler(LENGTHS, **options, rank=rank, num_replicas=3)
    expected = [[LENGTHS[index] for index in batch] for batch in told]
    assert list(loader) == expected
    assert (loader.batch_sampler.rank, loader.batch_sampler.num_replicas) == (rank, 3)


def test_a_sampler_for_other_replicas_is_refused(monkeypatch):
    monkeypatch.setattr(integration, "_worker", lambda: (1, 4))
    sampler = BucketBatchSampler(LENGTHS, max_tokens=20, rank=1, num_replicas=2)
    with pytest.raises(ConfigError, match="replica 1 of 4 for Ray Train, and 1 of 2"):
        ray_loader(LENGTHS, sampler)


def test_a_data_set_is_batched_by_length_under_the_budget(local_ray):
    import ray.data

    rows = ray.data.from_items([{"tokens": [0] * length} for length in LENGTHS])
    stream = ray_stream(rows, "tokens", max_tokens=16, collate_fn=lambda batch: batch)
    for _ in range(2):  # epochs
        batches = [[len(row["tokens"]) for row in batch] for batch in stream]
        assert sorted(length for batch in batches for length in batch) == sorted(LENGTHS)
        assert all(len(batch) * max(batch) <= 16 for batch in batches)


def test_a_state_is_exact_between_epochs_and_refused_within(local_ray):
    # Ray Data promises no order of rows, so that going on in the middle would lose and repeat some.
    import ray.data

    rows = ray.data.from_items([{"tokens": [0] * length} for length in LENGTHS * 4])
    options = {"max_tokens": 16, "buffer_samples": 4}
    stream = ray_stream(rows, "tokens", **options)
    iterator = iter(stream)
    next(iterator)
    middle = stream.state_dict()
    list(iterator)
    fresh = ray_stream(rows, "tokens", **options)
    fresh.load_state_dict(stream.state_dict())
    assert fresh.epoch == 1
    assert len([row for batch in fresh for row in batch]) == 32
    fresh.load_state_dict(middle)
    with pytest.raises(PlanMismatchError, match="in another order in every run"):
        next(iter(fresh))


def test_rows_of_another_kind_are_refused():
    with pytest.raises(ConfigError, match=r"must be a ray\.data\.Dataset or a shard .* got list"):
        ray_stream([1, 2], len, max_tokens=16)


@pytest.mark.parametrize("call", [integration._worker, integration.every_row])
def test_without_ray_the_extra_is_named(call, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ray.train", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'lengthwise\[ray\]'"):
        call()
