"""The last seconds of a pipeline: what was done in them, and how full things were."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lengthwise.pipeline.flow import Account, Flow


@dataclass(frozen=True, slots=True)
class Moment:
    """Counts at one time.

    Attributes:
        seconds: since the run began.
        real_tokens: that targets have run.
        padded_tokens: the same with padding.
        learnt_tokens: real ones that the drafter has learnt from.
        prefetch: batches that targets have, as a share of the most they can have.
        hidden_states: steps that are ready.
        pages: in use, as a share of what may be in use before the next batch finds no room.
        accounts: seconds at work and without, of every process by its short name.
    """

    seconds: float
    real_tokens: int
    padded_tokens: int
    learnt_tokens: int
    prefetch: float
    hidden_states: int
    pages: float
    accounts: dict[str, tuple[float, float]]


class Window:
    """Moments of the last seconds; always the newest two.

    Args:
        seconds: how many.
    """

    def __init__(self, seconds: float) -> None:
        """No moment yet."""
        self._seconds = seconds
        self._moments: deque[Moment] = deque()

    @property
    def last(self) -> Moment | None:
        """The newest."""
        return self._moments[-1] if self._moments else None

    @property
    def tells(self) -> bool:
        """Whether it is long enough to judge by, and the drafter learnt all the time."""
        first, last = self._moments[0], self._moments[-1]
        return first.learnt_tokens > 0 and last.seconds - first.seconds >= self._seconds / 3

    def add(self, moment: Moment) -> None:
        """Take in the newest; the window begins at the last moment that is old enough.

        It begins anew when the first step has been learnt from: how things went while models were
        loaded and the pool was filled says nothing about what follows.
        """
        moments = self._moments
        if moments and moment.learnt_tokens and not moments[0].learnt_tokens:
            moments.clear()
        moments.append(moment)
        while len(moments) > 2 and moment.seconds - moments[1].seconds >= self._seconds:
            moments.popleft()

    def mean(self, name: str) -> float:
        """Mean of a count over the moments."""
        values = [float(getattr(moment, name)) for moment in self._moments]
        return sum(values) / len(values)

    def grown(self, name: str) -> float:
        """How much a count has grown."""
        return float(getattr(self._moments[-1], name) - getattr(self._moments[0], name))

    def rate(self, name: str) -> float | None:
        """The same a second; None before the second moment."""
        if len(self._moments) < 2:
            return None
        return ratio(self.grown(name), self.grown("seconds"))

    def spent(self, key: str) -> tuple[float, float]:
        """Seconds at work and without, of a process."""
        first, last = self._moments[0].accounts, self._moments[-1].accounts
        old, new = first.get(key, (0.0, 0.0)), last[key]
        return new[0] - old[0], new[1] - old[1]

    def capacity(self, stage: str, name: str) -> float | None:
        """Tokens a second if the processes of a stage never waited; None without any.

        Args:
            stage: how the short names of its processes begin.
            name: of the count of tokens.
        """
        if len(self._moments) < 2 or not self.grown(name):
            return None
        keys = [key for key in self._moments[-1].accounts if key.startswith(stage)]
        busy = [self.spent(key)[0] for key in keys]
        return ratio(self.grown(name) * sum(one > 0 for one in busy), sum(busy))


def accounts_of(flow: Flow) -> list[tuple[str, str, Account]]:
    """Short name, name and account of every process."""
    stages = (("target", flow.workers), ("drafter", flow.ranks))
    return [
        (f"{stage}_{place}", name, account)
        for stage, accounts in stages
        for place, (name, account) in enumerate(accounts.items())
    ]


def account_figures(key: str, account: Account) -> dict[str, float | str]:
    """What a process has done with its time so far, in seconds; and where, if that is known."""
    figures: dict[str, float | str] = {
        f"busy_seconds_{key}": account.busy_seconds,
        f"wait_seconds_{key}": account.wait_seconds,
        f"input_seconds_{key}": account.input_seconds,
    }
    if account.host is not None:
        figures[f"host_{key}"] = account.host
    if key.startswith("target_"):
        return figures | {f"padded_tokens_{key}": account.padded_tokens}
    return figures | {f"meeting_seconds_{key}": account.meeting_seconds}


def ratio(count: float, of: float) -> float | None:
    """A quotient; None where it has no meaning."""
    return count / of if of > 0 else None
