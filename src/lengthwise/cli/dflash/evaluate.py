"""``lengthwise dflash evaluate``: what a drafter gains on prompts."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli import options as common
from lengthwise.cli.dflash import decoding_options as options
from lengthwise.cli.output import print_error, print_json, print_note, progress

if TYPE_CHECKING:
    from collections.abc import Callable

    from lengthwise.cli.dflash.decoding_options import Loaded
    from lengthwise.dflash.decoding import Evaluation

Prompts = Annotated[
    list[str],
    typer.Option(
        "--prompts",
        help="Prompts that the drafter was not trained on: JSONL, JSON, Parquet or text files "
        "with messages, prompt or text, and maybe a task; or prepared samples (input_ids).",
        show_default=False,
    ),
]
MaxNewTokens = Annotated[
    int, typer.Option("--max-new-tokens", "-n", min=1, help="Tokens an answer may have.")
]
Limit = Annotated[
    int | None,
    typer.Option("--limit", min=1, help="Take the first prompts only.", show_default=False),
]
MaxSeconds = Annotated[
    float | None,
    typer.Option(
        "--max-seconds",
        min=0.0,
        help="Begin no further prompt after this time; tasks take turns until then.",
        show_default=False,
    ),
]
Compare = Annotated[
    bool,
    typer.Option(
        "--compare/--no-compare",
        help="Decode each prompt without the drafter too, for speed-up and mismatches.",
    ),
]
ZeroContext = Annotated[
    bool,
    typer.Option(
        "--zero-context",
        help="Hide the target's features from the drafter, to see what they are worth.",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write the results to this JSON file.", show_default=False),
]


def command(
    target: options.TargetName,
    drafter: options.DrafterName,
    prompts: Prompts,
    max_new_tokens: MaxNewTokens = 256,
    limit: Limit = None,
    max_seconds: MaxSeconds = None,
    temperature: options.Temperature = 0.0,
    seed: options.Seed = 0,
    compare: Compare = True,
    zero_context: ZeroContext = False,
    stop_token_id: options.StopTokenIds = None,
    ignore_stop: options.IgnoreStop = False,
    plain: options.Plain = False,
    device: options.Device = "cpu",
    dtype: options.Dtype = "auto",
    revision: options.Revision = None,
    gguf_file: options.GgufFile = None,
    trust_remote_code: options.TrustCode = False,
    output: Output = None,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Measure what a drafter gains: tokens per verification, speed-up, mismatches, by task.

    NUM_ACCEPTED counts drafted tokens that a verification accepts; TOKENS_PER_VERIFY is one more
    (papers call either of them acceptance length; DFlash's own is tokens_per_verify). SPEED-UP is
    against the target alone on the same device, prompt by prompt in turn, without the prompts' own
    forwards.

    A greedy output that differs from the target's own is a mismatch. In float32 there must be none:
    the command then ends with exit code 1. In bfloat16 and float16 a block and a single token may
    round apart where two logits are next to equal, so mismatches are listed with that gap.
    """
    loaded = options.load(
        target,
        drafter,
        plain=plain,
        stop_token_ids=stop_token_id,
        ignore_stop=ignore_stop,
        device=device,
        dtype=dtype,
        revision=revision,
        gguf_file=gguf_file,
        trust_remote_code=trust_remote_code,
    )
    settings = {
        "max_new_tokens": max_new_tokens,
        "temperature": temperature,
        "seed": seed,
        "compare": compare,
        "max_seconds": max_seconds,
    }
    with progress("evaluating", quiet=quiet) as report:
        found = _evaluate(
            loaded,
            loaded.encoder.read(prompts, limit),
            settings,
            lambda done, given: report(done, given, "prompts"),
            zero_context=zero_context,
        )
    about = {
        "target": target,
        "drafter": drafter,
        "device": str(loaded.target.device),
        "dtype": str(loaded.target.dtype).removeprefix("torch."),
        "zero_context": zero_context,
        **found.to_dict(),
    }
    _present(about, found, output, json=json)
    if found.num_mismatches and about["dtype"] in {"float32", "float64"}:
        print_error(
            f"{found.num_mismatches} outputs differ from the target's own in {about['dtype']}, "
            "where none may"
        )
        raise typer.Exit(1)


def _evaluate(
    loaded: Loaded,
    prompts: list[Any],
    settings: dict[str, Any],
    on_prompt: Callable[[int, int], None],
    *,
    zero_context: bool,
) -> Evaluation:
    from lengthwise.dflash.decoding import DrafterProposer, evaluate
    from lengthwise.dflash.decoding.prompts import by_task

    return evaluate(
        loaded.target,
        DrafterProposer(loaded.drafter, loaded.target.ends, zero_context=zero_context),
        by_task(prompts),
        stop_token_ids=loaded.stop_token_ids,
        on_prompt=on_prompt,
        **settings,
    )


def _present(about: dict[str, Any], found: Evaluation, output: Path | None, *, json: bool) -> None:
    from lengthwise.cli.dflash.evaluate_view import show
    from lengthwise.core.file_format import EVALUATION

    if output is not None:
        text = json_module.dumps({**EVALUATION.stamp(), **about}, indent=2)
        output.write_text(text + "\n", encoding="utf-8")
    if json:
        print_json(about)
    else:
        show(about, found)
    if output is not None:
        print_note(f"wrote {output}")
