"""Rows of every form, in files of every kind."""

import gzip
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from lengthwise.dflash.prepare.conversations import (
    RowError,
    SourceRow,
    bad_row,
    to_conversation,
)
from lengthwise.dflash.prepare.settings import RowSettings
from lengthwise.dflash.prepare.sources import Position, open_source
from lengthwise.errors import DataError


def row_of(record, fault=""):
    return SourceRow("a.jsonl", 3, "line", 2, record, fault)


def told(record, **settings):
    conversation = to_conversation(row_of(record), RowSettings(**settings))
    return [(message["role"], message["content"]) for message in conversation.messages]


ASKED = [("user", "hi")]
ANSWERED = [("user", "hi"), ("assistant", "yes")]


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        ({"messages": [{"role": "user", "content": "hi"}]}, ASKED),
        ({"conversations": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "yes"}]},
         ANSWERED),
        ({"conversations": [{"role": "user", "content": "hi"}]}, ASKED),
        ({"messages": [{"role": "user", "content": [{"type": "text", "text": "h"},
                                                    {"text": "i"}]}]}, ASKED),
        ({"prompt": "hi"}, ASKED),
        ({"prompt": "hi", "response": "yes"}, ANSWERED),
        ({"question": "hi", "answer": "yes"}, ANSWERED),
        ({"prompt": [{"role": "user", "content": "hi"}],
          "completion": [{"role": "assistant", "content": "yes"}]}, ANSWERED),
        ({"instruction": "do", "input": "this", "output": "yes"},
         [("user", "do\n\nthis"), ("assistant", "yes")]),
        ({"instruction": "do", "input": "", "output": "yes"},
         [("user", "do"), ("assistant", "yes")]),
        ({"text": "hi"}, ASKED),
        ({"prompt": "ignored", "messages": [{"role": "user", "content": "hi"}]}, ASKED),
        ({"messages": None, "prompt": "hi"}, ASKED),
        ({"messages": [{"role": "developer", "content": "s"}, {"role": "User", "content": "hi"}]},
         [("system", "s"), *ASKED]),
    ],
)  # fmt: skip
def test_each_usual_form_of_a_row_is_found_without_being_told(record, expected):
    # The expected roles and texts are written out by hand from the forms' definitions.
    assert told(record) == expected


def test_the_column_and_format_can_be_named():
    record = {"prompt": "wrong", "q": "hi", "a": "yes", "chat": [{"role": "user", "content": "x"}]}
    assert told(record, column="q", response_column="a", format="prompt") == ANSWERED
    assert told(record, column="q", response_column="a") == ANSWERED  # text, so a prompt
    assert told(record, column="chat") == [("user", "x")]  # a list, so messages


def test_task_and_source_are_kept():
    conversation = to_conversation(
        row_of({"prompt": "hi", "task": "math", "source": 7}), RowSettings()
    )
    assert (conversation.task, conversation.source) == ("math", "7")


