"""Saving and loading: exact at every step, small, and refused where it does not belong."""

import io
import json
import random
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from lengthwise.core.batches import Batches
from lengthwise.core.fingerprint import PLAN_VERSION
from lengthwise.core.fixed import FixedBatches
from lengthwise.core.planner import Planner
from lengthwise.errors import ConfigError, PlanError, PlanMismatchError
from lengthwise.loader.testing import check_resume
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

LENGTHS = heavy_tail(90)
SMALL = {"max_tokens": 400, "max_batch_size": 8}
OPTIONS = [{**SMALL, **options} for options in EVERY_KIND.values()]


def resumed(state, **options):
    sampler = make(LENGTHS, **options)
    sampler.load_state_dict(state)
    return sampler


@pytest.mark.parametrize("options", OPTIONS, ids=EVERY_KIND)
@pytest.mark.parametrize("rank", [0, 1])
def test_the_state_before_every_batch_of_two_epochs_resumes_exactly(options, rank):
    """Fresh object each time; the rest of the epoch, the next epoch and the state itself agree."""
    checked = check_resume(lambda: make(LENGTHS, rank=rank, num_replicas=2, **options))
    steps = sum(len(expected_batches(LENGTHS, config_of(options), e, 2)[0]) for e in range(2))
    assert checked == steps + 2


def config_of(options):
    return make(LENGTHS, **options).config


@settings(max_examples=40)
@given(case=cases(), share=st.floats(0, 1), epochs_before=st.integers(0, 1))
def test_any_state_resumes_with_the_rest_and_len_is_that_rest(case, share, epochs_before):
    """B26 for resumed offsets: hostile data, all settings, all ranks, far epochs."""
    assume(case.num_replicas <= 5)
    try:
        samplers = make_all(case.lengths, case.num_replicas, config=case.config)
        expected = [
            expected_batches(case.lengths, case.config, case.epoch + e, case.num_replicas)
            for e in range(epochs_before + 2)
        ]
    except PlanError:
        assume(condition=False)
    this, following = expected[epochs_before:]
    step = round(share * len(this[0]))
    for rank, sampler in enumerate(samplers):
        sampler.set_epoch(case.epoch)
        for _ in range(epochs_before):
            list(sampler)
        iterator = iter(sampler)
        take(iterator, step)
        fresh = make(case.lengths, rank=rank, num_replicas=case.num_replicas, config=case.config)
        fresh.load_state_dict(sampler.state_dict())
        rest = this[rank][step:] or following[rank]
        assert len(fresh) == len(rest)
        assert fresh.num_steps == len(this[rank] if step < len(this[rank]) else following[rank])
        assert list(fresh) == rest


def test_b32_a_second_resume_within_an_epoch_counts_from_the_epochs_beginning():
    """30 batches, save, resume, 10 more, save: a state that said 10 would repeat 20 batches."""
    lengths = heavy_tail(400)
    whole = list(make(lengths, **SMALL))
    assert len(whole) > 50
    found, state = [], None
    for count in (30, 10, 1, len(whole) - 41):
        sampler = make(lengths, **SMALL)
        if state is not None:
            sampler.load_state_dict(state)
        found += take(iter(sampler), count)
        state = sampler.state_dict()
        last = state["step"]
        assert last == len(found) % len(whole)
    assert found == whole


def test_b33_a_resume_in_epoch_one_goes_on_in_epoch_one():
    """The skip alone, without the epoch, would replay epoch 0's order from that step."""
    epochs = [expected_batches(LENGTHS, small_config(), epoch, 1)[0] for epoch in range(4)]
    sampler = make(LENGTHS)
    list(sampler)
    take(iter(sampler), 3)
    fresh = resumed(sampler.state_dict())
    assert fresh.epoch == 1
    assert [list(fresh) for _ in range(3)] == [epochs[1][3:], epochs[2], epochs[3]]


@pytest.mark.parametrize("with_set_epoch", [False, True])
def test_b34_the_skip_of_a_resume_is_not_repeated_in_the_next_epoch(with_set_epoch):
    sampler = make(LENGTHS)
    take(iter(sampler), 4)
    fresh = resumed(sampler.state_dict())
    for epoch in range(3):
        if with_set_epoch:
            fresh.set_epoch(epoch)
        whole = expected_batches(LENGTHS, small_config(), epoch, 1)[0]
        assert list(fresh) == (whole[4:] if epoch == 0 else whole)


