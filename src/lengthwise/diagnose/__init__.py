"""Why a run was as fast as it was, and why its loss jumps: from what it wrote down.

Order of reading: ``records`` (what comes in), ``account`` and ``split`` (where the time went),
``prediction`` and ``comparison`` (what was promised, and the difference by cause), ``phases`` (the
bottleneck by time), ``loss`` and ``spikes``, ``plan`` (what was in a step), ``advice``,
``diagnosis`` (all together).
"""

from lengthwise.diagnose.account import Account, Device, account_of
from lengthwise.diagnose.advice import Advice
from lengthwise.diagnose.causes import CAUSES, Cause
from lengthwise.diagnose.comparison import Comparison, compare
from lengthwise.diagnose.diagnosis import Diagnosis, diagnose
from lengthwise.diagnose.loss import Jumpiness, LossSeries, jumpiness
from lengthwise.diagnose.phases import Phase
from lengthwise.diagnose.prediction import Promise, read_promise
from lengthwise.diagnose.records import RunRecords, read_records
from lengthwise.diagnose.spikes import Spike, find_spikes
from lengthwise.diagnose.split import split_time

__all__ = [
    "CAUSES",
    "Account",
    "Advice",
    "Cause",
    "Comparison",
    "Device",
    "Diagnosis",
    "Jumpiness",
    "LossSeries",
    "Phase",
    "Promise",
    "RunRecords",
    "Spike",
    "account_of",
    "compare",
    "diagnose",
    "find_spikes",
    "jumpiness",
    "read_promise",
    "read_records",
    "split_time",
]
