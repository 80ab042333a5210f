"""A pipeline of targets and drafters on paper: throughput, bottleneck, and the best split."""

from lengthwise.simulate.band import Band, simulate_band
from lengthwise.simulate.bottleneck import Bottleneck, Load, find_bottleneck
from lengthwise.simulate.builders import workload_of_batches, workload_of_remix
from lengthwise.simulate.machines import Machines
from lengthwise.simulate.model import simulate
from lengthwise.simulate.simulation import Simulation
from lengthwise.simulate.split import BestSplit, OneMore, best_split, one_more
from lengthwise.simulate.workload import StepNeeds, Workload

__all__ = [
    "Band",
    "BestSplit",
    "Bottleneck",
    "Load",
    "Machines",
    "OneMore",
    "Simulation",
    "StepNeeds",
    "Workload",
    "best_split",
    "find_bottleneck",
    "one_more",
    "simulate",
    "simulate_band",
    "workload_of_batches",
    "workload_of_remix",
]
