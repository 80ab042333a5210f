"""What the sampler yields: its replica's share of the plan, epoch after epoch."""

import os
import pickle
import random
import threading
from copy import deepcopy
from dataclasses import fields, replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import Planner
from lengthwise.errors import (
    BadLengthError,
    ConfigError,
    LengthwiseWarning,
    OversizeError,
    PlanError,
)
from lengthwise.loader import BucketBatchSampler
from lengthwise.loader import distributed as replicas
from lengthwise.loader.options import BatchingOptions
from support.configs import cases
from support.loader_runs import (
    EVERY_KIND,
    counted,
    expected_batches,
    flat,
    heavy_tail,
    make,
    make_all,
    small_config,
    take,
)

LENGTHS = heavy_tail(150)


@settings(max_examples=60)
@given(case=cases(), num_epochs=st.integers(1, 2))
def test_every_rank_yields_its_batches_of_the_plan_and_as_many_as_len_says(case, num_epochs):
    """The plan defines them: step s of rank r is batch s * R + r. So ranks share out the epoch."""
    assume(case.num_replicas <= 9)
    try:
        samplers = make_all(case.lengths, case.num_replicas, config=case.config)
        expected = [
            expected_batches(case.lengths, case.config, case.epoch + e, case.num_replicas)
            for e in range(num_epochs)
        ]
    except PlanError:
        assume(condition=False)
    for rank, sampler in enumerate(samplers):
        sampler.set_epoch(case.epoch)
        for epoch in range(num_epochs):
            assert sampler.epoch == case.epoch + epoch
            announced = len(sampler)
            assert announced == sampler.num_steps
            assert list(sampler) == expected[epoch][rank]
            assert announced == len(expected[epoch][0])


def test_b22_replicas_get_equal_counts_for_200_seeds_of_a_heavy_tail():
    """A rank with one batch fewer leaves the others waiting for ever in its all-reduce."""
    for seed in range(200):
        num_replicas = 2 + seed % 3
        config = replace(small_config(), seed=seed)
        planner = Planner(heavy_tail(60, seed), config, num_replicas=num_replicas, num_threads=1)
        samplers = [
            BucketBatchSampler.from_planner(planner, rank, plan_ahead=False)
            for rank in range(num_replicas)
        ]
        assert len({len(sampler) for sampler in samplers}) == 1
        assert {len(list(sampler)) for sampler in samplers} == {planner.plan(0).num_steps}


def test_b23_ranks_whose_global_generators_differ_share_one_plan():
    """Seeding by rank is what launchers do; a plan drawn from global state would fall apart."""
    shares = []
    for rank in range(3):
        torch.manual_seed(rank)
        random.seed(rank)
        np.random.seed(rank)  # noqa: NPY002 - the global state is meant
        shares += list(make(LENGTHS, rank=rank, num_replicas=3))
    assert sorted(flat(shares)) == list(range(150))


@pytest.mark.parametrize("options", EVERY_KIND.values(), ids=EVERY_KIND)
def test_b26_len_follows_set_epoch_and_the_epoch_that_advances_by_itself(options):
    """Greedy plans have other counts in other epochs; a stale len ends training early or hangs."""
    sampler = make(LENGTHS, max_tokens=400, **options)
    counts = {}
    for _ in range(6):
        epoch = sampler.epoch
        counts[epoch] = len(sampler)
        assert len(list(sampler)) == counts[epoch]
    for epoch in (4, 0, 7):
        sampler.set_epoch(epoch)
        count = len(sampler)
        assert count == len(list(sampler))
        assert counts.get(epoch, count) == count
    assert sampler.epoch == 8
    fixed = options.get("batch_sizing") == "fixed" or options.get("strategy") == "sorted"
    assert (len(set(counts.values())) == 1) >= fixed


@pytest.mark.parametrize("options", EVERY_KIND.values(), ids=EVERY_KIND)
def test_b30_without_set_epoch_the_second_epoch_differs_and_ranks_agree(options):
    """Nobody calls set_epoch on a batch sampler in several trainers; the order must change."""
    samplers = make_all(LENGTHS, 2, **options)
    epochs = [[list(sampler) for sampler in samplers] for _ in range(2)]
    assert epochs[0] != epochs[1]
    config = samplers[0].config
    assert epochs == [expected_batches(LENGTHS, config, epoch, 2) for epoch in range(2)]


