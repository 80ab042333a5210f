"""``lengthwise dflash export``: a drafter as the engines load it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli.options import Json
from lengthwise.cli.output import print_json, print_line, print_note, print_table

if TYPE_CHECKING:
    from lengthwise.dflash.formats import Checkpoint, CheckReport, TargetFacts


class Form(StrEnum):
    """What is written."""

    NATIVE = "native"
    SPECULATORS = "speculators"


class Dtype(StrEnum):
    """What the tensors are stored in."""

    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"
    FLOAT32 = "float32"


Source = Annotated[
    str,
    typer.Argument(
        metavar="CHECKPOINT",
        help="The drafter: a checkpoint of `lengthwise dflash train` (a directory step-...), a "
        "directory in the native or the speculators format, or owner/name on the Hugging Face hub.",
        show_default=False,
    ),
]
Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        help="Directory to write; it must not exist yet, or be empty.",
        show_default=False,
    ),
]
FormatOption = Annotated[
    Form,
    typer.Option(
        "--format",
        "-f",
        help="native: what the method's authors publish; the dflash package, SGLang and vLLM load "
        "it. speculators: the format of the speculators package, which vLLM loads too.",
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="The target: a directory or a name on the hub. Its config is read (no weights) and "
        "the drafter must fit it. The speculators format needs it, unless the checkpoint names "
        "its target.",
        show_default=False,
    ),
]
DtypeOption = Annotated[Dtype, typer.Option("--dtype", help="What the tensors are stored in.")]


def command(
    checkpoint: Source,
    output: Output,
    form: FormatOption = Form.NATIVE,
    target: Target = None,
    dtype: DtypeOption = Dtype.BFLOAT16,
    json: Json = False,
) -> None:
    """Write a drafter as vLLM, SGLang and the dflash package load it, and check what was written.

    Engines load a faulty drafter without an error and then accept little of what it drafts. So
    names, shapes and types of all tensors and every field of the config are checked, and the
    directory appears only if all is right. A directory in one format becomes the other this way.
    """
    from lengthwise.dflash.formats import (
        TargetFacts,
        export_drafter,
        load_checkpoint,
        read_target_config,
        serving_commands,
    )
    from lengthwise.dflash.formats.layout import DTYPES

    target_config = None if target is None else read_target_config(target)
    found = load_checkpoint(checkpoint, target_config=target_config)
    facts = found.target if target_config is None else TargetFacts.of(target_config, target)
    report = export_drafter(
        found.drafter,
        output,
        form=form.value,
        target_config=target_config,
        target=facts,
        dtype=DTYPES[dtype.value],
    )
    commands = serving_commands(report, found.config.block_size, facts.name)
    about = _about(found, report, facts, dtype.value)
    if json:
        print_json({**about, "serve": commands})
        return
    _show(about)
    for engine, line in commands.items():
        print_line(f"\n{engine}:\n  {line}")
    print_note(f"wrote {output}")


def _about(
    found: Checkpoint, report: CheckReport, target: TargetFacts, dtype: str
) -> dict[str, Any]:
    config = found.config
    return {
        "output": str(report.directory),
        "format": report.format,
        "dtype": dtype,
        "source": str(found.directory),
        "source_format": found.format,
        "source_dtype": found.dtype,
        "target": target.name,
        "num_parameters": sum(p.numel() for p in found.drafter.parameters()),
        "num_bytes": sum(path.stat().st_size for path in report.directory.iterdir()),
        "num_hidden_layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "block_size": config.block_size,
        "mask_token_id": config.mask_token_id,
        "target_layer_ids": list(config.target_layer_ids),
        "num_target_layers": config.num_target_layers,
        "unused_tensors": list(found.unused_tensors),
        "checks": [check.name for check in report.checks],
    }


def _show(about: dict[str, Any]) -> None:
    taps = ", ".join(map(str, about["target_layer_ids"]))
    rows = [
        ("format", about["format"]),
        ("from", f"{about['source_format']}, {about['source_dtype']}"),
        ("stored in", about["dtype"]),
        ("target", about["target"] or "not named"),
        ("parameters", f"{about['num_parameters']:,}"),
        ("bytes", f"{about['num_bytes']:,}"),
        ("layers", f"{about['num_hidden_layers']} of width {about['hidden_size']:,}"),
        ("block size", f"{about['block_size']}"),
        ("mask token", f"{about['mask_token_id']:,}"),
        ("taps", f"outputs of layers {taps} of 0 to {about['num_target_layers'] - 1}"),
        *((f"checked: {name}", "ok") for name in about["checks"]),
    ]
    print_table(f"drafter in {about['output']}", ["", "value"], rows, text_columns=2)
