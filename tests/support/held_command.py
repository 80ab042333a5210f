"""The command, whose training stands still at a given step until a test lets it go on.

What a test does to it then falls at that step, however quick or busy the machine is.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

TESTS = str(Path(__file__).parents[1])
CODE = "from support.held_command import main; main()"
BOUND_SECONDS = 900
"""It never stands still for ever, whatever becomes of the test."""


def start_held(arguments, step, gate, **options):
    """Begin the command; its training stands still when ``step`` is made, until ``gate`` exists.

    Args:
        arguments: of the command, without its name.
        step: optimiser steps, all in all; nothing happens where a run has other steps only.
        gate: a path.
        options: of ``subprocess.Popen``, besides the environment.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    searched = [TESTS, environment.get("PYTHONPATH")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, searched))
    command = [sys.executable, "-c", CODE, str(step), str(gate), *map(str, arguments)]
    return subprocess.Popen(command, env=environment, text=True, **options)


def main():
    """As the command, with a step and a gate before its arguments."""
    from lengthwise.cli.app import main as command
    from lengthwise.cli.dflash.train_view import TrainView

    step, gate = int(sys.argv.pop(1)), Path(sys.argv.pop(1))
    plain = TrainView.stepped

    def stepped(view, position, *rest):
        plain(view, position, *rest)
        if position.num_steps == step:
            stand_still(gate)

    TrainView.stepped = stepped
    command()


def stand_still(gate):
    """Until a file exists; signals are taken meanwhile."""
    until = time.monotonic() + BOUND_SECONDS
    while not gate.exists():
        assert time.monotonic() < until
        time.sleep(0.02)
