"""One trainer in a process of its own: ``python -m rivals.worker NAME``.

Reads a request a line, ``[name, {arguments}]``, and answers each with a line of JSON. So several
trainers can take turns, step by step, and each keeps its memory to itself.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import sys
import tempfile
import time
import warnings
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
import process_memory
import torch

from lengthwise.dflash.decoding import evaluate
from lengthwise.dflash.formats import load_checkpoint
from lengthwise.dflash.target import load_target
from rivals.folder import Folder
from rivals.recipes import RECIPES

MODULES = {"lengthwise": "ours", "speculators": "speculators", "specforge": "specforge"}
MANY_STEPS = 1000
"""Of a schedule that is not followed to its end."""


class Worker:
    """Answers requests about one trainer."""

    def __init__(self, name):
        """Import it."""
        self.name = name
        self.module = importlib.import_module(f"rivals.systems.{MODULES[name]}")

    def about(self):
        """Versions and settings."""
        names = (self.module.PACKAGE, "torch", "transformers")
        return {
            "settings": self.module.SETTINGS,
            "versions": {name: version(name) for name in names},
        }

    def open(self, folder):
        """Load samples and first weights; one small step loads all code and makes all states.

        Of four samples, as ours draws anchors only where there are more than enough.
        """
        self.folder = Folder(folder)
        self.system = self.module.System(self.folder, RECIPES[self.name], 0, MANY_STEPS)
        self.system.learn(self.folder.examples[-4:])

    def step(self):
        """One optimiser step on all samples: processor seconds and what it was made of."""
        started = time.process_time()
        step = self.system.learn(self.folder.examples)
        return {"seconds": time.process_time() - started, **asdict(step)}

    def memory(self):
        """Bytes that a step needs at its peak beyond what is resident before it."""
        gc.collect()
        before = process_memory.reset_peak()
        self.system.learn(self.folder.examples)
        return process_memory.peak() - before

    def value(self, places, weighting):
        """The loss of the first weights at given anchors."""
        fresh = self.module.System(self.folder, RECIPES[self.name], 0, MANY_STEPS)
        return asdict(fresh.value(self.folder.examples, places, weighting))

    def real_share(self, lengths):
        """Real tokens over places of its rows, where samples are this long."""
        return float(self.module.real_share(np.array(lengths)))

    def attempts(self, folder):
        """What does not run here, with the error; None where it does run."""
        return {
            what: _error_of(function)
            for what, function in self.module.attempts(Folder(folder)).items()
        }

    def train(self, folder, recipe, seed, steps):
        """Train, save as the package saves, load with lengthwise, decode held-out prompts."""
        folder = Folder(folder)
        started = time.process_time()
        system = self.module.System(folder, RECIPES[recipe], seed, len(steps))
        done = [system.learn([folder.examples[i] for i in batch]) for batch in steps]
        seconds = time.process_time() - started
        target = load_target(folder.settings.target)
        with tempfile.TemporaryDirectory() as place:
            system.save(Path(place) / "drafter")
            found = load_checkpoint(Path(place) / "drafter", target_config=target.config)
        settings = folder.settings
        decoded = evaluate(
            target,
            found.drafter,
            settings.prompts,
            max_new_tokens=settings.max_new_tokens,
            stop_token_ids=settings.stop_token_ids,
            compare=False,
        )
        tail = done[-max(1, len(done) // 10) :]
        return {
            "format": found.format,
            "train_seconds": seconds,
            "loss": sum(step.loss for step in tail) / len(tail),
            "anchors": sum(step.anchors for step in done),
            "labels": sum(step.labels for step in done),
            "tokens": sum(step.tokens for step in done),
            "places": sum(step.places for step in done),
            "tokens_per_verify": decoded.tokens_per_verify,
            "standard_error": decoded.overall.standard_error,
        }


def _error_of(function):
    try:
        function()
    except BaseException as error:  # noqa: BLE001 - whatever it raises is the finding
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return f"{type(error).__name__}: {lines[0] if lines else ''}"
    return None


def main():
    """Answer until there are no more lines; a trainer that cannot be imported says so once."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    answers = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):  # packages print too
        try:
            worker = Worker(sys.argv[1])
        except Exception as error:  # noqa: BLE001 - whatever its import raises is its row
            print(
                json.dumps({"error": f"{type(error).__name__}: {error}"}), file=answers, flush=True
            )
            return
        print(json.dumps({"ready": worker.about()}), file=answers, flush=True)
        for line in sys.stdin:
            name, arguments = json.loads(line)
            found = getattr(worker, name)(**arguments)
            print(json.dumps({"found": found}), file=answers, flush=True)


if __name__ == "__main__":
    main()
