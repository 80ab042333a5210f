"""Rows: what stands where, what is refused, and micro-batches within a budget of anchors."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.dflash.batch import Sample, pack_rows, pad_rows, split_by_anchors
from lengthwise.errors import ConfigError, DataError, OversizeError
from support.dflash_loss import answer, sample_of, valid_anchors

MASKS = st.lists(st.lists(st.booleans(), min_size=1, max_size=12), min_size=1, max_size=8)


def documents(batch):
    """Every document as it lies in the rows: by sample id, its tokens, mask and features."""
    found = {}
    for document, sample_id in enumerate(batch.sample_ids.tolist()):
        here = batch.document_ids == document
        assert batch.position_ids[here].tolist() == list(range(int(here.sum())))
        found[sample_id] = (batch.input_ids[here], batch.loss_mask[here], batch.features[here])
    return found


def require_whole(batch, samples):
    """All samples are there, whole and once; what is not theirs is padding."""
    found = documents(batch)
    assert sorted(found) == sorted(sample.sample_id for sample in samples)
    for sample in samples:
        ids, mask, features = found[sample.sample_id]
        assert torch.equal(ids, sample.input_ids)
        assert torch.equal(mask, sample.loss_mask)
        assert torch.equal(features, sample.features)
    padded = batch.document_ids < 0
    assert int((~padded).sum()) == sum(map(len, samples))
    assert not batch.loss_mask[padded].any()
    assert not batch.input_ids[padded].any()
    assert not batch.position_ids[padded].any()
    assert not batch.features[padded].any()


@given(MASKS, st.integers(1, 5), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_padded_rows_hold_one_sample_each_and_are_rounded_up(masks, columns, rows):
    samples = [sample_of(mask, 5 * i) for i, mask in enumerate(masks)]
    batch = pad_rows(samples, multiple_of=columns, rows_multiple_of=rows)
    require_whole(batch, samples)
    longest = max(map(len, samples))
    assert batch.input_ids.shape[0] in range(len(samples), len(samples) + rows)
    assert batch.input_ids.shape[1] in range(longest, longest + columns)
    assert batch.input_ids.shape[0] % rows == batch.input_ids.shape[1] % columns == 0
    assert batch.num_documents == len(samples)


@given(MASKS, st.integers(12, 30))
@settings(max_examples=60, deadline=None)
def test_packed_rows_hold_every_sample_whole_within_row_tokens(masks, row_tokens):
    samples = [sample_of(mask, 5 * i) for i, mask in enumerate(masks)]
    batch = pack_rows(samples, row_tokens)
    require_whole(batch, samples)
    assert batch.input_ids.shape[1] <= row_tokens


def test_a_sample_goes_to_the_first_row_with_room():
    """Lengths 6, 5, 4, 5 in rows of 10: 6+4, 5+5. Next fit would have made three rows."""
    samples = [sample_of([True] * length, i) for i, length in enumerate((6, 5, 4, 5))]
    batch = pack_rows(samples, 10)
    assert batch.sample_ids.tolist() == [0, 2, 1, 3]
    assert batch.document_ids[:, 0].tolist() == [0, 2]
    assert (batch.document_ids >= 0).all()
    fixed = pack_rows(samples[:1], 10, multiple_of=10, rows_multiple_of=2)
    assert fixed.input_ids.shape == (2, 10)


def test_a_sample_longer_than_a_row_is_refused_with_its_id_its_length_and_the_way_out():
    samples = [sample_of([True] * 3, 1), sample_of([True] * 11, 42)]
    with pytest.raises(OversizeError, match=r"sample 42 has 11 tokens.*row_tokens=10; raise"):
        pack_rows(samples, 10)


@given(MASKS, st.integers(1, 8), st.integers(0, 8))
@settings(max_examples=100, deadline=None)
def test_micro_batches_keep_the_order_and_the_budget_and_are_cut_only_where_needed(
    masks, per_sample, extra
):
    samples = [sample_of(mask, i) for i, mask in enumerate(masks)]
    budget = per_sample + extra
    batches = list(split_by_anchors(samples, budget, per_sample))
    cost = {i: min(len(valid_anchors(mask)), per_sample) for i, mask in enumerate(masks)}
    costs = [[cost[s.sample_id] for s in batch] for batch in batches]
    assert [s.sample_id for batch in batches for s in batch] == list(range(len(masks)))
    assert all(sum(one) <= budget for one in costs)
    for one, after in pairwise(costs):
        assert sum(one) + after[0] > budget


def test_a_budget_below_one_samples_anchors_is_refused_before_any_data_is_seen():
    with pytest.raises(ConfigError, match=r"max_anchors=511 .*anchors_per_sample=512"):
        split_by_anchors([], 511, 512)
    assert list(split_by_anchors([], 512, 512)) == []


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"features": torch.zeros(4, 3)}, "sample 9: features has 4 rows for 5 tokens"),
        ({"loss_mask": torch.ones(6, dtype=torch.bool)}, "sample 9: loss_mask has 6 rows"),
        ({"loss_mask": torch.ones(5)}, "sample 9: loss_mask must .* be torch.bool"),
        ({"input_ids": torch.ones(5, dtype=torch.int32)}, "sample 9: input_ids must .*int64"),
        ({"features": torch.zeros(5)}, r"sample 9: features must have 2 dim.*\(5,\)"),
        ({"features": torch.zeros(5, 3, dtype=torch.int64)}, "sample 9: features must .*floating"),
    ],
)
def test_tensors_that_do_not_belong_together_are_refused_by_sample(change, message):
    """B47: one feature row too few is the fault that is not seen later."""
    sample = sample_of([True] * 5, 9)
    fields = {name: getattr(sample, name) for name in ("input_ids", "loss_mask", "features")}
    with pytest.raises(DataError, match=message):
        Sample(9, **{**fields, **change})


def test_a_sample_without_tokens_and_a_batch_without_samples_are_refused():
    with pytest.raises(DataError, match="sample 3 has no token"):
        sample_of([], 3)
    with pytest.raises(DataError, match="at least one sample"):
        pad_rows([])


@pytest.mark.parametrize("other", [{"features": 4}, {"dtype": torch.bfloat16}])
def test_features_of_unlike_size_or_type_are_refused(other):
    with pytest.raises(DataError, match=r"sample 0 has 3 of torch.float32, sample 1 has"):
        pack_rows([sample_of([True], 0), sample_of([True], 1, **other)], 8)


def test_moving_a_batch_moves_its_features_alone():
    """Ids and masks are worked on where they are, so that nothing waits for a GPU."""
    batch = pad_rows([sample_of(answer(5, 2), 0)]).to("meta")
    assert batch.features.device.type == "meta"
    assert batch.input_ids.device.type == batch.loss_mask.device.type == "cpu"
