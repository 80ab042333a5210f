"""Prepared samples as a torch data set."""

import pickle
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from lengthwise.dflash import dataset as subject
from lengthwise.dflash import sample_files
from lengthwise.dflash.dataset import PreparedDataset
from lengthwise.errors import DataError, LengthwiseWarning

ROWS = [([3, 1, 2], [0, 1, 1]), ([5], [1]), ([7, 8, 9, 9], [0, 0, 1, 1]), ([4, 4], [1, 0])] * 3


def write(path, rows=ROWS, *, ids=None, mask=None, group=3, lengths=None, wrap=pa.list_):
    ids, mask = ids or pa.int32(), mask or pa.bool_()
    columns = {
        "input_ids": pa.array([row[0] for row in rows], wrap(ids)),
        "loss_mask": pa.array(
            [row[1] and [bool(v) if pa.types.is_boolean(mask) else v for v in row[1]]
             for row in rows], wrap(mask)),
        "task": pa.array(["t"] * len(rows)),
    }  # fmt: skip
    if lengths is None:
        lengths = [len(row[0]) for row in rows]
    if lengths:
        columns["seq_len"] = pa.array(lengths, pa.int32())
    pq.write_table(pa.table(columns), path, row_group_size=group)
    return path


def check(found, rows):
    assert len(found) == len(rows)
    assert found.lengths.tolist() == [len(ids) for ids, _ in rows]
    assert found.lengths.dtype == np.int64
    for place, (ids, mask) in enumerate(rows):
        sample = found[place]
        assert sample["input_ids"].dtype == torch.int64
        assert sample["loss_mask"].dtype == torch.bool
        assert sample["input_ids"].tolist() == ids
        assert sample["loss_mask"].tolist() == [bool(one) for one in mask]
        assert sample["sample_id"] == place


@pytest.mark.parametrize("ids", [pa.int32(), pa.int64(), pa.uint32(), pa.uint16()])
@pytest.mark.parametrize("mask", [pa.bool_(), pa.int8(), pa.int64()])
@pytest.mark.parametrize("wrap", [pa.list_, pa.large_list])
def test_every_sample_comes_back_in_any_usual_types(tmp_path, ids, mask, wrap):
    # Our own files have int32 and bool; those of others int64, int8 and so on.
    check(PreparedDataset(write(tmp_path / "a.parquet", ids=ids, mask=mask, wrap=wrap)), ROWS)


def test_files_without_seq_len_are_measured_by_their_lists(tmp_path):
    check(PreparedDataset(write(tmp_path / "a.parquet", lengths=())), ROWS)


def test_a_directory_and_a_list_of_files_count_on(tmp_path):
    first = write(tmp_path / "samples-00000.parquet", ROWS[:5])
    second = write(tmp_path / "samples-00001.parquet", ROWS[5:])
    (tmp_path / "card.json").write_text("{}")
    (tmp_path / "README.md").write_text("")
    check(PreparedDataset(tmp_path), ROWS)
    check(PreparedDataset([first, str(second)]), ROWS)
    check(PreparedDataset([second, first]), ROWS[5:] + ROWS[:5])


def test_an_empty_file_among_others_adds_nothing(tmp_path):
    empty = write(tmp_path / "a.parquet", [])
    full = write(tmp_path / "b.parquet")
    check(PreparedDataset([empty, full, empty]), ROWS)
    assert len(PreparedDataset(empty)) == 0


def test_indices_count_from_the_end_and_stop_there(tmp_path):
    found = PreparedDataset(write(tmp_path / "a.parquet"))
    assert found[-1]["sample_id"] == 11
    assert found[np.int64(2)]["input_ids"].tolist() == ROWS[2][0]
    for index in (12, -13):
        with pytest.raises(IndexError, match=f"sample {index} of 12"):
            found[index]


