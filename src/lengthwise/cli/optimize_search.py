"""The search for the fastest settings that ``lengthwise optimize`` adds to boundaries."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.cli.output import print_line, print_table, progress
from lengthwise.core.wording import percent, seconds_of

if TYPE_CHECKING:
    from lengthwise.core.cost import CostModel
    from lengthwise.core.histogram import LengthHistogram
    from lengthwise.core.limits import BatchLimits, Int64Array
    from lengthwise.predict import Fit

SHOWN = 12


def against_least_padding(
    best: dict[str, Any],
    hist: LengthHistogram,
    limits: BatchLimits,
    model: CostModel,
    *,
    ceiling: bool,
) -> dict[str, Any]:
    """As many buckets of least padding, their seconds, and the share of these that is saved."""
    from lengthwise.core.boundaries import evaluate_boundaries, optimize_boundaries

    number = best["num_buckets"]
    least = optimize_boundaries(hist, limits, number, pad_to_boundary=ceiling)
    priced = evaluate_boundaries(hist, limits, least.boundaries, model, pad_to_boundary=ceiling)
    return {
        "num_buckets": priced.num_buckets,
        **priced.to_dict(),
        "gain": 1 - best["cost"] / priced.cost,
    }


def search_settings(
    lengths: Int64Array,
    limits: BatchLimits,
    cost: Fit | CostModel,
    choices: dict[str, Any],
    *,
    quiet: bool,
) -> dict[str, Any]:
    """The ranked settings as plain values; choices are arguments of ``optimize_seconds``."""
    from lengthwise.predict import optimize_seconds

    with progress("searching settings", quiet=quiet) as report:
        return optimize_seconds(lengths, limits, cost, progress=report, **choices).to_dict()


def print_search(found: dict[str, Any]) -> None:
    """Print the fastest settings, the one to take, and what it wins."""
    candidates = found["candidates"]
    best, least = candidates[found["best"]], candidates[found["least_padding"]]
    places = sorted({*range(min(SHOWN, len(candidates))), found["best"], found["least_padding"]})
    print_table(
        "Settings by predicted time (* to take)",
        ("setting", "the run", "tokens/s", "efficiency", "waiting", "meet again", "shapes"),
        [_row(candidates[place], taken=place == found["best"]) for place in places],
    )
    if len(places) < len(candidates):
        print_line(f"{len(places)} of {len(candidates)} settings; --json has all")
    print_line(_verdict(best, least, found))
    if found["num_samples"] < found["total_samples"]:
        print_line(
            f"Note: settings were planned for {found['num_samples']:,} of "
            f"{found['total_samples']:,} samples, and times scaled."
        )


def _row(candidate: dict[str, Any], *, taken: bool) -> tuple[str, ...]:
    prediction = candidate["prediction"]
    return (
        candidate["label"] + (" *" if taken else ""),
        seconds_of(candidate["seconds"]),
        f"{prediction['tokens_per_second']:,.0f}",
        percent(prediction["efficiency"], 2),
        percent(prediction["rank_imbalance"]),
        percent(candidate["repeat_rate"], 2) + ("" if candidate["diverse"] else ", too often"),
        f"{prediction['num_shapes']:,}",
    )


def _verdict(best: dict[str, Any], least: dict[str, Any], found: dict[str, Any]) -> str:
    taken = f"Take {best['label']}: {seconds_of(best['seconds'])}"
    if best is least:
        return f"{taken}; within these limits nothing computes less padding."
    gain = found["gain"]
    words = f"{percent(gain)} less" if gain >= 0 else f"{percent(-gain)} more"
    why = "" if gain >= 0 else ", for diversity"
    return (
        f"{taken}, {words} than with the least padding ({least['label']}, "
        f"{percent(least['prediction']['efficiency'], 2)}){why}."
    )


def kept_config(candidate: dict[str, Any]) -> dict[str, Any]:
    """The fields of a setting's config that are not defaults, for a file."""
    from lengthwise.core.config import BatchingConfig
    from lengthwise.core.limits import BatchLimits

    config = candidate["config"]
    plain = BatchingConfig(limits=BatchLimits(config["limits"]["max_tokens"])).to_dict()
    kept = {"strategy", "seed", "limits"}
    return {key: value for key, value in config.items() if key in kept or plain.get(key) != value}
