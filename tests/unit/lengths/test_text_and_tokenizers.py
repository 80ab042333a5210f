"""Texts measured by a tokenizer of any kind."""

import gzip
import json
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from lengthwise.errors import (
    BadLengthError,
    ColumnError,
    ConfigError,
    DataError,
    MissingDependencyError,
)
from lengthwise.lengths.api import read_lengths, scan_lengths

# toy data is often sorted or equal; the warnings have tests of their own
pytestmark = pytest.mark.filterwarnings("ignore::lengthwise.errors.LengthwiseWarning")

TEXTS = ["a b c", "d", "a a a a", "e f"]
COUNTS = [3, 1, 4, 2]


@pytest.fixture
def tokenizer():
    """One token a word."""
    words = {word: i for i, word in enumerate(["[UNK]", "[S]", *"abcdef"])}
    made = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return made


class _Ids:
    def __init__(self, text):
        self.ids = text.split()


CALLABLES = [
    str.split,
    lambda text: len(text.split()),
    lambda text: {"input_ids": text.split(), "attention_mask": []},
    _Ids,
]


@pytest.mark.parametrize("function", CALLABLES)
def test_any_callable_that_gives_ids_or_their_number_is_a_tokenizer(function):
    assert read_lengths(TEXTS, tokenizer=function).tolist() == COUNTS


def test_a_tokenizers_object_and_its_file_and_folder_agree(tokenizer, tmp_path):
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    for given in (tokenizer, tmp_path / "tokenizer.json", str(tmp_path)):
        assert read_lengths(TEXTS, tokenizer=given).tolist() == COUNTS


@pytest.mark.parametrize("text", ["what is 2**3 or a*b", "2**3", "[x]", "w " * 150, "w/" * 3_000])
def test_a_text_that_looks_a_little_like_a_path_is_a_text(text):
    """Too long for a file name, or with the signs of a glob: still the words of a sample."""
    assert read_lengths([text, "a b"], tokenizer=str.split).tolist() == [len(text.split()), 2]


def test_special_tokens_count_and_truncation_and_padding_do_not(tokenizer, tmp_path):
    """A tokenizer that truncates would report its limit as the length of every long text."""
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[S] $A", special_tokens=[("[S]", 1)]
    )
    tokenizer.enable_truncation(3)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(tmp_path / "t.json"))
    expected = [count + 1 for count in COUNTS]
    assert read_lengths(TEXTS, tokenizer=tokenizer).tolist() == expected
    assert read_lengths(TEXTS, tokenizer=tmp_path / "t.json").tolist() == expected
    assert tokenizer.truncation["max_length"] == 3, "the caller's tokenizer was changed"


def test_a_hugging_face_tokenizer_is_asked_without_truncation(tokenizer):
    from transformers import PreTrainedTokenizerFast

    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=2, unk_token="[UNK]", pad_token="[S]"
    )
    assert read_lengths(TEXTS, tokenizer=wrapped).tolist() == COUNTS


def test_texts_are_encoded_in_batches(tokenizer):
    """Counted by a stand-in that has the two methods of a tokenizers.Tokenizer we rely on."""
    sizes = []

    class Counting:
        @classmethod
        def from_str(cls, _):
            return cls()

        def to_str(self):
            return ""

        def no_truncation(self):
            pass

        no_padding = no_truncation

        def encode_batch(self, texts):
            sizes.append(len(texts))
            return [_Ids(text) for text in texts]

    assert read_lengths(TEXTS * 1_000, tokenizer=Counting()).tolist() == COUNTS * 1_000
    assert len(sizes) <= 5
    assert sum(sizes) == 4_000


def test_every_source_of_text_gives_the_same_counts(tmp_path):
    rows = [{"id": i, "text": text} for i, text in enumerate(TEXTS)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.txt").write_text("\r\n".join(TEXTS), encoding="utf-8-sig")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("\n".join(TEXTS).encode()))
    (tmp_path / "a.csv").write_text("id,text\n" + "".join(f'1,"{text}"\n' for text in TEXTS))
    table = pa.table({"id": [1] * 4, "text": TEXTS})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=3)
    with pa.ipc.new_file(tmp_path / "a.arrow", table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    for name in ("a.jsonl", "a.txt", "a.txt.gz", "a.csv", "a.parquet", "a.arrow"):
        assert read_lengths(tmp_path / name, tokenizer=str.split).tolist() == COUNTS, name
    for source in (table, table["text"], pa.array(TEXTS, pa.large_string()), iter(TEXTS), rows):
        assert read_lengths(source, tokenizer=str.split).tolist() == COUNTS


def test_text_without_a_tokenizer_is_refused(tmp_path):
    (tmp_path / "a.txt").write_text("a b\n")
    for source in (tmp_path / "a.txt", TEXTS, pa.array(TEXTS)):
        with pytest.raises(ColumnError, match="characters are not tokens; pass a tokenizer"):
            scan_lengths(source)


def test_blank_lines_empty_and_missing_texts_are_bad_rows(tmp_path):
    (tmp_path / "a.txt").write_text("a b\n\n  \nc\n")
    with pytest.raises(BadLengthError, match="line 2: blank line"):
        scan_lengths(tmp_path / "a.txt", tokenizer=str.split)
    scan = scan_lengths(tmp_path / "a.txt", tokenizer=str.split, on_bad="skip")
    assert (scan.lengths.tolist(), scan.row_index.tolist()) == ([2, 1], [0, 3])
    scan = scan_lengths(["a b", "", None, 5, "c"], tokenizer=str.split, on_bad="skip")
    assert (scan.lengths.tolist(), scan.row_index.tolist()) == ([2, 1], [0, 4])
    assert [bad.reason.split(":")[0] for bad in scan.first_bad] == [
        "0 tokens",
        "null",
        "mixed types",
    ]


def test_a_line_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"a\n\xff\n")
    with pytest.raises(BadLengthError, match="line 2: not UTF-8"):
        scan_lengths(tmp_path / "a.txt", tokenizer=str.split)


def test_what_is_no_tokenizer_is_refused(tmp_path):
    (tmp_path / "t.json").write_text("{}")
    with pytest.raises(DataError, match=r"t\.json is not a tokenizers JSON file"):
        scan_lengths(TEXTS, tokenizer=tmp_path / "t.json")
    with pytest.raises(DataError, match=r"there is no tokenizer file 'nowhere.json'"):
        scan_lengths(TEXTS, tokenizer="nowhere.json")
    with pytest.raises(ConfigError, match=r"a tokenizer is a path of a tokenizer.json.*got int"):
        scan_lengths(TEXTS, tokenizer=7)
    with pytest.raises(ConfigError, match="must return token ids or their number, got str"):
        scan_lengths(TEXTS, tokenizer=str.upper)
    with pytest.raises(ConfigError, match="must return token ids or their number, got bool"):
        scan_lengths(TEXTS, tokenizer=str.isalpha)


def test_a_tokenizer_file_without_the_package_names_the_extra(tmp_path, monkeypatch):
    (tmp_path / "t.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'lengthwise\[text\]'"):
        scan_lengths(TEXTS, tokenizer=tmp_path / "t.json")
