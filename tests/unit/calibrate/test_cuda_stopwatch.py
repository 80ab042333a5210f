"""The CUDA stopwatch against an imitated ``torch.cuda`` that notes the order of calls.

No GPU is needed; what is checked is that nothing but the step stands between the two events, that
the device is idle before and waited for after, and where the peak comes from.
"""

from types import SimpleNamespace

import pytest

from lengthwise.calibrate import CudaStopwatch, device_bytes
from lengthwise.calibrate import stopwatch as module


@pytest.fixture
def calls(monkeypatch):
    noted = []

    class Event:
        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self):
            noted.append("record")

        def synchronize(self):
            noted.append("wait")

        def elapsed_time(self, _end):
            return 250.0

    class Device:
        def __init__(self, _name):
            pass

        def __enter__(self):
            noted.append("enter")

        def __exit__(self, *_error):
            noted.append("leave")

    def note(name, value=None):
        return lambda *_device: noted.append(name) or value

    cuda = SimpleNamespace(
        Event=Event,
        device=Device,
        reset_peak_memory_stats=note("reset"),
        synchronize=note("synchronize"),
        max_memory_allocated=note("peak", 12_345),
        empty_cache=note("empty"),
        get_device_properties=lambda _device: SimpleNamespace(total_memory=80 * 2**30),
    )
    monkeypatch.setattr(module, "_torch", lambda: SimpleNamespace(cuda=cuda))
    return noted


def test_only_the_step_stands_between_the_two_events(calls):
    # 250 ms by the events' clock; the peak is reset before and read after.
    seconds, peak = CudaStopwatch("cuda:1").measure(lambda: calls.append("step"))
    assert (seconds, peak) == (0.25, 12_345)
    assert calls == [
        "enter", "reset", "synchronize", "record", "step", "record", "wait", "peak", "leave",
    ]  # fmt: skip


def test_releasing_empties_the_allocators_cache(calls):
    # After a failure the free blocks go back, so that the next step finds them whole.
    CudaStopwatch().release()
    assert calls == ["empty"]


@pytest.mark.usefixtures("calls")
def test_the_memory_of_a_device_is_all_it_has():
    # What the driver says of it, not what is free at the moment.
    assert device_bytes("cuda:0") == 80 * 2**30
