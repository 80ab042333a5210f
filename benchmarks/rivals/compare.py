"""Our DFlash trainer beside ``speculators`` and SpecForge, on one thread of a CPU.

The trainers run in processes of their own and take turns. Seconds are those of the processor, so
that other work on the machine counts little; only the runs that are judged by what they learn go
at the same time. Both packages pin other versions of torch and
transformers, so they live in an environment of their own (``make rivals``); where they are missing,
their rows say so.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from workloads import run_lengths

from rivals.recipes import RECIPES, SYSTEMS

BENCHMARKS = Path(__file__).parents[1]
INSTALLED = BENCHMARKS.parent / "out" / "rivals" / "bin" / "python"
"""The environment that ``make rivals`` makes, apart from the project's own."""
WEIGHTINGS = {"decay": SYSTEMS, "dpace": SYSTEMS, "kl": ("speculators",)}
TIMED_STEPS = 3
NUM_LENGTHS = 4000
"""Of the run's distribution, for the share of real tokens in rows."""


class Trainer:
    """One trainer's process."""

    def __init__(self, name):
        """Start it; importing takes a while, which :meth:`wait` waits for."""
        self.name = name
        paths = [str(BENCHMARKS), os.environ.get("PYTHONPATH", "")]
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}
        environment |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        environment |= {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1"}
        self.errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115
        self.process = subprocess.Popen(
            [interpreter(), "-W", "ignore", "-m", "rivals.worker", name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=environment,
        )

    def wait(self):
        """What it says of itself, and the error that its import ended with."""
        first = self._answer()
        self.error, self.about = first.get("error"), first.get("ready")

    def ask(self, request, **arguments):
        """The answer to one request."""
        self.process.stdin.write(json.dumps([request, arguments]) + "\n")
        self.process.stdin.flush()
        return self._answer()["found"]

    def _answer(self):
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.process.wait()
        self.errors.seek(0)
        raise RuntimeError(f"{self.name} ended:\n{self.errors.read()[-4000:]}")

    def end(self):
        """No more requests."""
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()
        self.errors.close()


def started():
    """All trainers, once each has imported everything, which they do at the same time."""
    trainers = {name: Trainer(name) for name in SYSTEMS}
    for one in trainers.values():
        one.wait()
    return trainers


def interpreter():
    """The Python that has the rivals: as said, as made by ``make rivals``, or this one."""
    named = os.environ.get("LENGTHWISE_RIVALS_PYTHON")
    return named or (str(INSTALLED) if INSTALLED.exists() else sys.executable)


def measure(quick):
    """Steps, losses, acceptance; a trainer that cannot be imported has an ``error``.

    None where no other can be.
    """
    trainers = started()
    try:
        there = {name: one for name, one in trainers.items() if one.error is None}
        for name in trainers.keys() - there.keys():
            print(f"{name} is left out: {trainers[name].error}")
        if there.keys() == {"lengthwise"}:
            print("none to compare with; `make rivals` installs them")
            return None
        return {
            "about": {
                name: {"error": one.error} if one.error else one.about
                for name, one in trainers.items()
            },
            **_steps(there, quick),
            "real_share": _real_share(there, 400 if quick else NUM_LENGTHS),
            "training": _training(there, quick),
        }
    finally:
        for one in trainers.values():
            one.end()


def _steps(trainers, quick):
    from rivals.cases import STEPS, write_random

    rows, losses, attempts = {}, {}, {}
    for name in list(STEPS)[:1] if quick else STEPS:
        with tempfile.TemporaryDirectory() as place:
            write_random(STEPS[name], Path(place))
            for one in trainers.values():
                one.ask("open", folder=place)
            rows[name] = _timed(trainers, 2 if quick else TIMED_STEPS)
            if not losses:
                losses = _losses(trainers)
                attempts = {key: one.ask("attempts", folder=place) for key, one in trainers.items()}
        for key, row in rows[name].items():
            print(f"{name:22} {key:12} {row['seconds']:7.2f} s, {row['bytes'] / 2**20:6.0f} MiB")
    print(", ".join(f"{what} {found:.1e}" for what, found in gaps(losses).items()))
    return {"steps": rows, "losses": losses, "attempts": attempts}


def _real_share(trainers, count):
    lengths = run_lengths(count).tolist()
    return {name: one.ask("real_share", lengths=lengths) for name, one in trainers.items()}


def _timed(trainers, repeats):
    """Each trainer's memory first, then steps in turn."""
    rows = {name: {"bytes": one.ask("memory")} for name, one in trainers.items()}
    turns = [{name: one.ask("step") for name, one in trainers.items()} for _ in range(repeats)]
    for name, row in rows.items():
        seconds = [turn[name].pop("seconds") for turn in turns]
        row.update(turns[-1][name], seconds=statistics.median(seconds), all_seconds=seconds)
    return rows


def given_anchors():
    """Places in each document that all three take: labelled, with the whole block inside."""
    from rivals.cases import BLOCK_SIZE, LENGTHS, PROMPT

    return [list(range(PROMPT, length - BLOCK_SIZE + 1, 11)) for length in LENGTHS]


def _losses(trainers):
    places = given_anchors()
    return {
        weighting: {
            name: trainers[name].ask("value", places=places, weighting=weighting)
            for name in names
            if name in trainers
        }
        for weighting, names in WEIGHTINGS.items()
    }


def gaps(losses):
    """Largest relative differences from ours: of the sums of losses, and of their gradients."""
    found = {}
    for weighting in ("decay", "dpace"):
        own = losses[weighting]["lengthwise"]
        for what in ("numerator", "gradient"):
            others = [one[what] / own[what] for one in losses[weighting].values()]
            found[f"{weighting}, {what}"] = max(abs(ratio - 1) for ratio in others)
    return found


def _training(trainers, quick):
    from rivals.cases import FULL, QUICK, write_tiny

    size = QUICK if quick else FULL
    rows = {}
    with tempfile.TemporaryDirectory() as place:
        steps = write_tiny(size, Path(place))
        wanted = [
            (name, seed)
            for name, recipe in RECIPES.items()
            for seed in range(size.equal_seeds if recipe.start == "given" else size.seeds)
        ]

        def train(system):
            """All that one process has to train, one after the other."""
            for name, seed in wanted:
                if RECIPES[name].system == system:
                    found = trainers[system].ask(
                        "train", folder=place, recipe=name, seed=seed, steps=steps[seed]
                    )
                    print(_line(name, seed, found), flush=True)
                    yield name, found

        with ThreadPoolExecutor(len(SYSTEMS)) as pool:
            done = list(pool.map(lambda system: list(train(system)), trainers))
        for name in RECIPES:
            runs = [found for one in done for other, found in one if other == name]
            if runs:
                rows[name] = runs
    return {
        "num_prompts": size.num_prompts,
        "num_steps": size.num_steps,
        "num_held_out": size.num_held_out,
        "max_tokens": size.max_tokens,
        "max_anchors": size.max_anchors,
        "rows": rows,
    }


def _line(name, seed, run):
    return (
        f"{name:16} seed {seed}: {run['tokens_per_verify']:.2f} +- {run['standard_error']:.2f} "
        f"tokens per verification, {run['train_seconds']:.0f} s of training"
    )
