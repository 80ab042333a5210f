"""Which column is taken, and what is said where none or several would do."""

import json

import numpy as np
import pyarrow as pa
import pytest

from lengthwise.errors import ColumnError, DataError
from lengthwise.lengths.api import scan_lengths
from lengthwise.lengths.columns import LENGTH_NAMES

IDS = [[1, 2], [3], [4, 5, 6]]
NUMBERS = [20, 30, 10]


def _column(table, **options):
    return scan_lengths(pa.table(table), **options).column


@pytest.mark.parametrize("name", [*sorted(LENGTH_NAMES), "Length", "NUM_TOKENS"])
def test_a_column_of_numbers_under_a_usual_name_is_found(name):
    assert _column({"id": [1, 2, 3], name: NUMBERS, "text": ["a", "b", "c"]}) == name


@pytest.mark.parametrize("name", ["input_ids", "tokens", "token_ids", "ids"])
def test_a_list_of_tokens_under_a_usual_name_is_found(name):
    assert _column({"id": [1, 2, 3], name: IDS, "label": [0, 1, 0]}) == name


def test_numbers_come_before_lists_and_input_ids_before_other_lists():
    assert _column({"input_ids": IDS, "num_tokens": NUMBERS}) == "num_tokens"
    assert _column({"tokens": IDS, "input_ids": IDS, "labels": IDS}) == "input_ids"


@pytest.mark.parametrize(
    "table",
    [{"length": NUMBERS, "num_tokens": NUMBERS}, {"tokens": IDS, "token_ids": IDS}],
)
def test_two_equally_good_columns_are_asked_about(table):
    first, second = table
    with pytest.raises(ColumnError, match=f"'{first}' and '{second}' could both.*Columns: "):
        _column(table)
    assert _column(table, column=second) == second


def test_a_missing_column_lists_those_there_are():
    with pytest.raises(ColumnError, match=r"no column 'lenght'. Columns: length \(int64\), t \("):
        _column({"length": NUMBERS, "t": ["a", "b", "c"]}, column="lenght")


def test_the_characters_of_text_are_never_counted_silently():
    with pytest.raises(ColumnError, match="characters are not tokens; pass a tokenizer"):
        _column({"text": ["a", "b", "c"]}, column="text")


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([[{"role": "user"}]] * 3, "list<.*struct"),
        ([True, False, True], "bool"),
        ([{"a": 1}] * 3, "struct"),
        ([b"12", b"3", b"4"], "binary"),
    ],
)
def test_a_column_that_is_no_length_is_refused(values, kind):
    """A list of chat messages has a length, but it counts messages, not tokens."""
    with pytest.raises(ColumnError, match=f"column 'length' is {kind}"):
        _column({"length": values}, column="length")


def test_with_a_tokenizer_text_is_wanted():
    table = {"id": ["x", "y", "z"], "text": ["a b", "c", "d e f"], "length": NUMBERS}
    assert _column(table, tokenizer=str.split) == "text"
    assert _column({"id": [1, 2, 3], "body": ["a", "b", "c"]}, tokenizer=str.split) == "body"
    assert _column(table, tokenizer=str.split, column="length") == "length"
    with pytest.raises(ColumnError, match="'question' and 'answer' could both"):
        _column({"question": ["a"] * 3, "answer": ["b"] * 3}, tokenizer=str.split)
    with pytest.raises(ColumnError, match="no column of text for the tokenizer"):
        _column({"length": NUMBERS}, tokenizer=str.split)


def test_the_same_rules_hold_for_json_records_csv_and_npz(tmp_path):
    rows = [{"length": n, "num_tokens": n, "text": "t"} for n in NUMBERS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.csv").write_text(
        "length,num_tokens,text\n" + "".join(f"{n},{n},t\n" for n in NUMBERS)
    )
    np.savez(tmp_path / "a.npz", length=np.array(NUMBERS), num_tokens=np.array(NUMBERS))
    for name in ("a.jsonl", "a.csv", "a.npz"):
        with pytest.raises(ColumnError, match=f"{name}: 'length' and 'num_tokens' could both"):
            scan_lengths(tmp_path / name)
        scan = scan_lengths(tmp_path / name, column="num_tokens")
        assert (scan.column, scan.lengths.tolist()) == ("num_tokens", NUMBERS)
    with pytest.raises(ColumnError, match="column 'text' holds text"):
        scan_lengths(tmp_path / "a.csv", column="text")
    with pytest.raises(ColumnError, match="'length' and 'num_tokens' could both"):
        scan_lengths(rows)


def test_a_key_that_is_null_in_the_first_records_is_still_recognised(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"length": null}\n{"length": 5}\n')
    scan = scan_lengths(tmp_path / "a.jsonl", on_bad="skip")
    assert (scan.lengths.tolist(), scan.first_bad[0].row) == ([5], 1)


def test_arrays_without_names_take_no_column():
    with pytest.raises(ColumnError, match="column 'x' was asked for, but the rows are no records"):
        scan_lengths([1, 2, 3], column="x")


def test_a_data_set_without_any_column_says_so(tmp_path):
    (tmp_path / "a.jsonl").write_text("[]\nnonsense\n")
    with pytest.raises(ColumnError, match="It has no columns"):
        scan_lengths(tmp_path / "a.jsonl")


@pytest.mark.parametrize("source", [{"length": [1, 2]}, 7, None, b"abc", {1, 2}])
def test_what_has_no_order_or_no_rows_is_refused(source):
    if isinstance(source, set):
        assert sorted(scan_lengths(source).lengths.tolist()) == [1, 2]
        return
    with pytest.raises(DataError, match="cannot read lengths from a"):
        scan_lengths(source)
