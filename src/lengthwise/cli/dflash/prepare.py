"""``lengthwise dflash prepare``: conversations to training samples."""

from __future__ import annotations

import json as json_module
import os
import time
from typing import TYPE_CHECKING, Any

from lengthwise.cli import options as common
from lengthwise.cli.dflash import prepare_options as options
from lengthwise.cli.dflash import server_options
from lengthwise.cli.output import (
    print_json,
    print_line,
    print_note,
    print_table,
    print_warning,
    progress,
)
from lengthwise.core.wording import percent
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lengthwise.dflash.prepare import Summary


def command(
    source: options.Source,
    target: options.TargetName,
    output: options.Output,
    regenerate: options.Regenerate = True,
    row_format: options.Format = options.RowForm.AUTO,
    column: options.Column = None,
    response_column: options.ResponseColumn = None,
    split: options.Split = "train",
    subset: options.Subset = None,
    on_bad: options.OnBad = options.OnBadRow.ERROR,
    system_prompt: options.SystemPrompt = None,
    chat_template: options.TemplateFile = None,
    chat_template_kwargs: options.TemplateKwargs = None,
    plain: options.Plain = False,
    max_new_tokens: options.MaxNewTokens = 2048,
    temperature: options.Temperature = 0.0,
    top_p: options.TopP = 1.0,
    top_k: options.TopK = 0,
    seed: options.Seed = 0,
    unfinished: options.Unfinished = options.KeepOrDrop.KEEP,
    max_length: options.MaxLength = 4096,
    too_long: options.TooLong = options.CutOrDrop.TRUNCATE,
    min_loss_tokens: options.MinLossTokens = 2,
    server: server_options.ServerUrl = None,
    server_model: server_options.ServerModel = None,
    server_api: server_options.ServerApi = server_options.Api.COMPLETIONS,
    api_key_env: server_options.ApiKeyEnv = None,
    concurrency: server_options.Concurrency = 16,
    timeout_seconds: server_options.Timeout = 600.0,
    retries: server_options.Retries = 4,
    backoff_seconds: server_options.Backoff = 1.0,
    device: options.DeviceName = "cpu",
    dtype: options.Dtype = "auto",
    batch_tokens: options.BatchTokens = 16_384,
    max_batch_size: options.MaxBatchSize = None,
    shard_rows: options.ShardRows = 1024,
    revision: options.Revision = None,
    gguf_file: options.GgufFile = None,
    trust_remote_code: options.TrustCode = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Make training samples of conversations: the target answers, tokens and a loss mask come out.

    A drafter learns to foresee its target, so the target's own answers are what it is trained on.
    Samples are written in shards; when the run is stopped or killed, the same command continues
    after the last finished one, and the result is the same as without the break. LOSS is only on
    the assistant's tokens. The card says what was made, what was left out, and why.
    """
    from lengthwise.dflash import prepare as data

    config = data.PrepareConfig(
        target=target,
        mode="regenerate" if regenerate else "keep-responses",
        revision=revision,
        gguf_file=gguf_file,
        dtype=dtype,
        rows=data.RowSettings(
            format=row_format.value,
            column=column,
            response_column=response_column,
            split=split,
            subset=subset,
            on_bad=on_bad.value,
        ),
        template=data.TemplateSettings(
            chat_template=None if chat_template is None else chat_template.read_text("utf-8"),
            kwargs=_kwargs(chat_template_kwargs or []),
            system_prompt=system_prompt,
            plain=plain,
        ),
        generation=data.GenerationSettings(
            max_new_tokens=max_new_tokens,
            temperature=temperature,
            top_p=top_p,
            top_k=top_k,
            seed=seed,
            unfinished=unfinished.value,
        ),
        samples=data.SampleSettings(
            max_length=max_length, too_long=too_long.value, min_loss_tokens=min_loss_tokens
        ),
        server=None
        if server is None
        else data.ServerSettings(
            url=server,
            model=server_model or target,
            api=server_api.value,
            api_key=_key(api_key_env),
            concurrency=concurrency,
            timeout_seconds=timeout_seconds,
            retries=retries,
            backoff_seconds=backoff_seconds,
        ),
    )
    where = data.Device(device, batch_tokens, max_batch_size, trust_remote_code)
    try:
        with progress("prepare", quiet=quiet) as report:
            summary = data.prepare(
                source,
                config,
                output,
                device=where,
                shard_rows=shard_rows,
                progress=_speed(report),
            )
    except KeyboardInterrupt:
        print_note(f"finished shards are kept in {output}; the same command continues")
        raise
    _warn(summary)
    if json:
        print_json(summary.to_dict())
    else:
        _show(summary)


def _kwargs(given: list[str]) -> dict[str, Any]:
    """Variables for the template from JSON objects and name=value pairs."""
    found: dict[str, Any] = {}
    for text in given:
        if text.lstrip().startswith("{"):
            try:
                found |= json_module.loads(text)
            except ValueError as error:
                raise ConfigError(f"chat_template_kwargs: {text!r} is no JSON: {error}") from None
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise ConfigError(
                f"chat_template_kwargs must be a JSON object or name=value, got {text!r}"
            )
        try:
            found[name] = json_module.loads(value)
        except ValueError:
            found[name] = value  # a word without quotes
    return found


def _key(variable: str | None) -> str | None:
    if variable is None:
        return None
    key = os.environ.get(variable)
    if not key:
        raise ConfigError(f"api_key_env: the environment variable {variable} is not set")
    return key


def _speed(
    report: Callable[[int, int | None, str], None],
) -> Callable[[int, int | None, int], None]:
    """Adds tokens a second, and the time that is left, to what the progress line says."""
    started, first = time.monotonic(), [-1]

    def show(done: int, total: int | None, tokens: int) -> None:
        if first[0] < 0:
            first[0] = done
        seconds = max(time.monotonic() - started, 1e-9)
        unit = f"rows, {tokens / seconds:,.0f} tokens/s"
        if total and done > first[0]:
            left = (total - done) * seconds / (done - first[0])
            unit += f", {left / 60:,.0f} min left" if left >= 90 else f", {left:,.0f} s left"
        report(done, total, unit)

    return show


def _warn(summary: Summary) -> None:
    counts, settings = summary.card["counts"], summary.card["settings"]
    if not counts["samples"]:
        print_warning("no sample was made; the card says why")
    dropped = sum(counts["dropped_answers"].values())
    if dropped:
        reasons = ", ".join(f"{rule}: {n:,}" for rule, n in counts["dropped_answers"].items())
        print_warning(f"{dropped:,} prompts have no answer in the samples ({reasons})")
    if counts["unfinished"] > counts["answers"] / 10:
        print_warning(
            f"{percent(counts['unfinished'] / counts['answers'])} of the answers did not end "
            f"within --max-new-tokens {settings['max_new_tokens']:,}"
        )


def _show(summary: Summary) -> None:
    card, counts = summary.card, summary.card["counts"]
    share = "-" if card["loss_share"] is None else percent(card["loss_share"])
    rows = [
        ("rows read", f"{counts['rows']:,}"),
        ("of them in earlier runs", f"{summary.rows_before:,}"),
        ("answers", f"{counts['answers']:,}"),
        ("unfinished answers", f"{counts['unfinished']:,}"),
        ("samples", f"{counts['samples']:,}"),
        ("truncated samples", f"{counts['truncated']:,}"),
        ("tokens", f"{counts['tokens']:,}"),
        ("tokens with loss", share),
        ("tokens/s of this run", f"{summary.generated_tokens / max(summary.seconds, 1e-9):,.0f}"),
    ]
    rows += [(name, f"{value:,.6g}") for name, value in (card["lengths"] or {}).items()]
    for kind in ("bad_rows", "dropped_answers", "dropped_samples"):
        words = kind.replace("_", " ")
        rows += [(f"{words}: {rule}", f"{count:,}") for rule, count in counts[kind].items()]
    print_table(f"samples in {summary.output}", ["", "value"], rows)
    for problem in card["problems"][:5]:
        print_line(f"{problem['file']}, {problem['row']:,}: {problem['rule']}: {problem['detail']}")
