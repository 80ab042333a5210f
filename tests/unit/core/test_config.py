"""Batching configs: what cannot work is refused, what is left out is resolved, nothing is lost."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.config import DEFAULT_WINDOW, BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.errors import ConfigError
from support.configs import cases

LIMITS = BatchLimits(4096, 16)


def config(**fields):
    return BatchingConfig(limits=LIMITS, **fields)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"strategy": "fastest"}, r"strategy must be one of pooled, windowed.*; got 'fastest'"),
        ({"strategy": 3}, r"strategy must be one of .*; got 3"),
        ({"batch_sizing": "auto"}, r"batch_sizing must be one of greedy, fixed; got 'auto'"),
        ({"order": "random"}, r"order must be one of shuffled, stratified, balanced; got 'random'"),
        ({"balance": "yes"}, r"balance must be one of .*; got 'yes'"),
        ({"oversize": "skip"}, r"oversize must be one of error, drop, truncate, single; got"),
        ({"boundaries": (0, 10), "num_buckets": 2}, r"either boundaries or num_buckets, not both"),
        ({"boundaries": (10,)}, r"at least two strictly rising integers, got \[10\]"),
        ({"boundaries": ()}, r"at least two strictly rising integers, got \[\]"),
        ({"boundaries": (0, 10, 10)}, r"strictly rising integers, got \[0, 10, 10\]"),
        ({"boundaries": (10, 0)}, r"strictly rising integers, got \[10, 0\]"),
        ({"boundaries": (-1, 5)}, r"boundaries must be from 0 to .*, got -1"),
        ({"boundaries": (0, 5.5)}, r"boundaries must be an integer, got 5.5"),
        ({"boundaries": 512}, r"boundaries must be a list of integers, got 512"),
        ({"boundaries": "0,512"}, r"boundaries must be an integer, got '0'"),
        ({"num_buckets": 0}, r"num_buckets must be from 1 to .*, got 0"),
        ({"num_buckets": 2.5}, r"num_buckets must be an integer, got 2.5"),
        ({"window_size": 64}, r"window_size belongs to strategy='windowed', not 'pooled'"),
        ({"strategy": "windowed", "window_size": 0}, r"window_size must be from 1 .*, got 0"),
        (
            {"num_buckets": 2, "target_efficiency": 0.9},
            r"target_efficiency belongs to strategy='pooled', not 'bucketed'",
        ),
        ({"target_efficiency": 0}, r"target_efficiency must be between 0 and 1, got 0"),
        ({"target_efficiency": 1.0}, r"target_efficiency must be between 0 and 1, got 1.0"),
        ({"target_efficiency": float("nan")}, r"must be between 0 and 1, got nan"),
        ({"target_efficiency": "98%"}, r"must be between 0 and 1, got '98%'"),
        ({"target_efficiency": True}, r"must be between 0 and 1, got True"),
        ({"strategy": "bucketed"}, r"needs boundaries=\[\.\.\.\] or num_buckets=K"),
        ({"batch_sizing": "fixed"}, r"needs boundaries=\[\.\.\.\] or num_buckets=K"),
        ({"strategy": "sorted", "num_buckets": 3}, r"strategy='sorted' uses no buckets"),
        ({"strategy": "pooled", "boundaries": (0, 9)}, r"strategy='pooled' uses no buckets"),
        ({"pad_to_boundary": True}, r"pad_to_boundary needs boundaries or num_buckets"),
        ({"pad_to_boundary": 1, "num_buckets": 2}, r"pad_to_boundary must be true or false, got 1"),
        ({"drop_last": None}, r"drop_last must be true or false, got None"),
        ({"balance": "bucket"}, r"balance='bucket' needs boundaries or num_buckets"),
        (
            {"strategy": "windowed", "batch_sizing": "fixed"},
            r"works with strategy 'bucketed' or 'random', not 'windowed'",
        ),
        (
            {"num_buckets": 2, "batch_sizing": "fixed", "order": "balanced"},
            r"batch_sizing='fixed' never has at hand; use order='stratified'",
        ),
        ({"accumulation_steps": 0}, r"accumulation_steps must be from 1 .*, got 0"),
        ({"accumulation_steps": None}, r"accumulation_steps must be an integer, got None"),
        ({"seed": 2**64}, r"seed must be from .* to 18,446,744,073,709,551,615"),
        ({"seed": -(2**63) - 1}, r"seed must be from -9,223,372,036,854,775,808"),
        ({"seed": "0"}, r"seed must be an integer, got '0'"),
    ],
)
def test_settings_that_cannot_work_are_refused_with_a_way_out(fields, message):
    """Each message names the setting, the value, and what to do instead where that is not plain."""
    with pytest.raises(ConfigError, match=message):
        config(**fields)


def test_limits_must_be_batch_limits():
    """A bare number of tokens is the likely slip."""
    with pytest.raises(ConfigError, match=r"limits must be a BatchLimits, got 4096"):
        BatchingConfig(limits=4096)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {"strategy": "pooled", "order": "balanced", "balance": "none"}),
        ({"num_buckets": 4}, {"strategy": "bucketed", "order": "balanced", "window_size": None}),
        ({"boundaries": [0, 9]}, {"strategy": "bucketed", "boundaries": (0, 9)}),
        ({"strategy": "windowed"}, {"window_size": DEFAULT_WINDOW, "boundaries": None}),
        ({"strategy": "windowed", "num_buckets": 2}, {"strategy": "windowed"}),
        ({"num_buckets": 2, "batch_sizing": "fixed"}, {"order": "stratified"}),
        ({"accumulation_steps": 7}, {"balance": "none"}),
        ({"accumulation_steps": 8}, {"balance": "cost"}),
        ({"accumulation_steps": 8, "balance": "none"}, {"balance": "none"}),
        ({"boundaries": np.array([0, 5, 9], np.int32)}, {"boundaries": (0, 5, 9)}),
    ],
    ids=str,
)
def test_what_is_left_out_follows_from_what_is_given(fields, expected):
    """The documented defaults; explicit choices are kept."""
    built = config(**fields)
    assert {name: getattr(built, name) for name in expected} == expected


def test_a_config_is_frozen_and_a_changed_copy_is_checked_again():
    """It cannot exist invalid, whichever way it comes about."""
    built = config(num_buckets=2)
    with pytest.raises(FrozenInstanceError):
        built.seed = 1
    with pytest.raises(ConfigError, match="num_buckets must be from 1"):
        replace(built, num_buckets=0)
    found = built.with_boundaries((0, 10, 20))
    assert (found.num_buckets, found.boundaries) == (None, (0, 10, 20))


@given(cases())
def test_plain_values_give_the_same_config_back(case):
    """Whatever the config: no field may be lost or resolved to something else on the way."""
    values = case.config.to_dict()
    assert BatchingConfig.from_dict(values) == case.config
    assert BatchingConfig.from_dict(values).to_dict() == values


def test_to_dict_holds_plain_values_and_leaves_out_what_is_not_set():
    """JSON and TOML know neither None (in TOML) nor tuples; limits are a table of their own."""
    values = BatchingConfig(limits=BatchLimits(100), boundaries=(0, 50)).to_dict()
    assert values["boundaries"] == [0, 50]
    assert values["limits"] == {
        "max_tokens": 100,
        "pad_to_multiple_of": 1,
        "batch_size_multiple_of": 1,
    }
    assert "num_buckets" not in values
    assert None not in values.values()


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({}, r"needs a \[limits\] table with max_tokens"),
        ({"limits": 4096}, r"needs a \[limits\] table with max_tokens"),
        ({"limits": {}}, r"limits.max_tokens is missing"),
        ({"limits": {"max_tokens": 9, "max_size": 3}}, r"unknown setting limits.max_size; known: "),
        ({"limits": {"max_tokens": 9}, "startegy": "sorted"}, r"unknown setting startegy; known: "),
        ({"limits": {"max_tokens": 9}, "boundaries": 5}, r"boundaries must be a list of integers"),
        ({"limits": {"max_tokens": 9}, "boundaries": [1, "a"]}, r"boundaries must be an integer"),
        ({"limits": {"max_tokens": "9"}}, r"max_tokens must be an integer, got '9'"),
    ],
)
def test_plain_values_that_are_no_config_are_refused(values, message):
    """A misspelt key must not be ignored: it would silently plan something else."""
    with pytest.raises(ConfigError, match=message):
        BatchingConfig.from_dict(values)


@given(st.integers(-(2**63), 2**64 - 1))
def test_every_seed_in_range_is_kept_exactly(seed):
    """Seeds come from clocks and hashes: 64 bits, signed or not."""
    assert BatchingConfig.from_dict(config(seed=seed).to_dict()).seed == seed
