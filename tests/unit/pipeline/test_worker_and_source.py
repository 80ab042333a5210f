"""A worker's batches and a rank's samples, in this process: target, arena and wire are real."""

from __future__ import annotations

import queue
import socket
import threading
import time
from pathlib import Path

import pytest
import torch

from lengthwise.dflash.meetings import Meetings
from lengthwise.dflash.target import load_target, samples_of
from lengthwise.dflash.training.checkpoint import CheckpointStore
from lengthwise.dflash.training.setup import load_data
from lengthwise.errors import DataError
from lengthwise.pipeline.arena import Arena, ArenaShape
from lengthwise.pipeline.copies import Inbox
from lengthwise.pipeline.messages import (
    Arrived,
    Asked,
    Copied,
    Deliver,
    Learnt,
    Leave,
    Noted,
    Part,
    Ping,
    RunBatch,
    Stop,
    Waits,
)
from lengthwise.pipeline.pages import PageAllocator
from lengthwise.pipeline.rank import NotingStore
from lengthwise.pipeline.source import PipelineSource
from lengthwise.pipeline.wire import Line, Wire
from lengthwise.pipeline.worker import WorkerTask, _read, _Worker
from support.dflash_runs import small_run_folder
from support.pipeline_runs import pipeline_config

TAPS, PAGE = (1, 3), 8


@pytest.fixture(scope="module")
def parts(tmp_path_factory):
    """The config, the data and the target of a small run."""
    folder = small_run_folder(tmp_path_factory.mktemp("run"))
    config = pipeline_config(folder, folder / "out")
    return config, load_data(config), load_target(folder / "target")


@pytest.fixture
def arena(parts):
    _, _, target = parts
    made = Arena(ArenaShape(200, PAGE, len(TAPS) * target.hidden_size, torch.float32))
    yield made
    made.close()


@pytest.fixture
def ends():
    """Both ends of a connection.

    Whoever still listens at the end is told to leave first: at a closed end it would take the
    coordinator for gone, and end this process.
    """
    ours, theirs = socket.socketpair()
    line = Line(ours)
    yield line, Wire(theirs)
    line.send(Leave())
    for thread in threading.enumerate():
        if thread.name == "receive":
            thread.join(60)
            assert not thread.is_alive()
    ours.close()
    theirs.close()


def hear(line, count):
    heard, until = [], time.monotonic() + 60
    while len(heard) < count:
        assert time.monotonic() < until
        heard += line.received()
    return heard


def batch_of(dataset, sample_ids, arena, wanted=None):
    """A batch, with pages for the samples that are wanted."""
    pages = PageAllocator(arena.shape.num_pages, PAGE)
    chosen = sample_ids if wanted is None else wanted
    lengths = [int(dataset.lengths[sample]) for sample in chosen]
    places = map(Part, chosen, lengths, pages.take(lengths))
    return RunBatch(0, 7, tuple(sample_ids), tuple(places))


def run_batch(parts, arena, ends, batch, rows=None):
    """What a worker answers, and what lies in the arena then, by sample."""
    config, data, target = parts
    line, wire = ends
    task = WorkerTask(config, data, "cpu", 1, TAPS, arena.place)
    if rows is None:
        rows = [_read(data.dataset, sample) for sample in batch.sample_ids]
    _Worker(wire, task, target, arena)._run(batch, rows, 0.25)
    (answer,) = hear(line, 1)
    assert isinstance(answer, Arrived)
    return answer, {part.sample_id: arena.read(part) for part in batch.parts}


def features_of(parts, sample_ids):
    """The same batch by itself: the oracle is the function that one process uses."""
    _, data, target = parts
    rows = [data.dataset[sample] for sample in sample_ids]
    found = samples_of(
        target, [r["input_ids"] for r in rows], [r["loss_mask"] for r in rows], sample_ids, TAPS
    )
    return {sample.sample_id: sample.features for sample in found}


def test_each_samples_features_are_written_without_padding(parts, arena, ends):
    dataset, sample_ids = parts[1].dataset, [4, 0, 9]
    answer, written = run_batch(parts, arena, ends, batch_of(dataset, sample_ids, arena))
    lengths = [int(dataset.lengths[sample]) for sample in sample_ids]
    assert (answer.epoch, answer.arrival, answer.bad) == (0, 7, {})
    assert answer.real_tokens == sum(lengths)
    assert answer.padded_tokens == 3 * max(lengths)
    assert (answer.wait_seconds, answer.input_seconds) == (0.25, 0.0)
    assert answer.longest == max(lengths)
    assert answer.busy_seconds > 0
    expected = features_of(parts, sample_ids)
    assert all(torch.equal(written[sample], expected[sample]) for sample in sample_ids)


