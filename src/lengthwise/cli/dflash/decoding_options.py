"""Options that ``lengthwise dflash generate`` and ``evaluate`` share, and what they load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli.output import print_note

if TYPE_CHECKING:
    from lengthwise.dflash.decoding.prompts import Encoder
    from lengthwise.dflash.drafter import Drafter
    from lengthwise.dflash.target import Target

_TARGET = "Target"

TargetName = Annotated[
    str,
    typer.Option(
        "--target",
        help="The target: a directory with a checkpoint, or a hub name.",
        show_default=False,
    ),
]
DrafterName = Annotated[
    str,
    typer.Option(
        "--drafter",
        help="The drafter: a directory in the native or the speculators format, a checkpoint of "
        "`lengthwise dflash train`, or a hub name.",
        show_default=False,
    ),
]
Plain = Annotated[
    bool,
    typer.Option(
        "--plain",
        help="No chat template: the prompt as it is. A tokenizer without a template is always "
        "used so.",
    ),
]
Temperature = Annotated[
    float,
    typer.Option(
        "--temperature",
        min=0.0,
        help="0 is greedy; else tokens are drawn, by target and drafter alike.",
    ),
]
StopTokenIds = Annotated[
    list[int] | None,
    typer.Option(
        "--stop-token-id",
        help="A token id that ends an answer, in place of those that tokenizer and model name; "
        "may be given several times.",
        show_default=False,
    ),
]
IgnoreStop = Annotated[
    bool, typer.Option("--ignore-stop", help="No token ends an answer, only --max-new-tokens.")
]
Seed = Annotated[
    int,
    typer.Option("--seed", min=0, help="Of the draws; prompt number i draws from seed + i."),
]
Device = Annotated[
    str,
    typer.Option("--device", help="Where both models run: cpu, cuda.", rich_help_panel=_TARGET),
]
Dtype = Annotated[
    str,
    typer.Option(
        "--dtype",
        help="Type of both models' weights: auto (the target's own), float32, bfloat16, float16.",
        rich_help_panel=_TARGET,
    ),
]
Revision = Annotated[
    str | None,
    typer.Option(
        "--revision",
        help="Branch, tag or commit of the target on the hub.",
        show_default=False,
        rich_help_panel=_TARGET,
    ),
]
GgufFile = Annotated[
    str | None,
    typer.Option(
        "--gguf-file",
        help="Name of a GGUF file in the target's directory.",
        show_default=False,
        rich_help_panel=_TARGET,
    ),
]
TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code",
        help="Run modelling code that comes with the target.",
        rich_help_panel=_TARGET,
    ),
]


@dataclass(frozen=True)
class Loaded:
    """Target, drafter and tokenizer, ready to decode."""

    target: Target
    drafter: Drafter
    tokenizer: Any
    encoder: Encoder
    stop_token_ids: tuple[int, ...]


def load(
    target_name: str,
    drafter_name: str,
    *,
    plain: bool,
    stop_token_ids: list[int] | None,
    ignore_stop: bool,
    device: str,
    dtype: str,
    **source: Any,
) -> Loaded:
    """Load what decoding needs; ``source`` says which revision or file of the target."""
    from lengthwise.dflash.decoding.prompts import Encoder, stop_ids
    from lengthwise.dflash.formats import load_checkpoint
    from lengthwise.dflash.target import load_target, load_tokenizer

    target = load_target(target_name, device=device, dtype=dtype, **source)
    found = load_checkpoint(drafter_name, target_config=target.model.config)
    tokenizer = load_tokenizer(target_name, **source)
    encoder = Encoder(tokenizer, plain=plain)
    if encoder.plain and not plain:
        print_note("the tokenizer has no chat template: prompts are used as they are")
    stops: tuple[int, ...] = ()
    if not ignore_stop:
        named = stop_ids(tokenizer, getattr(target.model, "generation_config", None))
        stops = tuple(stop_token_ids or named)
    drafter = found.drafter.to(target.device, target.dtype).eval()
    return Loaded(target, drafter, tokenizer, encoder, stops)
