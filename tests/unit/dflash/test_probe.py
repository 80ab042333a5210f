"""Timing a few shapes before a run: which, how often, and that nothing of it stays."""

from __future__ import annotations

import copy
import json

import numpy as np
import pytest
import torch

from lengthwise.calibrate import Measurement, Shape
from lengthwise.core.batches import Batches
from lengthwise.dflash.training.expect import expect_alone
from lengthwise.dflash.training.probe import batch_shapes, probe_setup, probe_target
from lengthwise.dflash.training.setup import assemble, set_up, store_of
from support.dflash_runs import Silent, small_config, small_run_folder

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run_folder(tmp_path_factory.mktemp("probe"))


def batches(shapes):
    sizes, padded = (np.array(column, np.int64) for column in zip(*shapes, strict=True))
    starts = np.cumsum(sizes) - sizes
    return Batches(np.arange(sizes.sum()), starts, sizes, padded, sizes * padded)


def test_shapes_are_the_plans_own_from_the_shortest_to_the_longest():
    own = [(64, 10), (64, 20), (32, 100), (16, 200), (8, 400), (4, 800), (2, 1600), (1, 3200)]
    found = batch_shapes(batches(own * 3), 6)
    assert set(found) <= set(own)
    # The shortest and the longest by tokens are among them, and each shape once.
    assert {(64, 10), (1, 3200)} <= set(found)
    assert len(found) == len(set(found)) >= 6


def test_every_shape_is_run_once_for_nothing_and_then_so_many_rounds():
    run = []
    shapes = [Shape(2, 8), Shape(4, 16), Shape(1, 32), Shape(3, 11)]
    timings = probe_target(
        shapes, lambda rows: run.append((len(rows), len(rows[0]))), torch.device("cpu"), 3
    )
    # Round by round, so that a disturbance does not meet one shape alone.
    rounds = [run[place : place + 4] for place in range(0, len(run), 4)]
    assert len(rounds) == 4
    assert all(sorted(one) == sorted(shapes) for one in rounds)
    assert [(one.batch_size, one.longest) for one in timings] == run[4:]
    assert all(one.seconds > 0 for one in timings)


def test_nothing_is_timed_where_nothing_could_be_fitted():
    # Of three shapes three coefficients follow, whatever was measured; of none nothing does.
    shapes, device = [Shape(1, 8), Shape(2, 8), Shape(3, 8), Shape(4, 8)], torch.device("cpu")

    def run(rows):
        raise AssertionError(rows)

    assert probe_target(shapes[:3], run, device, 2) == ()
    assert probe_target(shapes, run, device, 0) == ()


def test_a_probe_changes_nothing_of_what_the_run_learns(folder, tmp_path):
    losses = []
    for rounds in (0, 2):
        output = tmp_path / str(rounds)
        config = small_config(folder, output, epochs=1, pipeline={"probe_rounds": rounds})
        setup, observer = set_up(config), Silent()
        before = copy.deepcopy(setup.drafter.state_dict())
        timings = probe_setup(setup)
        assert all(bool(one) == bool(rounds) for one in timings)
        for name, weight in setup.drafter.state_dict().items():
            assert torch.equal(weight, before[name])
        assemble(setup, store_of(config), observer).run()
        losses.append([result.sums.loss for _, result, _ in observer.steps])
    assert losses[0] == losses[1]


def test_one_process_is_expected_to_take_both_stages_in_turn(folder, tmp_path):
    """Timings made by a formula; the oracle sums the same formula over the plan, batch by batch."""
    setup = set_up(small_config(folder, tmp_path / "out", epochs=3))
    epoch = setup.plan.epoch(0)

    def target(size, longest):
        return 0.01 + 1e-4 * size * longest

    def drafter(tokens):
        return 0.02 + 1e-3 * tokens

    shapes = [(1, 8), (2, 16), (8, 8), (4, 60), (8, 30)]
    found = expect_alone(
        setup.plan,
        0,
        [Measurement(n, m, target(n, m)) for n, m in shapes * 2],
        [Measurement(1, m, drafter(m)) for m in (50, 100, 150, 200, 300) * 2],
    )
    seconds = sum(
        target(len(ids), max(setup.data.dataset.lengths[ids]))
        for ids in map(epoch.arrival, range(epoch.num_arrivals))
    )
    learning = sum(drafter(epoch.tokens(step)) for step in range(epoch.num_steps))
    assert found.seconds == pytest.approx(3 * (seconds + learning), rel=1e-6)
    assert found.num_tokens == 3 * setup.data.num_tokens
    assert found.target_busy == pytest.approx(seconds / (seconds + learning), rel=1e-6)
    assert found.low_seconds <= found.seconds <= found.high_seconds
    # What is left is less, the rate is the same.
    rest = expect_alone(
        setup.plan,
        epoch.num_steps,
        [Measurement(n, m, target(n, m)) for n, m in shapes * 2],
        [Measurement(1, m, drafter(m)) for m in (50, 100, 150, 200, 300) * 2],
    )
    assert rest.num_tokens == 2 * setup.data.num_tokens
    path = found.write(tmp_path / "out")
    written = json.loads(path.read_text())
    assert (written["format"], written["version"]) == ("lengthwise prediction", 1)
    assert written["tokens_per_second"] == found.tokens_per_second


def test_too_few_shapes_or_nothing_left_is_no_forecast(folder, tmp_path):
    setup = set_up(small_config(folder, tmp_path / "out", epochs=1))
    few = [Measurement(1, 8, 0.1)] * 3
    assert expect_alone(setup.plan, 0, few, few) is None
    many = [Measurement(1, m, 0.1 * m) for m in range(8, 20)]
    assert expect_alone(setup.plan, setup.plan.num_steps, many, many) is None
