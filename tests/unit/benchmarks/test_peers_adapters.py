"""Adapters of other libraries: every sample as often as their authors promise; pages and errors."""

from __future__ import annotations

import json
import sys

import numpy as np
import pages
import peers_page
import pytest
from peers import compare, datasets, measure_one, metrics
from peers.arms import ARMS, Arm
from peers.case import Case, Replica, skip_package_code

LENGTHS = np.random.default_rng(0).integers(5, 200, 1500)
CASE = Case(LENGTHS, 2000, 16, (0, 50, 100, 201))
ALWAYS = ("pooled", "six", "windowed", "fixed", "grouped_safe", "grouped_mean", "rebalance")
ALWAYS += ("plain_safe", "plain_mean")
"""Arms that need nothing beyond the development packages."""


def load(name):
    """The arm, or a skip that names what its import ended with."""
    if name in ALWAYS:
        return ARMS[name].load()
    try:
        return ARMS[name].load()
    except ImportError as error:
        pytest.skip(f"{ARMS[name].label} is not installed here: {error}")


@pytest.mark.parametrize("name", ARMS)
def test_a_peer_shows_every_sample_once_an_epoch_unless_its_authors_say_otherwise(name):
    """Whatever a library leaves out or repeats stands in its adapter, and in the table."""
    arm = load(name)
    sampler = arm.make(arm.prepare(LENGTHS), CASE, Replica())
    for epoch in (0, 1):
        sampler.set_epoch(epoch)
        found = metrics.coverage(metrics.Flat.of(list(sampler)), LENGTHS.size)
        if arm.about.leaves_out:
            assert found["left_out"] < 0.2 * LENGTHS.size
        else:
            assert found == {"left_out": 0, "repeated": 0}


@pytest.mark.parametrize("name", ALWAYS)
def test_epochs_of_an_adapter_are_values_of_their_number(name):
    """A fresh sampler replays an epoch exactly; else resuming by replay could not be measured."""
    arm = load(name)
    first, second = (arm.make(arm.prepare(LENGTHS), CASE, Replica()) for _ in range(2))
    first.set_epoch(1)
    second.set_epoch(1)
    batches = [list(batch) for batch in first]
    assert batches == [list(batch) for batch in second]
    second.set_epoch(2)
    assert batches != [list(batch) for batch in second]


@pytest.mark.parametrize("name", ["pooled", "six", "windowed", "fixed"])
def test_the_limits_of_the_comparison_reach_our_own_sampler(name):
    arm = load(name)
    flat = metrics.Flat.of(list(arm.make(arm.prepare(LENGTHS), CASE, Replica())))
    found = metrics.padding(flat, LENGTHS, CASE.max_tokens)
    assert (found["over_share"], found["over_worst"]) == (0, 1)
    assert found["largest_batch"] <= CASE.max_batch_size


@pytest.mark.parametrize("num_replicas", [2, 8])
def test_replicas_of_our_own_sampler_are_run_apart_and_together_see_all(num_replicas):
    arm = load("pooled")
    ranks = [
        list(arm.make(arm.prepare(LENGTHS), CASE, Replica(rank, num_replicas)))
        for rank in range(num_replicas)
    ]
    assert len({len(rank) for rank in ranks}) == 1
    together = metrics.Flat.of([batch for rank in ranks for batch in rank])
    assert metrics.coverage(together, LENGTHS.size) == {"left_out": 0, "repeated": 0}


def test_sizes_of_libraries_without_a_budget_are_what_the_page_says():
    """Longest 199: ten of them fit 2,000 tokens. The mean is near 102: nineteen, at most 16."""
    assert CASE.longest == 199
    assert CASE.safe_size == 10
    assert CASE.mean_size == 16


@pytest.mark.slow
@pytest.mark.parametrize("name", ["pooled", "grouped_mean"])
def test_a_row_has_every_column_and_resumes_exactly(name):
    """One measured by its state, one by going through the epoch again."""
    row = measure_one.measure(ARMS[name].load(), CASE)
    assert row["resume"]["exact"]
    assert row["num_samples"] == LENGTHS.size
    assert row["replicas_8"]["balance"] >= 1
    assert row["samples_per_second"] > 0
    json.dumps(row)


@pytest.mark.slow
def test_a_peer_that_cannot_be_imported_is_named_with_its_own_error(monkeypatch):
    monkeypatch.setenv("LENGTHWISE_PEERS_PYTHON", sys.executable)
    row = compare.ask("pooled", "run", "--quick")
    assert row["num_samples"] == datasets.NUM_QUICK
    error = compare.ask("pooled", "no such data")["error"]
    assert "no such data" in error
    with pytest.raises(ModuleNotFoundError, match="no_such_module"):
        Arm("a label", "no_such_module").load()


def test_a_package_that_is_missing_says_so():
    with pytest.raises(ModuleNotFoundError, match="No module named 'no_such_package'"):
        skip_package_code("no_such_package", "no_such_package.data")


@pytest.mark.parametrize("name", datasets.DATASETS)
def test_no_sample_of_the_comparison_is_above_its_budget(name):
    case = datasets.load(name, quick=True)
    assert case.lengths.dtype == np.int64
    assert 1 <= case.lengths.min() <= case.longest <= case.max_tokens
    assert 1 <= case.safe_size <= case.mean_size <= case.max_batch_size


def test_the_pages_say_what_was_measured():
    """Written anew from the stored result they are the same text: no number was typed by hand."""
    found = pages.result(peers_page.RESULT)
    text = peers_page.PAGE.read_text(encoding="utf-8")
    for name, part in peers_page.parts(found).items():
        assert f"<!-- {name} -->\n{part}\n<!-- /{name} -->" in text
    readme = peers_page.README.read_text(encoding="utf-8")
    part = peers_page.short(found)
    assert f"<!-- table:peers -->\n{part}\n<!-- /table:peers -->" in readme