USER, BOT = {"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}


@pytest.mark.parametrize(
    ("record", "rule"),
    [
        ({"id": 1}, "missing column"),
        ({"messages": []}, "no messages"),
        ({"messages": "text"}, "no messages"),
        ({"messages": ["text"]}, "malformed message"),
        ({"messages": [{"role": "alien", "content": "x"}]}, "unknown role"),
        ({"messages": [{"content": "x"}]}, "unknown role"),
        ({"messages": [{"role": "user", "content": ""}]}, "empty"),
        ({"messages": [{"role": "user", "content": " \n"}]}, "empty"),
        ({"messages": [{"role": "user", "content": None}]}, "not text"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "not text"),
        ({"messages": [BOT, USER]}, "no user first"),
        ({"messages": [{"role": "system", "content": "s"}]}, "no user first"),
        ({"messages": [USER, BOT, BOT]}, "two answers in a row"),
        ({"messages": [USER, {"role": "system", "content": "s"}]}, "system message not first"),
        ({"prompt": 5}, "not text"),
        ({"prompt": "hi", "response": ""}, "empty"),
        ({"text": ""}, "empty"),
    ],
)
def test_a_row_that_breaks_a_rule_says_which(record, rule):
    with pytest.raises(RowError) as caught:
        to_conversation(row_of(record), RowSettings())
    assert caught.value.rule == rule


def test_an_unreadable_row_and_a_missing_named_column():
    with pytest.raises(RowError, match="unreadable: malformed"):
        to_conversation(row_of(None, "malformed JSON"), RowSettings())
    with pytest.raises(RowError, match=r"'q' is not there; the row has: prompt .*--column"):
        to_conversation(row_of({"prompt": "x"}), RowSettings(column="q"))


def test_the_error_names_file_row_rule_and_way_out():
    error = bad_row(row_of(None), "empty", "prompt has no text")
    expected = "a.jsonl, line 3 (counting from 1): empty: prompt has no text. Repair the line, or "
    assert str(error).startswith(expected)
    assert "--on-bad skip" in str(error)


RECORDS = [{"prompt": f"p{number}"} for number in range(7)]


def write(path, kind):
    lines = "".join(json.dumps(record) + "\n" for record in RECORDS)
    if kind == "jsonl":
        path.write_text(lines)
    elif kind == "jsonl.gz":
        path.write_bytes(gzip.compress(lines.encode()))
    elif kind == "jsonl.zst":
        path.write_bytes(zstandard.ZstdCompressor().compress(lines.encode()))
    elif kind == "json":
        path.write_text(json.dumps(RECORDS, indent=1))
    elif kind == "txt":
        path.write_text("".join(record["prompt"] + "\r\n" for record in RECORDS))
    else:
        pq.write_table(pa.Table.from_pylist(RECORDS), path, row_group_size=3)


KINDS = ("jsonl", "jsonl.gz", "jsonl.zst", "json", "txt", "parquet")


@pytest.mark.parametrize("kind", KINDS)
def test_rows_come_from_any_place_on_in_every_kind_of_file(tmp_path, kind):
    # Two files of seven rows: whatever the place, what follows is the rest of the fourteen.
    for name in ("a", "b"):
        write(tmp_path / f"{name}.{kind}", kind)
    source = open_source([str(tmp_path / f"*.{kind}")], RowSettings())
    whole = list(source.rows(Position()))
    prompts = [to_conversation(row, RowSettings()).messages[0]["content"] for row, _ in whole]
    assert prompts == [record["prompt"] for record in RECORDS] * 2
    assert [row.index for row, _ in whole] == list(range(14))
    start = 0 if kind in ("parquet", "json") else 1
    assert [row.row for row, _ in whole] == [*range(start, start + 7)] * 2
    for place, (_, position) in enumerate(whole):
        assert list(source.rows(position)) == whole[place + 1 :]
    assert source.num_rows in ((14,) if kind in ("jsonl", "txt", "parquet") else (None,))


def test_lines_without_a_last_newline_are_counted(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"prompt": "x"}\n{"prompt": "y"}')
    assert open_source([str(tmp_path / "a.jsonl")], RowSettings()).num_rows == 2


def test_a_saved_data_set_is_read_split_by_split(tmp_path):
    import datasets

    one = datasets.Dataset.from_list(RECORDS)
    one.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"train": one.select([6, 1]), "test": one}).save_to_disk(
        str(tmp_path / "both")
    )
    plain = open_source([str(tmp_path / "one")], RowSettings())
    assert [row.record for row, _ in plain.rows(Position(0, 5, 5))] == RECORDS[5:]
    both = open_source([str(tmp_path / "both")], RowSettings())
    assert [row.record for row, _ in both.rows(Position())] == [RECORDS[6], RECORDS[1]]
    assert both.num_rows == 2
    with pytest.raises(DataError, match="no split 'dev'; pass --split with one of: train, test"):
        open_source([str(tmp_path / "both")], RowSettings(split="dev"))


def test_a_name_on_the_hub_is_loaded_and_what_fails_there_is_told(monkeypatch):
    import datasets

    asked = []

    def load(name, subset, split):
        asked.append((name, subset, split))
        if name == "owner/none":
            raise FileNotFoundError("no such data set")
        return datasets.Dataset.from_list(RECORDS)

    monkeypatch.setattr(datasets, "load_dataset", load)
    found = open_source(["owner/chats"], RowSettings(split="dev", subset="en"))
    assert found.num_rows == 7
    assert asked == [("owner/chats", "en", "dev")]
    with pytest.raises(DataError, match=r"no file or directory 'owner/none'.*no such data set"):
        open_source(["owner/none"], RowSettings())


def test_files_that_hold_no_conversations_are_refused(tmp_path):
    (tmp_path / "a.csv").write_text("prompt\nx\n")
    with pytest.raises(DataError, match=r"a\.csv: no conversations are read"):
        open_source([str(tmp_path / "a.csv")], RowSettings())
    with pytest.raises(DataError, match="no file or directory"):
        open_source([str(tmp_path / "none.jsonl")], RowSettings())


def test_broken_rows_are_rows_of_their_own(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(b'{"prompt": "x"}\n{"prompt": \n[1]\n\n{"prompt": "y"}\n')
    source = open_source([str(tmp_path / "a.jsonl")], RowSettings())
    rows = [row for row, _ in source.rows(Position())]
    assert [row.record is not None for row in rows] == [True, False, False, False, True]
    assert "malformed JSON" in rows[1].fault
    assert "not a JSON object" in rows[2].fault
    assert rows[3].fault == "blank line"
    (tmp_path / "b.txt").write_bytes(b"ok\n\xff\xfe\n\n")
    text = [
        row for row, _ in open_source([str(tmp_path / "b.txt")], RowSettings()).rows(Position())
    ]
    assert [row.record is not None for row in text] == [True, False, False]
    assert "not UTF-8" in text[1].fault
    (tmp_path / "c.json").write_text('[{"prompt": "x"}, 5]')
    listed = list(open_source([str(tmp_path / "c.json")], RowSettings()).rows(Position()))
    assert listed[1][0].fault == "not an object but 5"
    (tmp_path / "d.json").write_text('[{"prompt": ')
    with pytest.raises(DataError, match="not valid JSON"):
        list(open_source([str(tmp_path / "d.json")], RowSettings()).rows(Position()))
    (tmp_path / "e.parquet").write_bytes(b"no")
    with pytest.raises(DataError, match="no Parquet file"):
        open_source([str(tmp_path / "e.parquet")], RowSettings())