@pytest.mark.parametrize("sample_ids", [[4], [4, 0, 9, 2], [9, 2, 4, 0], [0, 4]])
def test_a_sample_gets_its_own_features_whoever_is_in_its_batch(parts, arena, ends, sample_ids):
    """B48: alone, among four, in another order. By its number, not by its row."""
    _, written = run_batch(parts, arena, ends, batch_of(parts[1].dataset, sample_ids, arena))
    for sample in sample_ids:
        torch.testing.assert_close(written[sample], features_of(parts, [sample])[sample])


def test_only_what_is_wanted_is_written_and_the_batch_is_whole(parts, arena, ends):
    """After a resumption: one sample waited, and its batch runs again as it was, bit for bit."""
    batch = batch_of(parts[1].dataset, [4, 0, 9], arena, wanted=[0])
    _, written = run_batch(parts, arena, ends, batch)
    assert list(written) == [0]
    assert torch.equal(written[0], features_of(parts, [4, 0, 9])[0])


def spoil_token(row):
    ids = row["input_ids"].clone()
    ids[0] = 96  # the vocabulary ends at 95
    return {**row, "input_ids": ids}


def spoil_mask(row):
    return {**row, "loss_mask": row["loss_mask"][:-1]}


def spoil_length(row):
    """One row less than the plan counts on (B47)."""
    return {**row, "input_ids": row["input_ids"][:-1], "loss_mask": row["loss_mask"][:-1]}


def spoil_reading(_row):
    return DataError("samples.parquet: row 0 cannot be read")


@pytest.mark.parametrize("spoil", [spoil_token, spoil_mask, spoil_length, spoil_reading])
def test_a_bad_sample_is_told_by_name_and_the_others_arrive(parts, arena, ends, spoil):
    dataset, sample_ids = parts[1].dataset, [4, 0, 9]
    rows = [dataset[sample] for sample in sample_ids]
    rows[1] = spoil(rows[1])
    batch = batch_of(dataset, sample_ids, arena)
    answer, written = run_batch(parts, arena, ends, batch, rows)
    assert list(answer.bad) == [0]
    assert "sample 0" in answer.bad[0]
    expected = features_of(parts, [4, 9])
    for sample in (4, 9):
        torch.testing.assert_close(written[sample], expected[sample])


def test_a_batch_of_nothing_but_bad_samples_arrives_empty(parts, arena, ends):
    dataset = parts[1].dataset
    rows = [spoil_token(dataset[4]), spoil_reading(None)]
    answer, _ = run_batch(parts, arena, ends, batch_of(dataset, [4, 0], arena), rows)
    assert sorted(answer.bad) == [0, 4]
    assert answer.real_tokens == len(dataset[4]["input_ids"])


class Epoch:
    number = 2


def test_a_rank_copies_at_once_and_learns_in_order(parts, arena, ends):
    """Pages are free when `Copied` is heard, before anything is learnt from."""
    dataset, (line, wire) = parts[1].dataset, ends
    source = PipelineSource(wire, dataset, Inbox(arena, torch.device("cpu")))
    source.begin(Epoch, 5)
    batch = batch_of(dataset, [4, 0], arena)
    features = features_of(parts, [4, 0])
    for part in batch.parts:
        arena.write(part, features[part.sample_id])
    line.send(Deliver(2, 5, batch.parts))
    line.send(Deliver(2, 6, ()))
    assert hear(line, 2) == [Copied(2, 5), Copied(2, 6)]
    for part in batch.parts:
        arena.write(part, torch.zeros_like(features[part.sample_id]))
    samples = source.take(5)
    assert [sample.sample_id for sample in samples] == [4, 0]
    for sample in samples:
        assert torch.equal(sample.features, features[sample.sample_id])
        assert torch.equal(sample.input_ids, dataset[sample.sample_id]["input_ids"])
        assert torch.equal(sample.loss_mask, dataset[sample.sample_id]["loss_mask"])
    assert source.take(6) == []
    (learnt,) = hear(line, 1)
    assert isinstance(learnt, Learnt)
    line.send(Stop(2, 7))
    assert source.take(7) is None
    line.send(Leave())
    source.wait_to_leave()


