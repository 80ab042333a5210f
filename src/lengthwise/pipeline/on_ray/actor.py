"""One child of a pipeline, as an actor of Ray.

The body, a target worker's or a drafter rank's, runs in a thread of its own and knows nothing of
Ray. The actor's event loop takes messages in and gives messages out. What is asked of a target is
answered by the call that asked, with features as results: so Ray keeps them on this machine, and
the coordinator, which called, owns them.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import queue
import socket
import threading
import time
from collections import defaultdict, deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lengthwise.cluster.connect import require_ray
from lengthwise.pipeline.child import failure_of, pass_warnings_on
from lengthwise.pipeline.messages import Again, Arrived, Evaluate, Evaluated, Ready, RunBatch
from lengthwise.pipeline.on_ray.features import ObjectChannel

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from lengthwise.pipeline.messages import Part


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where an actor runs.

    Attributes:
        host: the machine's address.
        node_id: Ray's name of the machine.
        pid: of the process.
    """

    host: str
    node_id: str
    pid: int


@dataclass(frozen=True, slots=True)
class Ended:
    """From an actor: its body has ended, and nothing more will come."""


class ActorWire:
    """A body's connection; see :class:`~lengthwise.pipeline.wire.Wire`.

    Args:
        post: takes what the body says, from any thread.
    """

    def __init__(self, post: Callable[[object], None]) -> None:
        """Nothing has been said."""
        self.send = post
        self.channel = ObjectChannel(post)
        self.inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def receive(self) -> Any:
        """The next message; waits for it."""
        return self.inbox.get()


class ChildActor:
    """Runs one body."""

    def __init__(self) -> None:
        """Nothing runs."""
        self._wire = ActorWire(self._post)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._said: list[object] = []
        self._news = asyncio.Event()
        self._ended = asyncio.Event()
        self._asked: dict[Hashable, deque[asyncio.Future[Any]]] = defaultdict(deque)
        self._early: dict[int, tuple[object, Mapping[Part, Any]]] = {}
        self._num_entered = 0
        self._store: Any = None

    async def meet(self) -> tuple[str, int]:
        """Open a store by which ranks find each other, on this machine; host and port of it."""
        import torch.distributed as dist

        host = require_ray().util.get_node_ip_address()
        listener = socket.create_server(("", 0))
        port = listener.getsockname()[1]
        self._store = dist.TCPStore(  # type: ignore[attr-defined]
            host, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach()
        )
        return host, port

    async def begin(self, work: bytes, data: bytes) -> Whereabouts:
        """Start the body.

        Args:
            work: body and task, pickled.
            data: the task's, pickled: the same for all, and too large for every task.
        """
        self._loop = asyncio.get_running_loop()
        body, task = pickle.loads(work)  # noqa: S301 - from our own coordinator
        task = replace(task, data=pickle.loads(data))  # noqa: S301 - the same
        threading.Thread(target=self._run, args=(body, task), name="body", daemon=True).start()
        context = require_ray().get_runtime_context()
        host = require_ray().util.get_node_ip_address()
        return Whereabouts(host, context.get_node_id(), os.getpid())

    async def listen(self) -> list[object]:
        """What the body has said since the last time; waits for something."""
        while not self._said:
            self._news.clear()
            await self._news.wait()
        said, self._said = self._said, []
        return said

    async def tell(self, number: int, message: object, references: Mapping[Part, Any]) -> None:
        """Pass a message on.

        Args:
            number: of it, counted from 0: Ray does not promise that calls come in order.
            message: for the body, unless it only says that features are there.
            references: to features that the message speaks of.
        """
        self._enter(number, message, references)

    async def ask(self, number: int, message: RunBatch | Evaluate) -> Any:
        """Pass a request on, and wait for its answer.

        Args:
            number: of it, counted together with what is told.
            message: the request.

        Returns:
            The answer and, for a batch with parts, as results of their own, each part's features as
            bytes; None for a sample that is bad.
        """
        answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[_key(message)].append(answered)
        self._enter(number, message, {})
        answer = await answered
        if not isinstance(message, RunBatch) or not message.parts:
            return answer
        channel = self._wire.channel
        features = [
            None if part.sample_id in answer.bad else channel.take(part) for part in message.parts
        ]
        return (answer, *features)

    async def ended(self) -> None:
        """Wait until the body has ended."""
        await self._ended.wait()

    def _enter(self, number: int, message: object, references: Mapping[Part, Any]) -> None:
        """Put messages into the inbox, each when all before it are there."""
        self._early[number] = message, references
        while self._num_entered in self._early:
            entering, there = self._early.pop(self._num_entered)
            self._num_entered += 1
            self._wire.channel.expect(there)
            if not isinstance(entering, Again):
                self._wire.inbox.put(entering)

    def _run(self, body: Callable[[ActorWire, Any], None], task: Any) -> None:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
        pass_warnings_on(self._wire)
        try:
            body(self._wire, task)
        except BaseException as error:  # noqa: BLE001 - told to the coordinator
            self._post(failure_of(error, time.time()))
        self._post(Ended())

    def _post(self, message: object) -> None:
        """Have the event loop take what the body says; from any thread."""
        assert self._loop is not None, "it has begun"
        self._loop.call_soon_threadsafe(self._take, message)

    def _take(self, message: object) -> None:
        if isinstance(message, (Arrived, Evaluated)):
            self._asked[_key(message)].popleft().set_result(message)
            return
        if isinstance(message, Ready):
            self._wire.channel.forget()
        if isinstance(message, Ended):
            self._ended.set()
        self._said.append(message)
        self._news.set()


def _key(message: object) -> Hashable:
    """The same of a request and its answer."""
    if isinstance(message, (RunBatch, Arrived)):
        return message.epoch, message.arrival
    assert isinstance(message, (Evaluate, Evaluated))
    request = message if isinstance(message, Evaluate) else message.request
    return request.folder
