"""What every trainer reads: a folder with a target, first weights, samples and prompts.

target.json              where the target is, and all settings below
ends.safetensors         its embedding and head
samples.safetensors      tokens, masks, states at the taps and last states of all samples
start-SEED/native        first weights, float32; and start-SEED/speculators, the same
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import nn

from lengthwise.dflash.batch import Sample
from lengthwise.dflash.formats import load_native, save_native, save_speculators
from lengthwise.dflash.target.ends import FrozenEnds

ABOUT = "target.json"


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits and prompts, the same for every trainer."""

    target: str
    """Directory with the target's config and ends."""
    row_tokens: int
    """Tokens of a packed row; a step's samples fit into one."""
    max_anchors: int
    """Anchors of a sample."""
    row_anchors: int
    """Anchors of a step's row, for whom they are so counted."""
    prompts: dict
    """Held-out prompts, token ids, by task."""
    stop_token_ids: tuple = ()
    max_new_tokens: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    """A sample, and the target's last states, of which one trainer makes its labels."""

    sample: Sample
    last_states: torch.Tensor


class Folder:
    """Reads such a folder."""

    def __init__(self, path):
        """Read settings and samples; weights as they are asked for."""
        self.path = Path(path)
        about = json.loads((self.path / ABOUT).read_text(encoding="utf-8"))
        self.settings = Settings(**about)
        self.config = load_native(self.start(0)).config
        self.examples = list(self._examples())

    def start(self, seed, form="native"):
        """The directory of first weights."""
        return self.path / f"start-{seed}" / form

    def ends(self):
        """The target's embedding and head, frozen."""
        found = load_file(self.path / "ends.safetensors")
        embeddings = nn.Embedding.from_pretrained(found["embeddings"])
        head = nn.Linear(*reversed(found["head"].shape), bias=False)
        head.weight = nn.Parameter(found["head"], requires_grad=False)
        return FrozenEnds(embeddings, head)

    def _examples(self):
        found = load_file(self.path / "samples.safetensors")
        sizes = found.pop("lengths").tolist()
        parts = [found[name].split(sizes) for name in ("ids", "mask", "features", "last")]
        for number, (ids, mask, features, last) in enumerate(zip(*parts, strict=True)):
            yield Example(Sample(number, ids, mask, features), last)


def write(path, settings, ends, starts, examples, target_config):
    """Make a folder.

    Args:
        path: an existing directory.
        settings: as above.
        ends: the target's.
        starts: an untrained drafter a seed.
        examples: all samples.
        target_config: the target's, as transformers has it.
    """
    (path / ABOUT).write_text(json.dumps(asdict(settings)), encoding="utf-8")
    tensors = {"embeddings": ends.embeddings.weight, "head": ends.weight}
    # Tied ends are one tensor, which the format does not store twice.
    copies = {name: tensor.detach().clone() for name, tensor in tensors.items()}
    save_file(copies, path / "ends.safetensors")
    for seed, drafter in enumerate(starts):
        place = path / f"start-{seed}"
        save_native(drafter, place / "native", target_config, torch.float32)
        save_speculators(
            drafter,
            place / "speculators",
            target_config,
            torch.float32,
            target_name=settings.target,
        )
    samples = [example.sample for example in examples]
    stacked = {
        "lengths": torch.tensor(list(map(len, samples))),
        "ids": torch.cat([sample.input_ids for sample in samples]),
        "mask": torch.cat([sample.loss_mask for sample in samples]),
        "features": torch.cat([sample.features for sample in samples]),
        "last": torch.cat([example.last_states for example in examples]),
    }
    save_file(stacked, path / "samples.safetensors")
