"""The stream that is read: any iterable, from its start or from a saved place, epoch by epoch."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

from lengthwise.errors import ConfigError, PlanMismatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

    State = Mapping[str, Any]


class Source:
    """What a user streams from, behind one interface.

    Args:
        stream: an iterable that can be iterated once per epoch, or a function that returns one
            (called with ``epoch=`` where it takes that).

    Raises:
        ConfigError: something that can be read only once, or not at all.
    """

    def __init__(self, stream: Iterable[Any] | Callable[..., Iterable[Any]]) -> None:
        """Refuse what cannot be read every epoch."""
        if getattr(stream, "restart_on_stop_iteration", False):
            raise ConfigError(
                "the source begins anew by itself at its end, so no epoch would end on resume: "
                "build it with torchdata.nodes.Loader(node, restart_on_stop_iteration=False)"
            )
        if isinstance(stream, Iterator):
            raise ConfigError(
                f"the source is a {type(stream).__name__} that can be read only once: give a "
                f"function that makes it (`lambda: generate(...)`), or an iterable data set "
                f"(a torchdata node: torchdata.nodes.Loader(node, restart_on_stop_iteration=False))"
            )
        if not isinstance(stream, Iterable) and not callable(stream):
            raise ConfigError(
                f"the source must be an iterable or a function that returns one, "
                f"got {type(stream).__name__}"
            )
        self._stream = stream
        self._is_function = not isinstance(stream, Iterable)
        self._takes_epoch = not isinstance(stream, Iterable) and _takes_epoch(stream)
        self.has_state = (
            hasattr(stream, "state_dict")
            and hasattr(stream, "load_state_dict")
            and not _shuffles_in_a_buffer(stream)
        )

    @property
    def is_split(self) -> bool:
        """Whether it is a ``datasets`` stream that ``split_dataset_by_node`` gave one part of."""
        split = getattr(self._stream, "_distributed", None)
        return getattr(split, "world_size", 1) > 1

    def open(self, epoch: int, state: State | None = None) -> Iterator[Any]:
        """Read an epoch from its start, or from where ``state`` was taken."""
        stream: Any = self._stream
        if self._is_function:
            return iter(stream(epoch=epoch) if self._takes_epoch else stream())
        if hasattr(stream, "set_epoch"):
            stream.set_epoch(epoch)
        if state is None:
            return iter(stream)
        stream.load_state_dict(state)
        return _forgetting(stream) if _is_hugging_face(stream) else iter(stream)

    def state(self) -> State:
        """The source's own state, after what has been read of it."""
        return self._stream.state_dict()  # type: ignore[union-attr,no-any-return]


