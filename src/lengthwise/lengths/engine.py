"""Who runs the jobs of a scan: threads of this process, or an engine with more machines.

An engine only calls a function with each item of a list, somewhere, and hands the results back.
Everything that decides what a scan finds is in the function, so all engines find the same.
"""

from __future__ import annotations

import threading
from collections import deque
from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from concurrent.futures import Future

    from lengthwise.errors import LengthwiseError

    Result = TypeVar("Result")

_QUEUED_PER_THREAD = 4


@dataclass(frozen=True, slots=True)
class Failed:
    """In the place of a result: an error that another attempt would meet again."""

    error: LengthwiseError


class Engine(Protocol):
    """Calls a function with many items."""

    def run(
        self, function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]
    ) -> Generator[tuple[int, Any]]:
        """Yield (place in ``items``, ``function(shared, item)``) in the order things are done.

        Items are begun in their order, and few more than can run at a time, so whoever closes the
        generator ends the work.

        Args:
            function: at the top of a module, so that other processes find it by name.
            shared: what all calls need.
            items: what they differ by.
        """


@dataclass(frozen=True, slots=True)
class Threads:
    """The engine of one process.

    Attributes:
        num_threads: calls at a time.
    """

    num_threads: int

    def run(
        self, function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]
    ) -> Generator[tuple[int, Any]]:
        """As :meth:`Engine.run`."""
        stopped = threading.Event()

        def call(item: Any) -> Any:
            return None if stopped.is_set() else function(shared, item)

        waiting = deque(enumerate(items))
        running: dict[Future[Any], int] = {}
        with ThreadPoolExecutor(self.num_threads) as pool:
            try:
                while waiting or running:
                    while waiting and len(running) < self.num_threads * _QUEUED_PER_THREAD:
                        place, item = waiting.popleft()
                        running[pool.submit(call, item)] = place
                    for future in wait(running, return_when=FIRST_COMPLETED).done:
                        yield running.pop(future), future.result()
            finally:
                stopped.set()
                for future in running:
                    future.cancel()


def until_failure(
    results: Generator[tuple[int, Result | Failed]],
) -> Iterator[tuple[int, Result]]:
    """The results of an engine; the failure of the earliest item is raised.

    What is done is yielded as it comes. Once something has failed, only what stands before it is
    waited for: so the same error is raised whatever was done first.

    Raises:
        LengthwiseError: that failure.
    """
    failed: tuple[int, LengthwiseError] | None = None
    done: set[int] = set()
    first_missing = 0
    try:
        for place, result in results:
            done.add(place)
            while first_missing in done:
                done.remove(first_missing)
                first_missing += 1
            if not isinstance(result, Failed):
                yield place, result
            elif failed is None or place < failed[0]:
                failed = place, result.error
            if failed is not None and first_missing > failed[0]:
                raise failed[1]
    finally:
        results.close()
