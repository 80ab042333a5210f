"""What a pipeline costs with small real models: one target worker and one rank, a core each.

Two figures, for two cores of a machine are not two machines: they share its caches, its memory and
what the system does beside. So the slowest stage in the pipeline is compared with its bare loop on
the idle machine, and with its bare loop beside the other stage's, in two processes that have
nothing to do with each other. What lies between these two no pipeline could have.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

from pipeline_models import bare_loops, functions_config, write_functions
from pipeline_stages import Stages
from pipeline_timing import timed_run

ROUNDS = 7
STAGES = ("target", "drafter")


def measure(quick):
    """Each stage alone, both at once, and the pipeline, in turns; medians count.

    A loop alone takes now this, now a tenth more, on machines that others use as well.
    """
    with tempfile.TemporaryDirectory() as place:
        write_functions(place, 100 if quick else 600)
        config = functions_config(place, Path(place, "out"))
        rows = [real_round(config) for _ in range(1 if quick else ROUNDS)]
    found = shares_of(rows)
    print(
        f"the {found['slowest']} is slowest: {100 * found['share']:.1f} % of it alone, "
        f"{100 * found['share_beside']:.1f} % of it beside the other"
    )
    return found


def real_round(config):
    """Seconds of each stage alone, beside the other, and in the pipeline."""
    found = {f"{name}_alone": bare_loops(config, [name])[name] for name in STAGES}
    found |= {f"{name}_beside": seconds for name, seconds in bare_loops(config, STAGES).items()}
    timing = timed_run(config, Stages())
    for name in STAGES:
        found[f"{name}_span"] = getattr(timing, name).span_seconds
        found[f"{name}_busy"] = getattr(timing, name).busy_seconds
    return {**found, "whole": timing.whole_seconds, "fill": timing.fill_seconds}


def shares_of(rows):
    """Medians of all times, and what the slowest stage keeps of its pace."""
    usual = {name: statistics.median(row[name] for row in rows) for name in rows[0]}
    slowest = max(STAGES, key=lambda name: usual[f"{name}_alone"])
    span = usual[f"{slowest}_span"]
    return {
        **usual,
        "slowest": slowest,
        "share": usual[f"{slowest}_alone"] / span,
        "share_beside": usual[f"{slowest}_beside"] / span,
        "busy_share": statistics.median(
            row[f"{slowest}_busy"] / row[f"{slowest}_span"] for row in rows
        ),
        "rounds": rows,
    }