def test_b37_random_numbers_drawn_between_save_and_load_change_nothing():
    sampler = make(LENGTHS)
    iterator = iter(sampler)
    take(iterator, 3)
    state = sampler.state_dict()
    torch.manual_seed(1)
    torch.rand(7)
    random.seed(2)
    np.random.seed(3)  # noqa: NPY002 - the global state is meant
    np.random.random(5)  # noqa: NPY002 - likewise
    fresh = resumed(state)
    torch.rand(7)
    random.random()
    assert list(fresh) == list(iterator)


def test_at_the_end_of_an_epoch_the_state_is_the_beginning_of_the_next():
    """Trainers save there; a state that stood at the end would give an epoch of no batches."""
    sampler = make(LENGTHS)
    iterator = iter(sampler)
    take(iterator, len(sampler))
    before_the_end_is_noticed = sampler.state_dict()
    assert list(iterator) == []
    for state in (before_the_end_is_noticed, sampler.state_dict()):
        assert (state["epoch"], state["step"]) == (1, 0)
        assert list(resumed(state)) == expected_batches(LENGTHS, small_config(), 1, 1)[0]
    written_by_hand = {**state, "epoch": 0, "step": len(make(LENGTHS))}
    assert resumed(written_by_hand).epoch == 1


def test_trainers_that_set_the_epoch_after_a_resume_keep_its_place():
    """They call set_epoch at the beginning of every epoch, the resumed one included."""
    sampler = make(LENGTHS)
    list(sampler)
    iterator = iter(sampler)
    take(iterator, 3)
    fresh = resumed(sampler.state_dict())
    fresh.set_epoch(1)
    fresh.set_epoch(1)
    assert list(fresh) == list(iterator)
    fresh = resumed(sampler.state_dict())
    fresh.set_epoch(2)
    assert list(fresh) == expected_batches(LENGTHS, small_config(), 2, 1)[0]


def test_the_place_is_taken_when_the_state_is_loaded():
    """torchdata makes an iterator before it loads, and another one after; both must be right."""
    sampler = make(LENGTHS)
    take(iter(sampler), 3)
    state = sampler.state_dict()
    fresh = make(LENGTHS)
    early = iter(fresh)
    fresh.load_state_dict(state)
    late, later = iter(fresh), iter(fresh)
    state.update(epoch=7, step=0)  # what the caller does with the dict does not matter any more
    whole = expected_batches(LENGTHS, small_config(), 0, 1)[0]
    assert list(early) == whole
    assert list(late) == list(later) == whole[3:]


def test_the_last_of_several_loads_counts():
    sampler = make(LENGTHS)
    states = [sampler.state_dict() for _ in sampler]
    fresh = make(LENGTHS)
    for state in (states[4], states[1], states[1]):
        fresh.load_state_dict(state)
    assert list(fresh) == expected_batches(LENGTHS, small_config(), 0, 1)[0][2:]


def test_a_loop_that_stops_early_after_a_resume_begins_again_where_it_was_resumed():
    sampler = make(LENGTHS)
    take(iter(sampler), 2)
    fresh = resumed(sampler.state_dict())
    whole = expected_batches(LENGTHS, small_config(), 0, 1)[0]
    assert take(iter(fresh), 2) == whole[2:4]
    assert fresh.state_dict()["step"] == 4
    assert list(fresh) == whole[2:]


def test_the_state_is_small_and_plain_whatever_the_data():
    """torchdata takes one every step, and checkpoints hold it: numbers, text, nothing by sample."""
    sizes = []
    for count in (90, 20_000):
        sampler = make(heavy_tail(count), num_buckets=3)
        iterator = iter(sampler)
        take(iterator, 3)
        state = sampler.state_dict()
        assert json.loads(json.dumps(state)) == state
        file = io.BytesIO()
        torch.save(state, file)
        file.seek(0)
        assert torch.load(file, weights_only=True) == state
        fresh = make(heavy_tail(count), num_buckets=3)
        fresh.load_state_dict(json.loads(json.dumps(state)))
        assert list(fresh) == list(iterator)
        sizes.append(len(json.dumps(state)))
    assert max(sizes) < 1000
    assert max(sizes) - min(sizes) < 20


