"""Does batching by length cost or gain anything in training? A real, small comparison, on a CPU.

Three parts, each with several seeds: all strategies trained beside each other, the default's speed
against that of sorted batches once more and closer, and the noise of a step's gradient by the order
of batches. ``docs/concepts/training.md`` explains and reports them;
``training_page.py`` writes its tables and plots from the result.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from itertools import islice

import training_data
import training_gradients
import training_runs
import training_speed
from training_page import print_summary


@dataclass(frozen=True, slots=True)
class Size:
    """How much is trained and measured."""

    every_file: int
    """One file of the library in so many is read."""
    num_held_out: int
    num_samples: int
    """Of each training run."""
    num_rounds: int
    """Turns of each strategy in a run."""
    num_evaluations: int
    num_timed_samples: int
    """Of the closer look at speed."""
    num_repeats: int
    checkpoints: tuple[int, ...]
    """Samples trained on where gradients are measured."""
    num_gradient_batches: int
    num_keys: int
    """Arrangements of each order."""
    num_seeds: int
    num_processes: int


FULL = Size(1, 64, 1000, 48, 8, 1000, 3, (450, 2400), 128, 50, 3, 2)
QUICK = Size(24, 4, 24, 2, 2, 24, 2, (24,), 8, 3, 1, 1)


def measure(quick):
    """All parts for every seed, as plain values."""
    size = QUICK if quick else FULL
    corpus = training_data.collect(size.num_held_out, size.every_file)
    runs_of = (corpus, size.num_samples, size.num_rounds, size.num_evaluations)
    noise_of = (corpus, size.checkpoints, size.num_gradient_batches, size.num_keys)
    times_of = (corpus, size.num_timed_samples, size.num_repeats)
    kinds = {
        "runs": (training_runs.compare, *runs_of),
        "noise": (training_gradients.measure_noise, *noise_of),
        "speed": (training_speed.least_times, *times_of),
    }
    jobs = [(*kind, seed) for kind in kinds.values() for seed in range(size.num_seeds)]
    done = iter(_run(jobs, size.num_processes))
    found = {
        "torch": version("torch"),
        "size": asdict(size),
        "corpus": _about(corpus),
        "num_parameters": training_runs.num_parameters(),
        "limits": asdict(training_runs.LIMITS),
        "learning_rate": training_runs.LEARNING_RATE,
        **{name: list(islice(done, size.num_seeds)) for name in kinds},
    }
    print_summary(found)
    return found


def _run(jobs, num_processes):
    """Results in the order of the jobs; one process runs them here."""
    if num_processes == 1:
        return [function(*arguments) for function, *arguments in jobs]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(num_processes, mp_context=context) as pool:
        waiting = [pool.submit(function, *arguments) for function, *arguments in jobs]
        return [result.result() for result in waiting]


def _about(corpus):
    lengths = corpus.lengths
    return {
        "num_training": len(corpus.training),
        "num_held_out": len(corpus.held_out),
        "num_held_out_tokens": sum(map(len, corpus.held_out)),
        "num_unparsed_files": corpus.num_unparsed,
        "mean_length": float(lengths.mean()),
        "share_cut": float((lengths == training_data.LONGEST).mean()),
        "length_design_effect": training_gradients.length_effects(lengths, 8),
    }
