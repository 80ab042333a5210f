"""One step, however its samples are cut; steps that are refused; real ranks."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch

from lengthwise.dflash import meetings as meetings_module
from lengthwise.dflash import update as update_module
from lengthwise.dflash.batch import pack_rows, pad_rows
from lengthwise.dflash.metrics import DraftSums
from lengthwise.dflash.optimizer import Optimizers
from lengthwise.dflash.schedule import ScheduleConfig
from lengthwise.dflash.update import Update, reduce_gradients
from lengthwise.errors import ConfigError, TrainingError
from support.dflash_loss import answer
from support.dflash_ranks import (
    OPTIMIZER,
    draft_sample,
    drafter_of,
    on_ranks,
    plain,
    step_of,
    take_step,
    update_of,
    weights,
)

MASKS = [[True] * 9, answer(40, 3), answer(25, 20), answer(12, 6)]
SAMPLES = [draft_sample(mask, 10 + i) for i, mask in enumerate(MASKS)]
EMPTY = draft_sample(answer(20, 1), 99)
CUTS = {
    "one by one": [pad_rows([sample]) for sample in SAMPLES],
    "padded": [pad_rows(SAMPLES)],
    "packed": [pack_rows(SAMPLES, 64)],
    "one row": [pack_rows(SAMPLES, 128)],
    "unequal": [pad_rows(SAMPLES[:1]), pad_rows([EMPTY]), pack_rows(SAMPLES[1:], 64)],
}


def poisoned(sample):
    """One infinite number in its features, where every block of the sample sees it."""
    features = sample.features.clone()
    features[0, 3] = math.inf
    return replace(sample, features=features)


def require_same_weights(found, wanted):
    for name, value in wanted.items():
        torch.testing.assert_close(found[name], value, rtol=1e-5, atol=1e-5)


def mean_gradient(drafter):
    """The gradient of the mean over all labels of all samples, by autograd alone."""
    sums = [step_of(drafter, pad_rows([sample])) for sample in SAMPLES]
    mean = sum(one.loss_sum for one in sums) / sum(one.weight_sum for one in sums)
    return torch.autograd.grad(mean, list(drafter.parameters()))


@pytest.mark.parametrize("cut", CUTS)
def test_one_update_is_that_of_the_mean_over_labels_however_the_samples_are_cut(cut):
    """The reference divides inside autograd; AdamW's first step is then lr g / (|g| + eps)."""
    drafter, reference = drafter_of(), drafter_of()
    gradients = mean_gradient(reference)
    norm = math.sqrt(sum(float((g**2).sum()) for g in gradients))
    result = take_step(drafter, update_of(drafter, max_grad_norm=math.inf), CUTS[cut])
    wanted = {
        name: value.detach() - 1e-2 * grad / (grad.abs() + OPTIMIZER.eps)
        for (name, value), grad in zip(reference.named_parameters(), gradients, strict=True)
    }
    require_same_weights(weights(drafter), wanted)
    assert result.outcome == "stepped"
    assert result.grad_norm == pytest.approx(norm, rel=1e-5)
    assert result.sums.loss == pytest.approx(step_of(reference, pad_rows(SAMPLES)).loss, rel=1e-5)
    assert all(parameter.grad is None for parameter in drafter.parameters())


@pytest.mark.parametrize("limit", [0.01, 1e6])
def test_gradients_are_clipped_to_the_global_norm_and_small_ones_left_alone(limit):
    """With plain SGD at rate 1 the change of the weights is the clipped gradient."""
    drafter = drafter_of()
    before = weights(drafter)
    sgd = Optimizers({"sgd": torch.optim.SGD(drafter.parameters(), lr=1.0)}, 1.0)
    constant = ScheduleConfig("constant", warmup_steps=0)
    update = Update(drafter, sgd, constant, total_steps=5, max_grad_norm=limit)
    result = take_step(drafter, update, [pad_rows(SAMPLES)])
    change = math.sqrt(
        sum(float(((weights(drafter)[k] - v) ** 2).sum()) for k, v in before.items())
    )
    assert change == pytest.approx(min(limit, result.grad_norm), rel=1e-3)
    assert 0.01 < result.grad_norm < 1e6


