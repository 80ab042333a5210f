"""Which batch this replica takes where every replica reads a stream of its own.

Streams differ in length and batches in size, so replicas would stop after different numbers of
steps, and the one with a step more would wait for ever. So they agree, once every ``sync_every``
steps, on how many steps all of them can surely take:

1. Each tells how many samples it holds, and whether its stream has ended. A step takes at least one
   sample, and inside a window no batch takes so many that later steps of the window would go
   without; so the fewest samples held by any replica are a number of steps that all can take.
2. A replica whose stream has ended receives samples from those that hold more. Nothing is lost
   that way, and no replica runs on small batches while others have plenty.
3. When all streams have ended and all replicas hold as many samples, within one, they agree on the
   number of steps that are left: the most that any of them needs. Those that need fewer split
   batches.

With ``drop_last`` nothing is handed over: all stop when the first replica runs out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from lengthwise.errors import PlanMismatchError
from lengthwise.loader.streaming.peers import level
from lengthwise.loader.streaming.schedule import no_step, settle

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.loader.distributed import Replica
    from lengthwise.loader.streaming.buffer import Group
    from lengthwise.loader.streaming.feed import Feed
    from lengthwise.loader.streaming.peers import Move, Peers


class Report(NamedTuple):
    """What each replica tells the others.

    Attributes:
        epoch: the epoch it reads.
        num_steps: steps it has taken.
        num_held: samples it holds.
        num_movable: of them, those it could hand over.
        room: samples that its buffer can take, whatever their lengths.
        exhausted: 1 where its stream has ended.
        most_steps: steps that its batches suffice for; those of a stream that has not ended
            are not counted, and its samples stand for them.
    """

    epoch: int
    num_steps: int
    num_held: int
    num_movable: int
    room: int
    exhausted: int
    most_steps: int


class Sharded:
    """Steps of replicas that read streams of their own; see the module.

    Args:
        feed: reads this replica's part.
        replica: which one it is.
        peers: the others.
        epoch: compared, so that replicas that went apart are found out.

    Attributes:
        final: the number of steps left in the pass is agreed on.
    """

    def __init__(self, feed: Feed, replica: Replica, peers: Peers, epoch: int) -> None:
        """No step is taken yet."""
        self.tail: list[Group] | None = None
        self.num_steps = self.steps_left = 0
        self.final = False
        self._feed, self._replica, self._peers, self._epoch = feed, replica, peers, epoch

    @property
    def finished(self) -> bool:
        """See :class:`Schedule`."""
        return self.final and not self.steps_left

    def prepare(self) -> None:
        """See :class:`Schedule`; agrees with the others where a window is used up."""
        if self.tail is None:
            self._feed.fill(1)
        if self.steps_left or self.final:
            return
        if self._feed.config.drop_last:
            self._agree_to_stop()
        else:
            self._agree_to_share()

    def take(self) -> Group:
        """See :class:`Schedule`."""
        self.num_steps += 1
        self.steps_left -= 1
        if self.tail is not None:
            return self.tail.pop(0)
        feed = self._feed
        if feed.alone:
            return feed.alone.pop(0)
        index = (self.num_steps - 1) * self._replica.num_replicas + self._replica.rank
        # Each later step of the window needs a sample, should the stream end here.
        return feed.form(index, len(feed.buffer) - self.steps_left)

    def _agree_to_share(self) -> None:
        """Hand samples over where a replica runs low; then agree on some steps, or on the last."""
        reports = self._gather()
        all_ended = all(report.exhausted for report in reports)
        low = self._feed.config.buffer_samples // 2
        needy = any(report.exhausted and report.num_held < low for report in reports)
        if needy or all_ended:
            moves = level(
                [report.num_held for report in reports],
                [report.num_movable for report in reports],
                [report.room for report in reports],
            )
            self._hand_over(moves)
            self._feed.fill(1)
            reports = self._gather()
        held = [report.num_held for report in reports]
        if all_ended and max(held) - min(held) <= 1:
            self._finish()
        else:
            # Batches of a replica whose stream has ended are to be full ones, so that the window
            # ends, and samples are handed over, before they run out.
            enough = max(1, min(report.most_steps for report in reports))
            self.steps_left = min(self._feed.config.sync_every, enough, *held)

    def _gather(self) -> list[Report]:
        feed = self._feed
        mine = Report(
            epoch=self._epoch,
            num_steps=self.num_steps,
            num_held=feed.num_held,
            num_movable=len(feed.buffer),
            room=feed.room,
            exhausted=int(feed.reader.exhausted),
            most_steps=self._most_steps(),
        )
        reports = [Report(*row) for row in self._peers.gather(mine)]
        if len({report[:2] for report in reports}) > 1:
            where = "; ".join(
                f"rank {rank} has done {report.num_steps:,} steps of epoch {report.epoch}"
                for rank, report in enumerate(reports)
            )
            raise PlanMismatchError(
                f"the replicas stand at different places: {where}. Load states that were saved "
                f"after the same step on every replica."
            )
        return reports

    def _most_steps(self) -> int:
        if self.tail is not None:
            return len(self.tail)
        return self._feed.num_batches_held if self._feed.reader.exhausted else self._feed.num_held

    def _hand_over(self, moves: Sequence[Move]) -> None:
        buffer = self._feed.buffer
        parcels = []
        for move in moves:
            if move.source == self._replica.rank:
                # From all lengths alike: places at equal distances.
                count, size = move.num_samples, len(buffer)
                places = [(2 * i + 1) * size // (2 * count) for i in range(count)]
                parcels.append(buffer.take(places))
        for group in self._peers.exchange(moves, parcels):
            buffer.add_all(group)

    def _finish(self) -> None:
        """All streams have ended and all hold as many samples: agree on the steps left."""
        groups = self._feed.take_rest()
        sizes = self._peers.gather([len(groups), sum(map(len, groups))])
        needed = max(num_batches for num_batches, _ in sizes)
        self._settle(groups, min(needed, *(num_samples for _, num_samples in sizes)))

    def _agree_to_stop(self) -> None:
        """Stop when the first replica runs out of batches."""
        feed = self._feed
        if feed.reader.exhausted and self.tail is None:
            self.tail = feed.take_rest()
        reports = self._gather()
        steps = min(report.most_steps for report in reports)
        if not steps or all(report.exhausted for report in reports):
            self._settle(feed.take_rest() if self.tail is None else self.tail, steps)
        else:
            self.steps_left = min(feed.config.sync_every, steps)

    def _settle(self, groups: list[Group], steps: int) -> None:
        self.tail = settle(self._feed, groups, steps)
        self.steps_left, self.final = steps, True
        if not self.num_steps and not steps:
            raise no_step(self._feed, self._replica.num_replicas)
