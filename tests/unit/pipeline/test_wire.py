"""Lines and children: whole messages, no waiting for the deaf, ends that are told."""

from __future__ import annotations

import pickle
import socket
import struct
import threading
import time

import pytest

from lengthwise.pipeline import children
from lengthwise.pipeline.children import end_all, messages, start
from lengthwise.pipeline.debts import Debts
from lengthwise.pipeline.local import LocalCrew
from lengthwise.pipeline.messages import Failed, Leave, Ready, Warned
from lengthwise.pipeline.verdict import Cause, cause_of, find_cause
from lengthwise.pipeline.wire import HangUpError, Line, Wire
from support.pipeline_children import behave
from support.pipeline_runs import alive, check_gone

SECONDS = 60


@pytest.fixture
def pair():
    ours, theirs = socket.socketpair()
    line, wire = Line(ours), Wire(theirs)
    yield line, wire
    line.close()
    theirs.close()


def hear(line, count):
    """That many messages; they come in good time or never."""
    heard, until = [], time.monotonic() + SECONDS
    while len(heard) < count:
        assert time.monotonic() < until
        line.flush()
        heard += line.received()
    return heard


@pytest.mark.parametrize("size", [0, 1, 70_000, 5_000_000])
def test_messages_of_any_size_arrive_whole_and_in_order(pair, size):
    """Both ways; larger ones than a socket takes at once."""
    line, wire = pair
    sent = [bytes(size), {"number": 1}, bytes(size)]
    speaking = threading.Thread(target=lambda: [wire.send(one) for one in sent])
    speaking.start()
    assert hear(line, 3) == sent
    speaking.join()
    heard = []
    listening = threading.Thread(target=lambda: heard.extend(wire.receive() for _ in sent))
    listening.start()
    for one in sent:
        line.send(one)
    while line.unsent:
        line.flush()
    listening.join()
    assert heard == sent


def test_the_coordinator_never_waits_for_one_who_does_not_listen(pair):
    """20 MB to nobody: sent returns, what is not taken is kept."""
    line, _ = pair
    for _ in range(20):
        line.send(bytes(1_000_000))
    assert line.unsent > 15_000_000


def test_threads_of_a_child_do_not_mix_their_messages(pair):
    line, wire = pair
    threads = [
        threading.Thread(target=lambda mark=mark: [wire.send(mark * 50_000) for _ in range(20)])
        for mark in (b"a", b"b", b"c")
    ]
    for thread in threads:
        thread.start()
    heard = hear(line, 60)
    assert sorted(heard) == sorted(mark * 50_000 for mark in (b"a", b"b", b"c") for _ in range(20))


