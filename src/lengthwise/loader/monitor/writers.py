"""Where a monitor's records go: JSON lines, TensorBoard, Weights & Biases, Trackio."""

from __future__ import annotations

import json
import math
import sys
from contextlib import redirect_stdout
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol

from lengthwise.errors import MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from os import PathLike

SECTIONS: Mapping[str, str] = MappingProxyType({"": "lengthwise/"})
"""Beginnings of names, and what stands instead of them on a chart: a section ends with a slash, and
tracking services show its charts together."""


class Writer(Protocol):
    """Takes records: flat mappings of names to numbers, with ``step`` among them, in order."""

    def write(self, record: Mapping[str, Any]) -> None:
        """Take one step's record; names whose value is None are not known at this step."""

    def close(self) -> None:
        """No record follows."""


class JsonlWriter:
    """One JSON object a line; needs nothing installed.

    Numbers that JSON has no word for (NaN, infinity) are written as null.

    Args:
        path: the file; its folders are made. A file that is there is continued.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        """Open the file."""
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self.path.open("a", encoding="utf-8")

    def write(self, record: Mapping[str, Any]) -> None:
        """Write one line, and pass it to the system, so that a killed run keeps it."""
        plain = {name: _plain(value) for name, value in record.items()}
        self._file.write(json.dumps(plain, allow_nan=False) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


class TensorBoardWriter:
    """Scalars under ``lengthwise/`` in TensorBoard.

    Args:
        log_dir: folder of the event files.
        writer: or a ``SummaryWriter`` that the run has already; it stays open.
        sections: of the charts, by the beginnings of their names; the longest counts.
    """

    def __init__(
        self,
        log_dir: str | PathLike[str] | None = None,
        *,
        writer: Any = None,
        sections: Mapping[str, str] = SECTIONS,
    ) -> None:
        """Open event files, unless a writer is given."""
        self._sections = sections
        self._own = writer is None
        if writer is None:
            module = _optional("torch.utils.tensorboard", "tensorboard")
            writer = module.SummaryWriter(log_dir=None if log_dir is None else str(log_dir))
        self._writer = writer

    def write(self, record: Mapping[str, Any]) -> None:
        """Add each number as a scalar."""
        for name, value in _charted(record, self._sections).items():
            self._writer.add_scalar(name, value, record["step"])

    def close(self) -> None:
        """Flush; close the event files if they are ours."""
        self._writer.flush()
        if self._own:
            self._writer.close()


class WandbWriter:
    """Charts under ``lengthwise/`` in Weights & Biases, over their own step.

    Their own, because records come in bursts and W&B takes no step twice.

    Args:
        run: a run that is open already; it stays open. Default: begin one.
        sections: of the charts, by the beginnings of their names; the longest counts.
        **options: for ``wandb.init``.
    """

    def __init__(
        self, run: Any = None, *, sections: Mapping[str, str] = SECTIONS, **options: Any
    ) -> None:
        """Begin a run, unless one is given."""
        self._sections = sections
        self._step = sections[""] + "step"
        self._own = run is None
        self._run = _optional("wandb", "wandb").init(**options) if run is None else run
        self._run.define_metric(self._step)
        for section in sorted({chart.partition("/")[0] for chart in sections.values()}):
            self._run.define_metric(f"{section}/*", step_metric=self._step)

    def write(self, record: Mapping[str, Any]) -> None:
        """Log each number."""
        self._run.log({**_charted(record, self._sections), self._step: record["step"]})

    def close(self) -> None:
        """Finish the run if it is ours."""
        if self._own:
            self._run.finish()


class TrackioWriter:
    """Charts under ``lengthwise/`` in Trackio.

    Args:
        project: the project's name; None where the run called ``trackio.init`` already, and will
            call ``trackio.finish``.
        sections: of the charts, by the beginnings of their names; the longest counts.
        **options: for ``trackio.init``.
    """

    def __init__(
        self,
        project: str | None = None,
        *,
        sections: Mapping[str, str] = SECTIONS,
        **options: Any,
    ) -> None:
        """Begin a run, if a project is named."""
        self._sections = sections
        self._trackio = _optional("trackio", "trackio")
        self._own = project is not None
        if project is not None:
            with redirect_stdout(sys.stderr):  # it greets; a command's output is its own
                self._trackio.init(project=project, **options)

    def write(self, record: Mapping[str, Any]) -> None:
        """Log each number."""
        self._trackio.log(_charted(record, self._sections), step=record["step"])

    def close(self) -> None:
        """Finish the run if it is ours."""
        if self._own:
            with redirect_stdout(sys.stderr):
                self._trackio.finish()


def _charted(record: Mapping[str, Any], sections: Mapping[str, str]) -> dict[str, float]:
    """The known numbers apart from the step, by chart; words are for the JSON lines alone."""
    found = {}
    for name, value in record.items():
        if name != "step" and isinstance(value, (int, float)):
            begin = max((one for one in sections if name.startswith(one)), key=len)
            found[sections[begin] + name[len(begin) :]] = value
    return found


def _optional(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingDependencyError(
            f"this writer needs {package}: pip install 'lengthwise[{package}]'"
        ) from error
