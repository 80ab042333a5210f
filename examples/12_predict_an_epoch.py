"""Measure what a step of a model takes here, and predict what every strategy's epoch would.

python examples/12_predict_an_epoch.py
"""

from __future__ import annotations

import torch

import lengthwise as lw
from lengthwise.calibrate import calibrate, choose_shapes, from_module
from lengthwise.predict import predict_plan
from tiny_language_model import samples

WIDTH = 32


def main() -> None:
    """Calibrate on a few shapes, then plan and predict."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = torch.nn.TransformerEncoderLayer(WIDTH, 2, 64, batch_first=True)
    step = from_module(model, lambda count, longest: torch.randn(count, longest, WIDTH))

    lengths = lw.read_lengths([len(row["input_ids"]) for row in samples(6_000)])
    limits = lw.BatchLimits(max_tokens=4096, max_batch_size=64)
    fit = calibrate(step, choose_shapes(limits, lengths), repeats=3).fit
    print(f"a step: {fit.cost}, one batch ±{fit.relative_error:.0%}")

    found = {}
    for strategy in ("random", "bucketed", "pooled"):
        buckets = {"num_buckets": 6} if strategy == "bucketed" else {}
        config = lw.BatchingConfig(limits=limits, strategy=strategy, **buckets)
        found[strategy] = predict_plan(lw.build_plan(lengths, config), lengths, fit)
    for strategy, epoch in found.items():
        interval = f"{epoch.low:.2f} to {epoch.high:.2f}"
        print(f"{strategy:9} {epoch.seconds:.2f} s an epoch ({interval})")
    assert found["pooled"].seconds < found["random"].seconds


if __name__ == "__main__":
    main()
