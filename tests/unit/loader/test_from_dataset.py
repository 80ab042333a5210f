"""Lengths of a data set: from the object the loader indexes, cheaply or not at all."""

import datasets
import numpy as np
import pytest
import torch
from torch.utils.data import ConcatDataset, Dataset, IterableDataset, Subset, random_split

from lengthwise.errors import BadLengthError, ColumnError, ConfigError, DataError, LengthwiseWarning
from lengthwise.loader import BucketBatchSampler, from_dataset
from lengthwise.loader.from_dataset import lengths_of
from support.loader_runs import flat, heavy_tail

LENGTHS = heavy_tail(40, most=60)


class Rows(Dataset):
    """Samples that count how often they are read, and lengths where wanted."""

    def __init__(self, counts, lengths=None):
        self.counts = list(counts)
        self.num_read = 0
        if lengths is not None:
            self.lengths = lengths

    def __len__(self):
        return len(self.counts)

    def __getitem__(self, index):
        self.num_read += 1
        return {"input_ids": [7] * int(self.counts[index])}


def token_table(counts=LENGTHS):
    return datasets.Dataset.from_dict({"input_ids": [[7] * int(count) for count in counts]})


def real_lengths(dataset, key="input_ids"):
    """The slow way: what the loader would get, row by row."""
    return [len(dataset[row][key]) for row in range(len(dataset))]


@pytest.mark.parametrize(
    "change",
    [
        lambda ds: ds,
        lambda ds: ds.shuffle(seed=1).select(range(30)),
        lambda ds: ds.filter(lambda row: len(row["input_ids"]) > 12),
        lambda ds: datasets.concatenate_datasets([ds, ds.select(range(3))]),
        lambda ds: ds.with_format("torch"),
    ],
    ids=["plain", "shuffled and selected", "filtered", "concatenated", "torch format"],
)
def test_a_hugging_face_data_set_tells_the_lengths_of_the_rows_it_shows(change):
    """B04: after shuffle or select the table behind it is still the old one."""
    dataset = change(token_table())
    assert lengths_of(dataset).tolist() == real_lengths(dataset)


def test_the_rows_of_a_hugging_face_data_set_are_not_decoded(monkeypatch):
    """B01: reading whole rows takes hours where a column takes seconds."""
    table = token_table().add_column("text", ["word"] * 40)
    table = table.add_column("length", LENGTHS)

    def never(*_):
        raise AssertionError("a row was read")

    monkeypatch.setattr(datasets.Dataset, "_getitem", never)
    assert lengths_of(table, column="length").tolist() == LENGTHS.tolist()
    assert lengths_of(table, column="input_ids").tolist() == LENGTHS.tolist()
    assert lengths_of(table).tolist() == LENGTHS.tolist()


def test_text_without_lengths_and_columns_that_are_missing_are_errors_that_say_what_to_do():
    texts = datasets.Dataset.from_dict({"text": ["a b", "c"]})
    with pytest.raises(ColumnError, match=r"no column of lengths found.*ds\.map"):
        lengths_of(texts)
    with pytest.raises(ColumnError, match="there is no column 'size'"):
        lengths_of(token_table(), column="size")


def test_b02_rows_that_are_made_on_access_are_refused_not_taken_for_what_lies_behind_them():
    """The stored columns are not what the loader sees once a transform tokenizes on the fly."""
    raw = token_table().with_transform(lambda rows: {"input_ids": [[1, 2, 3]] * len(rows)})
    with pytest.raises(ColumnError, match="makes its rows on access"):
        lengths_of(raw)


@pytest.mark.parametrize("own", [LENGTHS, LENGTHS.tolist(), lambda: LENGTHS, torch.tensor(LENGTHS)])
def test_a_data_set_that_knows_its_lengths_is_asked_and_never_read(own):
    dataset = Rows(LENGTHS, own)
    assert lengths_of(dataset).tolist() == LENGTHS.tolist()
    assert lengths_of(dataset).dtype == np.int64
    assert dataset.num_read == 0


def test_parts_of_data_sets_have_the_lengths_of_their_samples():
    """Subset, random_split and ConcatDataset, nested, over torch and Hugging Face data sets."""
    rows, table = Rows(LENGTHS, LENGTHS), token_table(LENGTHS[::-1])
    first, second = random_split(rows, [30, 10], torch.Generator().manual_seed(3))
    nested = Subset(ConcatDataset([second, table, Subset(first, [4, 4, 0])]), [51, 2, 9, 10, 52])
    for dataset in (first, second, Subset(table, range(5, 9)), nested):
        found = lengths_of(dataset)
        assert found.tolist() == real_lengths(dataset)


