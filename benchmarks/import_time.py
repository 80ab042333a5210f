"""How long starting takes: medians over new processes, beside a bare interpreter and NumPy.

python benchmarks/import_time.py
"""

from __future__ import annotations

import platform
import statistics
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

RUNS = 9
PROGRAM = str(Path(sysconfig.get_path("scripts")) / "lengthwise")
COMMANDS = {
    "bare interpreter": [sys.executable, "-c", "pass"],
    "import numpy": [sys.executable, "-c", "import numpy"],
    "import lengthwise": [sys.executable, "-c", "import lengthwise"],
    "lengthwise --help": [PROGRAM, "--help"],
}


def median_seconds(command: list[str]) -> float:
    """Median wall time of a new process, after one run that warms the file cache."""
    times = []
    for _ in range(RUNS + 1):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - started)
    return statistics.median(times[1:])


def measure(_quick: bool = False) -> dict[str, float]:
    """Seconds of each command, by its name."""
    found = {name: median_seconds(command) for name, command in COMMANDS.items()}
    for name, seconds in found.items():
        print(f"{name:18} {seconds:.3f} s")
    return found


def main() -> None:
    machine = f"{platform.machine()}, Python {platform.python_version()}, {RUNS} runs"
    print(f"{machine}, medians of new processes")
    measure()


if __name__ == "__main__":
    main()
