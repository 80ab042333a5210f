"""Real pipelines with a fault planted in them: the diagnosis names it, and how much it cost.

Processes, messages, reading, arena and records are the product's own; the stages take the seconds
that they are given, so what a fault costs is known. A busy machine adds to every wait, so only what
stages themselves take is compared with figures.
"""

from __future__ import annotations

import pytest
from pipeline_stages import Stages

from lengthwise.core.cost import StepTime
from lengthwise.diagnose import diagnose
from support.faulty_runs import DRAFTER, TARGET, run_with, write_folder
from support.pipeline_runs import quick_processes

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("faults"))


def times(cost, factor):
    return StepTime(
        fixed_seconds=cost.fixed_seconds * factor, seconds_per_token=cost.seconds_per_token * factor
    )


def diagnosed(folder, tmp_path, stages, **how):
    """Train, and find out: the diagnosis, all time by cause, the difference by cause."""
    with quick_processes():
        run_with(folder, tmp_path / "out", stages, **how)
    found = diagnose(tmp_path / "out")
    time = {one.name: one.seconds for one in found.time}
    causes = {one.name: one.seconds for one in found.comparison.causes}
    assert sum(time.values()) == pytest.approx(found.account.seconds)
    compared = found.comparison
    assert sum(causes.values()) == pytest.approx(
        compared.measured_seconds - compared.predicted_seconds
    )
    return found, time, causes


def largest(causes):
    return max(causes, key=causes.get)


def test_slow_targets(folder, tmp_path):
    found, _, causes = diagnosed(folder, tmp_path, Stages(times(TARGET, 2), DRAFTER))
    assert found.advice.kind == largest(causes) == "target_pace"
    assert "the targets are the bottleneck" in found.bottleneck.lower()
    # Half of what the target took is the fault's; imitated seconds are exact but for waking up.
    assert causes["target_pace"] == pytest.approx(found.account.busy("target") / 2, rel=0.02)
    assert not found.comparison.is_inside


def test_a_slow_drafter(folder, tmp_path):
    found, _, causes = diagnosed(folder, tmp_path, Stages(TARGET, times(DRAFTER, 3)))
    assert found.advice.kind == largest(causes) == "drafter_pace"
    assert "the drafter is the bottleneck" in found.bottleneck.lower()
    assert causes["drafter_pace"] == pytest.approx(found.account.learn_seconds * 2 / 3, rel=0.1)


def test_starved_input(folder, tmp_path):
    found, time, causes = diagnosed(folder, tmp_path, Stages(TARGET, DRAFTER, reading_seconds=0.04))
    assert found.advice.kind == largest(causes) == "reading"
    assert "reading the data is the bottleneck" in found.bottleneck.lower()
    # The device works while the next batch is read, so what is waited is the rest of the reading.
    samples = 700 * 0.04
    assert samples - found.account.busy("target") - 3 < time["reading"] + time["starting"]


def test_one_slow_rank(folder, tmp_path):
    stages = Stages(TARGET, times(DRAFTER, 2), slow_rank=(1, 2.5))
    found, time, causes = diagnosed(folder, tmp_path, stages, ranks=2)
    assert found.advice.kind == "slow_device"
    assert "drafter rank 1" in found.advice.change
    assert largest(causes) == "imbalance"
    # Rank 1 takes 2.5 times as long as rank 0 for about as much.
    assert time["imbalance"] == pytest.approx(1.5 * time["learning"], rel=0.25)


def test_wrong_boundaries(folder, tmp_path):
    """One bucket for everything; the prediction knew, so only the account tells."""
    batching = {"strategy": "bucketed", "boundaries": [0, 201]}
    stages = Stages(times(TARGET, 1.5), times(DRAFTER, 0.5))
    found, time, _ = diagnosed(folder, tmp_path, stages, batching=batching)
    assert found.advice.kind == "padding"
    assert time["padding"] > time["real_tokens"] / 2
    assert "padding" in found.advice.reason


def test_a_run_without_a_fault_is_told_to_stay_as_it_is_or_to_grow(folder, tmp_path):
    found, _, causes = diagnosed(folder, tmp_path, Stages(TARGET, DRAFTER))
    assert found.advice.needs_device or found.advice.kind == "nothing"
    expected = found.comparison.predicted_seconds
    assert abs(causes.get("target_pace", causes.get("drafter_pace"))) < 0.05 * expected
    assert found.account.padded_tokens == found.account.target_tokens / found.account.efficiency
    assert abs(causes["unexplained"]) < 1.0
