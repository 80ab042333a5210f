"""SpecForge: its collator, DFlash model, loss and optimiser as torch modules.

Its runtime wants a serving engine for the target's states, so the loop and the data are ours; all
that a step computes is the package's. Attention is torch's SDPA, which is one of its settings.
"""

from __future__ import annotations

import importlib

import numpy as np
import torch
from specforge.algorithms.common.dflash_family_data import build_collator
from specforge.algorithms.common.dflash_family_model import OnlineDFlashModel
from specforge.modeling.draft.dflash import DFlashDraftModel
from specforge.optimizer import BF16Optimizer
from transformers import AutoConfig

from lengthwise.dflash.loss import default_gamma
from rivals.recipes import RECIPES, Step, Value
from rivals.systems.ours import gradient_norm
from rivals.systems.plain import Plain

PACKAGE = "specforge"
SETTINGS = (
    "a padded row a sample, anchors a sample, decay, AdamW at 6e-4, cosine, warm-up 4 %, gradients "
    "clipped to 1 (its Qwen3-8B recipe)"
)
LOSSES = {"decay": "dflash", "dpace": "dpace"}


class System:
    """Its model and what changes it."""

    def __init__(self, folder, recipe, seed, total_steps, attention="sdpa"):
        """Load the given weights, or let the package make its own."""
        torch.manual_seed(seed)
        self.folder = folder
        place = folder.start(seed)
        if recipe.start == "given":
            self.drafter = DFlashDraftModel.from_pretrained(
                place, dtype=torch.float32, attn_implementation=attention
            )
        else:
            config = DFlashDraftModel.config_class.from_pretrained(place)
            target = AutoConfig.from_pretrained(folder.settings.target)
            config.initializer_range = target.initializer_range
            config._attn_implementation = attention  # noqa: SLF001
            self.drafter = DFlashDraftModel(config)
        ends = folder.ends()
        self.model = OnlineDFlashModel(
            self.drafter,
            target_lm_head=ends.head,
            target_embed_tokens=ends.embeddings,
            mask_token_id=folder.config.mask_token_id,
            block_size=folder.config.block_size,
            attention_backend=attention,
            num_anchors=folder.settings.max_anchors,
            loss_decay_gamma=default_gamma(folder.config.block_size),
            loss_type=LOSSES[recipe.weighting],
        ).train()
        self.collate = build_collator()
        self.optimizer = (
            Plain(self.drafter.parameters(), total_steps)
            if recipe.optimizer == "common"
            else BF16Optimizer(
                self.drafter,
                lr=6e-4,
                max_grad_norm=1.0,
                warmup_ratio=0.04,
                total_steps=total_steps,
            )
        )

    def learn(self, examples):
        """One optimiser step."""
        seen = []
        draw = OnlineDFlashModel._sample_anchor_positions  # noqa: SLF001

        def sample(*arguments):
            seen.append(draw(self.model, *arguments))
            return seen[-1]

        batch = self._batch(examples)
        loss, metrics = self._loss(batch, sample)
        loss.backward()
        self.optimizer.step()
        return Step(
            loss=loss.item(),
            labels=int(metrics["accuracy_denom"]),
            anchors=int(seen[0][1].sum()),
            tokens=sum(len(example.sample) for example in examples),
            places=batch["input_ids"].numel(),
        )

    def value(self, examples, places, weighting):
        """The loss at given anchors."""
        width = max(map(len, places))
        index = torch.zeros(len(places), width, dtype=torch.long)
        keep = torch.zeros(len(places), width, dtype=torch.bool)
        for row, own in enumerate(places):
            index[row, : len(own)], keep[row, : len(own)] = torch.tensor(own), True
        self.model.loss_type = LOSSES[weighting]
        self.drafter.zero_grad()
        loss, metrics = self._loss(self._batch(examples), lambda *_: (index, keep))
        numerator, _ = metrics["loss_terms"]
        numerator.backward()
        found = Value(
            reported=loss.item(),
            numerator=numerator.item(),
            labels=int(metrics["accuracy_denom"]),
            gradient=gradient_norm(self.drafter),
        )
        self.drafter.zero_grad()
        return found

    def _batch(self, examples):
        samples = [example.sample for example in examples]
        return self.collate(
            [
                {
                    "input_ids": sample.input_ids[None],
                    "loss_mask": sample.loss_mask[None].long(),
                    "hidden_states": sample.features[None],
                }
                for sample in samples
            ]
        )

    def _loss(self, batch, sample):
        self.model._sample_anchor_positions = sample  # noqa: SLF001
        loss, _, metrics = self.model(**batch)
        return loss, metrics

    def save(self, directory):
        """Write it as the package writes a drafter."""
        self.drafter.save_pretrained(directory)


def attempts(folder):
    """What does not run on a CPU, by what it is: functions that raise."""

    def flex():
        system = System(folder, RECIPES["specforge"], 0, 1, "flex_attention")
        system.learn(folder.examples[:2])

    return {
        "flex attention, its default: backward": flex,
        "the target's server": lambda: importlib.import_module("sglang"),
    }


def real_share(lengths):
    """Of shuffled batches of four padded rows, as its Qwen3-8B recipe has them on one device."""
    batches = np.random.default_rng(0).permutation(lengths)[: len(lengths) // 4 * 4].reshape(-1, 4)
    return batches.sum() / (4 * batches.max(1)).sum()
