"""The ``lengthwise`` command: the list of commands, exit codes, and nothing heavy.

A command lives in ``lengthwise.cli.<name>`` as a function called ``command``, those of the group
``dflash`` in ``lengthwise.cli.dflash.<name>``. Its file is imported when the command is used, so
that ``lengthwise --help`` stays quick.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.util import find_spec
from inspect import cleandoc
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from lengthwise._version import __version__
from lengthwise.cli.output import print_error, print_python_warnings
from lengthwise.errors import LengthwiseError, MissingDependencyError, is_failed_run

COMMANDS = {
    "scan": "What is in there: how many samples, how long, and what to watch out for.",
    "optimize": "The bucket boundaries that waste the least padding.",
    "compare": "Every batching strategy side by side on your lengths.",
    "plan": "The batches of one epoch, for every replica.",
    "calibrate": "What a step of your model costs here, in seconds and memory.",
    "predict": "What an epoch and a run take, under every strategy.",
    "simulate": "How many target and drafter devices, what throughput.",
    "diagnose": "Why a run was as fast as it was, why its loss jumps, and what to change.",
}
"""Command name -> the line shown by ``lengthwise --help``; shown without importing the command."""

DFLASH_COMMANDS = {
    "prepare": "Conversations to training samples: the target answers anew, Parquet comes out.",
    "train": "Train a drafter from a config file, on one device or several.",
    "scale": "More or fewer target workers for a run on Ray, while it goes on.",
    "report": "A training run as one HTML page: curves, queues, speed, tables.",
    "generate": "Text from the target, sped up by a drafter, without changing a token.",
    "evaluate": "What a drafter gains: tokens per verification, speed, mismatches, by task.",
    "export": "A trained drafter as files that serving engines load.",
}
"""The same for ``lengthwise dflash``."""

_DFLASH_PACKAGES = (
    "torch", "transformers", "safetensors", "huggingface_hub", "pydantic", "yaml", "pyarrow",
)  # fmt: skip

EXIT_FAILED = 1
EXIT_WRONG_USE = 2
EXIT_INTERRUPTED = 130


class _LazyGroup(TyperGroup):
    """Imports a command's file on use."""

    package = "lengthwise.cli"
    names = COMMANDS

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Replace the placeholder of the wanted command by the real one."""
        if args and args[0] in self.names:
            self.commands[args[0]] = _load(self.package, args[0])
        return super().resolve_command(ctx, args)


class _DflashGroup(_LazyGroup):
    """The commands of ``lengthwise dflash``."""

    package = "lengthwise.cli.dflash"
    names = DFLASH_COMMANDS

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """As above; says so first where a package is missing, instead of failing halfway."""
        if args and args[0] in self.names:
            if not sys.stderr.isatty() or {"--quiet", "-q"}.intersection(args):
                # The libraries' own bars; they look when they are imported.
                os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
            missing = [name for name in _DFLASH_PACKAGES if find_spec(name) is None]
            if missing:
                raise MissingDependencyError(
                    f"lengthwise dflash needs {', '.join(missing)}: "
                    f"pip install 'lengthwise[dflash]'"
                )
        return super().resolve_command(ctx, args)


class _RootGroup(_LazyGroup):
    """All commands; turns errors into exit codes."""

    def invoke(self, ctx: Any) -> Any:
        """Run a command; each of our errors becomes one message and an exit code."""
        try:
            with print_python_warnings():
                return super().invoke(ctx)
        except LengthwiseError as error:
            print_error(str(error))
            raise typer.Exit(EXIT_FAILED if is_failed_run(error) else EXIT_WRONG_USE) from None
        except KeyboardInterrupt:
            print_error("interrupted")
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            raise
        except OSError as error:
            print_error(f"{error.filename or 'file'}: {error.strerror or error}")
            wrong_use = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
            code = EXIT_WRONG_USE if isinstance(error, wrong_use) else EXIT_FAILED
            raise typer.Exit(code) from None


def _load(package: str, name: str) -> Any:
    module = import_module(f"{package}.{name}")
    single = typer.Typer(add_completion=False, rich_markup_mode="rich")
    single.command(name=name, help=_paragraphs(module.command))(module.command)
    return typer.main.get_command(single)


def _paragraphs(command: Any) -> str:
    """The docstring of a command with each paragraph on one line, for the terminal to wrap."""
    paragraphs = cleandoc(command.__doc__).split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _print_version(wanted: bool) -> None:
    if wanted:
        sys.stdout.write(f"lengthwise {__version__}\n")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Length-aware batching: see what padding costs, and plan epochs that waste little of it."""


_DFLASH_HELP = (
    "Train DFlash drafters and decode with them: several tokens a target step, the same text."
)


def _placeholder() -> None:
    """Stands for a command whose file is not imported yet; `_LazyGroup` replaces it on use."""


def build_app() -> typer.Typer:
    """The typer application with every command registered but not imported."""
    app = _group(_RootGroup, pretty_exceptions_enable=False)
    app.callback()(_options)
    app.add_typer(_group(_DflashGroup), name="dflash", help=_DFLASH_HELP)
    return app


def _group(cls: type[_LazyGroup], **settings: Any) -> typer.Typer:
    group = typer.Typer(
        cls=cls, no_args_is_help=True, add_completion=False, rich_markup_mode="rich", **settings
    )
    for name, summary in cls.names.items():
        group.command(name=name, help=summary)(_placeholder)
    return group


app = build_app()


def main() -> None:
    """Entry point of the ``lengthwise`` script."""
    app(prog_name="lengthwise")
