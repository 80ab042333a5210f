"""Configs as TOML files: everything comes back, and mistakes name the file."""

import tomllib

import pytest
from hypothesis import HealthCheck, given, settings

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.errors import ConfigError
from lengthwise.files.config_file import read_config, write_config
from support.configs import cases


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(case=cases())
def test_every_config_comes_back_from_its_file(case, tmp_path):
    """Seeds of 64 bits, nested limits, boundaries, unset fields: the file is written anew."""
    path = tmp_path / "batching.toml"
    write_config(case.config, path)
    assert read_config(path) == case.config


def test_the_file_is_toml_as_a_person_would_write_it(tmp_path):
    """One table of limits, plain values, nothing that is not set."""
    path = tmp_path / "batching.toml"
    write_config(BatchingConfig(limits=BatchLimits(512, 8), boundaries=(0, 64, 513), seed=7), path)
    values = tomllib.loads(path.read_text())
    assert values["boundaries"] == [0, 64, 513]
    assert values["limits"]["max_tokens"] == 512
    assert values["seed"] == 7
    assert "num_buckets" not in values


def test_a_few_lines_by_hand_are_enough(tmp_path):
    """Defaults are resolved as in Python; a string path works, and other tools' dicts too."""
    path = tmp_path / "by_hand.toml"
    path.write_text('oversize = "drop"\n[limits]\nmax_tokens = 4096\n')
    expected = BatchingConfig(limits=BatchLimits(4096), oversize="drop")
    assert read_config(str(path)) == expected
    write_config({"oversize": "drop", "limits": {"max_tokens": 4096}}, str(path))
    assert read_config(path) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("limits = [", r"mistake\.toml is not a TOML file: "),
        (b"\xff\xfe\x00", r"mistake\.toml is not a TOML file: "),
        ("", r"mistake\.toml: a batching config needs a \[limits\] table"),
        ("[limits]\nmax_token = 5\n", r"mistake\.toml: unknown setting limits\.max_token; known: "),
        ("buckets = 6\n[limits]\nmax_tokens = 5\n", r"mistake\.toml: unknown setting buckets"),
        ("[limits]\nmax_tokens = 0\n", r"mistake\.toml: max_tokens must be from 1 to .*, got 0"),
        ("boundaries = 7\n[limits]\nmax_tokens = 5\n", r"boundaries must be a list of integers"),
        ("seed = 1.5\n[limits]\nmax_tokens = 5\n", r"seed must be an integer, got 1.5"),
    ],
)
def test_a_mistake_names_the_file_and_the_setting(text, message, tmp_path):
    """One clear line, whichever layer found it."""
    path = tmp_path / "mistake.toml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConfigError, match=message):
        read_config(path)


def test_a_missing_file_is_reported_as_such(tmp_path):
    """The command line turns it into one line; Python callers expect the usual exception."""
    with pytest.raises(FileNotFoundError):
        read_config(tmp_path / "nothing.toml")