def test_half_a_message_is_no_message(pair):
    """As of a child that was killed while it spoke; what came before is heard."""
    line, wire = pair
    wire.send("first")
    data = pickle.dumps("second" * 100)
    wire._end.sendall(struct.pack("!Q", len(data)) + data[: len(data) // 2])
    wire._end.close()
    assert line.received() == ["first"]
    assert line.received() == []
    assert line.ended


def test_a_child_hears_that_the_coordinator_is_gone(pair):
    line, wire = pair
    line.close()
    with pytest.raises(HangUpError):
        wire.receive()
    with pytest.raises(HangUpError):
        wire.send(bytes(10_000_000))


@pytest.fixture(scope="module")
def everyone():
    """One child of each behaviour, all started together, and what they said."""
    names = ["raise", "raise ours", "warn", "half", "exit", "leave", "deaf", "stop"]
    family = {name: start(behave, name, name, place) for place, name in enumerate(names)}
    try:
        yield family, hear_all(family)
    finally:
        end_all(family.values(), at_once=True)


def hear_all(family):
    """What each has said, until it was gone or has no more to say."""
    said, until = {name: [] for name in family}, time.monotonic() + SECONDS
    over = {"raise", "raise ours", "half", "exit"}
    enough = {"warn": 2, "leave": 1, "deaf": 1, "stop": 1}
    while not (
        all(family[name].gone for name in over)
        and all(len(said[name]) >= count for name, count in enough.items())
    ):
        assert time.monotonic() < until
        for child, message in messages(family.values(), 0.1):
            said[child.name].append(message)
    return said


def test_an_error_is_told_with_its_place_unless_it_is_ours(everyone):
    """Ours say all there is to say."""
    _, said = everyone
    ready, foreign, end = said["raise"]
    assert ready == Ready()
    assert foreign.error == "ValueError: no such thing"
    assert "in behave" in foreign.trace
    assert end is None
    assert [type(one) for one in said["raise ours"]] == [Ready, Failed, type(None)]
    assert said["raise ours"][1].error == "DataError: sample 7 is bad"
    assert said["raise ours"][1].trace == ""


def test_a_warning_of_ours_is_passed_on(everyone):
    _, said = everyone
    assert said["warn"][1] == Warned("look here")


def test_a_child_killed_in_mid_message_is_gone_and_was_heard_before(everyone):
    family, said = everyone
    assert said["half"] == [Ready(), None]
    assert family["half"].ending() == "was killed by SIGKILL"


def test_how_children_ended_is_said_in_words(everyone):
    family, _ = everyone
    assert family["exit"].ending() == "ended with exit code 3"
    assert family["raise"].ending() == "ended with exit code 1"


def test_all_end_whether_they_listen_or_not(everyone, monkeypatch):
    """One leaves when told; one never listens; one is stopped and takes no signal but SIGKILL."""
    family, _ = everyone
    monkeypatch.setattr(children, "GRACE_SECONDS", 1.0)
    left = [family[name] for name in ("leave", "deaf", "stop", "warn")]
    pids = [child.process.pid for child in left]
    assert all(alive(pid) for pid in pids)
    for child in left:
        child.line.send(Leave())
    end_all(left, at_once=False)
    check_gone(pids)
    assert [child.process.exitcode for child in left] == [0, -9, -9, 0]


def test_only_silence_that_owes_an_answer_is_overdue():
    now = [0.0]
    debts, one, other = Debts(10.0, lambda: now[0]), object(), object()
    debts.owe(one)
    now[0] = 9.0
    debts.owe(one)  # the clock runs for the first
    now[0] = 10.5
    assert debts.overdue([one, other]) == [(one, 10.5)]
    debts.heard(one)
    assert debts.overdue([one, other]) == []
    debts.answered(one)
    now[0] = 21.0
    assert debts.overdue([one]) == [(one, 10.5)]  # the second is still owed
    debts.answered(one)
    assert debts.overdue([one]) == []
    debts.owe(other)
    debts.forgive(other)
    now[0] = 99.0
    assert debts.overdue([one, other]) == []


def test_who_was_killed_is_to_blame_and_not_who_lost_it():
    """A rank's error is heard first; then it turns out that another rank was killed."""
    raised = Cause(True, 5.0, "rank 0 failed: connection closed by peer")
    killed, heard = start(behave, "half", "rank 1", 1), []
    crew = LocalCrew()
    crew.listen_seconds = SECONDS
    try:
        cause = find_cause(raised, [killed], crew, lambda child, message: heard.append(message))
    finally:
        end_all([killed], at_once=True)
    assert cause == Cause(False, 0.0, "rank 1 was killed by SIGKILL")
    assert heard == [Ready()]  # what it had said before is not lost


def test_of_several_errors_the_first_is_to_blame():
    """By the machine's clock, not by who is heard first."""
    later = cause_of(FakeChild("rank 0"), Failed("RuntimeError: lost", "", 9.0))
    earlier = cause_of(FakeChild("rank 1"), Failed("ValueError: cause", "a\nb", 8.0))
    assert min(later, earlier).text == "rank 1 failed: ValueError: cause\na\nb"


class FakeChild:
    def __init__(self, name):
        self.name = name
