"""DFlash in miniature: the tiny target answers prompts, a drafter learns from that, and drafts.

python examples/13_dflash_drafter.py --output-dir out/example_drafter
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
from pathlib import Path

from commands import run
from tiny_prompts import write_prompts

ROOT = Path(__file__).parents[1]
TARGET = str(ROOT / "data" / "tiny_target")
CONFIG = str(ROOT / "examples" / "dflash_small.yaml")
NUM_PROMPTS, EPOCHS = 60, 3
"""Few, for a minute or two; `make prove` takes a thousand, and says what comes out then."""


def main() -> None:
    """Prompts, samples, training, and decoding of prompts that were never trained on."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output-dir", type=Path, required=True)
    out: Path = parser.parse_args().output_dir
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    prompts, held_out, samples = out / "prompts.jsonl", out / "held_out.jsonl", out / "samples"
    write_prompts(prompts, NUM_PROMPTS, held_out=False)
    write_prompts(held_out, 4, held_out=True)

    answers = ["--target", TARGET, "--output", str(samples), "--max-new-tokens", "96"]
    run(["dflash", "prepare", str(prompts), *answers])

    settings = {
        "output_dir": out / "run",
        "target.model": TARGET,
        "data.train": f"[{samples}]",
        "data.num_held_out": 4,
        "epochs": EPOCHS,
        "evaluation.num_prompts": 2,
    }
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    run(["dflash", "train", CONFIG, *given])

    drafter = ["--drafter", str(out / "run" / "drafter"), "--max-new-tokens", "48"]
    asked = ["--target", TARGET, "--prompts", str(held_out), *drafter, "--json"]
    found = json.loads(run(["dflash", "evaluate", *asked], subprocess.PIPE))
    print(f"{found['tokens_per_verify']:.2f} tokens per verification of at most 8;")
    print(f"{found['num_mismatches']} outputs differ from the target's own")
    assert found["num_mismatches"] == 0
    assert found["tokens_per_verify"] > 1


if __name__ == "__main__":
    main()
