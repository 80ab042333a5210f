"""Tokens a second, of the recent steps and of all."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Throughput:
    """Counts tokens and the seconds they took.

    The first step starts the clock: how long it took, with everything that a first step loads and
    compiles, is not known, so its tokens are no part of a rate.

    The recent rate is a quotient of sums in which a step counts half as much after ``half_life``
    steps: tokens over seconds, so that long and short steps weigh as they should.

    Args:
        clock: seconds, rising.
        half_life: in steps.
    """

    def __init__(self, clock: Callable[[], float], half_life: float) -> None:
        """Nothing is counted, no clock runs."""
        self._clock = clock
        self._decay = 0.5 ** (1 / half_life)
        self._mark: float | None = None
        self.seconds = 0.0
        self._timed = [0, 0]
        self._recent_seconds = 0.0
        self._recent = [0.0, 0.0]

    def step(self, real_tokens: int, padded_tokens: int) -> None:
        """A step is done."""
        now = self._clock()
        mark, self._mark = self._mark, now
        if mark is None:
            return
        seconds, decay = now - mark, self._decay
        self.seconds += seconds
        self._recent_seconds = self._recent_seconds * decay + seconds
        for place, tokens in enumerate((real_tokens, padded_tokens)):
            self._timed[place] += tokens
            self._recent[place] = self._recent[place] * decay + tokens

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Leave out the time spent inside."""
        began = self._clock()
        try:
            yield
        finally:
            if self._mark is not None:
                self._mark += self._clock() - began

    def recent(self, *, padded: bool = False) -> float | None:
        """Tokens a second of the recent steps; None before the second step."""
        return self._recent[padded] / self._recent_seconds if self._recent_seconds > 0 else None

    def overall(self, *, padded: bool = False) -> float | None:
        """Tokens a second of all steps after the first; None before the second step."""
        return self._timed[padded] / self.seconds if self.seconds > 0 else None
