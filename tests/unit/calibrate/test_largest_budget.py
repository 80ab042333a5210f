"""The search for the largest budget, on devices whose memory is a number."""

import gc
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.calibrate import MemoryFit, largest_budget
from lengthwise.calibrate.budget import is_out_of_memory
from lengthwise.errors import ConfigError, TrainingError
from support.calibrations import FakeMemory

FIXED, PER_TOKEN, PER_SQUARE = 1_000_000, 100, 0.02
LONGEST = (256, 700, 1_500, 3_000)


def need(size, longest):
    return int(FIXED + PER_TOKEN * size * longest + PER_SQUARE * size * longest * longest)


def most_that_fit(longest, limit):
    """By trying every size."""
    size = 0
    while need(size + 1, longest) <= limit:
        size += 1
    return size


def search(device, longest=LONGEST, **settings):
    settings = {"most_tokens": 10_000_000, **settings}
    return largest_budget(device.step, longest, stopwatch=device, **settings)


@given(st.integers(1_500_000, 60_000_000), st.sampled_from([0.0, 0.1, 0.3]))
def test_every_bucket_gets_nearly_all_that_fits_and_no_more(limit, margin):
    # What ran is within a sixteenth (or one sample) of the most that could; what is safe is that
    # less the margin.
    memory = FakeMemory(limit, need)
    found = search(memory, margin=margin)
    assert [item.longest for item in found.buckets] == list(LONGEST)
    for item in found.buckets:
        most = most_that_fit(item.longest, limit)
        assert most - max(most // 16, 1) <= item.fitted_batch_size <= most
        assert item.batch_size == max(int(item.fitted_batch_size * (1 - margin)), 1)
        assert item.limited


@given(st.integers(1_500_000, 60_000_000))
def test_no_batch_of_the_budget_runs_out_of_memory(limit):
    # Every length up to the longest, with as many samples as the budget lets in.
    memory = FakeMemory(limit, need)
    budget = search(memory).max_tokens
    for longest in range(1, min(LONGEST[-1], budget) + 1):
        assert need(budget // longest, longest) <= limit


@pytest.mark.parametrize("error", [MemoryError, torch.OutOfMemoryError, RuntimeError])
def test_the_memory_of_a_failed_step_is_gone_before_the_next(error):
    # The fake device refuses a step while anything of a failed one lives (here it hangs in a
    # cycle, as tensors in a traceback do) or was not released; each failure is released once.
    memory = FakeMemory(3_000_000, need, error=error, cycles=True)
    gc.freeze()  # collections need not look at what the tests have loaded
    try:
        found = search(memory, (700, 1_500))
    finally:
        gc.unfreeze()
    failed = [probe for probe in found.probes if not probe.fits]
    assert memory.releases == len(failed) > 0
    assert all(probe.peak_bytes is None for probe in failed)
    assert [(probe.batch_size, probe.longest) for probe in found.probes] == memory.tried


def test_a_device_that_fragments_is_searched_until_what_is_safe_runs():
    # Each failure costs 1 % for good, so what ran at first no longer does. In the end every batch
    # has run after the last failure.
    memory = FakeMemory(20_000_000, need, lost=200_000)
    found = search(memory)
    assert all(need(item.batch_size, item.longest) <= memory.limit for item in found.buckets)
    last_failure = max(place for place, probe in enumerate(found.probes) if not probe.fits)
    after = {(item.batch_size, item.longest) for item in found.probes[last_failure + 1 :]}
    assert {(item.batch_size, item.longest) for item in found.buckets} <= after
    whole = search(FakeMemory(20_000_000, need))
    assert found.max_tokens < whole.max_tokens


def test_the_search_starts_with_one_short_sample_and_doubles():
    # Nothing large is tried before something half as large has run.
    memory = FakeMemory(20_000_000, need)
    search(memory)
    assert memory.tried[0] == (1, LONGEST[0])
    tokens = 0
    for size, longest in memory.tried:
        assert size * longest <= max(2 * tokens, longest)
        if need(size, longest) <= memory.limit:
            tokens = max(tokens, size * longest)


def test_the_number_of_probes_is_bounded():
    # By doubling and halving: under 2 log2(size) for the first bucket, under 8 for each further,
    # two for the last runs of each. One that is too small is an error, after so many steps.
    memory = FakeMemory(60_000_000, need)
    found = search(memory)
    assert len(found.probes) <= 2 * np.log2(2_400) + 3 * 8 + 2 * 4
    memory = FakeMemory(60_000_000, need)
    with pytest.raises(TrainingError, match="9 probes did not suffice"):
        search(memory, max_probes=9)
    assert len(memory.tried) == 9


def test_a_memory_fit_keeps_the_search_below_the_limit():
    # With the true formula and the limit known, nothing runs out of memory at all, and the sizes
    # are the predicted ones less the margin.
    fit = MemoryFit(
        fixed_bytes=FIXED,
        bytes_per_token=PER_TOKEN,
        bytes_per_token_squared=PER_SQUARE,
        margin=0.05,
        relative_slack=0.0,
    )
    memory = FakeMemory(20_000_000, need)
    found = search(memory, memory=fit, limit_bytes=20_000_000)
    assert all(probe.fits for probe in found.probes)
    for item in found.buckets:
        assert item.fitted_batch_size == most_that_fit(item.longest, 20_000_000 / 1.05)
        assert item.limited


def test_where_memory_is_ample_the_search_ends_at_what_was_asked_for():
    # No failure, so no margin: the sizes are those of the bounds themselves.
    memory = FakeMemory(10**12, need)
    found = search(memory, most_tokens=20_000, max_batch_size=50)
    assert [item.batch_size for item in found.buckets] == [50, 28, 13, 6]
    assert not any(item.limited for item in found.buckets)
    assert found.max_tokens == 6 * 3_000  # the least of the buckets that max_batch_size leaves free


def test_a_sample_that_does_not_fit_is_an_error_that_says_so():
    # 1 MB for the weights, 0.48 MB for one sample of 3,000 tokens.
    with pytest.raises(TrainingError, match="even one sample of 3,000 tokens"):
        search(FakeMemory(1_400_000, need))


def test_other_errors_are_not_swallowed():
    # An illegal access leaves a device in an unknown state; the search must end at once.
    def step(batch_size, longest):
        def run():
            raise RuntimeError("CUDA error: an illegal memory access was encountered")

        return run

    with pytest.raises(RuntimeError, match="illegal memory access"):
        largest_budget(step, [10], stopwatch=FakeMemory(1, need), most_tokens=100)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory."), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), True),
        (RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling"), True),
        (RuntimeError("shape mismatch"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_out_of_memory_is_told_from_other_errors(error, expected):
    # The texts are PyTorch's; a ValueError is never one of an allocator.
    assert is_out_of_memory(error) is expected


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"margin": 1.0}, "margin"),
        ({"most_tokens": 100}, "must hold one sample"),
        ({"longest": ()}, "must hold one sample"),
        ({"limit_bytes": 5}, "belong together"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_a_step_runs(settings, words):
    memory = FakeMemory(10**9, need)  # a step would be noted there
    with pytest.raises(ConfigError, match=words):
        search(memory, **settings)
    assert memory.tried == []


REAL_LIMIT = """
import resource
from lengthwise.calibrate import CpuStopwatch, largest_budget

pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 256_000_000
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

def step(batch_size, longest):
    return lambda: bytearray(batch_size * longest * 1_000)

found = largest_budget(step, [100, 1_000], stopwatch=CpuStopwatch(), most_tokens=10**7)
print(found.max_tokens)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc and sets RLIMIT_AS")
def test_a_real_limit_of_the_system_is_found():
    # 256 MB more than the process has, and a step of 1,000 bytes a token: nearly 256,000 tokens
    # fit; the search may stop a sixteenth below, and a tenth comes off. The process lives on.
    finished = subprocess.run(
        [sys.executable, "-c", REAL_LIMIT], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    assert 0.8 * 256_000 < int(finished.stdout) <= 0.9 * 256_000
