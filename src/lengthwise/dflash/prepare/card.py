"""The card of prepared data: what it was made from, how, what was made and what was left out."""

from __future__ import annotations

import hashlib
import json
import os
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from lengthwise._version import __version__
from lengthwise.core.wording import percent

if TYPE_CHECKING:
    from pathlib import Path

    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.dflash.prepare.shards import Tally
    from lengthwise.dflash.prepare.template import ChatTemplate

CARD = "card.json"
README = "README.md"
FORMAT = "lengthwise-dflash-samples"
_QUANTILES = (0.01, 0.25, 0.5, 0.75, 0.9, 0.99)
_PACKAGES = ("torch", "transformers", "tokenizers", "pyarrow")


def write_atomically(path: Path, text: str) -> None:
    """Write a small file in one step."""
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def describe_template(template: ChatTemplate) -> dict[str, Any]:
    """The template and the tokens that end an answer, as the card has them."""
    source = template.source
    digest = None if source is None else hashlib.sha256(source.encode()).hexdigest()
    return {
        "form": "plain" if source is None else "chat template",
        "template_sha256": digest,
        "chat_template_kwargs": dict(template.settings.kwargs),
        "system_prompt": template.settings.system_prompt,
        "stop_token_ids": list(template.stop_ids),
        "tokenizer": type(template.tokenizer).__name__,
        "vocab_size": len(template.tokenizer),
    }


def make_card(
    settings: dict[str, Any], tally: Tally, lengths: LengthHistogram | None, num_shards: int
) -> dict[str, Any]:
    """The card as plain values. It has no times, so that a resumed run writes the same."""
    counts = tally.to_dict()
    problems = counts.pop("problems")
    return {
        "format": FORMAT,
        "format_version": 1,
        "columns": {
            "input_ids": "tokens, list<int32>",
            "loss_mask": "whether the assistant wrote the token, list<bool>",
            "seq_len": "tokens of the sample",
            "num_loss_tokens": "tokens with loss",
            "source_file, source_row": "where the row stands (lines count from 1, rows from 0)",
            "turn": "first answer in the sample, from 0",
            "task, source": "as in the source",
        },
        "settings": settings,
        "counts": counts,
        "problems": problems,
        "loss_share": tally.loss_tokens / tally.tokens if tally.tokens else None,
        "lengths": None if lengths is None else _lengths(lengths),
        "num_shards": num_shards,
        "versions": {"lengthwise": __version__, **_versions()},
    }


def _lengths(lengths: LengthHistogram) -> dict[str, Any]:
    quantiles = {f"p{100 * q:g}": int(lengths.quantile(q)) for q in _QUANTILES}
    return {
        "shortest": lengths.shortest,
        "longest": lengths.longest,
        "mean": lengths.mean,
        **quantiles,
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def card_text(card: dict[str, Any]) -> str:
    """The card for reading, as Markdown."""
    counts, settings = card["counts"], card["settings"]
    made = (
        f"{counts['samples']:,} samples, {counts['tokens']:,} tokens, made by "
        f"`lengthwise dflash prepare` for the target `{settings['target']}`."
    )
    lines = [
        "# Training samples for a DFlash drafter",
        "",
        made,
        "",
        *_origin(settings),
        "",
        "## What was made and what was left out",
        "",
        "| | count |",
        "|---|---:|",
    ]
    plain = ("rows", "answers", "unfinished", "retokenized", "samples", "truncated", "tokens")
    lines += [f"| {name} | {counts[name]:,} |" for name in plain]
    share = card["loss_share"]
    if share is not None:
        lines.append(f"| tokens with loss | {counts['loss_tokens']:,} ({percent(share, 1)}) |")
    for kind in ("bad_rows", "dropped_answers", "dropped_samples"):
        words = kind.replace("_", " ")
        lines += [f"| {words}: {rule} | {count:,} |" for rule, count in counts[kind].items()]
    lines += [*_problems(card["problems"]), *_length_table(card["lengths"]), "", "## Settings", ""]
    lines += ["```json", json.dumps(settings, indent=2, ensure_ascii=False), "```", ""]
    lines += ["Versions: " + ", ".join(f"{k} {v}" for k, v in card["versions"].items()) + ".", ""]
    return "\n".join(lines)


def _origin(settings: dict[str, Any]) -> list[str]:
    if settings["mode"] == "keep-responses":
        given = (
            "The answers are those of the source, **not the target's own**. The method wants "
            "answers that the target generated; expect lower acceptance with others."
        )
        return [given]
    how = "greedily" if settings["temperature"] == 0 else "by sampling"
    where = "by a server" if settings["server_model"] else "by the target itself"
    lines = [f"The answers were generated {how} {where}."]
    kwargs = settings["chat_template_kwargs"]
    shown = ", ".join(f"`{name}={value!r}`" for name, value in kwargs.items()) or "none"
    lines.append(
        f"Variables given to the chat template: {shown}. A drafter learns the mode (thinking or "
        f"not) that its data is in; serve it with the same."
    )
    return lines


def _problems(problems: list[dict[str, Any]]) -> list[str]:
    if not problems:
        return []
    lines = ["", "The first rows with a problem:", ""]
    return lines + [f"- {p['file']}, {p['row']:,}: {p['rule']}: {p['detail']}" for p in problems]


def _length_table(lengths: dict[str, Any] | None) -> list[str]:
    if lengths is None:
        return []
    head = ["", "## Lengths", "", "| | tokens |", "|---|---:|"]
    return head + [f"| {name} | {value:,.10g} |" for name, value in lengths.items()]