def test_b30_set_epoch_arrives_through_the_attribute_that_trainers_call_it_on():
    # Lightning and Accelerate call loader.batch_sampler.sampler.set_epoch and nothing else.
    loader = DataLoader(range(150), batch_sampler=make(LENGTHS))
    loader.batch_sampler.sampler.set_epoch(5)
    assert list(loader.batch_sampler) == expected_batches(LENGTHS, small_config(), 5, 1)[0]


def test_set_epoch_of_the_epoch_that_comes_next_changes_nothing_and_another_begins_it():
    sampler = make(LENGTHS)
    epochs = [expected_batches(LENGTHS, small_config(), epoch, 1)[0] for epoch in range(3)]
    iterator = iter(sampler)
    begun = take(iterator, 2)
    sampler.set_epoch(0)
    assert begun + list(iterator) == epochs[0]
    sampler.set_epoch(1)
    sampler.set_epoch(1)
    assert list(sampler) == epochs[1]
    sampler.set_epoch(1)
    assert list(sampler) == epochs[1]
    assert list(sampler) == epochs[2]


def test_an_iterator_goes_on_with_its_own_epoch_whatever_is_set_meanwhile():
    # A prefetching loader may still draw from it; its batches must not be mixed from two epochs.
    sampler = make(LENGTHS)
    epochs = [expected_batches(LENGTHS, small_config(), epoch, 1)[0] for epoch in (0, 4)]
    iterator = iter(sampler)
    begun = take(iterator, 2)
    sampler.set_epoch(4)
    assert begun + list(iterator) == epochs[0]
    assert sampler.epoch == 4
    assert list(sampler) == epochs[1]


def test_a_look_at_the_first_batch_changes_nothing():
    """Often only one rank looks; if that moved it on, ranks would train on different epochs."""
    sampler = make(LENGTHS)
    first = next(iter(sampler))
    batches = list(sampler)
    assert batches[0] == first
    assert sampler.epoch == 1


def test_loops_that_stop_early_and_never_set_an_epoch_are_warned_about_the_repetition():
    sampler = make(LENGTHS)
    seen = [take(iter(sampler), 3) for _ in range(2)]
    with pytest.warns(LengthwiseWarning, match="epoch 0 begins for the third time"):
        seen.append(take(iter(sampler), 3))
    assert seen[0] == seen[1] == seen[2]
    for _ in range(5):
        sampler.set_epoch(0)  # says that the same epoch is meant
        take(iter(sampler), 3)


def test_len_stays_while_an_iterator_is_in_use_and_then_tells_the_next_epochs():
    """With workers the sampler ends before the loop; `step + 1 == len(loader)` must still hold."""
    options = {"strategy": "random", "max_tokens": 400}
    sampler = make(LENGTHS, **options)
    epochs = [len(make_at(epoch, **options)) for epoch in range(8)]
    epoch = next(e for e in range(7) if epochs[e] != epochs[e + 1])
    sampler.set_epoch(epoch)
    iterator = iter(sampler)
    for _ in iterator:
        assert len(sampler) == epochs[epoch]
    assert (len(sampler), sampler.epoch) == (epochs[epoch], epoch)
    del iterator
    assert (len(sampler), sampler.epoch) == (epochs[epoch + 1], epoch + 1)


def make_at(epoch, **options):
    sampler = make(LENGTHS, **options)
    sampler.set_epoch(epoch)
    return sampler


def test_batches_are_lists_of_python_integers():
    # Data sets index lists, files and tables with them; numpy integers break some of these.
    for options in EVERY_KIND.values():
        for batch in make(LENGTHS, **options):
            assert type(batch) is list
            assert {type(sample) for sample in batch} == {int}


def test_trainers_find_no_batch_size_and_the_attributes_they_need():
    """Accelerate drops every batch that has not `batch_size` samples, where there is one."""
    sampler = make(LENGTHS, drop_last=True)
    assert not hasattr(sampler, "batch_size")
    assert sampler.drop_last is True
    assert sampler.sampler is sampler
    assert make(LENGTHS).drop_last is False
    assert (sampler.rank, sampler.num_replicas, sampler.num_samples) == (0, 1, 150)


