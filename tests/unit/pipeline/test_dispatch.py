"""The dispatcher under random events: steps are the plan's, the arena's bound holds, it ends."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.core.batches import Batches
from lengthwise.core.remix import remix
from lengthwise.dflash.training.plan import Epoch
from lengthwise.pipeline.dispatch import RANK_DEPTH, WORKER_DEPTH, Dispatcher
from lengthwise.pipeline.messages import Arrived, Deliver, RunBatch, Stop
from lengthwise.pipeline.pages import PageAllocator, pages_needed

PAGE = 4


class Plan:
    """A plan of a few epochs over random samples; sample ids are not places."""

    def __init__(self, seed, num_epochs=2, max_steps=None):
        draw = random.Random(seed)
        sizes = [draw.randint(1, 4) for _ in range(draw.randint(2, 9))]
        total = sum(sizes)
        self.places = np.array([draw.randint(1, 17) for _ in range(total)], np.int64)
        self.ids = np.sort(np.array(draw.sample(range(3 * total), total), np.int64))
        self.lengths = np.zeros(3 * total, np.int64)
        self.lengths[self.ids] = self.places
        self.costs = np.array([draw.randint(1, 3) for _ in range(total)], np.int64)
        self.mixes = [self._mix(draw, sizes, epoch) for epoch in range(num_epochs)]
        self.steps_per_epoch = self.mixes[0].num_steps
        whole = num_epochs * self.steps_per_epoch
        self.num_steps = whole if max_steps is None else min(max_steps, whole)

    def _mix(self, draw, sizes, epoch):
        order = np.array(draw.sample(range(sum(sizes)), sum(sizes)), np.uint32)
        counts = np.array(sizes, np.int64)
        starts = np.cumsum(counts) - counts
        tokens = np.add.reduceat(self.places[order], starts)
        longest = np.maximum.reduceat(self.places[order], starts)
        batches = Batches(order, starts, counts, longest, tokens)
        return remix(
            batches, self.places, self.costs,
            pool_tokens=int(tokens.max()) + draw.randint(0, 60),
            step_cost=int(self.costs.max()) + int(self.costs.sum()) // 6, epoch=epoch,
        )  # fmt: skip

    def epoch(self, number):
        return Epoch(number, self.mixes[number], self.ids)

    def capacity(self, prefetch=0):
        return max(pages_needed(mix, self.places, PAGE, prefetch) for mix in self.mixes)


class Play:
    """Plays workers and ranks: picks at random what happens next."""

    def __init__(self, plan, seed, *, num_workers=2, num_ranks=2, num_done=0, capacity=None):
        self.plan, self.draw = plan, random.Random(seed)
        self.pages = PageAllocator(capacity or plan.capacity(), PAGE)
        self.dispatcher = Dispatcher(
            plan, plan.lengths, self.pages,
            num_workers=num_workers, num_ranks=num_ranks, num_done=num_done,
        )  # fmt: skip
        self.at_workers = {worker: [] for worker in range(num_workers)}
        self.at_ranks = {rank: [] for rank in range(num_ranks)}
        self.steps, self.run, self.stops, self.bad = {}, [], {}, set()

    def post(self):
        for who, message in self.dispatcher.work():
            if isinstance(message, RunBatch):
                self.at_workers[who].append(message)
                assert len(self.at_workers[who]) <= WORKER_DEPTH
            else:
                assert isinstance(message, Deliver)
                self.at_ranks[who].append(message)
                assert len(self.at_ranks[who]) <= RANK_DEPTH
        assert self.pages.num_used <= self.pages.num_pages
        # What is remembered is in the arena: of what was handed out nothing is kept.
        states = self.dispatcher._epochs.values()
        assert sum(len(s.parts) for e in states for s in e.steps) <= self.pages.num_used

    def choices(self):
        workers = [("worker", w) for w, work in self.at_workers.items() if work]
        return workers + [("rank", r) for r, work in self.at_ranks.items() if work]

    def happen(self, kind, who, bad=()):
        if kind == "worker":
            batch = self.at_workers[who].pop(0)
            self.run.append((batch.epoch, batch.arrival))
            problems = {p.sample_id: "spoilt" for p in batch.parts if p.sample_id in bad}
            self.dispatcher.arrived(Arrived(batch.epoch, batch.arrival, problems, 0, 0, 0.0, 0.0))
        else:
            step = self.at_ranks[who].pop(0)
            ids = [part.sample_id for part in step.parts]
            assert [part.num_tokens for part in step.parts] == self.plan.lengths[ids].tolist()
            self.steps.setdefault((step.epoch, step.step), {})[who] = ids
            self.dispatcher.copied(who, step.epoch, step.step)
            self.dispatcher.learnt(who)

    def to_the_end(self, *, lose=None, bad=()):
        for turn in range(100_000):
            self.post()
            if turn == lose:
                self.at_workers.pop(0)
                self.dispatcher.lost(0)
                continue
            choices = self.choices()
            if not choices:
                break
            self.happen(*self.draw.choice(choices), bad)
        return self


def expected_steps(plan, num_ranks, num_done=0, bad=()):
    """Read off the plan alone."""
    steps = {}
    for place in range(num_done, plan.num_steps):
        number, step = divmod(place, plan.steps_per_epoch)
        dealt = plan.epoch(number).for_ranks(step, num_ranks)
        steps[number, step] = {
            rank: [sample for sample in part.tolist() if sample not in bad]
            for rank, part in enumerate(dealt)
        }
    return steps


seeds = st.integers(0, 10**6)


@settings(max_examples=150, deadline=None)
@given(seeds, st.integers(1, 3), st.integers(1, 3), st.integers(0, 3))
def test_whatever_happens_when_ranks_get_the_plans_steps(seed, num_workers, num_ranks, prefetch):
    """With no page more than the plan needs, in any order of events, nothing stands still."""
    plan = Plan(seed)
    play = Play(
        plan, seed, num_workers=num_workers, num_ranks=num_ranks, capacity=plan.capacity(prefetch)
    ).to_the_end()
    assert play.steps == expected_steps(plan, num_ranks)
    assert play.dispatcher.finished
    assert play.pages.num_used == 0
    every = [(e, a) for e in range(2) for a in range(plan.epoch(e).num_arrivals)]
    assert sorted(play.run) == every


@settings(max_examples=150, deadline=None)
@given(seeds, st.data())
def test_a_resumed_run_gets_the_rest_and_reruns_only_what_waited(seed, data):
    """Steps that are done are not sent; batches run again exactly if a sample of theirs waited."""
    plan = Plan(seed)
    num_done = data.draw(st.integers(0, plan.num_steps))
    play = Play(plan, seed, num_done=num_done).to_the_end()
    assert play.steps == expected_steps(plan, 2, num_done)
    assert play.pages.num_used == 0
    first, step = divmod(num_done, plan.steps_per_epoch)
    if step:
        epoch = plan.epoch(first)
        done = {s for k in range(step) for s in epoch.step(k).tolist()}
        arrived = range(epoch.arrivals_by(step - 1))
        rerun = [a for a in arrived if set(epoch.arrival(a).tolist()) - done]
        assert play.dispatcher.num_rerun == len(rerun)
        assert sorted(a for e, a in play.run if e == first and a in arrived) == rerun


@settings(max_examples=100, deadline=None)
@given(seeds, st.integers(0, 30))
def test_a_lost_workers_batches_are_run_by_the_other(seed, lose):
    plan = Plan(seed)
    play = Play(plan, seed).to_the_end(lose=lose)
    assert play.steps == expected_steps(plan, 2)
    assert play.pages.num_used == 0


@settings(max_examples=100, deadline=None)
@given(seeds, st.data())
def test_a_bad_sample_is_missing_from_its_step_and_nothing_else(seed, data):
    plan = Plan(seed)
    bad = set(data.draw(st.lists(st.sampled_from(plan.ids.tolist()), max_size=4)))
    play = Play(plan, seed).to_the_end(bad=bad)
    assert play.steps == expected_steps(plan, 2, bad=bad)
    assert play.pages.num_used == 0


@settings(max_examples=100, deadline=None)
@given(seeds, st.integers(0, 25))
def test_a_stop_ends_all_ranks_at_the_same_step(seed, turns):
    """Every step sent before it is learnt from by all; none is sent after."""
    plan = Plan(seed)
    play = Play(plan, seed)
    for _ in range(turns):
        play.post()
        choices = play.choices()
        if not choices:
            break
        play.happen(*play.draw.choice(choices))
    stops = dict(play.dispatcher.stop())
    (stop,) = set(stops.values())
    assert isinstance(stop, Stop)
    play.to_the_end()
    place = stop.epoch * plan.steps_per_epoch + stop.step
    assert play.dispatcher.finished
    sent = {e * plan.steps_per_epoch + s for e, s in play.steps}
    assert sent == set(range(place))
    assert all(len(parts) == 2 for parts in play.steps.values())


@pytest.mark.parametrize("max_steps", [1, 2, 3])
def test_a_short_run_runs_no_batch_that_no_step_needs(max_steps):
    plan = Plan(5, max_steps=max_steps)
    play = Play(plan, 0).to_the_end()
    assert play.steps == expected_steps(plan, 2)
    number, step = divmod(plan.num_steps - 1, plan.steps_per_epoch)
    assert len([a for e, a in play.run if e == number]) == plan.epoch(number).arrivals_by(step)
    assert play.pages.num_used == 0
