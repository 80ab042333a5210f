"""Token weights: cases B40 and B41, alone and on two real processes."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from lengthwise.errors import ConfigError
from lengthwise.loader.loss import TokenWeightedLoss, count_tokens, token_weighted_loss
from support.loss_ranks import (
    IGNORE,
    VOCABULARY,
    batch_of,
    gradients,
    on_ranks,
    run_after,
    run_before,
    tiny_model,
)

SHORT = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
LONG = [(7 * i + i // 5) % VOCABULARY for i in range(101)]
RUNS = {"before": run_before, "after": run_after}


def by_hand(model, rows):
    """Gradients and value of the mean over all tokens of all rows, one token at a time."""
    model.zero_grad()
    losses = [
        -torch.log_softmax(model(torch.tensor(row)), -1)[place, row[place + 1]]
        for row in rows
        for place in range(len(row) - 1)
    ]
    mean = torch.stack(losses).mean()
    mean.backward()
    return gradients(model), mean.item()


def largest_gap(ours, theirs):
    return max(float((a - b).abs().max()) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("count", ["before", "after"])
def test_accumulating_two_batches_of_one_equals_one_batch_of_two(count):
    # B40: samples of 11 and 101 tokens. A mean of the two means would weigh a token of the short
    # one ten times as much; the sums over both are the same however the two are batched.
    model = tiny_model()
    expected, mean = by_hand(model, [SHORT, LONG])
    for batches in ([batch_of([SHORT]), batch_of([LONG])], [batch_of([SHORT, LONG])]):
        step = RUNS[count](model, batches, TokenWeightedLoss(shift=True, count=count))
        assert largest_gap(gradients(model), expected) < 1e-12
        assert float(step) == pytest.approx(mean, abs=1e-12)
        assert int(step.num_tokens) == 110


def test_the_mean_of_means_is_far_from_it():
    # The counterpart of the test above: the usual loop fails it, so the test can fail.
    model = tiny_model()
    expected, _ = by_hand(model, [SHORT, LONG])
    model.zero_grad()
    for ids, labels in (batch_of([SHORT]), batch_of([LONG])):
        (token_weighted_loss(model(ids), labels, shift=True) / 2).backward()
    assert largest_gap(gradients(model), expected) > 1e-3


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory):
    """Steps on two processes: unequal counts, and one rank without any supervised token."""
    unequal = [[batch_of([SHORT]), batch_of([SHORT[:4]])], [batch_of([LONG]), batch_of([LONG[:9]])]]
    masked = [[batch_of([SHORT])], [batch_of([LONG], masked=(0,))]]
    nothing = [[batch_of([SHORT], masked=(0,))], [batch_of([LONG], masked=(0,))]]
    steps = {"unequal": unequal, "one masked": masked, "all masked": nothing}
    return on_ranks(tmp_path_factory.mktemp("ranks"), steps)


@pytest.mark.slow
@pytest.mark.parametrize("count", ["before", "after"])
def test_two_ranks_with_unequal_tokens_equal_one_batch_of_everything(two_ranks, count):
    # B40 across ranks: DDP averages gradients, so each rank's sum is multiplied by the world size
    # and divided by the tokens of both.
    rows = [SHORT, SHORT[:4], LONG, LONG[:9]]
    expected, mean = by_hand(tiny_model(), rows)
    for rank in two_ranks:
        found = rank["unequal", count]
        assert largest_gap(found["gradients"], expected) < 1e-12
        assert found["mean"] == pytest.approx(mean, abs=1e-12)
        assert found["num_tokens"] == sum(len(row) - 1 for row in rows)
        assert found["num_empty_batches"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("count", ["before", "after"])
def test_a_rank_whose_labels_are_all_masked_adds_nothing_and_is_counted(two_ranks, count):
    # B41 as one rank of two: the step's loss is that of the other rank's tokens alone, and the
    # reduction of gradients has taken place, or this would not have come to an end.
    expected, mean = by_hand(tiny_model(), [SHORT])
    for number, rank in enumerate(two_ranks):
        found = rank["one masked", count]
        assert largest_gap(found["gradients"], expected) < 1e-12
        assert found["mean"] == pytest.approx(mean, abs=1e-12)
        assert found["num_empty_batches"] == 1
        assert found["own_empty_batches"] == number


@pytest.mark.slow
@pytest.mark.parametrize("count", ["before", "after"])
def test_a_step_without_supervised_tokens_anywhere_is_zero(two_ranks, count):
    # 0 / 0 is what the usual loss gives; here the gradients are zeros and the loss is 0.
    for rank in two_ranks:
        found = rank["all masked", count]
        assert all(bool((gradient == 0).all()) for gradient in found["gradients"])
        assert found["mean"] == 0
        assert found["num_tokens"] == 0
        assert found["num_empty_batches"] == 2


@pytest.mark.parametrize("count", ["before", "after"])
def test_a_fully_masked_batch_alone_gives_a_zero_that_hangs_on_the_graph(count):
    # B41: cross_entropy's mean over no target is NaN, and a NaN gradient ruins every weight.
    model = tiny_model()
    ids, labels = batch_of([LONG], masked=(0,))
    logits = model(ids)
    assert functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).isnan()
    loss = TokenWeightedLoss(shift=True, count=count)
    step = RUNS[count](model, [(ids, labels)], loss)
    assert float(step) == 0
    assert loss.num_empty_batches == 1
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.step()
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    alone = token_weighted_loss(model(ids), labels)
    assert alone.item() == 0
    assert alone.requires_grad


def test_losses_a_token_weigh_like_logits():
    # Both are sums over the same tokens; a NaN at a masked place must reach neither sum nor
    # gradient.
    model = tiny_model()
    ids, labels = batch_of([SHORT, LONG])
    logits = model(ids)
    whole = token_weighted_loss(logits, labels)
    each = functional.cross_entropy(logits.transpose(1, 2), labels, reduction="none")
    each = torch.where(labels == IGNORE, torch.full_like(each, math.nan), each).detach()
    each.requires_grad_()
    found = token_weighted_loss(each, labels)
    found.backward()
    assert found.item() == pytest.approx(whole.item(), abs=1e-12)
    assert each.grad[labels == IGNORE].abs().max() == 0


@given(
    st.lists(st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=6), min_size=1),
    st.data(),
)
def test_any_division_into_micro_batches_gives_the_same_gradient(rows, data):
    # Sums do not depend on how their terms are grouped; by_hand groups nothing.
    model = tiny_model()
    if any(len(row) > 1 for row in rows):
        expected, _ = by_hand(model, rows)
    else:
        expected = [torch.zeros_like(p) for p in model.parameters()]
    cuts = data.draw(st.sets(st.integers(1, len(rows)), max_size=3))
    edges = [0, *sorted(cuts | {len(rows)})]
    batches = [batch_of(rows[a:b]) for a, b in pairwise(edges)]
    for count, run in RUNS.items():
        run(model, batches, TokenWeightedLoss(shift=True, count=count))
        assert largest_gap(gradients(model), expected) < 1e-12


@pytest.mark.parametrize("count", ["before", "after"])
def test_what_a_trainer_divides_by_is_undone(count):
    # Accelerate and Lightning divide each loss by the accumulation steps before backward.
    model = tiny_model()
    expected, _ = by_hand(model, [SHORT, LONG])
    loss = TokenWeightedLoss(shift=True, count=count, trainer_divides_by=2, provisional_tokens=64)
    batches = [batch_of([SHORT]), batch_of([LONG])]
    model.zero_grad()
    if count == "before":
        loss.begin_step(labels for _, labels in batches)
    for ids, labels in batches:
        (loss(model(ids), labels) / 2).backward()
    if count == "after":
        loss.rescale_gradients(model.parameters())
    assert largest_gap(gradients(model), expected) < 1e-12


def test_shifted_counts_leave_out_the_first_column():
    # A language model's first token is no target, whatever its label says.
    labels = torch.tensor([[5, 6, IGNORE], [7, IGNORE, 8]])
    assert count_tokens(labels).item() == 4
    assert count_tokens(labels, shift=True).item() == 2
    assert TokenWeightedLoss(shift=True).begin_step([labels, labels]).item() == 4


def test_half_precision_logits_are_summed_in_float32():
    # 4096 losses of about 8 overflow float16's 65504 long before they are divided.
    labels = torch.zeros(4096, dtype=torch.long)
    logits = torch.zeros(4096, 3000, dtype=torch.float16)
    found = token_weighted_loss(logits, labels)
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(math.log(3000), rel=1e-4)
    losses = torch.full((8192,), 10.0, dtype=torch.float16)
    assert token_weighted_loss(losses, torch.zeros(8192, dtype=torch.long)).item() == 10


def test_more_micro_batches_than_were_counted_are_refused():
    # A loop that counts one step and runs on would divide the next step by the wrong total.
    ids, labels = batch_of([SHORT])
    model, loss = tiny_model(), TokenWeightedLoss(shift=True)
    with pytest.raises(ConfigError, match="call it at the start of every optimiser step"):
        loss(model(ids), labels)
    loss.begin_step(labels)
    loss(model(ids), labels)
    with pytest.raises(ConfigError, match="more micro-batches"):
        loss(model(ids), labels)


def test_calls_that_belong_to_the_other_way_of_counting_are_refused():
    # Each would divide twice or not at all.
    before, after = TokenWeightedLoss(), TokenWeightedLoss(count="after")
    with pytest.raises(ConfigError, match="would do it twice"):
        before.rescale_gradients([])
    with pytest.raises(ConfigError, match="belongs to count='before'"):
        after.begin_step([torch.zeros(1)])
    with pytest.raises(ConfigError, match="rescale_gradients ends the step"):
        after.end_step()
    with pytest.raises(ConfigError, match="no micro-batch yet"):
        after.rescale_gradients([])
    with pytest.raises(ConfigError, match="at least one micro-batch"):
        before.begin_step([])
    with pytest.raises(ConfigError, match="count must be before or after"):
        TokenWeightedLoss(count="never")


def test_shapes_that_do_not_fit_are_refused():
    # A per-sample loss, or logits with classes in the middle, would be summed over wrong things.
    labels = torch.zeros(2, 3, dtype=torch.long)
    with pytest.raises(ConfigError, match=r"got output \(2,\), labels \(2, 3\)"):
        token_weighted_loss(torch.zeros(2), labels)
    with pytest.raises(ConfigError, match=r"got output \(2, 7, 3\)"):
        token_weighted_loss(torch.zeros(2, 7, 3), labels)
    with pytest.raises(ConfigError, match="works on logits"):
        token_weighted_loss(torch.zeros(2, 3), labels, shift=True)


@pytest.mark.parametrize("count", ["before", "after"])
def test_a_step_reads_no_value_from_the_device(count):
    # A tensor on "meta" has no values, so anything that would wait for a GPU raises here.
    model = tiny_model().to("meta")
    batches = [tuple(tensor.to("meta") for tensor in batch_of([row])) for row in (SHORT, LONG)]
    step = RUNS[count](model, batches, TokenWeightedLoss(shift=True, count=count))
    assert step.mean.is_meta
    assert all(gradient.is_meta for gradient in gradients(model))
    assert token_weighted_loss(model(batches[0][0]), batches[0][1]).is_meta
