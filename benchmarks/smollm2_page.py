"""The measured part of docs/concepts/dflash.md about a real chat model, from the result file.

python benchmarks/smollm2_page.py     # writes it anew
"""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import fill

import pages
from pages import table

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "dflash_smollm2.json"
PAGE = ROOT / "docs" / "concepts" / "dflash.md"
NAME = "smollm2"
KINDS = {
    "untrained": "untrained",
    "trained": "trained",
    "context_zeroed": "trained, the target's states zeroed",
}


def part(found):
    """What stands between the marks."""
    sizes, last = found["sizes"], found["curve"][-1]
    text = (
        f"SmolLM2-135M-Instruct, {found['training_tokens']:,} tokens of its own answers to "
        f"{sizes['num_prompts']:,} prompts about docstrings of the standard library, a drafter of "
        f"{sizes['num_layers']} layers ({found['drafter_parameters']:,} weights), blocks of "
        f"{sizes['block_size']}, {last['step']} of {found['planned_steps']} steps in "
        f"{found['cpu_seconds'] / 60:.0f} minutes of one core, so it is far from done. Held-out "
        "prompts are about files that no training prompt is about."
    )
    curve = [
        (
            f"{row['step']}",
            _number(row["loss"]),
            _number(row["streak"]),
            _number(row["tokens_per_verify"]),
            f"{row['cpu_seconds'] / 60:.0f}",
        )
        for row in found["curve"]
    ]
    decoded = [
        (
            words,
            f"{one['tokens_per_verify']:.2f} ± {one['tokens_per_verify_standard_error']:.2f}",
            f"{one['num_mismatches']} of {one['num_prompts']}",
        )
        for name, words in KINDS.items()
        for one in [found["decoding"][name]]
    ]
    columns = ("step", "loss", "streak", "tokens per verification", "CPU minutes")
    return "\n\n".join(
        (
            fill(text, 100),
            f"The curve, on the first {sizes['curve_prompts']} held-out prompts:",
            table(columns, curve),
            f"At the end, on all {sizes['num_held_out']}:",
            table(("drafter", "tokens per verification", "outputs that differ"), decoded),
        )
    )


def write():
    """Put the part into the page."""
    found = json.loads(RESULT.read_text(encoding="utf-8"))
    pages.fill(PAGE, {NAME: part(found)})


def _number(value):
    return "" if value is None else f"{value:.2f}"


if __name__ == "__main__":
    write()