def test_a_plain_loader_takes_it_as_batch_sampler():
    loader = DataLoader(torch.arange(150), batch_sampler=make(LENGTHS))
    expected = expected_batches(LENGTHS, small_config(), 0, 1)[0]
    assert len(loader) == len(expected)
    assert [batch.tolist() for batch in loader] == expected


def test_the_contracts_example():
    lengths = heavy_tail(5000, most=8000)
    sampler = BucketBatchSampler(
        lengths, max_tokens=49_152, max_batch_size=64, num_buckets=6, seed=0
    )
    assert sampler.config.strategy == "bucketed"
    assert len(sampler.config.boundaries) == 7
    assert sorted(flat(sampler)) == list(range(5000))


def test_a_config_and_its_fields_as_keywords_mean_the_same():
    config = small_config(num_buckets=3, order="shuffled", seed=9)
    assert list(make(LENGTHS, config=config)) == list(
        make(LENGTHS, num_buckets=3, order="shuffled", seed=9)
    )


def test_keywords_are_exactly_the_fields_of_config_and_limits():
    # A new field that the sampler does not know could only be given by config=.
    names = {f.name for kind in (BatchingConfig, BatchLimits) for f in fields(kind)} - {"limits"}
    assert set(BatchingOptions.__annotations__) == names


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"config": small_config(), "seed": 0}, "do not give seed beside it"),
        ({"config": {"max_tokens": 5}}, "must be a BatchingConfig"),
        ({"max_batch_size": 4}, "give max_tokens"),
        ({"max_tokens": 900, "max_token": 4}, "unknown setting max_token; known: .*boundaries"),
        ({"max_tokens": 900, "rank": 2, "num_replicas": 2}, r"rank must be below .* \(2\), got 2"),
        ({"max_tokens": 900, "rank": -1, "num_replicas": 2}, "rank must be from 0"),
        ({"max_tokens": 900, "rank": 1}, r"rank must be below num_replicas \(1\), got 1"),
        ({"max_tokens": 900, "num_replicas": 4}, "which of the replicas is this one"),
        ({"max_tokens": 900, "num_replicas": 0}, "which of the replicas|num_replicas must be"),
    ],
)
def test_wrong_use_fails_when_the_sampler_is_made(options, message):
    with pytest.raises(ConfigError, match=message):
        BucketBatchSampler(LENGTHS, **options)


def test_a_trainer_that_makes_the_sampler_anew_from_another_one_is_told():
    # Lightning does so with use_distributed_sampler=True where it finds batch_size and drop_last.
    with pytest.raises(ConfigError, match="use_distributed_sampler=False"):
        BucketBatchSampler(SequentialSampler(range(5)), max_tokens=9)


def test_bad_data_is_named_when_the_sampler_is_made():
    with pytest.raises(BadLengthError, match="position 1 is 0"):
        make([3, 0])
    with pytest.raises(OversizeError, match="row 1"):
        make([3, 901])
    with pytest.raises(PlanError, match="lengths is empty"):
        make([])


def test_set_epoch_refuses_what_is_no_epoch():
    for wrong in (-1, 1.5, True, "0"):
        with pytest.raises(ConfigError, match="epoch must be"):
            make(LENGTHS).set_epoch(wrong)


def test_a_planners_sampler_shares_its_memory_and_yields_the_same():
    planner = Planner(LENGTHS, small_config(), num_replicas=2)
    sampler = BucketBatchSampler.from_planner(planner, 1)
    assert np.shares_memory(sampler.planner.prepared.words, planner.prepared.words)
    assert list(sampler) == expected_batches(LENGTHS, small_config(), 0, 2)[1]
    with pytest.raises(ConfigError, match="rank must be below"):
        BucketBatchSampler.from_planner(planner, 2)
    with pytest.raises(ConfigError, match="which of the replicas"):
        BucketBatchSampler.from_planner(planner)


