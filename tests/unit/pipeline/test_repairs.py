"""Features lost on their way: the plan's whole batch runs again, for those who miss them."""

from __future__ import annotations

import pytest

from lengthwise.errors import TrainingError
from lengthwise.pipeline.dispatch import Dispatcher
from lengthwise.pipeline.messages import Again, Arrived, Deliver, RunBatch, Stop
from lengthwise.pipeline.pages import PageAllocator
from support.dispatched_pipeline import PAGE_TOKENS, plan_of


class Scene:
    """A dispatcher of which two ranks have got the first step, and nothing is copied yet."""

    def __init__(self, num_workers=2):
        self.plan = plan_of(120)
        self.pages = PageAllocator(4_000, PAGE_TOKENS)
        self.dispatcher = Dispatcher(
            self.plan, self.plan.data.lengths, self.pages, num_workers=num_workers, num_ranks=2
        )
        self.delivered, self.again, self.batches = {}, [], []
        while not self.delivered:
            self.work()
            assert self.batches
            self.arrive(self.batches.pop(0)[1])
            self.work()

    def work(self):
        """Take what the dispatcher sends."""
        for number, message in self.dispatcher.work():
            if isinstance(message, RunBatch):
                self.batches.append((number, message))
            elif isinstance(message, Deliver):
                self.delivered[number] = message
            else:
                assert isinstance(message, Again)
                self.again.append((number, message))

    def arrive(self, batch, bad=()):
        problems = dict.fromkeys(bad, "spoilt")
        self.dispatcher.arrived(Arrived(batch.epoch, batch.arrival, problems, 0, 0, 0.0, 0.0))

    def finish(self):
        """Run all that is under way."""
        while self.batches:
            self.arrive(self.batches.pop(0)[1])
            self.work()

    def lose_after_a_stop(self):
        """Stop, and have the first rank miss a sample, whose batch alone is then under way."""
        part = self.delivered[0].parts[0]
        list(self.dispatcher.stop())
        self.finish()
        self.dispatcher.missing(0, [part])
        self.work()
        return part


def test_a_missing_sample_runs_again_in_its_whole_batch_and_keeps_its_pages():
    """Its rank, which asked for it, is told when it is there."""
    scene = Scene()
    part = scene.delivered[1].parts[0]
    assert scene.dispatcher.missing(1, [part]) == 1
    scene.finish()  # workers had as many batches as they may have
    scene.work()
    assert scene.again == [(1, Again((part,)))]
    assert not set(part.pages) & set(scene.pages._free)


def test_samples_of_one_batch_run_again_together_and_each_rank_gets_its_own():
    scene = Scene()
    home = {}
    for number in range(scene.plan.epoch(0).arrivals_by(0)):
        home |= dict.fromkeys(scene.plan.epoch(0).arrival(number).tolist(), number)
    missing = [(rank, part) for rank in (0, 1) for part in scene.delivered[rank].parts]
    batches = {home[part.sample_id] for _, part in missing}
    count = sum(scene.dispatcher.missing(rank, scene.delivered[rank].parts) for rank in (0, 1))
    assert count == len(batches)
    scene.finish()
    assert {(rank, part) for rank, again in scene.again for part in again.parts} == set(missing)
    assert sum(len(again.parts) for _, again in scene.again) == len(missing)


def test_a_batch_that_runs_again_is_whole_and_comes_first_even_after_a_stop():
    """Ranks must finish the steps they have; nothing else is run any more."""
    scene = Scene()
    assert [stop for _, stop in scene.dispatcher.stop()] == [Stop(0, 1), Stop(0, 1)]
    scene.finish()
    part = scene.delivered[0].parts[0]
    scene.dispatcher.missing(0, [part])
    scene.work()
    ((_, batch),) = scene.batches
    assert batch.parts == (part,)
    assert batch.sample_ids == tuple(scene.plan.epoch(0).arrival(batch.arrival).tolist())
    assert part.sample_id in batch.sample_ids
    assert scene.dispatcher.batches_left
    scene.finish()
    assert scene.again == [(0, Again((part,)))]


def test_where_the_worker_is_lost_too_another_one_runs_it():
    scene = Scene()
    part = scene.lose_after_a_stop()
    ((worker, batch),) = scene.batches
    assert scene.dispatcher.lost(worker) == 1
    scene.batches.clear()
    scene.work()
    ((other, same),) = scene.batches
    assert other != worker
    assert same == batch
    scene.finish()
    assert scene.again == [(0, Again((part,)))]


def test_a_sample_that_was_good_and_is_bad_now_ends_the_run_by_name():
    scene = Scene()
    part = scene.lose_after_a_stop()
    with pytest.raises(TrainingError, match="bad now, though it was not before: spoilt"):
        scene.arrive(scene.batches[0][1], bad=[part.sample_id])


def test_a_worker_that_retires_finishes_its_batches_and_gets_no_more():
    scene = Scene(num_workers=2)
    scene.work()
    mine = [batch for worker, batch in scene.batches if worker == 0]
    assert scene.dispatcher.num_prefetched == len(scene.batches) > len(mine) > 0
    scene.dispatcher.retire(0)
    for batch in mine:
        scene.arrive(batch)
    scene.batches = [(worker, batch) for worker, batch in scene.batches if worker != 0]
    scene.work()
    assert all(worker == 1 for worker, _ in scene.batches)
    assert scene.dispatcher.num_workers == 1
    scene.dispatcher.joined(2)
    scene.work()
    assert {worker for worker, _ in scene.batches} == {1, 2}


def test_what_no_rank_has_been_told_of_runs_again_before_its_step_goes_out():
    """By the pages that are lost; then the step is as it was, on the same pages."""
    scene = Scene()
    scene.work()
    states = scene.dispatcher._epochs.values()
    waiting = [p for s in states for step in s.steps for p in step.parts.values()]
    assert len(waiting) > 3
    lost = {part.pages for part in waiting[::2]}
    count = scene.dispatcher.lost_features(lost)
    arrivals = {
        number
        for number in range(scene.plan.epoch(0).num_arrivals)
        if {p.sample_id for p in waiting[::2]} & set(scene.plan.epoch(0).arrival(number).tolist())
    }
    assert count == len(arrivals)
    used = scene.pages.num_used
    ready = scene.dispatcher.num_ready_steps
    list(scene.dispatcher.stop())
    scene.finish()
    assert scene.again == []
    again = [p for s in states for step in s.steps for p in step.parts.values()]
    assert set(waiting) <= set(again)
    assert scene.pages.num_used == used
    assert scene.dispatcher.num_ready_steps >= ready
