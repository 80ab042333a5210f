"""What a sampler does for trainers: epochs of one length, and no batch size to shard by."""

import pytest

from lengthwise.errors import ConfigError, PlanMismatchError
from lengthwise.loader import BucketBatchSampler
from support.loader_runs import expected_batches, heavy_tail, make, make_all

LENGTHS = heavy_tail(300)
NUM_EPOCHS = 4


def test_evened_epochs_are_those_of_a_config_with_as_many_batches():
    """Nothing but ``num_batches`` is set, so that is what must be yielded, on every rank."""
    plain = make(LENGTHS, strategy="random")
    lens = [plain.planner.plan(epoch).num_batches for epoch in range(NUM_EPOCHS)]
    assert len(set(lens)) > 1  # else there would be nothing to even
    samplers = make_all(LENGTHS, 2, strategy="random")
    for sampler in samplers:
        sampler.even_epochs(NUM_EPOCHS)
    config = samplers[0].config
    assert config.num_batches == max(lens)
    for epoch in range(NUM_EPOCHS):
        assert {len(sampler) for sampler in samplers} == {-(-max(lens) // 2)}
        found = [list(sampler) for sampler in samplers]
        assert found == expected_batches(LENGTHS, config, epoch, 2)


def test_a_state_names_the_number_of_batches_where_it_differs():
    """With another number every epoch is other batches, so the state's place means nothing."""
    plain = make(LENGTHS, strategy="random")
    even = make(LENGTHS, strategy="random")
    even.even_epochs(NUM_EPOCHS)
    with pytest.raises(PlanMismatchError, match=r"num_batches \(None then, \d+ now\)"):
        even.load_state_dict(plain.state_dict())


def test_epochs_are_evened_before_they_begin():
    """In the middle of a run the place would mean something else afterwards."""
    begun = make(LENGTHS)
    next(iter(begun))
    moved = make(LENGTHS)
    moved.set_epoch(1)
    for sampler in (begun, moved):
        with pytest.raises(ConfigError, match="before the first is begun"):
            sampler.even_epochs(NUM_EPOCHS)


def test_an_evened_sampler_still_follows_torch_distributed(monkeypatch):
    """It may be evened before the process group is there; the number counts all replicas'."""
    sampler = BucketBatchSampler(LENGTHS, max_tokens=900, strategy="random")
    sampler.even_epochs(2)
    number = sampler.config.num_batches
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 1)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 3)
    assert len(sampler) == -(-number // 3)


def test_dealt_batches_have_no_size_that_a_trainer_could_deal_them_again_by():
    """Accelerate's BatchSamplerShard asks for it first of all, and would lose half of these."""
    accelerate = pytest.importorskip("accelerate.data_loader")
    with pytest.raises(ConfigError, match="prepare_loader"):
        accelerate.BatchSamplerShard(make(LENGTHS, rank=1, num_replicas=2), 2, 1)
    assert not hasattr(make(LENGTHS), "batch_size")
