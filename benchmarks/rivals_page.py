"""The measured parts of docs/concepts/dflash-peers.md, from the result file.

python benchmarks/rivals_page.py     # writes them anew; `make bench` does so too
"""

from __future__ import annotations

import statistics
from pathlib import Path
from textwrap import wrap

import pages
from pages import table
from rivals.compare import gaps
from rivals.recipes import LABELS, RECIPES

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "rivals.json"
PAGE = ROOT / "docs" / "concepts" / "dflash-peers.md"
MIB = 2**20
DIVISORS = {
    ("decay", "lengthwise"): "sum of weights",
    ("decay", "speculators"): "number of labels",
    ("decay", "specforge"): "sum of weights",
    ("dpace", "lengthwise"): "sum of weights",
    ("dpace", "speculators"): "number of labels",
    ("dpace", "specforge"): "number of samples",
    ("kl", "speculators"): "number of labels",
}
"""What each divides its weighted sum by."""
WEIGHTINGS = {
    "decay": "cross-entropy, decay",
    "dpace": "cross-entropy, D-PACE",
    "kl": "KL to the target, decay",
}


def parts(found):
    """Each part of the page by its mark."""
    return {
        "steps": f"{steps(found)}\n\n{best(found)}\n\n{rows(found)}",
        "losses": f"{losses(found)}\n\n{agreement(found)}",
        "acceptance": f"{trained(found)}\n\n{acceptance(found)}\n\n{paired(found)}",
        "cpu": attempts(found),
        "settings": settings(found),
    }


def steps(found):
    """An optimiser step of each trainer."""
    columns = (
        "sizes", "trainer", "CPU seconds a step", "ours = 1", "MiB at the peak", "tokens",
        "anchors", "labels", "real share of rows",
    )  # fmt: skip
    lines = []
    for case, trainers in found["steps"].items():
        own = trainers["lengthwise"]["seconds"]
        lines += [
            (
                case,
                LABELS[name],
                f"{row['seconds']:.2f}",
                f"{row['seconds'] / own:.2f}",
                f"{row['bytes'] / MIB:,.0f}",
                f"{row['tokens']:,}",
                row["anchors"],
                f"{row['labels']:,}",
                f"{row['tokens'] / row['places']:.0%}",
            )
            for name, row in trainers.items()
        ]
    return table(columns, lines)


def best(found):
    """Who is fastest and who needs least memory, in words."""
    said = []
    for what, key in (("Least time", "seconds"), ("least memory", "bytes")):
        winners = [
            f"{LABELS[min(trainers, key=lambda name, t=trainers: t[name][key])]} ({case})"
            for case, trainers in found["steps"].items()
        ]
        said.append(f"{what}: {', '.join(winners)}")
    return _wrapped(f"{'; '.join(said)}.")


def rows(found):
    """The real share of rows on the run's lengths, in words."""
    shares = [f"{LABELS[name]} {share:.0%}" for name, share in found["real_share"].items()]
    return _wrapped(
        "Of the places of a drafter's rows, so much is real on the lengths of the run that this "
        f"project began with, each as recommended: {', '.join(shares)}. (speculators: rows of "
        "8,192 tokens, its default; longer rows fill better. SpecForge: four samples padded to the "
        "longest.)"
    )


def losses(found):
    """One loss in three definitions."""
    columns = ("loss", "trainer", "as reported", "divided by", "weighted sum", "labels", "gradient")
    lines = [
        (
            WEIGHTINGS[weighting],
            LABELS[name],
            f"{row['reported']:.4f}",
            DIVISORS[weighting, name],
            "" if row["numerator"] is None else f"{row['numerator']:,.2f}",
            f"{row['labels']:,}",
            "" if row["numerator"] is None else f"{row['gradient']:.3f}",
        )
        for weighting, trainers in found["losses"].items()
        for name, row in trainers.items()
    ]
    return table(columns, lines)