def test_a_sampler_made_before_the_process_group_follows_it(monkeypatch):
    """Scripts make loaders first and let the trainer start torch.distributed later."""
    sampler = BucketBatchSampler(LENGTHS, config=small_config(), plan_ahead=False)
    assert (sampler.rank, sampler.num_replicas) == (0, 1)
    given = make(LENGTHS)
    monkeypatch.setattr(replicas.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(replicas.dist, "get_rank", lambda: 1)
    monkeypatch.setattr(replicas.dist, "get_world_size", lambda: 3)
    expected = expected_batches(LENGTHS, small_config(), 0, 3)
    assert (sampler.rank, sampler.num_replicas, len(sampler)) == (1, 3, len(expected[1]))
    assert list(sampler) == expected[1]
    assert list(BucketBatchSampler(LENGTHS, config=small_config())) == expected[1]
    planner = Planner(LENGTHS, small_config(), num_replicas=3)
    assert list(BucketBatchSampler.from_planner(planner)) == expected[1]
    assert given.num_replicas == 1


# --- planning ahead -----------------------------------------------------------------------


def planning_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("lengthwise-")]


@pytest.mark.parametrize("options", EVERY_KIND.values(), ids=EVERY_KIND)
def test_planning_ahead_changes_no_plan(options):
    ahead, plain = (make(LENGTHS, plan_ahead=flag, **options) for flag in (True, False))
    assert [list(ahead) for _ in range(3)] == [list(plain) for _ in range(3)]


def test_each_epoch_is_planned_once_and_only_the_next_one_ahead(monkeypatch):
    """Two plans are held at most, and changing epochs plans nothing that is known."""
    for plan_ahead in (True, False):
        sampler = make(LENGTHS, plan_ahead=plan_ahead)
        with counted(monkeypatch, Planner, "plan") as calls:
            for _ in range(3):
                len(sampler)
                list(sampler)
            for thread in planning_threads():
                thread.join()
        assert [epoch for _, epoch in calls] == list(range(3 + plan_ahead))


def test_no_thread_is_left_when_an_epoch_has_ended_or_a_loader_may_fork():
    sampler = make(heavy_tail(3000), plan_ahead=True)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        iterator = iter(sampler)
        assert planning_threads() == []
        next(iterator)
    for thread in planning_threads():
        thread.join(timeout=60)
    assert planning_threads() == []


def test_an_error_of_the_background_thread_reaches_whoever_asks_for_the_epoch(monkeypatch):
    sampler = make(LENGTHS, plan_ahead=True)
    plan = Planner.plan

    def failing(self, epoch):
        if epoch == 1:
            raise PlanError("no such luck")
        return plan(self, epoch)

    monkeypatch.setattr(Planner, "plan", failing)
    assert len(list(sampler)) > 0  # the epoch before is not disturbed
    with pytest.raises(PlanError, match="no such luck"):
        len(sampler)
    sampler.set_epoch(2)
    assert len(list(sampler)) > 0


def test_a_sampler_is_copied_and_pickled_at_any_time_and_goes_on_where_it_stood():
    """Spawned processes get it by pickle, in the middle of an epoch and of planning ahead."""
    sampler = make(LENGTHS, plan_ahead=True)
    iterator = iter(sampler)
    take(iterator, 3)
    copies = [pickle.loads(pickle.dumps(sampler)), deepcopy(sampler)]
    rest = list(iterator)
    following = list(sampler)
    for copy in copies:
        assert len(copy) == len(rest)
        assert list(copy) == rest
        assert list(copy) == following


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_does_not_wait_for_a_thread_that_it_has_not():
    """Only the forking thread lives on in a child; its plan would never come."""
    sampler = make(heavy_tail(2000), plan_ahead=True)
    expected = list(make_all(heavy_tail(2000), 1)[0])
    sampler.set_epoch(0)
    assert next(iter(sampler)) == expected[0]
    child = os.fork()
    if child == 0:
        found = [len(list(sampler)), len(list(sampler))]
        os._exit(0 if found[0] == len(expected) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_sampler_of_many_samples_a_batch_yields_them_all():
    # More samples in one batch than are turned into integers at once.
    sampler = make(np.full(100_000, 1), max_tokens=70_000, max_batch_size=None)
    assert sorted(flat(sampler)) == list(range(100_000))


def test_it_is_a_sampler_and_no_batch_sampler_of_torch():
    # torch's BatchSampler promises batch_size, which trainers would read.
    assert isinstance(make(LENGTHS), torch.utils.data.Sampler)
    assert not isinstance(make(LENGTHS), BatchSampler)


def test_a_changed_config_changes_what_is_yielded():
    config = small_config()
    assert list(make(LENGTHS, config=config)) != list(make(LENGTHS, config=replace(config, seed=1)))
