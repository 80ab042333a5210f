"""Plans as Parquet files: every batch in order, and files that are no plan are told apart."""

import json
import sys

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from lengthwise.core.config import BatchingConfig
from lengthwise.core.fingerprint import PLAN_VERSION
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import build_plan
from lengthwise.errors import DataError, MissingDependencyError, PlanMismatchError
from lengthwise.files import plan_file
from lengthwise.files.plan_file import read_plan, write_plan

LENGTHS = [1 + 7 * i % 23 for i in range(60)]
CONFIGS = {
    "stored": BatchingConfig(limits=BatchLimits(100, 8), seed=2**64 - 1),
    "computed": BatchingConfig(
        limits=BatchLimits(100, 8), boundaries=(0, 8, 50), batch_sizing="fixed"
    ),
}


@pytest.fixture(params=CONFIGS.values(), ids=CONFIGS)
def plan(request):
    return build_plan(LENGTHS, request.param, epoch=3, num_replicas=2)


@pytest.mark.parametrize("rows_at_once", [1, 7, 1 << 14])
def test_a_plan_comes_back_batch_by_batch(plan, rows_at_once, tmp_path, monkeypatch):
    """Written in one table or in many: chunk edges must not lose, repeat or shift a batch."""
    monkeypatch.setattr(plan_file, "_ROWS_AT_ONCE", rows_at_once)
    path = tmp_path / "plan.parquet"
    write_plan(plan, path)
    saved = read_plan(path)
    assert [batch.tolist() for batch in saved.batches] == [batch.tolist() for batch in plan]
    assert all(batch.dtype == np.int64 for batch in saved.batches)
    assert (saved.fingerprint, saved.epoch, saved.num_replicas) == (plan.fingerprint, 3, 2)
    assert BatchingConfig.from_dict(saved.config) == plan.config


def test_the_columns_are_what_another_program_reads(plan, tmp_path):
    """One row a batch, in the order in which they run; types as documented; lengths add up."""
    path = tmp_path / "plan.parquet"
    write_plan(plan, str(path))
    table = parquet.read_table(path)
    assert {field.name: str(field.type) for field in table.schema} == {
        "step": "int64",
        "rank": "int32",
        "num_samples": "int32",
        "padded_length": "int64",
        "real_tokens": "int64",
        "indices": "list<element: int64>",
    }
    for number, row in enumerate(table.to_pylist()):
        held = [LENGTHS[i] for i in row["indices"]]
        assert (row["step"], row["rank"]) == divmod(number, 2)
        assert row["indices"] == plan.batch(number).tolist()
        assert row["num_samples"] == len(held)
        assert row["padded_length"] == max(held)
        assert row["real_tokens"] == sum(held)
    assert table.num_rows == plan.num_batches
    about = json.loads(table.schema.metadata[b"lengthwise"])
    assert about["stats"] == plan.stats.to_dict()
    assert about["version"] == PLAN_VERSION


def test_rows_of_the_source_are_named_where_bad_rows_were_skipped(plan, tmp_path):
    """Sample i was read from source row 10 i + 3: the file must say where to find it."""
    path = tmp_path / "plan.parquet"
    rows = 10 * np.arange(len(LENGTHS)) + 3
    write_plan(plan, path, row_index=rows)
    expected = [(10 * batch + 3).tolist() for batch in plan]
    assert [batch.tolist() for batch in read_plan(path).batches] == expected


def test_a_plan_of_other_planning_rules_is_refused(plan, tmp_path):
    """Its fingerprint could never match; the message says which version it has, and what to do."""
    path = tmp_path / "old.parquet"
    write_plan(plan, path)
    table = parquet.read_table(path)
    about = json.loads(table.schema.metadata[b"lengthwise"]) | {"version": PLAN_VERSION + 1}
    parquet.write_table(
        table.replace_schema_metadata({b"lengthwise": json.dumps(about).encode()}), path
    )
    with pytest.raises(PlanMismatchError, match=rf"version {PLAN_VERSION + 1} .* Plan again"):
        read_plan(path)


@pytest.mark.parametrize("content", [b"", b"not Parquet at all", b"PAR1" + bytes(40)])
def test_a_file_that_is_no_parquet_is_refused_by_name(content, tmp_path):
    """Parquet's own error would not say which file, nor that a plan was expected."""
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"notes\.txt is not a Parquet file, so it holds no plan"):
        read_plan(path)


def test_another_parquet_file_is_refused_by_name(tmp_path):
    """The data set itself, given by mistake."""
    path = tmp_path / "data.parquet"
    parquet.write_table(pa.table({"seq_len": [1, 2]}), path)
    with pytest.raises(DataError, match=r"data\.parquet is a Parquet file, but not a plan"):
        read_plan(path)


def test_without_pyarrow_the_message_says_what_to_install(plan, tmp_path, monkeypatch):
    """The planner itself does without; only files need it."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'lengthwise\[parquet\]'"):
        write_plan(plan, tmp_path / "plan.parquet")
