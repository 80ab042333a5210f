"""One pass over a stream: its parts put together, saved and restored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.errors import PlanMismatchError
from lengthwise.loader.streaming.buffer import Group
from lengthwise.loader.streaming.feed import Feed, Keys
from lengthwise.loader.streaming.learning import Learned
from lengthwise.loader.streaming.schedule import Replicated, Schedule
from lengthwise.loader.streaming.sharded import Sharded
from lengthwise.loader.streaming.source import Reader
from lengthwise.loader.streaming.stats import StreamStats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lengthwise.loader.distributed import Replica
    from lengthwise.loader.streaming.config import StreamingConfig
    from lengthwise.loader.streaming.intake import Intake
    from lengthwise.loader.streaming.peers import Peers
    from lengthwise.loader.streaming.source import Source


class StreamPass:
    """One pass: a value of (stream, settings, replica, epoch), and how far it is.

    Args:
        config: every choice.
        replica: whose batches.
        epoch: which epoch.
        source: what is streamed.
        intake: measures samples.
        peers: the other replicas, where they must agree; else ``None``.
    """

    def __init__(
        self,
        config: StreamingConfig,
        replica: Replica,
        epoch: int,
        *,
        source: Source,
        intake: Intake,
        peers: Peers | None,
    ) -> None:
        """Nothing is read yet."""
        strided = config.sharding == "strided"
        self.reader = Reader(
            source,
            epoch,
            every=replica.num_replicas if strided else 1,
            first=replica.rank if strided else 0,
            mark_every=config.buffer_samples if config.state_samples == "replay" else 0,
        )
        self.epoch, self.begun = epoch, False
        self._config, self._replica, self._intake = config, replica, intake
        self.learned = Learned()
        self._set_up(peers)

    def _set_up(self, peers: Peers | None) -> None:
        config, replica = self._config, self._replica
        decider = 0 if config.sharding == "replicated" else replica.rank
        keys = Keys.of(config.seed, self.epoch, decider)
        self._feed = Feed(config, replica, self.reader, self._intake, keys, self.learned)
        self._schedule: Schedule = (
            Replicated(self._feed, replica)
            if peers is None
            else Sharded(self._feed, replica, peers, self.epoch)
        )
        self._peers = peers

    @property
    def stats(self) -> StreamStats:
        """What has been read, yielded and left out."""
        return self._feed.stats

    @property
    def finished(self) -> bool:
        """Whether all batches are taken; known once :meth:`begin` was called."""
        return self._schedule.finished

    def begin(self) -> None:
        """Read until the first batch can be taken."""
        self._schedule.prepare()
        self.begun = True

    def take(self) -> list[Any]:
        """The next batch's samples. What comes after it is prepared at once.

        So it is known, when a batch is handed out, whether it is the last one, and a state saved
        then never stands before an end without batches.
        """
        group = self._schedule.take()
        stats = self.stats
        stats.num_batches += 1
        stats.num_samples += len(group)
        stats.real_tokens += sum(group.lengths)
        stats.padded_tokens += self._feed.padded_tokens(group)
        self._schedule.prepare()
        return group.samples

    def state(self) -> dict[str, Any]:
        """All that the rest of the pass depends on, as plain values and samples."""
        feed, schedule = self._feed, self._schedule
        held = {"buffer": [feed.buffer.everything()], "alone": feed.alone, "tail": schedule.tail}
        store = self._config.state_samples == "store"
        if store:
            reader = self.reader.state()
        else:
            ids = (i for groups in held.values() for group in groups or () for i in group.ids)
            reader = self.reader.marked_state(min(ids, default=self.reader.num_read))
        return {
            "num_replicas": self._replica.num_replicas,
            "num_steps": schedule.num_steps,
            "steps_left": schedule.steps_left,
            "final": schedule.final,
            "num_formed": feed.num_formed,
            "reader": reader,
            **{name: _pack(groups, store=store) for name, groups in held.items()},
            "learned": self.learned.to_dict(),
            "stats": self.stats.to_dict(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go to where :meth:`state` stood, from a fresh pass.

        Raises:
            PlanMismatchError: the stream is shorter now, or holds other samples.
        """
        self.learned = Learned.from_dict(state["learned"])
        self._set_up(self._peers)
        feed, schedule = self._feed, self._schedule
        held = {name: state[name] for name in ("buffer", "alone", "tail")}
        if "place" in state["reader"]:
            found = self._read_again(state["reader"], held)
        else:
            self.reader.resume(state["reader"])
            found = None
        for group in _unpack(held["buffer"], found) or ():
            feed.buffer.add_all(group)
        feed.alone = _unpack(held["alone"], found) or []
        schedule.tail = _unpack(held["tail"], found)
        schedule.num_steps, schedule.steps_left = state["num_steps"], state["steps_left"]
        # On another number of replicas the last batches are fitted to it anew.
        schedule.final = state["final"] and state["num_replicas"] == self._replica.num_replicas
        feed.num_formed = state["num_formed"]
        feed.stats = StreamStats(**state["stats"])

    def _read_again(self, reader: Mapping[str, Any], held: Mapping[str, Any]) -> dict[int, Any]:
        """The held samples by number, read from the stream once more and compared in length."""
        lengths = {
            number: length
            for groups in held.values()
            for group in groups or ()
            for number, length in zip(group["ids"], group["lengths"], strict=True)
        }
        found = {}
        for number, sample in self.reader.replay(reader, set(lengths)).items():
            length = self._intake.measure(sample, number)
            admitted = self._intake.admit(length, number, sample, StreamStats())
            if admitted is None or admitted.length != lengths[number]:
                now = "is dropped" if admitted is None else f"has {admitted.length:,} tokens"
                raise PlanMismatchError(
                    f"sample {number:,} of the stream had {lengths[number]:,} tokens when the "
                    f"state was saved, and {now} now: it is another stream, or in another order"
                )
            found[number] = admitted.sample
        return found


def _pack(groups: list[Group] | None, *, store: bool) -> list[dict[str, list[Any]]] | None:
    """Groups as dicts of fresh lists; with ``store`` the samples too."""
    if groups is None:
        return None
    packed = []
    for group in groups:
        packed.append({"lengths": list(group.lengths), "ids": list(group.ids)})
        if store:
            packed[-1]["samples"] = list(group.samples)
    return packed


def _unpack(
    packed: list[Mapping[str, list[Any]]] | None, found: Mapping[int, Any] | None
) -> list[Group] | None:
    """The groups again, with their stored samples or those found in the stream."""
    if packed is None:
        return None
    return [
        Group(
            list(group["lengths"]),
            list(group["ids"]),
            list(group["samples"]) if found is None else [found[i] for i in group["ids"]],
        )
        for group in packed
    ]