def test_a_state_does_not_change_afterwards_nor_does_it_change_the_sampler():
    sampler = make(LENGTHS, num_buckets=3)
    iterator = iter(sampler)
    state = sampler.state_dict()
    kept = deepcopy(state)
    take(iterator, 3)
    assert state == kept
    state["config"]["limits"]["max_tokens"] = 1
    state["config"]["seed"] = 99
    state["history"].append([1, 1])
    assert sampler.state_dict()["config"] == kept["config"]
    resumed(sampler.state_dict(), num_buckets=3)


@pytest.mark.parametrize("options", [{}, EVERY_KIND["fixed"]], ids=["stored", "fixed"])
def test_a_resume_works_out_no_batch_that_was_done(monkeypatch, options):
    """Resume is an index: whatever is asked of the plan lies behind the place."""
    lengths = heavy_tail(30_000)
    sampler = make(lengths, **options)
    iterator = iter(sampler)
    done = len(sampler) - 5
    take(iterator, done)
    fresh = make(lengths, **options)
    source = FixedBatches if options else Batches
    with counted(monkeypatch, source, "gather") as calls:
        fresh.load_state_dict(sampler.state_dict())
        assert calls == []
        assert len(list(fresh)) == 5
    asked = np.concatenate([indices for _, indices in calls])
    assert sorted(asked.tolist()) == list(range(done, done + 5))


def test_a_state_says_how_many_batches_training_consumed_where_it_is_told():
    sampler = make(LENGTHS)
    whole = expected_batches(LENGTHS, small_config(), 0, 1)[0]
    iterator = iter(sampler)
    take(iterator, 5)
    fresh = resumed(sampler.state_dict(consumed=2))
    assert take(iter(fresh), 4) == whole[2:6]
    assert fresh.state_dict(consumed=3)["step"] == 5
    assert resumed(fresh.state_dict(consumed=3)).num_steps == len(whole)
    with pytest.raises(ConfigError, match=r"consumed=5.*has yielded 4 batches.*where that iterat"):
        fresh.state_dict(consumed=5)
    with pytest.raises(ConfigError, match="consumed must be"):
        fresh.state_dict(consumed=-1)
    assert make(LENGTHS).state_dict(consumed=0)["step"] == 0


def test_b36_a_plain_loaders_workers_run_ahead_and_consumed_tells_what_was_taken():
    """The sampler has yielded more than training took: after five batches the sixth is next."""
    lengths = heavy_tail(400)
    whole = list(make(lengths, **SMALL))
    sampler = make(lengths, **SMALL)
    loader = DataLoader(range(400), batch_sampler=sampler, num_workers=2, collate_fn=list)
    batches = iter(loader)
    assert take(batches, 5) == whole[:5]
    assert sampler.state_dict()["step"] > 5
    fresh = make(lengths, **SMALL)
    fresh.load_state_dict(sampler.state_dict(consumed=5))
    del batches
    assert list(fresh) == whole[5:]


# --- refusals -----------------------------------------------------------------------------

BASE = {"max_tokens": 900, "max_batch_size": 16, "num_buckets": 3}


def state_of(lengths, **options):
    sampler = make(lengths, **options)
    take(iter(sampler), 2)
    return sampler.state_dict()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"max_tokens": 901}, r"max_tokens \(901 then, 900 now\)"),
        ({"max_batch_size": 17}, r"max_batch_size \(17 then, 16 now\)"),
        ({"max_batch_size": None}, r"max_batch_size \(None then, 16 now\)"),
        ({"pad_to_multiple_of": 4}, r"pad_to_multiple_of \(4 then, 1 now\)"),
        ({"batch_size_multiple_of": 2}, r"batch_size_multiple_of \(2 then, 1 now\)"),
        ({"num_buckets": 4}, r"boundaries \(\[.*\] then, \[.*\] now\)"),
        ({"num_buckets": None}, r"strategy \('pooled' then, 'bucketed' now\)"),
        ({"strategy": "windowed"}, r"window_size \(1024 then, None now\)"),
        ({"batch_sizing": "fixed"}, r"batch_sizing \('fixed' then, 'greedy' now\)"),
        ({"order": "shuffled"}, r"order \('shuffled' then, 'balanced' now\)"),
        ({"accumulation_steps": 4}, r"accumulation_steps \(4 then, 1 now\)"),
        ({"balance": "bucket"}, r"balance \('bucket' then, 'none' now\)"),
        ({"pad_to_boundary": True}, r"pad_to_boundary \(True then, False now\)"),
        ({"oversize": "drop"}, r"oversize \('drop' then, 'error' now\)"),
        ({"drop_last": True}, r"drop_last \(True then, False now\)"),
        ({"seed": 1}, r"seed \(1 then, 0 now\)"),
    ],
)
def test_a_state_of_another_config_is_refused_and_the_difference_named(changes, named):
    sampler = make(LENGTHS, **BASE)
    with pytest.raises(PlanMismatchError, match=named) as caught:
        sampler.load_state_dict(state_of(LENGTHS, **{**BASE, **changes}))
    assert "set_epoch(1)" in str(caught.value)


