"""Measure steps of your own model, fit what they cost, and find the largest safe budget.

Nothing here knows what a step does, so it serves any training on samples of varying length.
"""

from lengthwise.calibrate.budget import BucketBudget, Budget, Probe, largest_budget
from lengthwise.calibrate.calibration import Calibration, read_calibration, write_calibration
from lengthwise.calibrate.cost_fit import CostFit
from lengthwise.calibrate.fit import fit_cost
from lengthwise.calibrate.measure import calibrate, measure_shapes
from lengthwise.calibrate.measurement import Measurement, Shape
from lengthwise.calibrate.memory import MemoryFit, fit_memory
from lengthwise.calibrate.shapes import choose_shapes
from lengthwise.calibrate.steps import from_config, from_module
from lengthwise.calibrate.stopwatch import (
    CpuStopwatch,
    CudaStopwatch,
    Stopwatch,
    device_bytes,
    stopwatch_for,
)

__all__ = [
    "BucketBudget",
    "Budget",
    "Calibration",
    "CostFit",
    "CpuStopwatch",
    "CudaStopwatch",
    "Measurement",
    "MemoryFit",
    "Probe",
    "Shape",
    "Stopwatch",
    "calibrate",
    "choose_shapes",
    "device_bytes",
    "fit_cost",
    "fit_memory",
    "from_config",
    "from_module",
    "largest_budget",
    "measure_shapes",
    "read_calibration",
    "stopwatch_for",
    "write_calibration",
]
