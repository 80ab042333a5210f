"""The shell of the command line: exit codes, lazy imports, what goes to which stream."""

import errno
import json
import subprocess
import sys
import types
import warnings

import numpy as np
import pytest
from typer.testing import CliRunner

from lengthwise._version import __version__
from lengthwise.cli import app as shell
from lengthwise.cli import output
from lengthwise.errors import (
    CheckpointError,
    CheckpointWriteError,
    ConfigError,
    LengthwiseWarning,
    TrainingError,
)


def _run(code):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def command(monkeypatch):
    """Puts a function in the place of the scan command and runs it."""

    def run(function, *arguments):
        function.__doc__ = "Stands for a command.\n\nIt has a second paragraph\nof two lines."
        monkeypatch.setitem(
            sys.modules, "lengthwise.cli.scan", types.SimpleNamespace(command=function)
        )
        return CliRunner().invoke(shell.app, ["scan", *arguments])

    return run


def test_help_lists_every_command_and_imports_nothing_heavy():
    """Run in a fresh interpreter, since this one has imported everything."""
    code = (
        "import sys\n"
        "sys.argv = ['lengthwise', '--help']\n"
        "from lengthwise.cli.app import main\n"
        "try:\n"
        "    main()\n"
        "except SystemExit as stop:\n"
        "    print('exit', stop.code)\n"
        "heavy = {'numba', 'pyarrow', 'torch', 'datasets', 'tokenizers', 'lengthwise.cli.scan'}\n"
        "print('heavy', sorted(heavy & set(sys.modules)))\n"
    )
    done = _run(code)
    assert "exit 0" in done.stdout
    assert "heavy []" in done.stdout
    for name in shell.COMMANDS:
        assert name in done.stdout


def test_the_version_is_printed_and_nothing_else():
    result = CliRunner().invoke(shell.app, ["--version"])
    assert (result.exit_code, result.stdout) == (0, f"lengthwise {__version__}\n")


@pytest.mark.parametrize("arguments", [["scna"], ["scan", "--no-such-option"], ["scan"]])
def test_wrong_use_exits_with_2_and_prints_nothing_on_standard_output(arguments):
    result = CliRunner().invoke(shell.app, arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_a_misspelt_command_gets_a_suggestion():
    assert "scan" in CliRunner().invoke(shell.app, ["scann"]).stderr


def _raises(error):
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConfigError("this cannot work"), 2, "error: this cannot work\n"),
        # A run that was asked for rightly and failed; a checkpoint of another run is wrong use.
        (TrainingError("a worker died"), 1, "error: a worker died\n"),
        (CheckpointWriteError("disk full"), 1, "error: disk full\n"),
        (CheckpointError("of another run"), 2, "error: of another run\n"),
        (KeyboardInterrupt(), 130, "error: interrupted\n"),
        (
            FileNotFoundError(errno.ENOENT, "No such file", "a.npy"),
            2,
            "error: a.npy: No such file\n",
        ),
        (
            OSError(errno.ENOSPC, "No space left on device"),
            1,
            "error: file: No space left on device\n",
        ),
    ],
)
def test_an_error_is_one_line_and_a_code(command, error, code, message):
    result = command(_raises(error))
    assert (result.exit_code, result.stderr, result.stdout) == (code, message, "")


def test_a_bug_is_not_dressed_up_as_wrong_use(command):
    """Exit code 1 with its traceback: the report we want to get."""
    result = command(_raises(ZeroDivisionError()))
    assert result.exit_code == 1
    assert isinstance(result.exception, ZeroDivisionError)


def test_warnings_of_ours_are_one_line_on_standard_error(command):
    def warns():
        warnings.warn("this looks odd", LengthwiseWarning, stacklevel=1)

    result = command(warns)
    assert (result.exit_code, result.stderr) == (0, "warning: this looks odd\n")


def test_help_of_a_command_joins_the_lines_of_a_paragraph(command):
    shown = command(lambda: None, "--help").stdout
    assert "It has a second paragraph of two lines." in shown


def test_json_is_plain_whatever_was_put_in(capsys):
    output.print_json(
        {
            "array": np.array([1, 2]),
            "scalar": np.int64(3),
            "nan": float("nan"),
            "tuple": (np.float64("inf"), None, True),
            4: "é",
            "path": types.SimpleNamespace,
        }
    )
    printed = capsys.readouterr().out
    assert json.loads(printed) == {
        "array": [1, 2],
        "scalar": 3,
        "nan": None,
        "tuple": [None, None, True],
        "4": "é",
        "path": "<class 'types.SimpleNamespace'>",
    }
    assert printed.endswith("}\n")


def test_a_table_keeps_every_cell_when_it_goes_to_a_pipe(capsys):
    """A pipe has no width; 80 columns would cut cells, and square brackets are no markup."""
    output.print_table("T [x]", ("name", "n"), [("w" * 90, "1"), ("[bold]", "22")])
    printed = capsys.readouterr().out
    assert "w" * 90 in printed
    assert "[bold]" in printed
    assert "T [x]" in printed


class _Clock:
    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(output.time, "monotonic", lambda: self.now)


def test_progress_is_silent_for_two_seconds_and_then_one_line_every_ten(monkeypatch, capsys):
    clock = _Clock(monkeypatch)
    with output.progress("reading") as report:
        for second in range(25):
            clock.now = float(second)
            report(second, 24 if second < 20 else None, "rows")
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["reading: 2 of 24 rows", "reading: 12 of 24 rows", "reading: 22 rows"]


def test_quiet_shows_no_progress(monkeypatch, capsys):
    clock = _Clock(monkeypatch)
    with output.progress("reading", quiet=True) as report:
        clock.now = 100.0
        report(1, 2, "rows")
    assert capsys.readouterr().err == ""


def test_a_terminal_gets_a_bar(monkeypatch, capsys):
    clock = _Clock(monkeypatch)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    with output.progress("reading", quiet=False) as report:
        clock.now = 3.0
        report(1_234, 2_000, "rows")
        clock.now = 4.0
        report(2_000, 2_000, "rows")
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "1,234 rows" in shown.err
    assert "2,000 rows" in shown.err
