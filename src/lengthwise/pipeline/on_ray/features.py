"""Features on their way: out of a target as objects of Ray, into a rank by reference."""

from __future__ import annotations

import threading
from collections import defaultdict, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import torch

from lengthwise.cluster.connect import require_ray
from lengthwise.pipeline.messages import Missing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import numpy as np
    import numpy.typing as npt

    from lengthwise.pipeline.arena import ArenaShape
    from lengthwise.pipeline.messages import Part
    from lengthwise.pipeline.wire import Wire

Pages = tuple[int, ...]
"""By which features are told apart: while they wait, no others have their pages."""
FETCH_SECONDS = 5.0
"""For features that may be lost, or only be long on their way."""


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """Ray's object store, as a place for features; see :class:`~lengthwise.pipeline.arena.Place`.

    Attributes:
        shape: how much may wait there, as the arena of one machine would be.
    """

    shape: ArenaShape

    def open(self, wire: Wire) -> ObjectChannel:
        """The channel of the actor that this is."""
        channel = cast("Any", wire).channel
        channel.shape = self.shape
        return cast("ObjectChannel", channel)


class ObjectChannel:
    """One actor's side; see :class:`~lengthwise.pipeline.arena.Channel`.

    A target's features are kept until the actor gives them back as results, which Ray then stores
    on this machine. A rank gets references, fetches what they refer to, and copies it.

    Args:
        send: to the coordinator.

    Attributes:
        shape: of what may wait; set when the channel is opened.
    """

    def __init__(self, send: Callable[[object], None]) -> None:
        """Nothing is on its way."""
        self.shape: ArenaShape | None = None
        self._send = send
        self._pinned = False
        self._leaving: dict[Pages, deque[torch.Tensor]] = defaultdict(deque)
        self._coming: dict[Part, Any] = {}
        self._news = threading.Condition()

    def pin(self) -> None:
        """Take pinned memory for features that come from, or go to, a CUDA device."""
        self._pinned = True

    def write(self, part: Part, features: torch.Tensor) -> None:
        """Keep a sample's features, (T, F), in this process's memory.

        Raises:
            DataError: they are not what belongs there.
        """
        assert self.shape is not None, "it has been opened"
        self.shape.check(part, features)
        kept = self._empty(part)
        kept.copy_(features, non_blocking=True)
        self._leaving[part.pages].append(kept)

    def take(self, part: Part) -> npt.NDArray[np.uint8]:
        """What was written first for a part, as bytes, (T, F x bytes a value), to be sent off."""
        kept = self._leaving[part.pages].popleft()
        return kept.view(torch.uint8).numpy()

    def forget(self) -> None:
        """Keep nothing of what was written so far: it was a rehearsal."""
        self._leaving.clear()

    def expect(self, references: Mapping[Part, Any]) -> None:
        """Take references to features that are about to be read, and begin to fetch them."""
        if not references:
            return
        with self._news:
            self._coming.update(references)
            self._news.notify_all()
        wanted = list(references.values())
        require_ray().wait(wanted, num_returns=len(wanted), timeout=0, fetch_local=True)

    def read(self, part: Part, device: torch.device | None = None) -> torch.Tensor:
        """A copy of a sample's features, (T, F).

        Where they are lost, with the machine they waited on, the coordinator is told, and this
        waits until they were made again.
        """
        while (found := self._fetched(part)) is None:
            self._tell_what_is_missing(part)
        features = self._empty(part)
        features.view(torch.uint8).numpy()[...] = found
        return features if device is None else features.to(device, non_blocking=True)

    def _fetched(self, part: Part) -> Any:
        """Features as they lie in this machine's object store; None where they are lost."""
        ray = require_ray()
        with self._news:
            self._news.wait_for(lambda: part in self._coming)
            reference = self._coming.pop(part)
        try:
            return ray.get(reference)
        except (ray.exceptions.ObjectLostError, ray.exceptions.RayActorError):
            return None

    def _tell_what_is_missing(self, part: Part) -> None:
        """And what else is: a machine that is gone had more, and each batch is to run once."""
        ray = require_ray()
        with self._news:
            others = dict(self._coming)
        missing = [part]
        for other, reference in others.items():
            try:
                ray.get(reference, timeout=FETCH_SECONDS)
            except ray.exceptions.GetTimeoutError:
                continue
            except (ray.exceptions.ObjectLostError, ray.exceptions.RayActorError):
                missing.append(other)
                with self._news:
                    del self._coming[other]
        self._send(Missing(tuple(missing)))

    def close(self) -> None:
        """Nothing: the actor ends."""

    def _empty(self, part: Part) -> torch.Tensor:
        assert self.shape is not None, "it has been opened"
        size = part.num_tokens, self.shape.feature_size
        return torch.empty(size, dtype=self.shape.dtype, pin_memory=self._pinned)
