"""A batching config as a TOML file."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from lengthwise.core.config import BatchingConfig
from lengthwise.core.file_format import BATCHING
from lengthwise.errors import ConfigError, DataError


def read_config(path: str | Path) -> BatchingConfig:
    """Read a config written by :func:`write_config`, ``lengthwise optimize`` or by hand.

    Raises:
        ConfigError: not TOML, an unknown key, or a value that cannot work; names the file.
    """
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not a TOML file: {error}") from None
    try:
        BATCHING.check(values, path)
    except DataError as error:
        raise ConfigError(str(error)) from None
    fields = {name: value for name, value in values.items() if name not in BATCHING.stamp()}
    try:
        return BatchingConfig.from_dict(fields)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def write_config(config: BatchingConfig | dict[str, Any], path: str | Path) -> None:
    """Write format, version and every field that is set, tables last."""
    import tomli_w

    values = config if isinstance(config, dict) else config.to_dict()
    Path(path).write_text(tomli_w.dumps({**BATCHING.stamp(), **values}), encoding="utf-8")
