"""The main job on real data: from source files to the plan of an epoch, by the ordinary commands.

Collects the functions of the installed standard library, trains a small byte-level BPE tokenizer
on them, and then runs ``lengthwise scan``, ``optimize``, ``compare`` and ``plan`` one after the
other, as a user would in a shell. Each command line is printed before it runs.

    python examples/main_job.py --output-dir out
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from commands import run

if TYPE_CHECKING:
    from collections.abc import Iterator

VOCABULARY_SIZE = 8_192
MAX_TOKENS = 8_192  # twice the longest function, so nothing is oversize
MAX_BATCH_SIZE = 64  # at the mean length of about 122 tokens both limits bind
NUM_BUCKETS = 6
NUM_REPLICAS = 8


def train_tokenizer(corpus: Path, output: Path) -> None:
    """Train a byte-level BPE on the ``text`` of every line of ``corpus`` and save it.

    The same corpus gives the same tokenizer.
    """

    def texts() -> Iterator[str]:
        with corpus.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["text"]

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY_SIZE,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|endoftext|>"],
        show_progress=sys.stderr.isatty(),
    )
    tokenizer.train_from_iterator(texts(), trainer)
    tokenizer.save(str(output))
    print(f"trained a BPE of {tokenizer.get_vocab_size():,} tokens: {output}")


def commands(out: Path) -> list[list[str]]:
    """The four command lines, each reading what the one before it wrote."""
    corpus, lengths, config = out / "stdlib.jsonl", out / "lengths.npy", out / "batching.toml"
    limits = ["--max-tokens", str(MAX_TOKENS), "--max-batch-size", str(MAX_BATCH_SIZE)]
    buckets = ["--num-buckets", str(NUM_BUCKETS)]
    tokenizer = ["--column", "text", "--tokenizer", str(out / "tokenizer.json")]
    report, plan = out / "report.html", out / "plan.parquet"
    plan_options = ["--config", str(config), "--epoch", "0", "--num-replicas", str(NUM_REPLICAS)]
    return [
        ["scan", str(corpus), *tokenizer, "--output", str(lengths)],
        ["optimize", str(lengths), *limits, *buckets, "--output", str(config)],
        ["compare", str(lengths), *limits, *buckets, "--html", str(report)],
        ["plan", str(lengths), *plan_options, "--output", str(plan)],
    ]


def main() -> None:
    """Run the job; the results are left in the output directory."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output-dir", type=Path, default=Path("out"))
    out: Path = parser.parse_args().output_dir
    out.mkdir(parents=True, exist_ok=True)
    corpus = out / "stdlib.jsonl"
    print("collecting the functions of Python's standard library ...", flush=True)
    collect = Path(__file__).with_name("stdlib_corpus.py")
    subprocess.run([sys.executable, str(collect), str(corpus)], check=True)
    train_tokenizer(corpus, out / "tokenizer.json")
    for arguments in commands(out):
        run(arguments)
    print(f"\nthe report: {(out / 'report.html').resolve().as_uri()}")


if __name__ == "__main__":
    main()
