"""PadCollator: what it makes of any fields, against a plain twin and transformers' collator."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import lengthwise as lw
from lengthwise.errors import ConfigError, DataError
from lengthwise.loader.batch_sampler import BucketBatchSampler
from lengthwise.loader.pad import PadCollator
from support.twins_collate import mask_rows, padded_rows, rounded_up

ROWS = [[1, 2, 3], [4], [5, 6]]
MAKERS = {
    "lists": list,
    "tuples": tuple,
    "int32 arrays": lambda row: np.array(row, np.int32),
    "uint16 arrays": lambda row: np.array(row, np.uint16),
    "big-endian arrays": lambda row: np.array(row, ">i8"),
    "int64 tensors": torch.tensor,
    "int32 tensors": lambda row: torch.tensor(row, dtype=torch.int32),
    "a view with strides": lambda row: torch.tensor([row, row]).T[:, 0],
}

token_rows = st.lists(st.lists(st.integers(0, 2**40), max_size=9), min_size=1, max_size=7)
sides = st.sampled_from(["right", "left"])


@given(token_rows, sides, st.integers(1, 9), st.sampled_from(["lists", "int64 tensors"]))
def test_token_ids_labels_and_mask_are_those_of_the_plain_twin(rows, side, multiple, maker):
    # The twin pads one token at a time, from the definition.
    make = MAKERS[maker] if any(rows) else list
    collate = PadCollator(7, padding_side=side, pad_to_multiple_of=multiple, return_lengths=True)
    batch = collate([{"input_ids": make(row), "labels": make(row)} for row in rows])
    width = rounded_up(max(map(len, rows)), multiple)
    assert batch["input_ids"].tolist() == padded_rows(rows, width, 7, side)
    assert batch["labels"].tolist() == padded_rows(rows, width, -100, side)
    assert batch["attention_mask"].tolist() == mask_rows(rows, width, side)
    assert batch["lengths"].tolist() == [len(row) for row in rows]


@pytest.mark.parametrize("maker", MAKERS)
def test_token_ids_of_any_kind_become_int64(maker):
    # Embeddings and cross_entropy want int64; the values are the same however they came.
    batch = PadCollator(9)([{"input_ids": MAKERS[maker](row)} for row in ROWS])
    assert batch["input_ids"].dtype == torch.int64
    assert batch["input_ids"].tolist() == [[1, 2, 3], [4, 9, 9], [5, 6, 9]]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (lambda n: [0.5] * n, torch.float32),
        (lambda n: [1] * (n - 1) + [0.5], torch.float32),
        (lambda n: [0.5] * (n - 1) + [1], torch.float32),
        (lambda n: np.full(n, 0.5), torch.float64),
        (lambda n: np.full(n, 0.5, np.float16), torch.float16),
        (lambda n: torch.full((n,), 0.5, dtype=torch.bfloat16), torch.bfloat16),
        (lambda n: np.full((n, 4), 3, np.uint8), torch.uint8),
        (lambda n: [[0.5, 0.25]] * n, torch.float32),
        (lambda n: [np.array([0.5, 0.25], np.float32)] * n, torch.float32),
        (lambda n: [True] * n, torch.bool),
        (lambda n: torch.ones(n, 2, 3, dtype=torch.complex64), torch.complex64),
    ],
)
def test_other_numbers_keep_their_dtype_and_their_trailing_shape(value, dtype):
    # Floats of lists take torch's default; arrays and tensors say what they are. Padding is zero.
    lengths = [3, 1, 2]
    samples = [{"input_ids": [1] * n, "x": value(n)} for n in lengths]
    found = PadCollator()(samples)["x"]
    assert found.dtype == dtype
    assert found.is_contiguous()
    for row, sample, length in zip(found, samples, lengths, strict=True):
        inside = (
            torch.as_tensor(np.asarray(sample["x"])) if dtype != torch.bfloat16 else sample["x"]
        )
        assert torch.equal(row[:length], inside.to(dtype))
        assert not row[length:].any()


def test_speech_features_are_padded_along_time():
    # (time, feature) arrays of unequal time: the first dimension is padded, the second kept.
    rng = np.random.default_rng(0)
    samples = [{"input_features": rng.random((n, 3), np.float32), "rate": 16_000} for n in (5, 2)]
    batch = PadCollator(pad_values={"input_features": -1.0})(samples)
    assert batch["input_features"].shape == (2, 5, 3)
    assert (batch["input_features"][1, 2:] == -1).all()
    assert torch.equal(batch["input_features"][1, :2], torch.tensor(samples[1]["input_features"]))
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0]]
    assert batch["rate"].tolist() == [16_000, 16_000]


def test_fields_of_another_length_are_padded_on_their_own():
    # A translation's target is not as long as its source: own width, no rounding, own fill.
    samples = [
        {"input_ids": [1, 2, 3], "labels": [4, 5, 6, 7, 8]},
        {"input_ids": [1], "labels": [9]},
    ]
    batch = PadCollator(pad_to_multiple_of=8)(samples)
    assert batch["input_ids"].shape == (2, 8)
    assert batch["labels"].tolist() == [[4, 5, 6, 7, 8], [9, -100, -100, -100, -100]]


def test_a_separate_field_keeps_its_own_width_even_by_accident():
    # One sample whose answer happens to be as long as the prompt must not change the shape.
    samples = [{"input_ids": [1, 2], "answer": [3, 4]}]
    assert PadCollator(pad_to=8)(samples)["answer"].shape == (1, 8)
    assert PadCollator(pad_to=8, separate=("answer",))(samples)["answer"].shape == (1, 2)


def test_numbers_are_stacked_and_other_objects_stay_a_list():
    # As default_collate does it for numbers; strings and None cannot be tensors.
    samples = [
        {
            "n": 1,
            "f": 0.5,
            "b": True,
            "t": torch.tensor(2.0),
            "a": np.float64(3),
            "s": "x",
            "o": None,
        },
        {
            "n": 2,
            "f": 1.5,
            "b": False,
            "t": torch.tensor(4.0),
            "a": np.float64(5),
            "s": "y",
            "o": {},
        },
    ]
    batch = PadCollator()(samples)
    assert batch["n"].tolist() == [1, 2]
    assert batch["n"].dtype == torch.int64
    assert batch["f"].dtype == torch.float32
    assert batch["b"].dtype == torch.bool
    assert batch["t"].tolist() == [2, 4]
    assert batch["a"].dtype == torch.float64
    assert batch["s"] == ["x", "y"]
    assert batch["o"] == [None, {}]
    assert "attention_mask" not in batch


def test_a_mask_that_samples_bring_is_padded_with_zero():
    # It may hide tokens inside a sample; making one anew would show them.
    samples = [
        {"input_ids": [1, 2, 3], "attention_mask": [1, 0, 1], "special_tokens_mask": [1, 0, 0]},
        {"input_ids": [1], "attention_mask": [1], "special_tokens_mask": [0]},
    ]
    batch = PadCollator(5)(samples)
    assert batch["attention_mask"].tolist() == [[1, 0, 1], [1, 0, 0]]
    assert batch["special_tokens_mask"].tolist() == [[1, 0, 0], [0, 1, 1]]
    assert "attention_mask" not in PadCollator(attention_mask=False)([{"input_ids": [1]}])


def test_dtypes_override_also_where_numpy_has_no_such_dtype():
    # bfloat16 is unknown to numpy, so the copy goes through torch.
    samples = [
        {"input_ids": [1, 2], "x": [0.5, 1.5], "n": 3},
        {"input_ids": [3], "x": [2.5], "n": 4},
    ]
    dtypes = {"input_ids": torch.int32, "x": torch.bfloat16, "n": torch.int16}
    batch = PadCollator(dtypes=dtypes)(samples)
    assert {name: batch[name].dtype for name in dtypes} == dtypes
    assert batch["x"].tolist() == [[0.5, 1.5], [2.5, 0]]


@pytest.mark.parametrize(
    ("longest", "width"), [(3, 4), (4, 4), (5, 9), (9, 9), (10, 16), (15, 16), (16, 16), (17, 17)]
)
def test_boundaries_pad_to_the_top_of_the_bucket(longest, width):
    # Buckets [0, 5), [5, 10), [10, 17): tops 4, 9, 16. Above them a batch keeps its own longest.
    collate = PadCollator(pad_to=[0, 5, 10, 17])
    assert (
        collate([{"input_ids": [1] * longest}, {"input_ids": [2]}])["input_ids"].shape[1] == width
    )


def test_a_fixed_length_pads_every_batch_and_refuses_longer_samples():
    # A compiled graph has one shape; a longer sample must be an error or be cut on purpose.
    assert PadCollator(pad_to=6)([{"input_ids": [1]}])["input_ids"].shape == (1, 6)
    with pytest.raises(DataError, match="7 tokens, more than pad_to=6"):
        PadCollator(pad_to=6)([{"input_ids": [1] * 7}])
    cut = PadCollator(pad_to=6, max_length=6)([{"input_ids": list(range(7)), "labels": [1] * 7}])
    assert cut["input_ids"].tolist() == [[0, 1, 2, 3, 4, 5]]
    assert cut["labels"].shape == (1, 6)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"boundaries": (0, 20, 40, 90), "pad_to_boundary": True},
        {"boundaries": (0, 20, 40, 90), "pad_to_boundary": True, "oversize": "drop"},
        {"boundaries": (0, 20, 40, 90), "pad_to_boundary": True, "oversize": "single"},
        {"boundaries": (0, 20, 40, 90), "pad_to_boundary": True, "oversize": "truncate"},
        {"num_buckets": 3, "batch_sizing": "fixed"},
    ],
)
def test_the_collator_of_a_planner_pads_every_batch_as_the_plan_counts_it(settings):
    # A plan promises padded tokens within the budget; the collator has to keep that promise.
    rng = np.random.default_rng(3)
    oversize = "oversize" in settings
    lengths = rng.integers(1, 80 if oversize else 62, 300)
    limits = lw.BatchLimits(max_tokens=64 if oversize else 400, pad_to_multiple_of=4)
    planner = lw.Planner(lengths, lw.BatchingConfig(limits=limits, **settings))
    plan = planner.plan(0)
    collate = PadCollator.for_sampler(planner)
    for index in range(plan.num_batches):
        samples = [{"input_ids": np.ones(lengths[i], np.int64)} for i in plan.batch(index)]
        batch = collate(samples)
        assert batch["input_ids"].shape == (len(samples), plan.batches.padded[index])
        assert batch["attention_mask"].sum() == plan.batches.tokens[index]


def test_what_the_plan_decides_cannot_be_said_again():
    # Two values for one thing would let batches exceed the plan.
    config = lw.BatchingConfig(limits=lw.BatchLimits(max_tokens=64))
    planner = lw.Planner([5, 6, 7], config)
    sampler = BucketBatchSampler.from_planner(planner, rank=0)
    assert PadCollator.for_sampler(sampler) == PadCollator.for_sampler(planner)
    with pytest.raises(ConfigError, match="the plan decides pad_to_multiple_of"):
        PadCollator.for_sampler(planner, pad_to_multiple_of=8)
    assert PadCollator.for_sampler(planner, 3, padding_side="left").pad_token_id == 3


@pytest.mark.parametrize("make", [list, np.array, torch.tensor])
def test_samples_are_only_read(make):
    # A data set in memory hands out the same objects every epoch.
    samples = [{"input_ids": make(row), "labels": make(row)} for row in ROWS]
    before = copy.deepcopy(samples)
    batch = PadCollator(max_length=2)(samples)
    batch["input_ids"].fill_(77)
    batch["labels"].fill_(77)
    for sample, old in zip(samples, before, strict=True):
        assert sample.keys() == old.keys()
        assert all(list(sample[name]) == list(old[name]) for name in old)


def test_tensors_are_fresh_contiguous_and_alone_in_their_storage():
    # What pin_memory and sending between processes copy is the storage, not the view.
    samples = [{"input_ids": torch.tensor(row), "n": 1} for row in ROWS]
    for tensor in PadCollator(return_lengths=True)(samples).values():
        assert tensor.is_contiguous()
        assert tensor.untyped_storage().nbytes() == tensor.nbytes


def test_it_works_in_workers_and_survives_pickling():
    # DataLoader sends the collator to its workers; two batches come back as they would here.
    data = [{"input_ids": row, "text": "x"} for row in ROWS]
    collate = PadCollator(9, pad_to=[0, 3, 5], pad_values={"labels": -1})
    assert pickle.loads(pickle.dumps(collate)) == collate
    loader = DataLoader(data, batch_size=2, collate_fn=collate, num_workers=1)
    found = [batch["input_ids"].tolist() for batch in loader]
    assert found == [[[1, 2, 3, 9], [4, 9, 9, 9]], [[5, 6]]]


@pytest.mark.parametrize(
    ("samples", "message"),
    [
        ([], "at least one sample"),
        ([[1, 2]], "sample 0 of the batch is list"),
        ([{"input_ids": [1]}, {"input_ids": [1], "labels": [1]}], "sample 1 .* differ in labels"),
        ([{"x": [1]}, {"x": 1}], r"field 'x' .* sample 0 has list .* sample 1 has int"),
        ([{"x": [1]}, {"x": None}], r"sample 1 has NoneType \(other\)"),
        ([{"x": np.ones((2, 3))}, {"x": np.ones((2, 4))}], r"sample 0 is \(2, 3\), sample 1 is"),
        ([{"x": [1, "a"]}], "field 'x' of sample 0"),
        ([{"x": [[1, 2], [3]]}], "field 'x' of sample 0 is no array of numbers"),
        ([{"x": [1, 2**80]}], "field 'x' of sample 0"),
    ],
)
def test_samples_that_make_no_batch_are_refused_by_field_and_sample(samples, message):
    # Each would otherwise surface as a shape error somewhere in the model, or lose a field.
    with pytest.raises(DataError, match=message):
        PadCollator()(samples)


def test_other_wrong_uses_name_the_way_out():
    with pytest.raises(DataError, match="no field of sequences; the samples have x"):
        PadCollator(length_field="input_ids")([{"x": [1]}])
    with pytest.raises(DataError, match="but the samples have one"):
        PadCollator(return_lengths=True)([{"input_ids": [1], "lengths": 3}])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"padding_side": "up"}, "right or left, got 'up'"),
        ({"pad_token_id": None}, "pad_token_id must be an integer"),
        ({"pad_to_multiple_of": 0}, "pad_to_multiple_of must be from 1"),
        ({"max_length": 0}, "max_length must be from 1"),
        ({"pad_to": [5]}, "at least two strictly rising boundaries"),
        ({"pad_to": [0, 5, 5]}, "strictly rising"),
        ({"pad_to": 2.5}, "a length or boundaries, got 2.5"),
        ({"separate": "labels"}, "collection of names"),
    ],
)
def test_settings_that_cannot_work_are_refused_at_construction(settings, message):
    # Not in a worker, at the first batch.
    with pytest.raises(ConfigError, match=message):
        PadCollator(**settings)


@pytest.fixture(scope="module")
def tokenizer():
    """A tokenizer of transformers without any file; only its ``pad`` is used."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = Tokenizer(WordLevel({"[PAD]": 0, "[UNK]": 1}, unk_token="[UNK]"))
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]"
    )


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("multiple", [1, 8])
@pytest.mark.parametrize("make", [list, np.array, torch.tensor])
def test_batches_are_those_of_transformers_collator(tokenizer, side, multiple, make):
    # Who replaces DataCollatorWithPadding must get the same tensors: values, dtypes and keys.
    from transformers import DataCollatorWithPadding

    rng = np.random.default_rng(1)
    rows = [rng.integers(2, 1000, n).tolist() for n in (17, 3, 9, 1)]
    samples = [
        {"input_ids": make(r), "token_type_ids": make([1] * len(r)), "labels": k}
        for k, r in enumerate(rows)
    ]
    tokenizer.padding_side = side
    theirs = DataCollatorWithPadding(tokenizer, pad_to_multiple_of=multiple)(
        [dict(sample) for sample in samples]
    )
    ours = PadCollator(0, padding_side=side, pad_to_multiple_of=multiple)(samples)
    assert set(ours) == set(theirs)
    for name, tensor in theirs.items():
        assert ours[name].dtype == tensor.dtype
        assert torch.equal(ours[name], tensor)
