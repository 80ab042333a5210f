"""Replicas as threads of one process, which wait for each other with a time-out."""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

TIMEOUT = 120


class Meeting:
    """What the threads share."""

    def __init__(self, num_replicas):
        self.num_replicas = num_replicas
        self.barrier = threading.Barrier(num_replicas, timeout=TIMEOUT)
        self.board = [None] * num_replicas
        self.queues = {
            (a, b): Queue() for a in range(num_replicas) for b in range(num_replicas) if a != b
        }
        self.num_gathers = self.num_handed_over = 0


class ThreadPeers:
    """The Peers of one thread; the others must call the same methods, or the barrier breaks."""

    def __init__(self, meeting, rank):
        self.meeting, self.rank = meeting, rank

    def gather(self, numbers):
        meeting = self.meeting
        meeting.board[self.rank] = list(numbers)
        meeting.barrier.wait()
        found = copy.deepcopy(meeting.board)
        meeting.barrier.wait()
        meeting.num_gathers += self.rank == 0
        return found

    def exchange(self, moves, parcels):
        waiting, received = iter(parcels), []
        for move in moves:
            if move.source == self.rank:
                parcel = next(waiting)
                assert len(parcel) == move.num_samples
                self.meeting.queues[move.source, move.target].put(parcel)
            elif move.target == self.rank:
                received.append(self.meeting.queues[move.source, move.target].get(timeout=TIMEOUT))
                self.meeting.num_handed_over += move.num_samples
        assert next(waiting, None) is None
        return received


def on_threads(num_replicas, function):
    """``function(rank, peers)`` of all replicas at once; their results, or the first error."""
    meeting = Meeting(num_replicas)

    def one(rank):
        try:
            return function(rank, ThreadPeers(meeting, rank))
        except BaseException:
            meeting.barrier.abort()
            raise

    with ThreadPoolExecutor(num_replicas) as pool:
        futures = [pool.submit(one, rank) for rank in range(num_replicas)]
    errors = [future.exception() for future in futures]
    # A broken barrier is only the echo of another replica's error.
    own = [e for e in errors if e is not None and not isinstance(e, threading.BrokenBarrierError)]
    if own:
        raise own[0]
    return [future.result() for future in futures], meeting
