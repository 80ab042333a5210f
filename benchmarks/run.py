"""All benchmarks in one command: ``make bench``, or ``python benchmarks/run.py [NAME ...]``.

Results go to ``benchmarks/results/NAME.json`` with the machine and versions they were measured on;
the README's table and pages of the docs are made from them. Machines differ and are noisy:
read ratios, not seconds. ``--quick`` runs small sizes and writes nothing.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import billion
import collating
import dflash_step
import frontier
import import_time
import large_pipeline
import locality
import optimiser
import ordering
import pages
import peers_page
import performance_page
import pipeline_page
import pipeline_real
import pipeline_soak
import pipeline_throughput
import planning
import prediction
import prediction_page
import remix
import rivals_page
import sampling
import scan_ray
import scanning
import simulation
import streaming
import training
import training_page
import training_peers
import training_peers_page
from peers import compare
from rivals import compare as rivals
from workloads import machine

RESULTS = Path(__file__).parent / "results"
README = Path(__file__).parents[1] / "README.md"
HOME = README.parent / "docs" / "index.md"
PARTS = {
    "optimiser": optimiser.measure,
    "planning": planning.measure,
    "ordering": ordering.measure,
    "locality": locality.measure,
    "billion": billion.measure,
    "large_pipeline": large_pipeline.measure,
    "frontier": frontier.measure,
    "scanning": scanning.measure,
    "scan_ray": scan_ray.measure,
    "collating": collating.measure,
    "sampling": sampling.measure,
    "streaming": streaming.measure,
    "peers": compare.measure,
    "training": training.measure,
    "training_peers": training_peers.measure,
    "remix": remix.measure,
    "prediction": prediction.measure,
    "pipeline_soak": pipeline_soak.measure,
    "pipeline_throughput": pipeline_throughput.measure,
    "pipeline_real": pipeline_real.measure,
    "simulation": simulation.measure,
    "dflash_step": dflash_step.measure,
    "rivals": rivals.measure,
    "import_time": import_time.measure,
}
PAGES = {
    "scan_ray": scan_ray.fill_page,
    "frontier": lambda found: [
        pages.fill(page, {"table:run": frontier.table(found)}) for page in (README, HOME)
    ],
    "peers": peers_page.fill_page,
    "remix": remix.fill_page,
    "locality": locality.fill_page,
    "billion": billion.fill_page,
    "large_pipeline": large_pipeline.fill_page,
    "simulation": simulation.fill_page,
    "prediction": prediction_page.fill_page,
    "pipeline_throughput": pipeline_page.fill_page,
    "pipeline_real": pipeline_page.fill_real,
    "training_peers": training_peers_page.fill_page,
    "rivals": rivals_page.fill_page,
}
"""What puts a result into its page."""


def main():
    """Run the named parts, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="small sizes; writes nothing")
    options = parser.parse_args()
    unknown = set(options.names) - set(PARTS)
    if unknown:
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    about = machine()
    print(json.dumps(about, indent=2))
    for name in options.names or PARTS:
        print(f"\n== {name}")
        started = time.perf_counter()
        found = PARTS[name](options.quick)
        print(f"({time.perf_counter() - started:.0f} s)")
        if not options.quick and found is not None:  # None: what it compares with is missing
            RESULTS.mkdir(exist_ok=True)
            text = json.dumps({"machine": about, "result": found}, indent=2) + "\n"
            (RESULTS / f"{name}.json").write_text(text, encoding="utf-8")
            if name in PAGES:
                PAGES[name](found)
            if name == "training":
                training_page.fill_page(found, about)
    if not options.quick:
        performance_page.main()


if __name__ == "__main__":
    main()
