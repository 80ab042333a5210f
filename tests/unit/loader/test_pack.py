"""PackCollator: one row without padding, against a plain twin and transformers' collator."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from torch.utils.data import DataLoader

from lengthwise.errors import ConfigError, DataError
from lengthwise.loader.loss import count_tokens
from lengthwise.loader.pack import PackCollator
from support.twins_collate import packed_row

ROWS = [[5, 6, 7], [8], [9, 10]]
MAKERS = {"list": list, "array": np.array, "int32": lambda r: np.array(r, np.int32)}
MAKERS["tensor"] = torch.tensor

packable = st.lists(st.lists(st.integers(1, 2**40), max_size=9), min_size=1, max_size=7).filter(any)


@given(packable, st.integers(1, 9))
def test_a_row_is_that_of_the_plain_twin(rows, multiple):
    # The twin walks token by token; it says where each sample begins and what its first label is.
    collate = PackCollator(3, pad_to_multiple_of=multiple, return_seq_idx=True)
    batch = collate([{"input_ids": row} for row in rows])
    ids, labels, positions, owners, edges, longest = packed_row(rows, multiple, 3, -100)
    assert batch["input_ids"].tolist() == [ids]
    assert batch["labels"].tolist() == [labels]
    assert batch["position_ids"].tolist() == [positions]
    assert batch["seq_idx"].tolist() == [owners]
    assert batch["cu_seqlens"].tolist() == edges
    assert batch["max_seqlen"] == longest
    dtypes = [batch[name].dtype for name in ("input_ids", "labels", "position_ids")]
    assert dtypes == [torch.int64] * 3
    assert batch["seq_idx"].dtype == batch["cu_seqlens"].dtype == torch.int32
    assert all(value.is_contiguous() for value in batch.values() if torch.is_tensor(value))


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("with_labels", [False, True])
def test_rows_are_those_of_transformers_collator(maker, with_labels):
    # Who replaces DataCollatorWithFlattening must get the same values, dtypes and keys.
    transformers = pytest.importorskip("transformers")
    samples = [{"input_ids": MAKERS[maker](row)} for row in ROWS]
    if with_labels:
        samples = [{**s, "labels": MAKERS[maker]([1] * len(s["input_ids"]))} for s in samples]
    theirs = transformers.DataCollatorWithFlattening(
        return_flash_attn_kwargs=True, return_seq_idx=True
    )(copy.deepcopy(samples))
    ours = PackCollator(segment_keys="transformers", return_seq_idx=True)(samples)
    assert set(ours) == set(theirs)
    for name, value in theirs.items():
        if torch.is_tensor(value):
            assert ours[name].dtype == value.dtype
            assert torch.equal(ours[name], value)
        else:
            assert ours[name] == value


def test_no_sample_predicts_the_next_ones_first_token():
    # A loss that shifts labels by one pairs the last position of a sample with the first label of
    # the next. Counted by hand: 3 + 1 + 2 tokens, each sample's first is no target.
    batch = PackCollator()([{"input_ids": row} for row in ROWS])
    assert count_tokens(batch["labels"], shift=True).item() == 2 + 0 + 1
    kept = PackCollator(mask_first_labels=False)([{"input_ids": row} for row in ROWS])
    assert kept["labels"].tolist() == [[5, 6, 7, 8, 9, 10]]


def test_a_packed_row_trains_like_its_samples_apart():
    # A model that sees one token at a time is its own proof: the packed loss is the sum of the
    # samples' shifted losses, so nothing was added at the seams and nothing is missing.
    torch.manual_seed(0)
    weights = torch.randn(12, 12)
    batch = PackCollator(pad_to_multiple_of=4)([{"input_ids": row} for row in ROWS])
    packed = functional.cross_entropy(
        weights[batch["input_ids"][0, :-1]], batch["labels"][0, 1:], reduction="sum"
    )
    apart = sum(
        functional.cross_entropy(weights[row[:-1]], torch.tensor(row[1:]), reduction="sum")
        for row in ROWS
        if len(row) > 1
    )
    assert packed.item() == pytest.approx(apart.item(), rel=1e-6)


def test_other_fields_go_along_or_are_kept():
    # As long as the sample: concatenated. Another length: lists of tensors. Numbers: stacked.
    samples = [
        {
            "input_ids": row,
            "token_type_ids": [1] * len(row),
            "features": np.full((len(row), 2), len(row), np.float32),
            "answer": [0.5] * (k + 2),
            "weight": 0.5,
            "name": "x",
        }
        for k, row in enumerate(ROWS)
    ]
    batch = PackCollator(pad_to_multiple_of=8, pad_values={"token_type_ids": 9})(samples)
    assert batch["token_type_ids"].tolist() == [[1] * 6 + [9] * 2]
    assert batch["features"].shape == (1, 8, 2)
    assert batch["features"][0, :, 0].tolist() == [3, 3, 3, 1, 2, 2, 0, 0]
    assert [answer.tolist() for answer in batch["answer"]] == [[0.5] * n for n in (2, 3, 4)]
    assert batch["weight"].tolist() == [0.5] * 3
    assert batch["name"] == ["x"] * 3


def test_the_samples_own_positions_are_kept():
    # Some count from 2 (RoBERTa), or skip what a picture takes.
    samples = [{"input_ids": row, "position_ids": list(range(2, 2 + len(row)))} for row in ROWS]
    assert PackCollator()(samples)["position_ids"].tolist() == [[2, 3, 4, 2, 2, 3]]
    assert "position_ids" not in PackCollator(return_position_ids=False)([{"input_ids": [1]}])


def test_labels_a_sample_are_not_taken_for_labels_a_token():
    # A class for each sample is stacked like any number, and nothing in it is masked.
    samples = [{"input_ids": row, "labels": k} for k, row in enumerate(ROWS)]
    assert PackCollator()(samples)["labels"].tolist() == [0, 1, 2]
    assert "labels" not in PackCollator(make_labels=False)([{"input_ids": [1]}])


def test_a_mask_of_ones_is_left_out_and_one_with_zeros_refused():
    # transformers takes any attention_mask for a padded batch; one with zeros is one.
    whole = [{"input_ids": row, "attention_mask": [1] * len(row)} for row in ROWS]
    assert "attention_mask" not in PackCollator()(whole)
    padded = [{"input_ids": [5, 6, 0], "attention_mask": torch.tensor([1, 1, 0])}]
    with pytest.raises(DataError, match="sample 0 of the batch comes padded"):
        PackCollator()(padded)


def test_a_row_above_max_tokens_is_refused():
    # Filling counts: 6 tokens are a row of 8 here.
    samples = [{"input_ids": row} for row in ROWS]
    assert PackCollator(max_tokens=6)(samples)["input_ids"].shape == (1, 6)
    with pytest.raises(DataError, match="8 tokens, more than max_tokens=7"):
        PackCollator(max_tokens=7, pad_to_multiple_of=8)(samples)


@pytest.mark.parametrize("maker", MAKERS)
def test_samples_are_only_read(maker):
    # Labels are masked in the row, never in the data set.
    samples = [{"input_ids": MAKERS[maker](row), "labels": MAKERS[maker](row)} for row in ROWS]
    batch = PackCollator()(samples)
    batch["input_ids"].fill_(77)
    batch["labels"].fill_(77)
    for sample, row in zip(samples, ROWS, strict=True):
        assert list(sample) == ["input_ids", "labels"]
        assert all([int(token) for token in sample[name]] == row for name in sample)


def test_it_works_in_workers_and_survives_pickling():
    # DataLoader sends the collator to its workers.
    collate = PackCollator(max_tokens=64, segment_keys="none", pad_values={"x": 1})
    assert pickle.loads(pickle.dumps(collate)) == collate
    data = [{"input_ids": row} for row in ROWS]
    loader = DataLoader(data, batch_size=2, collate_fn=collate, num_workers=1)
    assert [batch["input_ids"].tolist() for batch in loader] == [[[5, 6, 7, 8]], [[9, 10]]]
    assert set(collate(data)) == {"input_ids", "labels", "position_ids"}


def test_wrong_use_is_refused():
    # At construction where it can be seen there, else by the batch's first look.
    with pytest.raises(ConfigError, match="segment_keys must be one of cu_seqlens, transformers"):
        PackCollator(segment_keys="flash")
    with pytest.raises(ConfigError, match="max_tokens must be from 1"):
        PackCollator(max_tokens=0)
    with pytest.raises(DataError, match="needs a field 'input_ids' of token ids; got text"):
        PackCollator()([{"text": "x"}])
    with pytest.raises(DataError, match="no token at all"):
        PackCollator()([{"input_ids": []}])