def test_the_schedule_sets_the_rate_of_each_step_made():
    drafter = drafter_of()
    update = update_of(drafter)
    update.schedule = ScheduleConfig("cosine", warmup_steps=2)
    rates = [take_step(drafter, update, [pad_rows(SAMPLES)]).learning_rate for _ in range(4)]
    falling = [0.01 * (1 + math.cos(math.pi * i / 8)) / 2 for i in range(2)]
    assert rates == pytest.approx([0.005, 0.01, *falling])


def test_a_step_without_any_label_changes_nothing():
    """Adam's moments would shrink and weights drift; nothing was learnt, so nothing moves."""
    drafter = drafter_of()
    update = update_of(drafter)
    take_step(drafter, update, [pad_rows(SAMPLES)])
    before = weights(drafter)
    result = take_step(drafter, update, [pad_rows([EMPTY]), pad_rows([EMPTY])])
    assert result.outcome == "empty"
    assert result.grad_norm == 0
    assert update.num_steps == 1
    assert all(torch.equal(value, before[name]) for name, value in weights(drafter).items())


def test_a_step_that_is_not_finite_is_skipped_counted_and_written_down(tmp_path):
    """B51: one infinite feature. The micro-batch that has it is named, its neighbour is not."""
    drafter = drafter_of()
    path = tmp_path / "run" / "skipped.jsonl"
    update = update_of(drafter, skipped_path=path)
    take_step(drafter, update, [pad_rows(SAMPLES)])
    before = weights(drafter)
    state = update.optimizer.state_dict()["adamw"]["state"][0]["exp_avg"].clone()
    bad = pad_rows([SAMPLES[1], poisoned(SAMPLES[2])])
    result = take_step(drafter, update, [pad_rows(SAMPLES[:1]), bad])
    assert result.outcome == "skipped"
    assert not math.isfinite(result.sums.loss)
    assert all(torch.equal(value, before[name]) for name, value in weights(drafter).items())
    assert torch.equal(update.optimizer.state_dict()["adamw"]["state"][0]["exp_avg"], state)
    (line,) = map(json.loads, path.read_text().splitlines())
    assert line == {"num_steps": 1, "reason": "loss", "sample_ids": [11, 12]}
    assert update.state_dict() == {"num_steps": 1, "num_skipped": 1, "num_skipped_in_a_row": 1}
    assert take_step(drafter, update, [pad_rows(SAMPLES)]).outcome == "stepped"
    assert update.state_dict() == {"num_steps": 2, "num_skipped": 1, "num_skipped_in_a_row": 0}


def test_a_gradient_that_is_not_finite_names_all_samples_of_the_step(tmp_path):
    """The loss is fine; what overflowed cannot be told from sums, so none is left out."""
    drafter = drafter_of()
    update = update_of(drafter, skipped_path=tmp_path / "skipped.jsonl")
    for batch in CUTS["one by one"]:
        update.backward(step_of(drafter, batch), batch.sample_ids)
    next(drafter.parameters()).grad[0] = math.nan
    assert update.step().outcome == "skipped"
    line = json.loads((tmp_path / "skipped.jsonl").read_text())
    assert line == {"num_steps": 0, "reason": "gradient", "sample_ids": [10, 11, 12, 13]}


def test_too_many_skipped_steps_in_a_row_end_the_run_and_name_the_samples():
    drafter = drafter_of()
    update = update_of(drafter, max_skips=2)
    good, bad = pad_rows(SAMPLES), pad_rows([poisoned(SAMPLES[3])])
    for batch in (bad, good, bad):  # a good one in between starts the count again
        take_step(drafter, update, [batch])
    with pytest.raises(
        TrainingError, match=r"loss was not finite in 2 steps in a row.*: 13\. Look"
    ):
        take_step(drafter, update, [bad])
    assert update.num_skipped == 3


def test_counts_are_restored():
    update = update_of(drafter_of())
    state = {"num_steps": 7, "num_skipped": 2, "num_skipped_in_a_row": 1}
    update.load_state_dict(state)
    assert update.state_dict() == state


def test_a_warm_up_longer_than_the_run_is_refused_at_once():
    drafter = drafter_of()
    with pytest.raises(ConfigError, match="warmup_steps"):
        Update(drafter, update_of(drafter).optimizer, ScheduleConfig(warmup_steps=9), total_steps=8)