def test_b02_a_wrapper_is_never_looked_through():
    """It may tokenize: the data set inside has other lengths, or none, than the loader sees."""

    class Tokenizing(Dataset):
        def __init__(self, dataset):
            self.dataset = dataset

        def __len__(self):
            return len(self.dataset)

        def __getitem__(self, index):
            return {"input_ids": self.dataset[index]["input_ids"] * 2}

    class Doubling(Subset):
        def __getitem__(self, index):
            return {"input_ids": super().__getitem__(index)["input_ids"] * 2}

        def __getitems__(self, indices):
            return [self[index] for index in indices]

    inner = Rows(LENGTHS, LENGTHS)
    for wrapped in (Tokenizing(inner), Doubling(inner, range(40))):
        with pytest.raises(DataError, match=f"the lengths of a {type(wrapped).__name__} are not"):
            lengths_of(wrapped)
        assert lengths_of(wrapped, scan=True).tolist() == (2 * LENGTHS).tolist()


def test_a_data_set_without_cheap_lengths_is_refused_with_the_ways_out_and_not_read():
    dataset = Rows(LENGTHS)
    with pytest.raises(DataError) as caught:
        lengths_of(dataset)
    for way_out in ("lengths=", "`lengths`", "scan=True", "length_fn="):
        assert way_out in str(caught.value)
    with pytest.raises(ConfigError, match="allow that with scan=True"):
        lengths_of(dataset, length_fn=len)
    assert dataset.num_read == 0


def test_a_scan_reads_every_sample_once_and_tells_how_many(capsys, monkeypatch):
    dataset = Rows(LENGTHS)
    monkeypatch.setattr(from_dataset, "REPORT_EVERY_SECONDS", 0.0)
    assert lengths_of(dataset, scan=True).tolist() == LENGTHS.tolist()
    assert dataset.num_read == 40
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "lengthwise: read 20 of 40 samples (50%)" in printed.err
    assert "read 40 samples for their lengths" in printed.err


def test_a_scan_with_a_function_of_the_sample():
    found = lengths_of(Rows(LENGTHS), length_fn=lambda row: len(row["input_ids"]) + 1, scan=True)
    assert found.tolist() == (LENGTHS + 1).tolist()
    tokens = datasets.Dataset.from_dict({"text": ["a b c", "d"]})
    found = lengths_of(tokens, length_fn=lambda row: len(row["text"].split()), scan=True)
    assert found.tolist() == [3, 1]


@pytest.mark.parametrize("wrong", [0, -1, 2.5, None, True, "3"])
def test_a_function_that_returns_no_length_is_named_with_its_row(wrong):
    def length(row):
        return wrong if len(row["input_ids"]) == 5 else 4

    with pytest.raises(BadLengthError, match=r"row 2: length_fn returned"):
        lengths_of(Rows([3, 4, 5, 6]), length_fn=length, scan=True)


def test_zero_lengths_are_an_error_and_equal_ones_a_warning():
    """B02: a probe that finds nothing leaves every length at 0; then grouping does nothing."""
    with pytest.raises(BadLengthError, match="position 0 is 0"):
        lengths_of(Rows(LENGTHS, [0] * 40))
    with pytest.raises(BadLengthError, match="row 1"):
        lengths_of(datasets.Dataset.from_dict({"length": [4, 0, 3]}))
    with pytest.warns(LengthwiseWarning, match="all 40 lengths are 512"):
        lengths_of(Rows(LENGTHS, [512] * 40))


def test_other_than_one_length_a_sample_is_an_error():
    with pytest.raises(DataError, match="has 40 samples and 39 lengths"):
        lengths_of(Rows(LENGTHS, LENGTHS[1:]))


def test_streams_have_no_row_numbers_and_are_sent_to_the_streaming_batcher():
    class Stream(IterableDataset):
        def __iter__(self):
            return iter([{"input_ids": [1]}])

    for stream in (Stream(), token_table().to_iterable_dataset(), iter([[1], [2]])):
        for scan in (False, True):
            with pytest.raises(DataError, match="StreamingBucketBatcher"):
                lengths_of(stream, scan=scan)


def test_a_column_of_a_data_set_without_columns_is_an_error():
    with pytest.raises(ColumnError, match="has no columns"):
        lengths_of(Rows(LENGTHS, LENGTHS), column="length")


def test_lists_in_memory_are_data_sets_too():
    assert lengths_of([[1, 2], [3], [4, 5, 6]]).tolist() == [2, 1, 3]
    assert lengths_of([{"input_ids": [1, 2]}, {"input_ids": [3]}]).tolist() == [2, 1]


def test_from_dataset_makes_a_sampler_of_the_data_sets_lengths():
    dataset = token_table().shuffle(seed=4)
    options = {"max_tokens": 200, "rank": 0, "num_replicas": 1}
    sampler = BucketBatchSampler.from_dataset(dataset, column="input_ids", **options)
    assert sampler.planner.lengths.tolist() == real_lengths(dataset)
    assert sorted(flat(sampler)) == list(range(40))
    counted = BucketBatchSampler.from_dataset(
        Rows(LENGTHS), length_fn=lambda row: len(row["input_ids"]), scan=True, **options
    )
    assert counted.planner.lengths.tolist() == LENGTHS.tolist()
    with pytest.raises(DataError, match="are not known"):
        BucketBatchSampler.from_dataset(Rows(LENGTHS), **options)
