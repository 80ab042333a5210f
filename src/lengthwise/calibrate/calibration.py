"""A calibration: what was measured and fitted, on which machine; and its file."""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise._version import __version__
from lengthwise.calibrate.cost_fit import CostFit
from lengthwise.calibrate.measurement import Measurement
from lengthwise.calibrate.memory import MemoryFit
from lengthwise.errors import ConfigError, DataError

if TYPE_CHECKING:
    from lengthwise.core.cost import StepTime, TableTime

FORMAT = "lengthwise calibration"
VERSION = 1
WHAT = ("forward", "forward_backward")
_VERSIONED = ("numpy", "torch", "transformers")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """What steps of one model cost on one machine.

    Attributes:
        fit: seconds of a step.
        memory: peak bytes of a step; ``None`` where they were not counted.
        measurements: in the order in which they were made.
        what: "forward" or "forward_backward".
        device: as in PyTorch, such as "cuda:0".
        dtype: of the computation, such as "bfloat16".
        machine: processor or accelerator, in words.
        versions: package -> version, of those in use.
    """

    fit: CostFit
    memory: MemoryFit | None
    measurements: tuple[Measurement, ...]
    what: str
    device: str
    dtype: str
    machine: str
    versions: dict[str, str]

    def __post_init__(self) -> None:
        """Refuse an unknown kind of step."""
        if self.what not in WHAT:
            raise ConfigError(f"what must be one of {', '.join(WHAT)}, got {self.what!r}")

    @property
    def cost(self) -> StepTime | TableTime:
        """The fitted cost, to optimise boundaries for: ``objective=calibration.cost``."""
        return self.fit.cost

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in the file."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "what": self.what,
            "device": self.device,
            "dtype": self.dtype,
            "machine": self.machine,
            "versions": dict(self.versions),
            "fit": self.fit.to_dict(),
            "memory": None if self.memory is None else asdict(self.memory),
            "measurements": [
                [item.batch_size, item.longest, item.seconds, item.peak_bytes]
                for item in self.measurements
            ],
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Calibration:
        """The inverse of :meth:`to_dict`.

        Raises:
            DataError: another format or version, or a value that is missing or wrong.
        """
        if not isinstance(values, dict) or values.get("format") != FORMAT:
            raise DataError("no calibration; `lengthwise calibrate --output` writes one")
        if values.get("version") != VERSION:
            raise DataError(
                f"a calibration of version {values.get('version')}, and this release reads "
                f"version {VERSION}; calibrate again, or use the release that wrote it"
            )
        memory = values.get("memory")
        try:
            return cls(
                fit=CostFit.from_dict(values["fit"]),
                memory=None if memory is None else MemoryFit(**memory),
                measurements=tuple(Measurement(*item) for item in values["measurements"]),
                versions={str(k): str(v) for k, v in values["versions"].items()},
                **{name: values[name] for name in ("what", "device", "dtype", "machine")},
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DataError(
                f"a damaged calibration ({type(error).__name__}: {error}); calibrate again"
            ) from None


def write_calibration(calibration: Calibration, path: str | Path) -> None:
    """Write a calibration as JSON, or leave the file as it was where that fails."""
    text = json.dumps(calibration.to_dict(), indent=1, allow_nan=False) + "\n"
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.write_text(text, encoding="utf-8")
    part.replace(path)


def read_calibration(path: str | Path) -> Calibration:
    """Read what :func:`write_calibration` wrote.

    Raises:
        DataError: no calibration, one of another version, or a damaged one; names the file.
    """
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{path} is not a JSON file, so it holds no calibration: {error}") from None
    try:
        return Calibration.from_dict(values)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def machine_of(device: str) -> str:
    """The accelerator or processor, in words."""
    if device.startswith("cuda"):
        import torch

        found = torch.cuda.get_device_properties(device)
        return f"{found.name}, {found.total_memory / 2**30:.0f} GiB"
    return f"{processor()}, {os.cpu_count()} cores"


def versions_in_use() -> dict[str, str]:
    """Versions of what may change the cost of a step, as far as it is loaded."""
    found = {"lengthwise": __version__, "python": platform.python_version()}
    for name in _VERSIONED:
        if name in sys.modules:
            found[name] = str(sys.modules[name].__version__)
    if "torch" in sys.modules and sys.modules["torch"].version.cuda:
        found["cuda"] = str(sys.modules["torch"].version.cuda)
    return found


def processor() -> str:
    """The processor's model, as the system names it."""
    listed = Path("/proc/cpuinfo")
    if listed.is_file():
        for line in listed.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