@pytest.mark.parametrize(("bucket_bytes", "calls"), [(1 << 20, 2), (24, 3), (1, 4)])
def test_gradients_travel_in_few_buckets_that_depend_on_parameters_alone(
    monkeypatch, bucket_bytes, calls
):
    """Three float32 parameters of 12 bytes and one of float64, whose type needs its own bucket.
    Two pretended ranks with equal gradients: a sum doubles them; None counts as zeros."""
    parameters = [torch.zeros(3, requires_grad=True) for _ in range(3)]
    parameters.append(torch.zeros(2, dtype=torch.float64, requires_grad=True))
    for value, parameter in enumerate(parameters):
        parameter.grad = None if value == 1 else torch.full_like(parameter, value + 1.0)
    sent = []

    def all_reduce(flat, group):
        sent.append(flat.nbytes)
        flat.mul_(2)

    monkeypatch.setattr(update_module.dist, "is_initialized", lambda: True)
    monkeypatch.setattr(update_module.dist, "get_world_size", lambda group: 2)
    monkeypatch.setattr(update_module.dist, "all_reduce", all_reduce)
    reduce_gradients(parameters, bucket_bytes=bucket_bytes)
    assert len(sent) == calls
    assert sum(sent) == 3 * 12 + 16
    assert [float(p.grad[0]) for p in parameters] == [2, 0, 6, 8]


def test_a_rank_counts_how_long_it_is_with_the_others_and_nothing_else(monkeypatch):
    """On a clock that the test turns: a second passes in each exchange, ten outside of them."""
    now = [0.0]

    def exchange(_sums, _group=None):
        now[0] += 1.0
        return _sums

    monkeypatch.setattr(meetings_module.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(DraftSums, "all_reduced", exchange)
    drafter = drafter_of()
    update = update_of(drafter)
    for step in range(1, 4):
        now[0] += 10.0
        take_step(drafter, update, [pad_rows(SAMPLES)])
        assert update.meetings.seconds == step


@pytest.mark.slow  # two processes that import everything anew
def test_two_ranks_do_what_one_does_and_decide_alike(tmp_path):
    """Real processes. Each scenario is one or more optimiser steps, by rank."""
    a, b, c, d = SAMPLES
    bad = poisoned(c)
    found = on_ranks(
        tmp_path,
        {
            "two each": [[[[a, b]]], [[[c, d]]]],
            "unequal": [[[[a], [b], [c, d]]], [[]]],
            "no anchor on one": [[[[a, b, c, d]]], [[[EMPTY]]]],
            "bad on one": [
                [[[a, b]], [[a], [b]], [[a]], [[a]]],
                [[[c, d]], [[d], [bad]], [[bad]], []],
            ],
        },
    )
    alone = drafter_of()
    one = take_step(alone, update_of(alone), [pad_rows(SAMPLES)])
    evaluated = plain(step_of(alone, pad_rows(SAMPLES)))
    for rank in found:
        for name in ("two each", "unequal", "no anchor on one"):
            (result,) = rank[name]["results"]
            require_same_weights(result["weights"], weights(alone))
            assert result["outcome"] == "stepped"
            assert result["grad_norm"] == pytest.approx(one.grad_norm, rel=1e-5)
            for key, value in plain(one.sums).items():
                assert result["sums"][key] == pytest.approx(value, rel=1e-5)
                assert result["evaluated"][key] == pytest.approx(evaluated[key], rel=1e-4)
        first, second, error, *_ = rank["bad on one"]["results"]
        assert (first["outcome"], second["outcome"]) == ("stepped", "skipped")
        for name, value in first["weights"].items():
            assert torch.equal(second["weights"][name], value)
        assert error["error"].startswith("TrainingError: the loss was not finite in 2 steps")
        assert ": 12." in error["error"]
    for key in ("two each", "unequal", "no anchor on one"):
        ours, theirs = (rank[key]["results"][0]["weights"] for rank in found)
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    lines = (tmp_path / "bad on one.jsonl").read_text().splitlines()
    assert [json.loads(line)["sample_ids"] for line in lines] == [[12], [12]]
