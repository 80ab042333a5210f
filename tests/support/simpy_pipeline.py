"""A pipeline as processes of simpy that hand things to each other: the oracle of the simulation.

It shares no code and no method with ``lengthwise.simulate``: here every part of the machine is a
process that waits for events, and a coordinator that is woken by each of them. Slow and plain.
"""

from __future__ import annotations

import numpy as np
import simpy


class PipelineModel:
    """A feeder, targets, a channel, drafters, and the coordinator between them."""

    def __init__(self, workload, machines):
        self.env = simpy.Environment()
        self.work, self.machines = workload, machines
        env, targets, drafters = self.env, machines.num_targets, machines.num_lanes
        self.room = [machines.prefetch_batches] * targets
        self.drafter_room = [machines.step_depth] * drafters
        feeders = 1 if machines.shared_feeder else targets
        self.to_read = [simpy.Store(env) for _ in range(feeders)]
        self.to_run = [simpy.Store(env) for _ in range(targets)]
        self.to_send = [simpy.Store(env) for _ in range(targets)]
        self.to_copy = [simpy.Store(env) for _ in range(drafters)]
        self.to_learn = [simpy.Store(env) for _ in range(drafters)]
        self.used = 0
        self.used_at = {}
        self.has_arrived = np.zeros(workload.num_arrivals, bool)
        self.missing = [set(workload.needs_of(step)) for step in range(workload.num_steps)]
        self.waiting = [[] for _ in range(workload.num_arrivals)]
        for step, needed in enumerate(self.missing):
            for arrival in needed:
                self.waiting[arrival].append(step)
        self.next_arrival = self.next_step = 0
        self.arrived = np.full(workload.num_arrivals, np.nan)
        self.started = np.full(workload.num_arrivals, np.nan)
        self.learnt = np.full(workload.num_steps, np.nan)
        self.copied = np.full(workload.num_steps, np.nan)
        self.changed = env.event()

    def run(self):
        """Until nothing happens any more; this model with its times."""
        for feeder in range(len(self.to_read)):
            self.env.process(self._read(feeder))
        for target in range(self.machines.num_targets):
            self.env.process(self._run(target))
            self.env.process(self._send(target))
        for drafter in range(self.machines.num_lanes):
            self.env.process(self._copy(drafter))
            self.env.process(self._learn(drafter))
        self.env.process(self._coordinate())
        self.env.run()
        return self

    @property
    def peak(self):
        """Most bytes that were in use for longer than a moment."""
        return max(self.used_at.values())

    def _use(self, size):
        self.used += size
        self.used_at[self.env.now] = self.used

    def _wake(self):
        if not self.changed.triggered:
            self.changed.succeed()

    def _coordinate(self):
        while True:
            self._dispatch()
            self._deliver()
            self.changed = self.env.event()
            yield self.changed

    def _dispatch(self):
        limit = self.machines.channel_bytes
        while self.next_arrival < self.work.num_arrivals and max(self.room) > 0:
            arrival = self.next_arrival
            size = int(self.work.arrival_bytes[arrival])
            if limit is not None and self.used + size > limit:
                return
            target = self.room.index(max(self.room))
            self.room[target] -= 1
            self._use(size)
            self.next_arrival += 1
            feeder = 0 if self.machines.shared_feeder else target
            self.to_read[feeder].put((arrival, target))

    def _deliver(self):
        while self.next_step < self.work.num_steps and max(self.drafter_room) > 0:
            step = self.next_step
            if self.missing[step]:
                return
            drafter = self.drafter_room.index(max(self.drafter_room))
            self.drafter_room[drafter] -= 1
            self.next_step += 1
            self.to_copy[drafter].put(step)

    def _read(self, feeder):
        while True:
            arrival, target = yield self.to_read[feeder].get()
            yield self.env.timeout(float(self.work.feed_seconds[arrival]))
            self.to_run[target].put(arrival)

    def _run(self, target):
        speed = self.machines.speeds[target]
        while True:
            arrival = yield self.to_run[target].get()
            self.started[arrival] = self.env.now
            yield self.env.timeout(float(self.work.arrival_seconds[arrival]) / speed)
            if self.machines.transfers_overlap:
                self.to_send[target].put(arrival)
            else:
                yield self.env.timeout(self._transfer(arrival))
                self._arrive(target, arrival)

    def _send(self, target):
        while True:
            arrival = yield self.to_send[target].get()
            yield self.env.timeout(self._transfer(arrival))
            self._arrive(target, arrival)

    def _transfer(self, arrival):
        return float(self.work.arrival_bytes[arrival]) / self.machines.transfer_bytes_per_second

    def _arrive(self, target, arrival):
        self.arrived[arrival] = self.env.now
        self.room[target] += 1
        for step in self.waiting[arrival]:
            self.missing[step].discard(arrival)
        self._wake()

    def _copy(self, drafter):
        share = self.machines.num_drafters / self.machines.num_lanes
        while True:
            step = yield self.to_copy[drafter].get()
            size = float(self.work.step_bytes[step])
            yield self.env.timeout(size / (share * self.machines.transfer_bytes_per_second))
            self.copied[step] = self.env.now
            self._use(-int(self.work.step_bytes[step]))
            self._wake()
            self.to_learn[drafter].put(step)

    def _learn(self, drafter):
        while True:
            step = yield self.to_learn[drafter].get()
            yield self.env.timeout(float(self.work.step_seconds[step]))
            self.learnt[step] = self.env.now
            self.drafter_room[drafter] += 1
            self._wake()
