"""Who hangs: ranks and the clock are the test's, and each case says who is to be named."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from lengthwise.pipeline import rank as rank_module
from lengthwise.pipeline.debts import Debts
from lengthwise.pipeline.hung import ANSWER_SECONDS, Hung
from lengthwise.pipeline.messages import Ping, Waits

PATIENCE = 100.0


@dataclass(eq=False)
class Rank:
    name: str
    ready: bool = True
    gone: bool = False
    silent_seconds: float | None = None
    sent: list = field(default_factory=list)

    def send(self, message):
        self.sent.append(message)


class Stage:
    """Two ranks that owe an answer since second 0, and a clock."""

    def __init__(self, **first):
        self.now = 0.0
        self.ranks = [Rank("rank 0", **first), Rank("rank 1", **first)]
        self.debts = Debts(PATIENCE, lambda: self.now)
        self.hung = Hung(self.debts, lambda: self.now)
        for rank in self.ranks:
            self.debts.owe(rank)

    def found(self, now, workers=()):
        """Names of those that hang at a time."""
        self.now = now
        return [child.name for child, _ in self.hung.found(workers, self.ranks)]

    def says(self, number, waits):
        self.hung.told(self.ranks[number], Waits(waits))


@pytest.fixture
def stage():
    return Stage()


def test_nobody_is_asked_before_the_timeout(stage):
    assert stage.found(PATIENCE) == []
    assert [rank.sent for rank in stage.ranks] == [[], []]


def test_a_rank_that_does_not_answer_hangs_and_the_one_that_waits_for_it_does_not(stage):
    assert stage.found(101) == []  # both are asked
    assert [rank.sent for rank in stage.ranks] == [[Ping()], [Ping()]]
    stage.says(1, True)
    assert stage.found(101 + ANSWER_SECONDS) == []
    assert stage.found(102 + ANSWER_SECONDS) == ["rank 0"]


def test_who_is_silent_a_moment_longer_is_not_to_blame_for_it(stage):
    """The one that waits spoke last before the one that hangs did: it is overdue alone at first."""
    stage.now = 5.0
    stage.debts.heard(stage.ranks[0])
    assert stage.found(101) == []
    stage.says(1, True)
    for now in range(102, 116):
        assert stage.found(float(now)) == []  # rank 0 is asked at 106, or has until 116
    assert stage.found(117) == ["rank 0"]


def test_while_the_one_that_hung_is_dying_nobody_else_is_named(stage):
    """It owes nothing any more, so the other is the only one that does, and waits."""
    stage.found(101)
    stage.says(1, True)
    assert stage.found(112) == ["rank 0"]
    stage.ranks[0].silent_seconds = 112.0
    stage.debts.forgive(stage.ranks[0])
    stage.says(1, True)
    assert stage.found(113) == []


def test_a_rank_that_says_that_it_waits_for_nobody_hangs(stage):
    """A thread of it answers, and its own stands somewhere else."""
    stage.found(101)
    stage.says(0, False)
    stage.says(1, True)
    assert stage.found(102) == ["rank 0"]


def test_where_all_wait_for_each_other_all_are_named(stage):
    stage.found(101)
    stage.says(0, True)
    stage.says(1, True)
    assert stage.found(102) == ["rank 0", "rank 1"]


def test_a_rank_that_waits_for_one_that_owes_nothing_any_more_is_named(stage):
    stage.debts.forgive(stage.ranks[0])
    stage.found(101)
    stage.says(1, True)
    assert stage.found(102) == ["rank 1"]


def test_one_that_waits_is_asked_again_for_as_long_as_the_other_still_speaks(stage):
    """It may hang by itself later."""
    stage.now = 60.0
    stage.debts.heard(stage.ranks[0])
    stage.found(101)
    stage.says(1, True)
    assert stage.found(111) == []
    assert stage.ranks[1].sent == [Ping()]
    assert stage.found(112) == []
    assert stage.ranks[1].sent == [Ping(), Ping()]
    assert stage.found(112 + ANSWER_SECONDS) == []
    assert stage.found(113 + ANSWER_SECONDS) == ["rank 1"]


def test_one_that_speaks_again_is_a_new_case(stage):
    stage.found(101)
    for rank in stage.ranks:
        stage.debts.heard(rank)
    assert stage.found(102) == []
    assert stage.found(202) == []  # asked anew, not taken for the one that did not answer at 101
    assert stage.ranks[0].sent == [Ping(), Ping()]


def test_before_a_rank_is_ready_its_own_word_counts_since_nobody_could_answer():
    """One is at the meeting already; the other's process has not said a word."""
    stage = Stage(ready=False)
    stage.says(1, True)
    assert stage.found(101) == ["rank 0"]
    assert [rank.sent for rank in stage.ranks] == [[], []]
    stage.says(1, False)  # they have met; now it loads
    assert stage.found(102) == ["rank 0", "rank 1"]


@pytest.mark.parametrize("timeout", [0.5, 5.0, 600.0])
def test_a_rank_waits_for_the_others_longer_than_it_takes_to_find_the_one_that_hangs(
    timeout, monkeypatch
):
    """Or it would fail first, and be blamed: also where the timeout is shorter than an answer."""
    given = []
    monkeypatch.setattr(rank_module, "interface_towards", lambda _host: None)
    monkeypatch.setattr(rank_module.dist, "TCPStore", lambda *_, **settings: given.append(settings))
    monkeypatch.setattr(
        rank_module.dist, "init_process_group", lambda *_, **settings: given.append(settings)
    )
    config = SimpleNamespace(pipeline=SimpleNamespace(timeout_seconds=timeout))
    task = SimpleNamespace(config=config, meeting=("127.0.0.1", 1), rank=1, num_ranks=2)
    rank_module._meet(task, SimpleNamespace(type="cpu"))
    # The other spoke last when this one began to wait: silent for so long, then asked.
    found = timeout + ANSWER_SECONDS
    assert [settings["timeout"].total_seconds() > found for settings in given] == [True, True]


def test_a_worker_is_silent_for_itself_alone_and_one_that_is_gone_is_not_asked(stage):
    worker = Rank("worker")
    stage.debts.owe(worker)
    for rank in stage.ranks:
        rank.gone = True
    assert stage.found(101, workers=[worker]) == ["worker"]
    assert worker.sent == []
    assert stage.ranks[0].sent == []
