"""Prompts for the tiny target in data/tiny_target, as JSON Lines: to train on, and held out.

python examples/tiny_prompts.py --output-dir out/dflash --num-prompts 1000
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from tiny_target_task import exercises


def write_prompts(path: Path, count: int, *, held_out: bool) -> None:
    """Write ``count`` prompts with their tasks; those held out occur nowhere in training."""
    seed = 200 if held_out else 100
    lines = [
        json.dumps({"task": one.task, "prompt": one.prompt})
        for one in exercises(count, seed=seed, held_out=held_out)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def main() -> None:
    """Write prompts.jsonl and held_out.jsonl."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output-dir", type=Path, default=Path("out/dflash"))
    parser.add_argument("--num-prompts", type=int, default=1000)
    parser.add_argument("--num-held-out", type=int, default=60)
    options = parser.parse_args()
    options.output_dir.mkdir(parents=True, exist_ok=True)
    write_prompts(options.output_dir / "prompts.jsonl", options.num_prompts, held_out=False)
    write_prompts(options.output_dir / "held_out.jsonl", options.num_held_out, held_out=True)


if __name__ == "__main__":
    main()
