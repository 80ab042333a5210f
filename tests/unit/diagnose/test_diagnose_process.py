"""One process, which runs target and drafter in turn: its time, and the difference by stage."""

from __future__ import annotations

import pytest

from lengthwise.diagnose import split_time
from lengthwise.diagnose.account import account_of
from lengthwise.diagnose.comparison import compare
from lengthwise.diagnose.prediction import Promise
from lengthwise.diagnose.records import RunRecords


def seconds(causes):
    return {one.name: one.seconds for one in causes}


def close(expected):
    return pytest.approx(expected, rel=1e-9, abs=1e-9)


def alone_rows(num_steps=40, *, target=0.2, drafter=0.1, between=0.05, padded=1250):
    """One process: target, drafter, and something in between after each step but the last."""
    return [
        {
            "step": step,
            "loss": 3.0,
            "total_seconds": step * (target + drafter) + (step - 1) * between,
            "total_steps": step,
            "total_real_tokens": 1000 * step,
            "total_target_tokens": 1000 * step,
            "total_padded_tokens": padded * step,
            "total_token_squares": padded * step * 100,
            "total_num_batches": step,
            "total_wait_seconds": target * step,
            "total_learn_seconds": drafter * step,
        }
        for step in range(1, num_steps + 1)
    ]


def test_one_process_is_target_and_drafter_in_turn():
    account = account_of(RunRecords.of(alone_rows()))
    found = seconds(split_time(account))
    assert found["real_tokens"] == close(40 * 0.2 * 0.8)
    assert found["padding"] == close(40 * 0.2 * 0.2)
    assert found["learning"] == close(40 * 0.1)
    assert found["unexplained"] == close(39 * 0.05)
    assert account.tokens_per_second == close(40_000 / (40 * 0.3 + 39 * 0.05))


def test_evaluations_of_one_process_are_told_apart():
    evaluation = {"step": 20, "eval_loss": 2.0, "eval_seconds": 1.5}
    final = {"step": 40, "eval_loss": 2.0, "eval_seconds": 9.0}
    rows = [*alone_rows(), evaluation, final]
    found = seconds(split_time(account_of(RunRecords.of(rows))))
    # The one after the last step comes after the last record, and is no part of the time.
    assert found["evaluation"] == close(1.5)
    assert found["unexplained"] == close(39 * 0.05 - 1.5)


def test_one_process_is_compared_stage_by_stage():
    account = account_of(RunRecords.of(alone_rows(target=0.3)))
    promise = Promise(
        tokens_per_second=1000 / 0.3, target_busy=2 / 3, drafter_busy=1 / 3, num_drafters=0
    )
    found = compare(account, promise)
    causes = seconds(found.causes)
    assert causes["target_pace"] == close(40 * 0.1)
    assert causes["drafter_pace"] == close(0.0)
    assert causes["unexplained"] == close(39 * 0.05)
    assert found.is_inside is None


def test_a_run_that_is_resumed_in_one_process_adds_up():
    rows = alone_rows(20)
    later = [{**row, "step": row["step"] + 20} for row in alone_rows(20, target=0.4)]
    account = account_of(RunRecords.of([*rows, *later]))
    assert account.num_steps == 40
    assert account.busy("target") == close(20 * 0.2 + 20 * 0.4)
