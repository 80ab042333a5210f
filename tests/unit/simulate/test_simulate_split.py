"""Sharing out devices between targets and drafters."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from lengthwise.errors import ConfigError
from lengthwise.simulate import Machines, Workload, best_split, one_more, simulate


def maker(target, drafter, count=400):
    """Batches of ``target`` seconds; steps that all drafters together learn from."""
    rng = np.random.default_rng(0)
    shape = rng.uniform(0.8, 1.2, count)

    def make(_num_targets, num_drafters):
        return Workload(
            arrival_seconds=target * shape,
            arrival_bytes=np.full(count, 10),
            arrival_tokens=np.full(count, 5),
            step_seconds=drafter * shape / num_drafters,
            step_ready=np.arange(count),
            step_bytes=np.full(count, 10),
        )

    return make


MACHINES = Machines(num_targets=1)


def test_devices_are_shared_out_as_the_stages_need_them():
    # Targets need three times as long as drafters: of 8 devices 6 and 2 keep both busy.
    found = best_split(maker(3.0, 1.0), 8, MACHINES)
    assert found.best.machines.num_targets == 6
    assert [one.machines.num_targets for one in found.splits] == list(range(1, 8))
    rates = [one.tokens_per_second for one in found.splits]
    assert found.best.tokens_per_second == max(rates)
    assert (
        rates[5]
        == simulate(
            maker(3.0, 1.0)(6, 2), replace(MACHINES, num_targets=6, num_drafters=2)
        ).tokens_per_second
    )


@pytest.mark.parametrize(("target", "drafter"), [(3.0, 1.0), (1.0, 5.0), (1.0, 1e-9), (1e-9, 1.0)])
def test_with_many_devices_the_best_of_all_splits_is_found(target, drafter, monkeypatch):
    # The same 48 devices, once by every split and once by halving.
    every = best_split(maker(target, drafter), 48, MACHINES)
    monkeypatch.setattr("lengthwise.simulate.split.EVERY_SPLIT", 10)
    found = best_split(maker(target, drafter), 48, MACHINES)
    assert found.best.tokens_per_second == every.best.tokens_per_second
    assert len(found.splits) == 17


def test_finding_the_split_of_thousands_of_devices_simulates_few_of_them():
    # 11 halvings look at sums only; 8 splits to each side of the crossing are simulated.
    calls = []
    make = maker(3.0, 1.0)

    def counted(*split):
        calls.append(split)
        return make(*split)

    found = best_split(counted, 2_000, MACHINES)
    assert len(found.splits) == 17
    assert len(calls) <= 17 + 11


def test_one_more_of_the_bottleneck_helps_and_one_more_of_the_other_does_not():
    more = one_more(maker(3.0, 0.1), MACHINES, (2, 1))
    assert more.now.bottleneck.kind == "targets"
    assert more.gains["target"] == pytest.approx(0.5, abs=0.02)
    assert more.gains["drafter"] == pytest.approx(0.0, abs=0.01)


def test_machines_may_grow_with_their_devices():
    # A channel of one batch a target: each split is simulated with its own.
    def machines(num_targets, num_drafters):
        return Machines(
            num_targets=num_targets, num_drafters=num_drafters, channel_bytes=10 * num_targets
        )

    found = best_split(maker(3.0, 1.0), 6, machines)
    assert [one.machines.channel_bytes for one in found.splits] == [10, 20, 30, 40, 50]


def test_what_cannot_be_shared_out_is_refused():
    with pytest.raises(ConfigError, match="num_devices must be from 2"):
        best_split(maker(1.0, 1.0), 1, MACHINES)
    with pytest.raises(ConfigError, match="target_speeds belong to one number of targets"):
        best_split(maker(1.0, 1.0), 4, Machines(num_targets=1, target_speeds=(2.0,)))