def test_samples_are_the_callers_own(tmp_path):
    found = PreparedDataset(write(tmp_path / "a.parquet"))
    found[0]["input_ids"].zero_()
    found[0]["loss_mask"].fill_(True)
    check(found, ROWS)


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.booleans()), min_size=1), max_size=9),
    st.integers(1, 9),
    st.randoms(use_true_random=False),
)
def test_any_rows_in_any_row_groups_in_any_order(tmp_path_factory, rows, group, random):
    rows = [([one for one, _ in row], [two for _, two in row]) for row in rows]
    path = tmp_path_factory.mktemp("any") / "a.parquet"
    found = PreparedDataset(write(path, rows, group=group))
    order = list(range(len(rows)))
    random.shuffle(order)
    for place in order:
        assert found[place]["input_ids"].tolist() == rows[place][0]
        assert found[place]["loss_mask"].tolist() == rows[place][1]


def count_reads(monkeypatch):
    reads = []
    plain = sample_files.SampleFile.read_group

    def counted(self, index):
        reads.append((self.path, index))
        return plain(self, index)

    monkeypatch.setattr(sample_files.SampleFile, "read_group", counted)
    return reads


def test_opening_reads_no_token_and_reading_in_order_decodes_each_group_once(tmp_path, monkeypatch):
    path = write(tmp_path / "a.parquet")
    reads = count_reads(monkeypatch)
    found = PreparedDataset(path, vocab_size=10)  # the footer's statistics are enough
    assert len(found.lengths) == 12
    assert reads == []
    monkeypatch.setattr(subject, "CACHE_BYTES", 0)
    for place in range(12):
        found[place]
    assert [index for _, index in reads] == [0, 1, 2, 3]
    found[0]
    assert len(reads) == 5  # nothing but the latest group was kept


def test_groups_are_kept_within_the_bytes_allowed(tmp_path, monkeypatch):
    found = PreparedDataset(write(tmp_path / "a.parquet"))
    reads = count_reads(monkeypatch)
    for _ in range(3):
        for place in range(12):
            found[place]
    assert len(reads) == 4


def test_it_goes_to_workers_without_its_decoded_tokens(tmp_path):
    found = PreparedDataset(write(tmp_path / "a.parquet"))
    bare = len(pickle.dumps(found))
    found[0]
    assert len(pickle.dumps(found)) == bare
    check(pickle.loads(pickle.dumps(found)), ROWS)
    loader = DataLoader(
        found, batch_size=None, num_workers=2, multiprocessing_context="fork", timeout=60
    )
    assert [sample["sample_id"] for sample in loader] == list(range(12))


def test_a_process_that_has_warmed_up_imports_nothing_for_the_first_sample(tmp_path):
    # An import of a third of a second held up the first step of every run of the pipeline.
    dataset = PreparedDataset(write(tmp_path / "a.parquet"))
    place = tmp_path / "dataset"
    place.write_bytes(pickle.dumps(dataset))
    program = (
        "import pickle, sys\n"
        f"dataset = pickle.loads(open({str(place)!r}, 'rb').read())\n"
        "before = set(sys.modules)\n"
        "dataset.warm_up()\n"
        "warm = set(sys.modules)\n"
        "dataset[len(dataset) - 1]\n"
        "print(len(warm - before), sorted(set(sys.modules) - warm))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    imported, late = done.stdout.strip().split(" ", 1)
    assert int(imported) > 0, "a process that only has the data set has yet to import something"
    assert late == "[]"


def test_warming_up_leaves_bad_samples_to_who_asks_for_them(tmp_path):
    dataset = PreparedDataset(write(tmp_path / "a.parquet", [([1, None], [0, 1]), ([2], [1])]))
    dataset.warm_up()
    with pytest.raises(DataError, match="row 0"):
        dataset[0]


def test_an_empty_data_set_needs_no_warming_up(tmp_path):
    PreparedDataset(write(tmp_path / "a.parquet", [])).warm_up()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"lengths": [3, 1, 4, 2] * 2 + [3, 1, 5, 2]},
         r"rows 9 to 11 .*input_ids \(the first: row 10 with 5 and 4\)"),
        ({"rows": [([1, 2], [0, 1]), ([1, 2], [1])]},
         r"loss_mask \(the first: row 1 with 2 and 1\)"),
    ],
)  # fmt: skip
def test_lengths_that_do_not_fit_are_found_on_opening(tmp_path, change, words):
    # Row 10 of twelve says 5 tokens and has 4; the footer's count of values gives it away.
    path = write(tmp_path / "a.parquet", **change)
    with pytest.raises(DataError, match=words):
        PreparedDataset(path)