def agreement(found):
    """How near the sums are, in words."""
    if len(found["losses"]["decay"]) < 2:
        return "No other trainer was installed."
    worst = max(gaps(found["losses"]).values())
    return _wrapped(
        "The weighted sums of cross-entropies and the norms of their gradients differ by at most "
        f"{worst:.0e} of themselves, the rounding of float32."
    )


def trained(found):
    """What was trained, in words."""
    one = found["training"]
    return _wrapped(
        f"{one['num_steps']} steps of at most {one['max_tokens']:,} padded tokens, "
        f"{one['max_anchors']} anchors a sample, on answers of the tiny target to "
        f"{one['num_prompts']} prompts; {one['num_held_out']} held-out prompts are decoded. The "
        f"figures are tokens per verification (of 8 at most); standard errors are over seeds, each "
        f"of which has first weights, mixed batches and anchors of its own."
    )


def paired(found):
    """What lies between ours and each other at equal settings, seed by seed, in words."""
    rows = found["training"]["rows"]
    said = []
    for name in ("speculators", "specforge"):
        gaps_of = [
            theirs["tokens_per_verify"] - own["tokens_per_verify"]
            for theirs, own in zip(rows.get(name, ()), rows["lengthwise"], strict=False)
        ]
        if gaps_of:
            said.append(f"{LABELS[name]} {_mean(gaps_of, sign='+')}")
    return _wrapped(
        f"Beside ours at equal settings, seed by seed: {'; '.join(said)}. From the same anchors "
        f"all three compute the same gradient (see above)."
    )


def acceptance(found):
    """What was learnt after equal steps."""
    one = found["training"]
    columns = (
        "trainer and settings", "first weights", "seeds", "mean", "lowest to highest", "anchors",
        "labels", "real share of rows", "CPU seconds", "read as",
    )  # fmt: skip
    lines = []
    for name, runs in one["rows"].items():
        recipe, count = RECIPES[name], len(runs)
        reached = [run["tokens_per_verify"] for run in runs]
        tokens, places = (sum(run[key] for run in runs) for key in ("tokens", "places"))
        lines.append(
            (
                recipe.label,
                {"given": "the same", "own": "its own"}[recipe.start],
                count,
                _mean(reached),
                f"{min(reached):.2f} to {max(reached):.2f}",
                f"{sum(run['anchors'] for run in runs) // count:,}",
                f"{sum(run['labels'] for run in runs) // count:,}",
                f"{tokens / places:.0%}",
                f"{sum(run['train_seconds'] for run in runs) / count:.0f}",
                runs[0]["format"],
            )
        )
    return table(columns, lines)


def attempts(found):
    """What does not run on a CPU, with the errors."""
    lines = [
        (LABELS[name], what, "runs" if error is None else f"`{error}`")
        for name, tried in found["attempts"].items()
        for what, error in tried.items()
    ]
    missing = [
        (LABELS[name], "import", f"`{about['error']}`")
        for name, about in found["about"].items()
        if "error" in about
    ]
    return table(("trainer", "what was tried", "what came of it"), lines + missing)


def settings(found):
    """Versions and settings."""
    lines = [
        (
            LABELS[name],
            ", ".join(f"{package} {version}" for package, version in about["versions"].items()),
            about["settings"],
        )
        for name, about in found["about"].items()
        if "error" not in about
    ]
    return table(("trainer", "versions", "its own settings"), lines)


def fill_page(found):
    """Write the page's measured parts; not where a trainer is missing."""
    if any("error" in about for about in found["about"].values()):
        print("a trainer is missing: the page stays as it is")
        return
    pages.fill(PAGE, parts(found))


def _mean(values, sign=""):
    """The mean with its standard error, where there are several."""
    mean = statistics.fmean(values)
    if len(values) == 1:
        return f"{mean:{sign}.2f}"
    return f"{mean:{sign}.2f} ± {statistics.stdev(values) / len(values) ** 0.5:.2f}"


def _wrapped(text):
    return "\n".join(wrap(text, 100, break_long_words=False, break_on_hyphens=False))


if __name__ == "__main__":
    fill_page(pages.result(RESULT))
