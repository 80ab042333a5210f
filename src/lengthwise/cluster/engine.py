"""Jobs as Ray tasks.

A job is a run of row groups, read by the same function as on one machine. Ray places it, runs it
again where a worker or a node is lost, and keeps what it found in its object store until the
driver has written it down. Ray Data would be one layer more with less: its Parquet reader decodes
the whole column, where the lengths of lists are in a few of its bytes, and its rows do not tell
which file and row they come from, which an error must name.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.errors import ClusterError, LengthwiseError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence

RETRIES = 8
"""Times that a job is run again after its worker was lost, or the network failed."""
FEWEST_AHEAD = 16
AHEAD_PER_CPU = 2
"""Jobs begun or waiting at a time: enough that none idles, and that a cluster can see it should
grow; few enough that what they found does not pile up."""
SECONDS_BETWEEN_LOOKS = 1.0


@dataclass(frozen=True, slots=True)
class RayTasks:
    """The engine of a cluster.

    Attributes:
        ray: the module, connected.
    """

    ray: Any

    def run(
        self, function: Callable[[Any, Any], Any], shared: Any, items: Sequence[Any]
    ) -> Generator[tuple[int, Any]]:
        """As :meth:`lengthwise.lengths.engine.Engine.run`.

        Raises:
            ClusterError: a job was lost more often than it is tried.
        """
        if not items:
            return
        ray = self.ray
        task = ray.remote(
            num_cpus=1,
            max_retries=RETRIES,
            retry_exceptions=True,  # errors that would come again are results
            scheduling_strategy="SPREAD",
        )(function)
        shared = ray.put(shared)
        waiting = iter(enumerate(items))
        running: dict[Any, int] = {}
        try:
            while self._fill(running, waiting, lambda item: task.remote(shared, item)):
                done, _ = ray.wait([*running], timeout=SECONDS_BETWEEN_LOOKS)
                for reference in done:
                    yield running.pop(reference), self._get(reference)
        finally:
            for reference in running:
                ray.cancel(reference, force=True)

    def _fill(
        self, running: dict[Any, int], waiting: Iterator[tuple[int, Any]], begin: Callable[..., Any]
    ) -> bool:
        """Begin as many jobs as may run; False once all are done."""
        cpus = int(self.ray.cluster_resources().get("CPU", 0))
        most = max(FEWEST_AHEAD, AHEAD_PER_CPU * cpus)
        while len(running) < most:
            place, item = next(waiting, (None, None))
            if place is None:
                break
            running[begin(item)] = place
        return bool(running)

    def _get(self, reference: Any) -> Any:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, LengthwiseError):
                raise error.cause from None
            raise
        except self.ray.exceptions.RayError as error:
            reason = str(error).partition("\n")[0]
            raise ClusterError(
                f"work was lost {RETRIES + 1} times, with its worker or its node ({reason}). What "
                f"is finished is kept: run the same again"
            ) from error
