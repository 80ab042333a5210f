"""The corpus of the main job, and the main job itself from end to end."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer

import main_job
from stdlib_corpus import functions_of, write_corpus

PROJECT = Path(__file__).parents[2]


def test_every_function_is_found_at_any_depth():
    # Breadth first: the walk names the outer definitions before what stands inside them.
    source = "class A:\n    def b(self):\n        async def c(): pass\n\ndef d(): pass\n"
    assert [name for name, _ in functions_of(source)] == ["d", "b", "c"]


def test_the_text_of_a_method_is_its_own_lines_without_the_indent():
    # The decorator is not part of the lines that the parser gives a function.
    source = "class A:\n    @property\n    def b(self):\n        return 1\n\n    c = 2\n"
    assert list(functions_of(source)) == [("b", "def b(self):\n    return 1")]


@pytest.mark.parametrize("separator", ["\f", "\v", "\x1c", "\x85", "\u2028"])
def test_characters_that_only_look_like_line_ends_shift_nothing(separator):
    # The parser counts newlines only; str.splitlines would break at each of these as well.
    source = f"x = '''{separator}{separator}'''\ndef f():\n    return 'here'\n"
    ((_, text),) = functions_of(source)
    assert ast.literal_eval(ast.parse(text).body[0].body[0].value) == "here"


def test_what_cannot_be_parsed_is_counted_and_named(tmp_path):
    # Of four files one is a test, one is no Python 3 and one is not UTF-8: one function is left.
    root = tmp_path / "lib"
    (root / "test").mkdir(parents=True)
    (root / "good.py").write_text("def f(): pass\n")
    (root / "old.py").write_text("print 'two'\n")
    (root / "latin.py").write_bytes(b"def f(): return '\xe9'\n")
    (root / "test" / "test_good.py").write_text("def test_f(): pass\n")
    report = write_corpus(root, tmp_path / "out" / "corpus.jsonl")
    lines = (tmp_path / "out" / "corpus.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [{"name": "good.py:f", "text": "def f(): pass"}]
    assert (report.num_files, report.num_functions) == (1, 1)
    assert [line.split(":")[0] for line in report.unparsed] == ["latin.py", "old.py"]
    assert "2 files could not be parsed" in report.summary()


@pytest.mark.slow
def test_the_main_job_ends_with_a_report_and_a_plan_of_the_corpus(tmp_path):
    # Everything is checked against the corpus itself: its lines, and its own tokenizer.
    command = [sys.executable, str(PROJECT / "examples/main_job.py"), "--output-dir", str(tmp_path)]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert (tmp_path / "report.html").as_uri() in finished.stdout

    lines = (tmp_path / "stdlib.jsonl").read_text(encoding="ascii").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    lengths = np.load(tmp_path / "lengths.npy")
    assert lengths.size == len(texts) > 10_000
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    some = range(0, len(texts), 97)
    assert [len(tokenizer.encode(texts[i]).ids) for i in some] == [int(lengths[i]) for i in some]

    config = tomllib.loads((tmp_path / "batching.toml").read_text())
    assert len(config["boundaries"]) == main_job.NUM_BUCKETS + 1
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
    assert pq.read_metadata(tmp_path / "plan.parquet").num_rows > 0
