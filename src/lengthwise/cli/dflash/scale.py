"""``lengthwise dflash scale``: more or fewer target workers for a run on Ray that goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from lengthwise.cli.output import print_note
from lengthwise.dflash.training.run_files import CONFIG_FILE
from lengthwise.errors import ConfigError
from lengthwise.pipeline.on_ray.wish import write_wish

Run = Annotated[
    Path,
    typer.Argument(
        metavar="RUN_DIR", help="The output_dir of a run that goes on.", show_default=False
    ),
]
Targets = Annotated[
    int,
    typer.Option(
        "--targets", min=1, help="Target workers it is to have from now on.", show_default=False
    ),
]


def command(run_dir: Run, targets: Targets) -> None:
    """Change the number of target workers of a run on Ray, while it goes on.

    The run looks for this about once a second. Workers that come take part as soon as they have
    loaded the target; those that go finish their batches first. What is learnt does not change.
    """
    file = run_dir / CONFIG_FILE
    try:
        engine = json.loads(file.read_text(encoding="utf-8"))["pipeline"]["engine"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{run_dir} is no run of `lengthwise dflash train`: {CONFIG_FILE}: {error}"
        ) from error
    if engine != "ray":
        raise ConfigError(
            f"{run_dir}: its pipeline.engine is {engine}; only a run with pipeline.engine: ray can "
            f"change its targets while it goes on"
        )
    write_wish(run_dir, targets)
    print_note(f"{run_dir}: {targets:,} target workers wanted")
