"""Who does what next. Pure: events go in, messages to send come out; no process, pipe or clock.

Batches of the target go out in the order of the plan, each as soon as a worker has room for it and
the arena has pages for its samples. A step goes to the drafter's ranks as soon as all its samples
have arrived and the ranks are not too far behind. So what is learnt from, and in which order, is
the plan's alone, however many workers there are and however they are delayed.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from lengthwise.errors import TrainingError
from lengthwise.pipeline.course import EpochState, batches_after
from lengthwise.pipeline.holdings import Holdings
from lengthwise.pipeline.messages import Again, Deliver, Part, RunBatch, Stop
from lengthwise.pipeline.repairs import Repairs

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from lengthwise.core.limits import Int64Array
    from lengthwise.dflash.training.plan import TrainingPlan
    from lengthwise.pipeline.course import Upcoming
    from lengthwise.pipeline.messages import Arrived
    from lengthwise.pipeline.pages import PageAllocator

WORKER_DEPTH = 2
"""Batches that a worker has at once: one runs, the next is made ready."""
RANK_DEPTH = 2
"""Steps that a rank has at once: one is learnt from, the next is there already."""

ToWorker = tuple[int, RunBatch]
ToRank = tuple[int, Deliver | Again | Stop]


class Dispatcher:
    """Decides what every worker and rank does next.

    Args:
        plan: of the run.
        lengths: tokens of every sample of the data set, by sample id.
        allocator: of the arena.
        num_workers: target workers.
        num_ranks: drafter ranks.
        num_done: optimiser steps done before.

    Attributes:
        pages: the allocator.
        num_rerun: batches run again because their samples had waited when the run was resumed.
    """

    def __init__(
        self,
        plan: TrainingPlan,
        lengths: Int64Array,
        allocator: PageAllocator,
        *,
        num_workers: int,
        num_ranks: int,
        num_done: int = 0,
    ) -> None:
        """Stand where ``num_done`` steps are done; nobody has work yet."""
        self._plan, self._lengths = plan, lengths
        self.pages = allocator
        self._num_ranks = num_ranks
        self._rooms = dict.fromkeys(range(num_workers), WORKER_DEPTH)
        self._running: dict[tuple[int, int], tuple[int, RunBatch]] = {}
        self._again: deque[RunBatch] = deque()
        self._repairs = Repairs()
        self._epochs: dict[int, EpochState] = {}
        self._holdings = Holdings()
        self._learnt = dict.fromkeys(range(num_ranks), num_done)
        self._next_step = num_done
        self._stopped = False
        self.num_rerun = 0
        self._batches = batches_after(num_done, plan, self._state)
        self._upcoming = self._advance()

    @property
    def num_prefetched(self) -> int:
        """Batches that workers have and have not finished."""
        return len(self._running)

    @property
    def num_ready_steps(self) -> int:
        """Steps whose samples have all arrived and that no rank has got yet."""
        count = 0
        while self._next_step + count < self._plan.num_steps:
            state, step = self._step_state(self._next_step + count)
            if state is None or state.steps[step].missing:
                break
            count += 1
        return count

    @property
    def finished(self) -> bool:
        """Whether all steps have been learnt from, or the last one before a stop."""
        last = self._next_step if self._stopped else self._plan.num_steps
        return all(done >= last for done in self._learnt.values())

    @property
    def batches_left(self) -> bool:
        """Whether any batch is still to be run, or to be finished."""
        upcoming = self._upcoming is not None
        return upcoming or bool(self._again or self._running or self._repairs)

    @property
    def stands_still(self) -> bool:
        """Whether nobody has anything to do though work is left and workers are there."""
        idle = not self._running and all(d == self._next_step for d in self._learnt.values())
        return idle and bool(self._rooms) and not self._stopped and not self.finished

    def work(self) -> Iterator[ToWorker | ToRank]:
        """All messages that can be sent now; call it after every event."""
        yield from self._repairs.done()
        yield from self._batches_to_run()
        yield from self._steps_to_learn()

    def arrived(self, message: Arrived) -> None:
        """A worker has finished a batch.

        Raises:
            TrainingError: a batch that was run again has a bad sample now that was good before.
        """
        key = message.epoch, message.arrival
        worker, batch = self._running.pop(key)
        if worker in self._rooms:
            self._rooms[worker] += 1
        again = self._repairs.arrived(key)
        if again is not None and message.bad:
            why = next(iter(message.bad.values()))
            raise TrainingError(f"run again, and bad now, though it was not before: {why}")
        state = self._epochs.get(message.epoch)
        for part in batch.parts if again is None else again:
            assert state is not None, "a step of it waits for these samples"
            step = state.steps[state.step(part.sample_id)]
            step.missing -= 1
            if part.sample_id in message.bad:
                step.bad.add(part.sample_id)
                self.pages.give_back(part.pages)
            else:
                step.parts[part.sample_id] = part

    def copied(self, rank: int, epoch: int, step: int) -> None:
        """A rank has copied its part of a step."""
        for part in self._holdings.copied(epoch, step, rank):
            self.pages.give_back(part.pages)

    def learnt(self, rank: int) -> None:
        """A rank has finished its oldest step."""
        self._learnt[rank] += 1

    def missing(self, rank: int, parts: Iterable[Part]) -> int:
        """A rank cannot get features it was told of: their whole batches run again.

        Returns:
            How many batches that are, besides those that are to run again already.
        """
        count = 0
        for part in parts:
            count += self._run_again(self._holdings.epoch_of(rank, part), part, rank)
        return count

    def lost_features(self, lost: Container[tuple[int, ...]]) -> int:
        """Features are lost that no rank has been told of yet: their whole batches run again.

        Args:
            lost: their pages. Of others, which ranks have been told of, ranks say what they miss.

        Returns:
            How many batches that are, besides those that are to run again already.
        """
        count = 0
        for number, state in self._epochs.items():
            for step in state.steps:
                for part in [one for one in step.parts.values() if one.pages in lost]:
                    del step.parts[part.sample_id]
                    step.missing += 1
                    count += self._run_again(number, part, None)
        return count

    def _run_again(self, number: int, part: Part, rank: int | None) -> bool:
        state = self._epochs.get(number)
        epoch = self._plan.epoch(number) if state is None else state.epoch
        arrival = epoch.arrival_of(part.sample_id)
        sample_ids = tuple(epoch.arrival(arrival).tolist())
        return self._repairs.add(RunBatch(number, arrival, sample_ids, (part,)), rank)

    def joined(self, worker: int) -> None:
        """A worker is there; it may be one that took another's place, or be known already."""
        self._rooms.setdefault(worker, WORKER_DEPTH)

    def retire(self, worker: int) -> None:
        """A worker gets no more batches; what it has it may finish."""
        self._rooms.pop(worker, None)

    def lost(self, worker: int) -> int:
        """A worker is gone; its batches will be run by others.

        Returns:
            How many batches that are.
        """
        self._rooms.pop(worker, None)
        mine = [key for key, (owner, _) in self._running.items() if owner == worker]
        for key in sorted(mine, reverse=True):
            _, batch = self._running.pop(key)
            if not self._repairs.lost(key):
                self._again.appendleft(batch)
        return len(mine)

    @property
    def num_workers(self) -> int:
        """Workers that are left."""
        return len(self._rooms)

    def stop(self) -> Iterator[ToRank]:
        """Send out no further step; tells every rank before which one to end."""
        self._stopped = True
        place = divmod(self._next_step, self._plan.steps_per_epoch)
        for rank in range(self._num_ranks):
            yield rank, Stop(*place)

    def _batches_to_run(self) -> Iterator[ToWorker]:
        while self._rooms and max(self._rooms.values()) > 0:
            batch = self._batch_to_run()
            if batch is None:
                return
            # The one with most room: with two a worker, idle ones come first.
            worker = max(self._rooms, key=lambda one: (self._rooms[one], -one))
            self._rooms[worker] -= 1
            self._running[batch.epoch, batch.arrival] = (worker, batch)
            yield worker, batch

    def _batch_to_run(self) -> RunBatch | None:
        """Batches that ranks wait for at this moment come first, even after a stop."""
        repair = self._repairs.next(self._running)
        if repair is not None or self._stopped:
            return repair
        return self._again.popleft() if self._again else self._next_batch()

    def _next_batch(self) -> RunBatch | None:
        """The next batch of the plan, if its samples find room in the arena."""
        if self._upcoming is None:
            return None
        number, arrival, wanted = self._upcoming
        state = self._state(number)
        sample_ids = tuple(state.epoch.arrival(arrival).tolist())
        chosen = [
            sample
            for sample in sample_ids
            if state.step(sample) >= 0 and (wanted is None or sample in wanted)
        ]
        lengths = self._lengths[chosen].tolist()
        pages = self.pages.take(lengths)
        if pages is None:
            return None
        self._upcoming = self._advance()
        return RunBatch(number, arrival, sample_ids, tuple(map(Part, chosen, lengths, pages)))

    def _advance(self) -> Upcoming | None:
        upcoming = next(self._batches, None)
        self.num_rerun += upcoming is not None and upcoming.wanted is not None
        return upcoming

    def _steps_to_learn(self) -> Iterator[ToRank]:
        while not self._stopped and self._next_step < self._plan.num_steps:
            if self._next_step - min(self._learnt.values()) >= RANK_DEPTH:
                return
            state, step = self._step_state(self._next_step)
            if state is None or state.steps[step].missing:
                return
            yield from self._deliver(state, step)
            self._next_step += 1
            if step == state.num_steps - 1:
                del self._epochs[state.epoch.number]

    def _deliver(self, state: EpochState, step: int) -> Iterator[ToRank]:
        ready = state.steps[step]
        number = state.epoch.number
        for rank, sample_ids in enumerate(state.epoch.for_ranks(step, self._num_ranks)):
            parts = tuple(
                ready.parts[sample] for sample in sample_ids.tolist() if sample not in ready.bad
            )
            self._holdings.add(number, step, rank, parts)
            yield rank, Deliver(number, step, parts)
        ready.parts.clear()  # an epoch may have millions

    def _step_state(self, num_done: int) -> tuple[EpochState | None, int]:
        number, step = divmod(num_done, self._plan.steps_per_epoch)
        return self._epochs.get(number), step

    def _state(self, number: int) -> EpochState:
        if number not in self._epochs:
            epoch = self._plan.epoch(number)
            left = self._plan.num_steps - number * epoch.num_steps
            self._epochs[number] = EpochState(epoch, min(epoch.num_steps, left))
        return self._epochs[number]
