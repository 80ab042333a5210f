"""The training comparison with other libraries' batches: held-out loss against time and tokens.

Every peer plans the whole corpus (``benchmarks/peers``); a run trains on the beginning of its
epoch, one batch a step, until it has seen so many real tokens. The model, optimiser, learning rate
by share of real tokens, initial weights and token-weighted loss are those of ``training_runs``.
Seeds are kept in ``out/training_peers`` as they are done, so that a run that was stopped goes on.
"""

from __future__ import annotations

import hashlib
import json
import random
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
import training_data
from peers import compare, metrics
from peers.arms import ARMS
from training_data import Functions
from training_runs import LIMITS, Learning, held_out_batches

from lengthwise.loader import PadCollator, count_tokens, token_weighted_loss

KEPT = Path(__file__).parents[1] / "out" / "training_peers"
LEFT_OUT = ("fixed", "grouped_safe", "plain_safe")
"""Arms whose steps are many times smaller: that, not their composition, would be compared."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much is trained."""

    every_file: int
    num_held_out: int
    num_tokens: int
    """Real tokens of each run."""
    num_rounds: int
    num_evaluations: int
    num_seeds: int


# Group by length walks from long to short samples in stairs of 50 batches; 385,000 tokens are two.
FULL = Size(1, 48, 385_000, 48, 6, 3)
QUICK = Size(24, 4, 12_000, 2, 2, 1)


def measure(quick):
    """Every arm's record for every seed, and the arms that did not run."""
    size = QUICK if quick else FULL
    corpus = training_data.collect(size.num_held_out, size.every_file)
    seeds = [_kept(corpus, size, seed, keep=not quick) for seed in range(size.num_seeds)]
    found = {
        "torch": torch.__version__,
        "size": asdict(size),
        "limits": asdict(LIMITS),
        "labels": {name: ARMS[name].label for name in ARMS},
        "missing": seeds[0]["missing"],
        "runs": [seed["runs"] for seed in seeds],
    }
    for name, record in found["runs"][0].items():
        print(
            f"{name:13} {record['num_steps']:>4} steps  {record['real_tokens']:>9,} tokens  "
            f"{record['cpu_seconds']:7.1f} s  loss {record['curve'][-1]['loss']:.3f}"
        )
    print(f"not run: {', '.join(found['missing']) or 'none'}")
    return found


def _kept(corpus, size, seed, *, keep):
    """One seed's runs, from the file that an earlier run left, or made now."""
    about = [asdict(size), asdict(LIMITS), list(ARMS), compare.interpreter(), len(corpus.training)]
    name = hashlib.sha256(json.dumps(about).encode()).hexdigest()[:12]
    path = KEPT / f"{name}-{seed}.json"
    if keep and path.exists():
        return json.loads(path.read_text(encoding="utf-8"))
    found = one_seed(corpus, size, seed)
    if keep:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found), encoding="utf-8")
    return found


def one_seed(corpus, size, seed):
    """All arms beside each other; short turns in random order."""
    torch.set_num_threads(1)
    planned, missing = plans(corpus.lengths, seed)
    runs = {
        name: Run(
            corpus, cut(plan["batches"], corpus.lengths, size.num_tokens), plan["packed"], seed
        )
        for name, plan in planned.items()
    }
    held_out = held_out_batches(corpus.held_out)
    turns = random.Random(seed)
    every = size.num_rounds // size.num_evaluations
    for turn in range(1, size.num_rounds + 1):
        for run in turns.sample(list(runs.values()), len(runs)):
            run.train_until(turn / size.num_rounds)
            if turn % every == 0:
                run.evaluate(held_out)
    return {"missing": missing, "runs": {name: run.found() for name, run in runs.items()}}


def cut(batches, lengths, num_tokens):
    """The first batches that hold so many real tokens."""
    tokens = np.cumsum([lengths[batch].sum() for batch in batches])
    return batches[: int(np.searchsorted(tokens, num_tokens)) + 1]


def plans(lengths, seed):
    """Each arm's batches of an epoch, formed in a process of its own; errors of the others."""
    found, missing = {}, {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "lengths.npy"
        np.save(path, lengths)
        limits = ("--limits", str(LIMITS.max_tokens), str(LIMITS.max_batch_size))
        options = (*limits, "--step", "1", "--seed", str(seed))
        for name in ARMS:
            if name not in LEFT_OUT:
                plan = compare.ask(name, str(path), *options)
                (missing if "error" in plan else found)[name] = plan
    return found, {name: plan["error"] for name, plan in missing.items()}


class Run(Learning):
    """A model trained on given batches, one a step."""

    def __init__(self, corpus, batches, packed, seed):
        """Fresh weights of the seed."""
        super().__init__(len(batches), seed)
        self.samples, self.batches, self.packed = Functions(corpus.training), batches, packed
        flat = metrics.Flat.of(batches)
        self.whole = int(flat.sums(corpus.lengths).sum())
        self.padding = metrics.padding(flat, corpus.lengths, LIMITS.max_tokens, packed=packed)

    def step(self):
        """Learn from the next batch."""
        samples = [self.samples[index] for index in self.batches[self.record.num_batches]]
        batch, sizes = self._collated(samples)
        num_tokens = count_tokens(batch["labels"])
        logits = self.model(batch["input_ids"], sizes)
        token_weighted_loss(logits, batch["labels"], num_tokens).backward()
        self.record.num_batches += 1
        self.record.num_samples += len(samples)
        self.record.padded_tokens += batch["labels"].numel()
        done = self.record.real_tokens + int(num_tokens)
        self.update(num_tokens, done / self.whole)

    def _collated(self, samples):
        """Padded rows; or one row and the lengths in it."""
        if not self.packed:
            return PadCollator()(samples), None
        row = {
            key: torch.from_numpy(np.concatenate([sample[key] for sample in samples]))[None]
            for key in ("input_ids", "labels")
        }
        return row, [len(sample["labels"]) for sample in samples]

    def found(self):
        """The record, and what the batches were like."""
        return {**asdict(self.record), **self.padding, "packed": self.packed}