def test_all_differences_are_named_at_once():
    with pytest.raises(PlanMismatchError) as caught:
        make(LENGTHS, **BASE).load_state_dict(state_of(LENGTHS[:-1], **BASE, seed=3))
    assert "number of samples (89 then, 90 now)" in str(caught.value)
    assert "seed (3 then, 0 now)" in str(caught.value)


def test_other_lengths_and_another_order_of_them_are_told_apart_from_the_same():
    """As many samples, even the same lengths: row numbers would mean other samples."""
    longer = LENGTHS.copy()
    longer[40] += 1
    for other in (longer, LENGTHS[::-1]):
        with pytest.raises(PlanMismatchError, match="other lengths or another order"):
            make(LENGTHS).load_state_dict(state_of(other))
    make(LENGTHS.astype(np.uint16)).load_state_dict(state_of(LENGTHS.tolist()))


def test_a_refused_state_leaves_the_sampler_where_it_was():
    sampler = make(LENGTHS)
    iterator = iter(sampler)
    take(iterator, 2)
    with pytest.raises(PlanMismatchError):
        sampler.load_state_dict(state_of(LENGTHS, seed=5))
    assert sampler.state_dict()["step"] == 2
    assert list(iterator) == list(make(LENGTHS))[2:]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "no sampler state of version 1: its version is 2"),
        ({"plan_version": PLAN_VERSION + 1}, r"planning rules \(version \d+ then"),
        ({"epoch": -1}, "damaged: epoch must be from 0"),
        ({"epoch": "1"}, "damaged: epoch must be an integer"),
        ({"step": -3}, "damaged: step must be from 0"),
        ({"step": 1.5}, "damaged: step must be an integer"),
        ({"num_replicas": 0}, "damaged: num_replicas must be from 1"),
        ({"history": [[2, 0]]}, "damaged: num_steps must be from 1"),
        ({"history": [[2]]}, "damaged"),
        ({"history": 5}, "damaged"),
        ({"step": 10_000}, "step 10,000 of epoch 0 was done, which has only"),
        ({"history": [[2, 5000]]}, "5,000 steps on 2 replicas were done, but the epoch had only"),
    ],
)
def test_a_state_that_cannot_be_is_refused(change, message):
    with pytest.raises(PlanMismatchError, match=message):
        make(LENGTHS).load_state_dict({**state_of(LENGTHS), **change})


def test_what_is_no_state_is_refused_by_what_it_lacks():
    state = state_of(LENGTHS)
    for key in state.keys() - {"version", "format"}:  # those of before had no format
        part = {name: value for name, value in state.items() if name != key}
        with pytest.raises(PlanMismatchError, match=f"lacks {key}"):
            make(LENGTHS).load_state_dict(part)
    with pytest.raises(PlanMismatchError, match="its keys are _num_yielded"):
        make(LENGTHS).load_state_dict({"_num_yielded": 4})
    with pytest.raises(PlanMismatchError, match="its keys are missing"):
        make(LENGTHS).load_state_dict({})
    with pytest.raises(PlanMismatchError, match="is a dict, got list"):
        make(LENGTHS).load_state_dict([state])


def test_a_state_needs_no_particular_number_of_threads_or_planning_ahead():
    state = state_of(LENGTHS)
    planner = Planner(LENGTHS, replace(small_config()), num_threads=2)
    fresh = type(make(LENGTHS)).from_planner(planner, 0, plan_ahead=True)
    fresh.load_state_dict(state)
    assert list(fresh) == list(make(LENGTHS))[2:]
    assert sorted(flat(fresh)) == list(range(90))
