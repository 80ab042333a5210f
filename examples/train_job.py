"""The second half of the main job: a DFlash drafter, trained through the pipeline on this CPU.

The tiny target in data/tiny_target answers prompts; one process runs it, another trains the drafter
on what it makes; then prompts that occur nowhere in training are decoded, and every token is
compared with the target's own. Each command line is printed before it runs.

    python examples/train_job.py --output-dir out
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from pathlib import Path

from commands import run
from tiny_prompts import write_prompts

TARGET = "data/tiny_target"
CONFIG = "examples/dflash_pipeline.yaml"
NUM_PROMPTS = 600
NUM_HELD_OUT = 24
MAX_NEW_TOKENS = "256"
LEAST_AFTER = 3.0
"""Tokens per verification, of 8 at most; below, something is wrong with the training."""


def prepare(out: Path) -> None:
    """Make prompts, and let the target answer them."""
    out.mkdir(parents=True, exist_ok=True)
    write_prompts(out / "train_prompts.jsonl", NUM_PROMPTS, held_out=False)
    write_prompts(out / "test_prompts.jsonl", NUM_HELD_OUT, held_out=True)
    source, samples = str(out / "train_prompts.jsonl"), str(out / "samples")
    settings = ["--max-new-tokens", MAX_NEW_TOKENS, "--batch-tokens", "65536"]
    run(["dflash", "prepare", source, "--target", TARGET, "--output", samples, *settings])


def evaluate(out: Path, drafter: str) -> dict[str, float]:
    """Decode prompts that were never trained on, with the drafter and without it."""
    prompts = ["--prompts", str(out / "test_prompts.jsonl"), "--max-new-tokens", MAX_NEW_TOKENS]
    models = ["--target", TARGET, "--drafter", drafter]
    found: dict[str, float] = json.loads(
        run(["dflash", "evaluate", *models, *prompts, "--json"], subprocess.PIPE)
    )
    return found


def main() -> None:
    """Run the job; exit 1 if the drafter does not do what it should."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output-dir", type=Path, default=Path("out"))
    out: Path = parser.parse_args().output_dir / "dflash"
    run_dir, page = out / "pipeline", out.parent / "training.html"
    shutil.rmtree(run_dir, ignore_errors=True)
    prepare(out)
    places = [f"output_dir={run_dir}", f"data.train=[{out / 'samples'}]"]
    run(["dflash", "train", CONFIG, *(word for place in places for word in ("--set", place))])
    records = map(json.loads, (run_dir / "metrics.jsonl").read_text().splitlines())
    before = next(one for one in records if "eval_tokens_per_verify" in one)
    after = evaluate(out, str(run_dir / "drafter"))
    run(["dflash", "report", str(run_dir), "--html", str(page)])
    print(f"\ntokens per verification before training: {before['eval_tokens_per_verify']:.2f}")
    print(f"after it, on prompts never trained on:   {after['tokens_per_verify']:.2f} of 8")
    print(f"outputs that differ from the target's:   {after['num_mismatches']}")
    print(f"the run's report: {page.resolve().as_uri()}")
    if after["tokens_per_verify"] < LEAST_AFTER or after["num_mismatches"]:
        sys.exit("the drafter does not do what it should; see above")


if __name__ == "__main__":
    main()