def test_a_rank_tells_what_it_waited_for_and_how_long_it_was_with_others(parts, arena, ends):
    """A wait is copying from the moment that the step was heard of; before, samples were late."""
    dataset, (line, wire) = parts[1].dataset, ends
    meetings, late = Meetings(), [0.2, 0.0]

    class Slow:
        def fetch(self, wanted):
            time.sleep(0.2)
            return []

    class Late(queue.Queue):
        """The step is sent no sooner than it is waited for, so all times have a least value."""

        def get(self):
            time.sleep(late.pop(0))
            line.send(Deliver(2, 1 - len(late), ()))
            return super().get()

    source = PipelineSource(wire, dataset, Slow(), meetings)
    source._ready = Late()
    source.begin(Epoch, 0)
    for step, together in ((0, 1.5), (1, 2.5)):
        assert source.take(step) == []
        meetings.seconds += together
    source.finish()
    told = [one for one in hear(line, 4) if isinstance(one, Learnt)]
    assert [one.meeting_seconds for one in told] == [1.5, 2.5]
    first, second = told
    assert first.wait_seconds >= first.input_seconds + 0.2
    assert first.input_seconds >= 0.2
    assert second.wait_seconds >= second.input_seconds >= 0.2


def test_a_rank_that_is_asked_says_whether_it_waits_for_others(parts, arena, ends):
    """While its own thread is in a meeting, and when it is in none."""
    line, wire = ends
    meetings = Meetings()
    PipelineSource(wire, parts[1].dataset, Inbox(arena, torch.device("cpu")), meetings)
    line.send(Ping())
    assert hear(line, 1) == [Waits(False)]
    with meetings.awaiting():
        line.send(Ping())
        assert hear(line, 1) == [Waits(True)]
    line.send(Ping())
    assert hear(line, 1) == [Waits(False)]


def test_a_worker_tells_how_much_of_its_wait_was_reading(parts, arena, ends):
    """Six tenths of a second, in whose last two the batch was known and its rows being read."""
    config, data, target = parts
    _, wire = ends
    task = WorkerTask(config, data, "cpu", 1, TAPS, arena.place)
    worker, heard = _Worker(wire, task, target, arena), []
    worker._run = lambda batch, rows, waited, reading: heard.append((waited, reading))

    class Slow(queue.Queue):
        """Whoever asks it waits, so the wait begins no sooner than the worker's own clock."""

        def get(self):
            if heard:
                return Leave(), None, 0.0
            time.sleep(0.4)
            known = time.perf_counter()
            time.sleep(0.2)
            return batch_of(data.dataset, [4], arena), [], known

    worker.serve(Slow())
    ((waited, reading),) = heard
    assert waited >= 0.6
    assert 0.2 <= reading < waited - 0.3


def test_features_that_are_not_one_a_token_stop_a_rank_by_name(parts, arena, ends):
    """What a worker has checked cannot become wrong on the way; if it does, nothing is learnt."""
    dataset, (line, wire) = parts[1].dataset, ends
    source = PipelineSource(wire, dataset, Inbox(arena, torch.device("cpu")))
    source.begin(Epoch, 0)
    length = int(dataset.lengths[4])
    line.send(Deliver(2, 0, (Part(4, length - 1, tuple(range(-(-length // PAGE)))),)))
    with pytest.raises(DataError, match=rf"sample 4: features has {length - 1} rows for {length}"):
        source.take(0)


def test_a_checkpoint_waits_until_its_steps_are_taken_down(parts, arena, ends, tmp_path):
    """Otherwise a coordinator killed in between would leave steps that have no record."""
    line, wire = ends
    source = PipelineSource(wire, parts[1].dataset, Inbox(arena, torch.device("cpu")))
    store = NotingStore(CheckpointStore(tmp_path / "checkpoints", keep=2), source)
    saving = threading.Thread(target=store.save, args=({"num_steps": 1}, {}, Path.mkdir))
    saving.start()
    assert hear(line, 1) == [Asked()]
    saving.join(0.3)
    assert saving.is_alive()
    assert not (tmp_path / "checkpoints").exists()
    line.send(Noted())
    saving.join(60)
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-00000001"]
    line.send(Leave())
    source.wait_to_leave()
