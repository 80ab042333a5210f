"""Measure steps of your own model; fit what they take; find the largest safe budget."""

from lengthwise.calibrate.cost_fit import CostFit
from lengthwise.calibrate.fit import fit_cost
from lengthwise.calibrate.measurement import Measurement, Shape

__all__ = ["CostFit", "Measurement", "Shape", "fit_cost"]
