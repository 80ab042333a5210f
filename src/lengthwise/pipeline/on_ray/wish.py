"""How many target workers the user wants, while a run goes on: a file in its directory."""

from __future__ import annotations

import json
import time
from pathlib import Path

from lengthwise.dflash.training.run_files import TARGETS_FILE

LOOK_SECONDS = 1.0


class Wish:
    """Looks into the file about once a second.

    Args:
        output_dir: the run's.
        num_targets: that there are.
    """

    def __init__(self, output_dir: str, num_targets: int) -> None:
        """What was wanted of an earlier run does not count."""
        self._file = Path(output_dir) / TARGETS_FILE
        self._file.unlink(missing_ok=True)
        self._wanted = num_targets
        self._due = 0.0

    def news(self) -> int | None:
        """The number, where it is another than before; None otherwise."""
        now = time.monotonic()
        if now < self._due:
            return None
        self._due = now + LOOK_SECONDS
        wanted = read_wish(self._file)
        if wanted is None or wanted == self._wanted:
            return None
        self._wanted = wanted
        return wanted


def write_wish(run_dir: str | Path, num_targets: int) -> None:
    """Ask the run that writes to ``run_dir`` for so many target workers; at least one."""
    file = Path(run_dir) / TARGETS_FILE
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps({"targets": num_targets}) + "\n", encoding="utf-8")
    partial.replace(file)


def read_wish(file: Path) -> int | None:
    """The number in a file; None where there is none, or none of use."""
    try:
        wanted = json.loads(file.read_text(encoding="utf-8"))["targets"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return wanted if isinstance(wanted, int) and wanted >= 1 else None
