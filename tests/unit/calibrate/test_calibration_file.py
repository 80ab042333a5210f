"""The file of a calibration: everything comes back, and what is none is refused."""

import json

import numpy as np
import pytest

from lengthwise.calibrate import calibrate, read_calibration, write_calibration
from lengthwise.core.cost import StepTime, TableTime
from lengthwise.errors import ConfigError, DataError
from support.calibrations import SHAPES, FakeWatch, generator, seconds_of

TRUTH = (0.01, 1e-5, 2e-9)


def calibrated(kinked=False):
    draw = generator()

    def seconds(n, m):
        tokens = max(n * m, 4_096) if kinked else n * m
        return seconds_of(TRUTH, tokens, 1) * (1 + 0.01 * draw.standard_normal())

    clock = FakeWatch(seconds, peak=lambda n, m: 10**9 + 50_000 * n * m)
    shapes = SHAPES
    if kinked:
        shapes = {(max(16_384 // k // m, 1), m) for m in (128, 512, 2048) for k in range(1, 9)}
    return calibrate(clock.step, sorted(shapes), stopwatch=clock)


@pytest.mark.parametrize(("kinked", "kind"), [(False, StepTime), (True, TableTime)])
def test_what_is_written_comes_back(kinked, kind, tmp_path):
    # Everything that was kept, and what is computed from it: JSON keeps every bit of a float.
    made = calibrated(kinked)
    assert isinstance(made.cost, kind)
    path = tmp_path / "new" / "cost.json"
    write_calibration(made, path)
    read = read_calibration(path)
    assert read.to_dict() == made.to_dict()
    assert read.measurements == made.measurements
    assert read.memory == made.memory
    assert read.cost == made.cost
    size, longest = np.array([(3, 500), (9, 1000)]).T
    assert read.fit.interval(size, longest) == made.fit.interval(size, longest)
    assert [item.name for item in path.parent.iterdir()] == ["cost.json"]


def test_the_file_says_what_it_is_and_where_it_was_measured(tmp_path):
    # The keys that other programs may rely on.
    write_calibration(calibrated(), tmp_path / "cost.json")
    values = json.loads((tmp_path / "cost.json").read_text(encoding="utf-8"))
    assert values["format"] == "lengthwise calibration"
    assert values["version"] == 1
    assert set(values) == {
        "format", "version", "what", "device", "dtype", "machine", "versions", "fit", "memory",
        "measurements",
    }  # fmt: skip
    assert values["fit"]["cost"]["kind"] == "formula"
    assert len(values["measurements"]) == 12 * 4


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    # A full disk is imitated where the text is written; the old calibration must survive.
    path = tmp_path / "cost.json"
    write_calibration(calibrated(), path)
    before = path.read_bytes()

    def full(*_args, **_more):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path), "write_text", full)
    with pytest.raises(OSError, match="No space left"):
        write_calibration(calibrated(), path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"format": "lengthwise prediction"}, "no calibration"),
        ({"version": 2}, "version 2, and this release reads version 1; calibrate again"),
        ({"version": None}, "version None"),
        ({"fit": {}}, "damaged calibration"),
        ({"what": "backward"}, "damaged calibration"),
        ({"measurements": [[1, 2, -3.0, None]]}, "damaged calibration"),
        ({"memory": {"fixed_bytes": 1}}, "damaged calibration"),
    ],
)
def test_files_that_are_no_calibration_are_refused(change, words, tmp_path):
    # One thing is changed in a good file; the message names the file and the way out.
    path = tmp_path / "cost.json"
    path.write_text(json.dumps({**calibrated().to_dict(), **change}), encoding="utf-8")
    with pytest.raises(DataError, match=words) as refused:
        read_calibration(path)
    assert str(path) in str(refused.value)


@pytest.mark.parametrize("text", ["", "[1, 2]", "not JSON", '"text"'])
def test_files_of_other_content_are_refused(text, tmp_path):
    # Not JSON, or JSON that is no object.
    (tmp_path / "cost.json").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match="calibration"):
        read_calibration(tmp_path / "cost.json")


def test_an_unknown_kind_of_step_is_refused():
    # Predictions add up forward and backward steps apart, so the word must be one of the two.
    clock = FakeWatch(lambda n, m: seconds_of(TRUTH, n, m))
    with pytest.raises(ConfigError, match="what must be one of forward, forward_backward"):
        calibrate(clock.step, SHAPES, stopwatch=clock, what="training")
