"""What ended a run, where one process's end makes others fail too."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.errors import TrainingError
from lengthwise.pipeline.messages import Failed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lengthwise.dflash.training.progress import Outcome
    from lengthwise.pipeline.crew import Child, Crew

TRACE_LINES = 12


@dataclass(frozen=True, order=True, slots=True)
class Cause:
    """Something that went wrong; of several the smallest is to blame.

    Attributes:
        raised: False for a process that just ended, which comes before any error: what others
            raise then is that they lost it.
        moment: when, as far as it is known.
        text: for the user.
    """

    raised: bool
    moment: float
    text: str


def cause_of(child: Child, message: Failed | None) -> Cause:
    """What a child's error, or its end without one, means."""
    if message is None:
        return Cause(False, 0.0, f"{child.name} {child.ending()}")
    trace = "\n".join(message.trace.strip().splitlines()[-TRACE_LINES:])
    text = f"{child.name} failed: {message.error}"
    return Cause(True, message.moment, f"{text}\n{trace}" if trace else text)


def find_cause(
    first: Cause, children: Iterable[Child], crew: Crew, hear: Callable[[Child, Any], None]
) -> Cause:
    """Listen a little to what else happens, then say what was the cause.

    Ranks that compute together fail together: the others' errors may be heard before the end of
    the one that was killed. Listens until all have spoken, or for the crew's ``listen_seconds``.

    Args:
        first: what was heard first.
        children: those that may be the cause.
        crew: theirs.
        hear: takes what else they say.
    """
    causes, spoken = [first], set()
    left = [child for child in children if not child.gone]
    until = time.monotonic() + crew.listen_seconds
    while left and (seconds := until - time.monotonic()) > 0:
        for child, message in crew.messages(left, seconds):
            if isinstance(message, Failed):
                spoken.add(child)
                causes.append(cause_of(child, message))
            elif message is not None:
                hear(child, message)
            elif child not in spoken:
                causes.append(cause_of(child, None))
        left = [child for child in left if not child.gone]
    lost = [cause.text for cause in sorted(causes) if not cause.raised]
    return Cause(False, 0.0, "; ".join(lost)) if lost else min(causes)


def conclude(outcome: Outcome, failure: str | None) -> Outcome:
    """What comes of a run whose ranks have all ended in good order.

    Raises:
        TrainingError: it had failed before; says what is saved.
    """
    if failure is None:
        return outcome
    place = "nothing was learnt yet"
    if outcome.checkpoint is not None:
        place = f"step {outcome.position.num_steps:,} is saved in {outcome.checkpoint}"
    raise TrainingError(f"{failure}\n{place}")
