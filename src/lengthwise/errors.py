"""Everything that lengthwise raises on purpose.

    LengthwiseError
    ├── ConfigError (ValueError)          a setting that cannot work
    ├── DataError (ValueError)            something in the data; names file and row
    │   ├── BadLengthError                null, negative, fractional, NaN, zero, malformed
    │   ├── ColumnError                   no column of lengths, or more than one candidate
    │   └── OversizeError                 a sample that fits no batch
    ├── MissingDependencyError (RuntimeError)   an extra that is not installed
    ├── PlanError (RuntimeError)          a plan that cannot be made
    │   └── PlanMismatchError             a state or file that belongs to another plan
    ├── ClusterError (RuntimeError)       Ray cannot be joined, or lost what it ran
    ├── ModelError (ValueError)           a model that does not have what is needed of it
    └── TrainingError (RuntimeError)      a training run that cannot go on
        └── CheckpointError               a checkpoint that is damaged or belongs to another run
            └── CheckpointWriteError      one that cannot be written
    LengthwiseWarning (UserWarning)       it works, but probably not as meant

A message names the rule, the value, where it stands and the way out. The command line prints
it without a traceback and exits with 2; with 1 where a run failed that was asked for rightly
(:func:`is_failed_run`).
"""

from __future__ import annotations


class LengthwiseError(Exception):
    """Root of the tree; catch this to catch all of lengthwise's own errors."""


class ConfigError(LengthwiseError, ValueError):
    """A setting, or a combination of settings, that cannot work."""


class DataError(LengthwiseError, ValueError):
    """The data breaks a rule; the message names where."""


class BadLengthError(DataError):
    """A row whose length is null, negative, fractional, NaN, zero or unreadable."""


class ColumnError(DataError):
    """The column that holds the lengths is missing or ambiguous."""


class OversizeError(DataError):
    """A sample is longer than the token budget, and the policy is to stop."""


class MissingDependencyError(LengthwiseError, RuntimeError):
    """An optional package is needed; the message gives the install command."""


class PlanError(LengthwiseError, RuntimeError):
    """A plan cannot be made from these lengths and settings."""


class PlanMismatchError(PlanError):
    """A saved state or plan belongs to other data, settings, version or replica count."""


class ClusterError(LengthwiseError, RuntimeError):
    """Ray cannot be started or joined, or work on it was lost too often."""


class ModelError(LengthwiseError, ValueError):
    """A model lacks what is needed of it, or two models do not belong together."""


class TrainingError(LengthwiseError, RuntimeError):
    """A training run cannot go on; the message names the cause."""


class CheckpointError(TrainingError):
    """A checkpoint is damaged, incomplete, or belongs to another run."""


class CheckpointWriteError(CheckpointError):
    """A checkpoint cannot be written, as when the disk is full."""


def is_failed_run(error: LengthwiseError) -> bool:
    """Whether work that was asked for rightly has failed: not wrong use, not bad input."""
    if isinstance(error, CheckpointError):
        return isinstance(error, CheckpointWriteError)
    return isinstance(error, (TrainingError, ClusterError))


class LengthwiseWarning(UserWarning):
    """Something works but is probably not what was meant."""
