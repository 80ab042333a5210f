"""Runs commands of the installed ``lengthwise``, and prints each line first, as in a shell."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import sysconfig


def run(arguments: list[str], output: int | None = None) -> str:
    """Run one ``lengthwise`` command of this environment; stop the job if it fails.

    Args:
        arguments: of the command.
        output: ``subprocess.PIPE`` to take what it prints on standard output; None leaves it there.

    Returns:
        What was taken.
    """
    program = shutil.which("lengthwise", path=sysconfig.get_path("scripts"))
    if program is None:
        sys.exit("lengthwise is not installed in this environment; `make run` installs it")
    print(f"\n$ {shlex.join(['lengthwise', *arguments])}", flush=True)
    finished = subprocess.run([program, *arguments], check=False, stdout=output, text=True)
    if finished.returncode:
        sys.exit(finished.returncode)
    return finished.stdout or ""
