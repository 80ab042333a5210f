"""Measuring: how many steps run, in which order, when it ends. The clock is a fake one."""

import pytest

from lengthwise.calibrate import CpuStopwatch, calibrate, measure_shapes, stopwatch_for
from lengthwise.errors import ConfigError, TrainingError
from support.calibrations import SHAPES, FakeMemory, FakeWatch, seconds_of

TRUTH = (0.01, 1e-5, 2e-9)
ROUND = sum(seconds_of(TRUTH, *shape) for shape in SHAPES)


def watch():
    return FakeWatch(lambda n, m: seconds_of(TRUTH, n, m))


def test_every_shape_is_warmed_up_and_then_timed_in_every_round():
    # 12 shapes, 2 warm-ups, 5 repeats: 84 steps. Warm-ups come first and do not count; each round
    # holds every shape once.
    clock = watch()
    found = measure_shapes(clock.step, SHAPES, stopwatch=clock, repeats=5)
    assert len(clock.ran) == 12 * (2 + 5)
    assert len(found) == 12 * 5
    for start in range(0, 84, 12):
        assert sorted(clock.ran[start : start + 12]) == sorted(SHAPES)
    assert [item.shape for item in found] == clock.ran[24:]
    assert all(item.seconds == seconds_of(TRUTH, *item.shape) for item in found)
    assert all(item.peak_bytes is None for item in found)


def test_warm_ups_go_from_small_to_large_and_rounds_differ_in_order():
    # The largest shape last: what does not fit fails when all else is known. Five orders of twelve
    # shapes are all different but for a chance of 1 in 10^7; the same seed gives the same again.
    clock = watch()
    measure_shapes(clock.step, SHAPES, stopwatch=clock, repeats=5)
    tokens = [n * m for n, m in clock.ran[:12]]
    assert tokens == sorted(tokens)
    assert clock.ran[:12] == clock.ran[12:24]
    rounds = [tuple(clock.ran[start : start + 12]) for start in range(24, 84, 12)]
    assert len(set(rounds)) == 5
    again = watch()
    measure_shapes(again.step, SHAPES, stopwatch=again, repeats=5)
    assert again.ran == clock.ran


def test_no_round_begins_that_would_end_too_late():
    # All rounds take the same on this clock: 2 for warm-up and 3 timed fit 5.5 of them.
    clock = watch()
    found = measure_shapes(clock.step, SHAPES, stopwatch=clock, max_seconds=5.5 * ROUND)
    assert len(found) == 3 * 12
    assert clock.now() == pytest.approx(5 * ROUND)


@pytest.mark.parametrize("rounds", [0.5, 2.5])
def test_a_bound_that_leaves_no_round_is_an_error_and_is_kept(rounds):
    # Within the warm-up, and after it: no measurement can come of either, and at most one step
    # runs beyond the bound.
    clock = watch()
    with pytest.raises(ConfigError, match="too few to measure every shape once"):
        measure_shapes(clock.step, SHAPES, stopwatch=clock, max_seconds=rounds * ROUND)
    assert clock.now() <= rounds * ROUND + max(seconds_of(TRUTH, *shape) for shape in SHAPES)


def test_progress_tells_every_step():
    # One report a step, of all that may run.
    clock, told = watch(), []
    measure_shapes(
        clock.step,
        SHAPES,
        stopwatch=clock,
        repeats=1,
        warmups=1,
        progress=lambda *args: told.append(args),
    )
    assert told == [(done, 24, "steps") for done in range(1, 25)]


def test_a_shape_that_runs_out_of_memory_is_named_after_the_smaller_ones_ran():
    # Warm-up goes from small to large, so all that fit have run once; what failed is released.
    memory = FakeMemory(13_000, lambda n, m: n * m)
    with pytest.raises(TrainingError, match=r"a batch of .* runs out of memory; lower max_tokens"):
        measure_shapes(memory.step, SHAPES, stopwatch=memory)
    assert [n * m > 13_000 for n, m in memory.tried] == [False] * 8 + [True]
    assert memory.releases == 1


def test_other_errors_of_a_step_are_passed_on():
    # They are the step's own, and its traceback says where.
    def step(_batch_size, _longest):
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        measure_shapes(step, SHAPES, stopwatch=watch())


def test_a_calibration_is_the_fit_of_what_was_measured():
    # The clock has no noise, so the truth comes back; memory likewise, from the counted peaks.
    clock = watch()
    clock.peak = lambda n, m: 1_000_000 + 300 * n * m
    found = calibrate(clock.step, SHAPES, stopwatch=clock, repeats=2, what="forward", dtype="int8")
    assert found.cost.fixed_seconds == pytest.approx(0.01, rel=1e-6)
    assert found.cost.seconds_per_token == pytest.approx(1e-5, rel=1e-6)
    assert found.cost.seconds_per_token_squared == pytest.approx(2e-9, rel=1e-6)
    assert found.memory.fixed_bytes == pytest.approx(1_000_000, rel=1e-6)
    assert found.memory.bytes_per_token == pytest.approx(300, rel=1e-6)
    assert (found.what, found.device, found.dtype) == ("forward", "cpu", "int8")
    assert found.machine
    assert {"lengthwise", "python", "numpy"} <= set(found.versions)


def test_a_cpu_stopwatch_runs_the_step_once_and_its_clock_rises():
    # Nothing is asserted of how long it took, only that it took some time and was run once.
    ran = []
    seconds, peak = CpuStopwatch().measure(lambda: ran.append(sum(range(1000))))
    assert len(ran) == 1
    assert seconds > 0
    assert peak is None
    stopwatch = stopwatch_for("cpu")
    assert isinstance(stopwatch, CpuStopwatch)
    assert stopwatch.now() <= stopwatch.now()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"repeats": 0}, "repeats must be"),
        ({"warmups": -1}, "warmups must be"),
        ({"max_seconds": 0.0}, "max_seconds must be above 0"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_a_step_runs(settings, words):
    clock = watch()  # a step would be noted there
    with pytest.raises(ConfigError, match=words):
        measure_shapes(clock.step, SHAPES, stopwatch=clock, **settings)
    assert clock.ran == []


@pytest.mark.parametrize(
    ("shapes", "words"),
    [
        ([], "no shapes"),
        (SHAPES[:3], "at least 4 different"),
        (SHAPES[:1] * 9, "at least 4 different"),
        ([(1, 2, 3)], "pairs"),
        ([(0, 5)], "pairs"),
        (7, "pairs"),
    ],
)
def test_shapes_that_cannot_be_measured_are_refused(shapes, words):
    clock = watch()  # a step would be noted there
    with pytest.raises(ConfigError, match=words):
        measure_shapes(clock.step, shapes, stopwatch=clock)
    assert clock.ran == []


@pytest.mark.parametrize("device", ["tpu", "mps", ""])
def test_devices_without_a_stopwatch_are_refused(device):
    # Their clocks would time the launch, not the work.
    with pytest.raises(ConfigError, match="timed on 'cpu' and 'cuda'"):
        stopwatch_for(device)


def test_a_cuda_device_that_is_not_there_is_refused():
    # No machine has a hundred.
    with pytest.raises(ConfigError, match="PyTorch sees"):
        stopwatch_for("cuda:99")
