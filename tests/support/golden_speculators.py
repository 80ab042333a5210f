"""Make ``golden/dflash_speculators.json``: a config as the ``speculators`` package writes it.

Run where ``speculators==0.9.0`` is installed (it pins another transformers than we test with, so
it is no part of the development environment):

    PYTHONPATH=tests python -m support.golden_speculators

It writes a drafter in our native format, has the package's own converter make a directory of it,
checks that the package reads OUR speculators directory as the same model, and freezes the config.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import torch
from speculators.convert.dflash.converter import DFlashConverter
from speculators.model import SpeculatorModel

from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.formats import save_native, save_speculators
from support.dflash_models import tiny_drafter_config, tiny_qwen3

PLACE = Path(__file__).parents[1] / "golden" / "dflash_speculators.json"


def main() -> None:
    """Convert, compare, write."""
    os.chdir(tempfile.mkdtemp())  # names in the config are relative to it
    target = tiny_qwen3()
    target.save_pretrained("target")
    drafter = Drafter(tiny_drafter_config(target, num_hidden_layers=3, sliding_window=16))
    save_native(drafter, "native", target.config, torch.bfloat16)
    DFlashConverter().convert("native", "theirs", "target")
    save_speculators(drafter, "ours", target.config, torch.bfloat16, target_name="target")
    theirs = SpeculatorModel.from_pretrained("theirs", dtype=torch.bfloat16)
    ours = SpeculatorModel.from_pretrained("ours", dtype=torch.bfloat16)
    assert type(ours) is type(theirs)
    for name, tensor in theirs.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor), name
    for name in ("block_size", "mask_token_id", "target_layer_ids", "sliding_window_indices"):
        assert getattr(ours, name) == getattr(theirs, name), name
    config = json.loads(Path("theirs/config.json").read_text(encoding="utf-8"))
    config["transformer_layer_config"].pop("lengthwise")  # carried over from our native file
    PLACE.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    sys.stdout.write(f"wrote {PLACE}\n")


if __name__ == "__main__":
    main()