class Reader:
    """One pass over a source: numbers the samples and keeps count, so that it can go on later.

    Args:
        source: what to read.
        epoch: which epoch.
        every: take every ``every``-th sample only, from ``first`` on.
        first: see ``every``.
        mark_every: note the source's state every so many samples, for :meth:`marked_state`.

    Attributes:
        every: as given.
        num_read: samples taken from the source so far, those of other replicas included.
        exhausted: the source has ended.
    """

    def __init__(
        self, source: Source, epoch: int, *, every: int = 1, first: int = 0, mark_every: int = 0
    ) -> None:
        """Nothing is read or opened yet."""
        self._source, self._epoch = source, epoch
        self.every, self._first = every, first
        self._mark_every = mark_every if source.has_state else 0
        self._marks: list[tuple[int, State | None]] = [(0, None)]
        self._stream: Iterator[tuple[int, Any]] | None = None
        self.num_read = 0
        self.exhausted = False

    def read(self, most: int) -> Iterator[tuple[int, Any]]:
        """At most so many further samples with their numbers in the stream; fewer at its end."""
        if self.exhausted:
            return iter(())
        if self._stream is None:
            self._stream = self._number(self._source.open(self._epoch))
        return islice(self._stream, most)

    def _number(self, stream: Iterator[Any]) -> Iterator[tuple[int, Any]]:
        every, first, mark_every = self.every, self._first, self._mark_every
        for sample in stream:
            number = self.num_read
            self.num_read = number + 1
            if mark_every and (number + 1) % mark_every == 0:
                self._marks.append((number + 1, self._source.state()))
            if every == 1 or number % every == first:
                yield number, sample
        self.exhausted = True
        self._stream = None

    def state(self) -> dict[str, Any]:
        """Where the pass stands: go on from here with :meth:`resume`."""
        going = self._source.has_state and self._stream is not None
        return {
            "num_read": self.num_read,
            "exhausted": self.exhausted,
            "source": self._source.state() if going else None,
        }

    def marked_state(self, oldest: int) -> dict[str, Any]:
        """Where the pass stands, and a place at or before sample ``oldest`` to read from again."""
        while len(self._marks) > 1 and self._marks[1][0] <= oldest:
            self._marks.pop(0)
        place, source = self._marks[0]
        state = {"num_read": self.num_read, "exhausted": self.exhausted}
        return {**state, "place": place, "source": source}

    def resume(self, state: State) -> None:
        """Go to where :meth:`state` stood; without a source's state, by skipping."""
        if not state["exhausted"]:
            self._open_at(state["num_read"], state["source"])
        self.num_read, self.exhausted = state["num_read"], state["exhausted"]

    def replay(self, state: State, wanted: set[int]) -> dict[int, Any]:
        """Go to where :meth:`marked_state` stood, and return the wanted samples by number."""
        stream = self._open_at(state["place"], state["source"])
        self._marks = [(state["place"], state["source"])]
        again = islice(stream, state["num_read"] - state["place"])
        found = {number: sample for number, sample in again if number in wanted}
        if self.num_read < state["num_read"]:
            raise PlanMismatchError(_shorter(state["num_read"], self.num_read))
        if state["exhausted"]:
            self.exhausted, self._stream = True, None
        return found

    def _open_at(self, place: int, source_state: State | None) -> Iterator[tuple[int, Any]]:
        """Open the source where ``place`` samples of it have been read."""
        stream = self._source.open(self._epoch, source_state)
        if source_state is None:
            skipped = sum(1 for _ in islice(stream, place))
            if skipped < place:
                raise PlanMismatchError(_shorter(place, skipped))
        self.num_read = place
        self._stream = self._number(stream)
        return self._stream


def _shorter(expected: int, found: int) -> str:
    return (
        f"the state was saved after {expected:,} samples of the stream, which now has only "
        f"{found:,}: it is another stream, or in another order"
    )


def _takes_epoch(factory: Callable[..., Any]) -> bool:
    """Whether a source function wants to be told the epoch."""
    parameters = inspect.signature(factory).parameters.values()
    needed = [p.name for p in parameters if p.default is p.empty and p.kind not in _VARIADIC]
    if [name for name in needed if name != "epoch"]:
        raise ConfigError(
            f"a source function is called without arguments, or with epoch=; this one needs "
            f"{', '.join(needed)}"
        )
    return any(p.name == "epoch" for p in parameters)


_VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def _is_hugging_face(stream: object) -> bool:
    return type(stream).__module__.split(".")[0] == "datasets"


def _forgetting(stream: Any) -> Iterator[Any]:
    """Iterate a data set that goes on from a loaded state, and let it forget that state.

    ``datasets.IterableDataset`` would begin at it again whenever the same epoch is read anew.
    """
    iterator = iter(stream)
    for sample in islice(iterator, 1):
        stream.load_state_dict({"epoch": -1, "examples_iterable": {}})
        yield sample
    yield from iterator


def _shuffles_in_a_buffer(stream: object) -> bool:
    """Whether this is a ``datasets.IterableDataset`` with a shuffle buffer.

    Its state leaves out what that buffer holds, as its documentation says, so samples would be
    lost. Without it the stream is read again from its start, which loses nothing.
    """
    part = getattr(stream, "_ex_iterable", None)
    while part is not None:
        if "BufferShuffled" in type(part).__name__:
            return True
        part = getattr(part, "ex_iterable", None)
    return False
