"""The table of ``docs/concepts/prediction.md``, from the benchmark's result.

python benchmarks/prediction_page.py     # writes it anew; `make bench` does so, too
"""

from __future__ import annotations

from pathlib import Path

import pages

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "prediction.json"
PAGE = ROOT / "docs" / "concepts" / "prediction.md"
NAME = "accuracy"
BEGIN, END = pages.marks(NAME)


def fill_page(found):
    """Put the table between the page's marks."""
    pages.fill(PAGE, {NAME: table(found)})


def table(found):
    """Every model and strategy: predicted, measured, how far apart; a sentence on each model."""
    columns = ["model", "strategy", "predicted tokens/s", "90 % interval", "measured"]
    columns += ["error", "noise"]
    rows = []
    for model, result in found.items():
        rows += [
            (
                model,
                strategy,
                f"{row['predicted']:,.0f}",
                f"{row['low']:,.0f} to {row['high']:,.0f}",
                f"{row['measured']:,.0f}",
                f"{100 * row['error']:+.1f} %",
                f"±{100 * row['noise']:.1f} %",
            )
            for strategy, row in result["cpu"]["strategies"].items()
        ]
    return "\n".join(
        [pages.table(columns, rows), "", *(_sentence(model, found[model]) for model in found)]
    )


def _sentence(model, result):
    cpu = result["cpu"]
    kind = {"formula": "the formula", "table": "a table"}[cpu["fit"]["cost"]["kind"]]
    return (
        f"- {model}: fitted by {kind}; within {100 * cpu['largest_error']:.1f} %; {_ranking(cpu)}; "
        f"a single step varied by {100 * cpu['fit']['noise']:.1f} %."
    )


def _ranking(cpu):
    pairs = [
        f"{pair['slower']} before {pair['faster']} ({100 * pair['apart']:.1f} % faster)"
        for pair in cpu["swapped"]
    ]
    return f"ranked {' and '.join(pairs)}" if pairs else "the ranking is right"


if __name__ == "__main__":
    fill_page(pages.result(RESULT))
