"""Synthetic steps: a known truth, noise, outliers, a clock and a memory of their own."""

from __future__ import annotations

import gc
import weakref
from dataclasses import dataclass, field

import numpy as np

from lengthwise.calibrate import Measurement

SHAPES = tuple(
    (max(16_384 // divisor // longest, 1), longest)
    for longest in (256, 700, 1500, 3000)
    for divisor in (1, 2, 8)
)
"""Twelve shapes: full, half and an eighth of 16,384 tokens at four lengths."""


def seconds_of(truth: tuple[float, float, float], size: int, longest: int) -> float:
    """The formula in plain Python."""
    fixed, linear, squared = truth
    return fixed + linear * size * longest + squared * size * longest * longest


def timings(truth, generator, *, noise=0.03, repeats=5, outliers=0.0, shapes=SHAPES):
    """Measurements of ``truth``: normal relative noise, and now and then a step 1.5 to 4 x slow."""
    made = []
    for size, longest in shapes:
        for _ in range(repeats):
            seconds = seconds_of(truth, size, longest) * (1 + noise * generator.standard_normal())
            if generator.random() < outliers:
                seconds *= generator.uniform(1.5, 4)
            made.append(Measurement(size, longest, seconds))
    return made


@dataclass
class FakeWatch:
    """A clock that moves only by what ``seconds(batch_size, longest)`` says; counts all it runs.

    ``step`` is the step to measure: it hands over its shape when it runs.
    """

    seconds: object
    peak: object = None
    time: float = 0.0
    ran: list = field(default_factory=list)

    def step(self, batch_size, longest):
        return lambda: (batch_size, longest)

    def measure(self, run):
        shape = run()
        self.ran.append(shape)
        took = self.seconds(*shape)
        self.time += took
        return took, None if self.peak is None else self.peak(*shape)

    def now(self):
        return self.time

    def release(self):
        raise AssertionError("nothing ran out of memory")


class Held:
    """Stands for the tensors of a step."""


@dataclass
class FakeMemory:
    """A device of ``limit`` bytes; each failure makes ``lost`` bytes unusable: fragmentation.

    It refuses to go on while anything of a failed step is still alive, or was not released. With
    ``cycles`` what a step holds hangs in a cycle, as in the frames of a traceback, so that only a
    collection ends it (slow, so not everywhere).
    """

    limit: int
    need: object
    error: type = MemoryError
    lost: int = 0
    cycles: bool = False
    tried: list = field(default_factory=list)
    releases: int = 0
    _left: list = field(default_factory=list)
    _dirty: bool = False

    def step(self, batch_size, longest):
        assert not self._dirty, "a step began before the memory of the last was released"
        assert [left for left in self._left if left() is not None] == []
        self._left.clear()

        def run():
            held = Held()
            self._left.append(weakref.ref(held))
            self.tried.append((batch_size, longest))
            needed = self.need(batch_size, longest)
            if needed > self.limit:
                self.limit -= self.lost
                self._dirty = True
                held.cycle = held if self.cycles else None
                raise self.error(f"out of memory: {needed} bytes")
            return held

        return run

    def measure(self, run):
        run()
        return 1.0, self.need(*self.tried[-1])

    def now(self):
        return float(len(self.tried))

    def release(self):
        if self.cycles:
            gc.collect()
        self.releases += 1
        self._dirty = False


def generator(seed: int = 0) -> np.random.Generator:
    """A seeded generator."""
    return np.random.default_rng(seed)