def test_lengths_that_make_up_for_each_other_are_found_on_reading(tmp_path):
    path = write(tmp_path / "a.parquet", ROWS[:2], lengths=[2, 2])
    found = PreparedDataset(path)
    with pytest.raises(DataError, match=r"row 0 .*seq_len is 2 and input_ids has 3"):
        found[0]
    path = write(tmp_path / "b.parquet", [([1, 2], [1]), ([1], [1, 1])])
    with pytest.raises(DataError, match=r"row 1 .*input_ids has 1 tokens and loss_mask 2"):
        PreparedDataset(path)[1]


def test_an_id_outside_the_vocabulary_is_named_with_or_without_statistics(tmp_path):
    rows = [*ROWS, ([1, 77, 2], [1, 1, 1])]
    for statistics in (True, False):
        path = tmp_path / f"{statistics}.parquet"
        write(path, rows)
        table = pq.read_table(path)
        pq.write_table(table, path, row_group_size=3, write_statistics=statistics)
        assert len(PreparedDataset(path, vocab_size=78)) == 13
        with pytest.raises(DataError, match=r"row 12 .*input_ids has 77.*ends at 76"):
            PreparedDataset(path, vocab_size=77)
    negative = write(tmp_path / "n.parquet", [([1, -100], [1, 1])])
    with pytest.raises(DataError, match=r"row 0 .*input_ids has -100"):
        PreparedDataset(negative, vocab_size=77)


def test_nulls_are_named(tmp_path):
    path = write(tmp_path / "a.parquet", [([1, 2], [1, 1]), ([3, None], [1, 1])])
    with pytest.raises(DataError, match=r"row 1 .*input_ids has a null"):
        PreparedDataset(path)[0]
    path = write(tmp_path / "b.parquet", [([1], [1]), ([3], None)])
    with pytest.raises(DataError, match=r"row 1 .*loss_mask has a null"):
        PreparedDataset(path)[0]
    path = write(tmp_path / "c.parquet", [([1], [1]), ([], [])], lengths=())
    with pytest.raises(DataError, match=r"row 1"):
        PreparedDataset(path)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"ids": [[1]]}, "no column 'input_ids' but ids"),
        ({"input_ids": [[1]]}, "no column 'loss_mask'"),
        ({"input_ids": [1], "loss_mask": [[1]]}, "input_ids must be lists of whole numbers"),
        ({"input_ids": [[1.5]], "loss_mask": [[1]]}, "input_ids must be lists of whole numbers"),
        ({"input_ids": [[1]], "loss_mask": [["x"]]}, "loss_mask must be lists of true and false"),
    ],
)
def test_columns_that_are_no_samples_are_refused(tmp_path, table, words):
    pq.write_table(pa.table(table), tmp_path / "a.parquet")
    with pytest.raises(DataError, match=words):
        PreparedDataset(tmp_path / "a.parquet")


def test_what_is_no_parquet_file_is_refused(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"no")
    with pytest.raises(DataError, match="no Parquet file"):
        PreparedDataset(tmp_path / "a.parquet")


def test_row_groups_too_large_to_read_at_random_are_warned_about(tmp_path, monkeypatch):
    monkeypatch.setattr(sample_files, "LARGE_GROUP_BYTES", 100)
    path = write(tmp_path / "a.parquet", ROWS * 50, group=10_000)
    with pytest.warns(LengthwiseWarning, match="row_group_size=256"):
        PreparedDataset(path)
