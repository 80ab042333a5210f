"""Measuring steps: every shape several times, in an order that no drift can mistake for a shape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from lengthwise.calibrate.budget import is_out_of_memory
from lengthwise.calibrate.calibration import Calibration, machine_of, versions_in_use
from lengthwise.calibrate.extra import require_scipy
from lengthwise.calibrate.fit import LEAST_SHAPES, fit_cost
from lengthwise.calibrate.measurement import Measurement, Shape
from lengthwise.calibrate.memory import fit_memory
from lengthwise.calibrate.shapes import require_shapes
from lengthwise.calibrate.stopwatch import stopwatch_for
from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError, TrainingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from lengthwise.calibrate.steps import Step
    from lengthwise.calibrate.stopwatch import Stopwatch

    Report = Callable[[int, int | None, str], None]


def calibrate(
    step: Step,
    shapes: Iterable[Shape | tuple[int, int]],
    *,
    what: str = "forward_backward",
    device: str = "cpu",
    dtype: str = "float32",
    repeats: int = 4,
    warmups: int = 2,
    max_seconds: float = 60.0,
    stopwatch: Stopwatch | None = None,
    progress: Report | None = None,
) -> Calibration:
    """Measure steps of your own, and fit what they cost in seconds and memory.

    Args:
        step: ``step(batch_size, longest)`` makes a batch and returns what runs one step on it;
            :func:`from_module` and :func:`from_config` make such functions.
        shapes: pairs (batch size, longest), at least 4 different ones; :func:`choose_shapes`.
        what: what the step does, "forward" or "forward_backward"; only written down.
        device: where it runs, "cpu" or "cuda[:N]"; decides how it is timed.
        dtype: what it computes in; only written down.
        repeats: timed steps of each shape, at most; few, as more shapes say more than more repeats.
        warmups: steps of each shape before, which do not count.
        max_seconds: no round is begun that would end later; see :func:`measure_shapes`.
        stopwatch: what times a step instead of the device's own.
        progress: is told (steps done, steps at most, "steps").

    Raises:
        ConfigError: a setting out of range, or not even one round fits ``max_seconds``.
        TrainingError: a shape runs out of memory.
        MissingDependencyError: SciPy is not installed, or PyTorch for a CUDA device.
    """
    require_scipy()
    measured = measure_shapes(
        step,
        shapes,
        stopwatch=stopwatch_for(device) if stopwatch is None else stopwatch,
        repeats=repeats,
        warmups=warmups,
        max_seconds=max_seconds,
        progress=progress,
    )
    return Calibration(
        fit=fit_cost(measured),
        memory=fit_memory(measured),
        measurements=measured,
        what=what,
        device=device,
        dtype=dtype,
        machine=machine_of(device),
        versions=versions_in_use(),
    )


def measure_shapes(
    step: Step,
    shapes: Iterable[Shape | tuple[int, int]],
    *,
    stopwatch: Stopwatch,
    repeats: int = 4,
    warmups: int = 2,
    max_seconds: float = 60.0,
    seed: int = 0,
    progress: Report | None = None,
) -> tuple[Measurement, ...]:
    """Time every shape ``repeats`` times, in rounds.

    First every shape is warmed up, the smallest first: kernels are chosen and compiled, memory is
    taken. Then each round runs all shapes once, in an order of its own. A slow drift of the
    machine or a phase of other load so falls on all shapes alike and shows as noise, not as a
    shape's cost; and each step finds the caches as a step of another shape left them, as in
    training. At most ``len(shapes) * (warmups + repeats)`` steps run, and no round begins that
    would end after ``max_seconds`` if it took as long as the longest so far (the first is reckoned
    by the warm-up).

    Raises:
        ConfigError: a setting out of range, or ``max_seconds`` end before the first round would.
        TrainingError: a shape runs out of memory.
    """
    shapes = _check(shapes, repeats, warmups, max_seconds)
    total = len(shapes) * (warmups + repeats)
    found: list[Measurement] = []
    begun = stopwatch.now()
    done = 0
    longest_round = 0.0
    order = sorted(shapes, key=lambda shape: (shape.batch_size * shape.longest, shape))
    generator = np.random.default_rng(seed)
    for turn in range(-warmups, repeats):
        round_begun = stopwatch.now()
        if round_begun - begun + longest_round > max_seconds:
            if not found:
                raise _too_slow(max_seconds, turn + warmups, longest_round)
            break
        places = range(len(order)) if turn < 0 else generator.permutation(len(order)).tolist()
        for place in places:
            shape = order[place]
            measured = _time(step, shape, stopwatch)
            if turn >= 0:
                found.append(measured)
            elif stopwatch.now() - begun > max_seconds:
                raise _too_slow(max_seconds, turn + warmups, stopwatch.now() - round_begun)
            done += 1
            if progress is not None:
                progress(done, total, "steps")
        longest_round = max(longest_round, stopwatch.now() - round_begun)
    return tuple(found)


def _time(step: Step, shape: Shape, stopwatch: Stopwatch) -> Measurement:
    try:
        return Measurement(*shape, *stopwatch.measure(step(*shape)))
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
    stopwatch.release()
    raise TrainingError(
        f"a batch of {shape.batch_size:,} samples of {shape.longest:,} tokens runs out of memory; "
        f"lower max_tokens, or find the largest that is safe (largest_budget)"
    )


def _check(
    shapes: Iterable[Shape | tuple[int, int]], repeats: int, warmups: int, max_seconds: float
) -> list[Shape]:
    require_int("repeats", repeats, least=1)
    require_int("warmups", warmups, least=0)
    if not max_seconds > 0:
        raise ConfigError(f"max_seconds must be above 0, got {max_seconds}")
    checked = require_shapes(shapes)
    if len(checked) < LEAST_SHAPES:
        raise ConfigError(
            f"a cost is fitted from at least {LEAST_SHAPES} different shapes, got {len(checked)}"
        )
    return checked


def _too_slow(max_seconds: float, rounds: int, seconds: float) -> ConfigError:
    return ConfigError(
        f"{max_seconds:g} seconds are too few to measure every shape once: {rounds} warm-up rounds "
        f"were done and the last took {seconds:.1f} s or more; raise max_seconds, or measure "
        f"smaller shapes"
    )
