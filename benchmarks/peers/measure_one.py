"""One peer on one data set, in a process of its own: ``python -m peers.measure_one ARM DATA``.

Prints one JSON object. Times run from the data in the peer's own form (a list, cuts, a table) to
the last batch; memory is what this needs above that form. A first pass over few samples loads all
code.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import time
from dataclasses import asdict, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import islice

import numpy as np
import process_memory

from peers import metrics
from peers.arms import ARMS
from peers.case import STEP, Case, Replica
from peers.datasets import load

WARM_UP = 2000
LEAST_PASSES, MOST_SECONDS = 3, 15
"""Passes that are timed: so many, fewer where they take longer than this together."""
REPLICAS = (8, 64)
FEW = 20_000
"""Samples for peers of which every replica has to be run apart."""


def measure(arm, case):
    """All columns of one peer."""
    case = replace(case, lengths=case.lengths[: arm.about.most_samples])
    warm = replace(case, lengths=case.lengths[:WARM_UP])
    _drain(arm.make(arm.prepare(warm.lengths), warm, Replica()))
    data = arm.prepare(case.lengths)
    about = arm.about
    found = {
        "about": asdict(about),
        "version": _version(about.package),
        "num_samples": case.lengths.size,
    }
    sampler = arm.make(data, case, Replica())
    epochs = [_epoch(sampler, epoch) for epoch in (0, 1)]
    del sampler
    found |= speed(arm, case, data, len(epochs[0]))
    flat, following = map(metrics.Flat.of, epochs)
    found |= metrics.padding(flat, case.lengths, case.max_tokens, packed=about.packed)
    found |= metrics.coverage(flat, case.lengths.size)
    found |= {
        "repeat_rate": metrics.repeat_rate(flat, following),
        "order_correlation": metrics.order_correlation(flat, case.lengths),
        "design_effect": metrics.design_effect(flat, case.lengths, STEP),
    }
    for num_replicas in REPLICAS:
        found[f"replicas_{num_replicas}"] = replicas(arm, case, data, num_replicas)
    found["resume"] = resume(arm, case, data)
    return found


def speed(arm, case, data, num_batches):
    """From the data to the last batch of a first epoch, and memory meanwhile."""
    seconds, begun = [], time.perf_counter()
    before = process_memory.reset_peak()
    while len(seconds) < LEAST_PASSES and (
        not seconds or time.perf_counter() - begun < MOST_SECONDS
    ):
        started = time.perf_counter()
        _drain(arm.make(data, case, Replica()), num_batches)
        seconds.append(time.perf_counter() - started)
        if len(seconds) == 1:
            peak = process_memory.peak()
    median = statistics.median(seconds)
    return {
        "seconds": median,
        "num_passes": len(seconds),
        "samples_per_second": case.lengths.size / median,
        "bytes_per_sample": max(0, peak - before) / case.lengths.size,
    }


def replicas(arm, case, data, num_replicas):
    """Balance of the replicas of a step, and whether all have as many steps."""
    packed, lengths = arm.about.packed, case.lengths
    if arm.about.dealing is None:
        few = replace(case, lengths=lengths[:FEW])
        lengths, data = few.lengths, arm.prepare(few.lengths)
        ranks = [
            _epoch(arm.make(data, few, Replica(rank, num_replicas)), 0)
            for rank in range(num_replicas)
        ]
    else:
        batches = _epoch(arm.make(data, case, Replica(0, num_replicas)), 0)
        ranks = [batches[rank::num_replicas] for rank in range(num_replicas)]
    counts = [len(rank) for rank in ranks]
    if not min(counts):
        unknown = dict.fromkeys(("balance", "attention_balance", "equal"))
        return {**unknown, "steps": [0, max(counts)]}
    flats = [metrics.Flat.of(rank) for rank in ranks]
    return {
        "balance": metrics.replica_balance([f.padded_tokens(lengths, packed) for f in flats]),
        "attention_balance": metrics.replica_balance(
            [f.attention_costs(lengths, packed) for f in flats]
        ),
        # Whoever deals one list to replicas fills up the last step, as the adapter says.
        "equal": min(counts) == max(counts) or arm.about.dealing is not None,
        "steps": [min(counts), max(counts)],
    }


def resume(arm, case, data):
    """From the middle of the second epoch in a fresh sampler: seconds, and whether it is exact."""
    expected = _epoch(arm.make(data, case, Replica()), 1)
    half = len(expected) // 2
    if arm.about.resume == "state":
        saved = arm.make(data, case, Replica())
        saved.set_epoch(1)
        iterator = iter(saved)
        for _ in range(half):
            next(iterator)
        state = saved.state_dict()
        del iterator
    started = time.perf_counter()
    fresh = arm.make(data, case, Replica())
    if arm.about.resume == "state":
        fresh.load_state_dict(state)
        iterator = iter(fresh)
    else:
        fresh.set_epoch(1)
        iterator = iter(fresh)
        for _ in range(half):
            next(iterator)
    first = next(iterator)
    seconds = time.perf_counter() - started
    rest = [list(map(int, batch)) for batch in (first, *iterator)]
    return {"kind": arm.about.resume, "seconds": seconds, "exact": rest == expected[half:]}


def _epoch(sampler, epoch):
    sampler.set_epoch(epoch)
    return [list(map(int, batch)) for batch in sampler]


def _drain(sampler, num_batches=None):
    """Take the batches; no step further, where a peer would begin the next epoch."""
    sampler.set_epoch(0)
    for _ in islice(sampler, num_batches):
        pass


def _version(package):
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def main():
    """Measure what the command line names; a peer that fails says how."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("arm", choices=ARMS)
    parser.add_argument("dataset", help="a name, or an .npy file of lengths: prints batches")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--limits", type=int, nargs=2, metavar=("TOKENS", "SAMPLES"))
    parser.add_argument("--step", type=int, default=STEP, help="batches of an optimiser step")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with contextlib.redirect_stdout(sys.stderr):  # peers print too
        found = _run(options)
    print(json.dumps(found))


def _run(options):
    try:
        arm = ARMS[options.arm].load()
    except Exception as error:  # noqa: BLE001 - whatever a peer's import raises is its row
        return {"error": f"{type(error).__name__}: {error}"}
    if options.limits is None:
        return measure(arm, load(options.dataset, quick=options.quick))
    case = Case(np.load(options.dataset), *options.limits, seed=options.seed)
    sampler = arm.make(arm.prepare(case.lengths), case, Replica(step=options.step))
    return {"packed": arm.about.packed, "batches": _epoch(sampler, 0)}


if __name__ == "__main__":
    main()
