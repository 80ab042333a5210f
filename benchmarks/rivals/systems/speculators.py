"""The package ``speculators``: its collator, model, losses and optimisers as torch modules.

Its trainer moves the model to an accelerator, so the loop is ours; all that a step computes is the
package's. Attention is torch's SDPA instead of flex attention, and the loss its "eager" form
instead of Triton's: both are settings of the package.
"""

from __future__ import annotations

import torch
from speculators.losses import resolve_loss_config
from speculators.models.dflash import core
from speculators.train.cli import create_transformer_layer_config
from speculators.train.config.schema import TrainConfig
from speculators.train.data import CollateFn
from speculators.train.distributed_batch_sampler import MultipackDistributedBatchSamplerV2
from speculators.train.optimizers import build_optimizers
from transformers import get_linear_schedule_with_warmup

from lengthwise.dflash.loss import default_gamma
from rivals.recipes import RECIPES, Step, Value
from rivals.systems.ours import gradient_norm, in_row
from rivals.systems.plain import Plain

PACKAGE = "speculators"
SETTINGS = (
    "one packed row, anchors drawn over the row, D-PACE with cross-entropy to the target's choice, "
    "Muon and AdamW at 1e-3, linear, warm-up 1 %, layers with a sliding window and causal blocks"
)
ATTENTION = "sdpa"
WEIGHTS = {"decay": "fixed-exp-decay", "dpace": "dpace"}


class System:
    """Its model and what changes it."""

    def __init__(self, folder, recipe, seed, total_steps, attention=ATTENTION):
        """Load the given weights, or let the package make its own."""
        torch.manual_seed(seed)
        self.folder, self.config = folder, folder.config
        given = recipe.start == "given"
        self.model = self._load(seed, attention) if given else self._make(attention)
        self.model.train()
        self.weighting = recipe.weighting
        self.collate = CollateFn(
            max_len=folder.settings.row_tokens,
            hidden_size=self.config.hidden_size,
            num_target_layers=self.config.num_taps,
            dtype=torch.float32,
        )
        self.optimizer = (
            Plain(self.model.parameters(), total_steps)
            if recipe.optimizer == "common"
            else _Own(self.model, total_steps)
        )

    def _load(self, seed, attention):
        place = self.folder.start(seed, "speculators")
        described = core.DFlashSpeculatorConfig.from_pretrained(place)
        described.transformer_layer_config._attn_implementation = attention  # noqa: SLF001
        return core.DFlashDraftModel.from_pretrained(place, config=described, dtype=torch.float32)

    def _make(self, attention):
        """As its command line makes a new drafter, with our sizes and taps."""
        defaults, config = (
            TrainConfig(verifier_name_or_path=self.folder.settings.target),
            self.config,
        )
        layers = create_transformer_layer_config(
            self.folder.settings.target,
            num_layers=config.num_hidden_layers,
            draft_arch=defaults.draft.draft_arch,
            hidden_act=None,
            sliding_window=defaults.draft.sliding_window,
            full_attention_indices=defaults.draft.full_attention_indices,
        )
        return core.DFlashDraftModel.from_training_args(
            layers,
            draft_vocab_size=config.vocab_size,
            block_size=config.block_size,
            mask_token_id=config.mask_token_id,
            verifier_name_or_path=self.folder.settings.target,
            target_layer_ids=[i + 1 for i in config.target_layer_ids],
            draft_attn_impl=attention,
        )

    def learn(self, examples):
        """One optimiser step."""
        seen = []

        def select(*arguments):
            seen.append(SELECT(*arguments))
            return seen[-1]

        loss, metrics, batch = self._loss(
            examples, select, self.folder.settings.row_anchors, self.weighting
        )
        loss.backward()
        self.optimizer.step()
        return Step(
            loss=loss.item(),
            labels=int(metrics["full_acc_total"]),
            anchors=int(seen[0][1].sum()),
            tokens=sum(len(example.sample) for example in examples),
            places=batch["input_ids"].numel(),
        )

    def value(self, examples, places, weighting):
        """The loss at given anchors; ``weighting`` may be ``kl`` too, with decay."""
        samples = [example.sample for example in examples]
        columns = torch.tensor(in_row(samples, places))
        chosen = columns, torch.ones_like(columns, dtype=torch.bool)
        self.model.zero_grad()
        loss, metrics, _ = self._loss(examples, lambda *_: chosen, len(columns), weighting)
        count = int(metrics["full_acc_total"])
        # It divides by the number of labels and 1e-5.
        numerator = loss * (count + 1e-5)
        numerator.backward()
        found = Value(
            reported=loss.item(),
            numerator=None if weighting == "kl" else numerator.item(),
            labels=count,
            gradient=gradient_norm(self.model),
        )
        self.model.zero_grad()
        return found

    def _loss(self, examples, select, num_anchors, weighting):
        batch = self.collate([_entry(example) for example in examples])
        batch.pop("error_records")
        core.select_anchors = select
        try:
            _, loss, metrics = self.model(
                **batch,
                max_anchors=num_anchors,
                gamma=default_gamma(self.config.block_size),
                per_position_loss_weight=WEIGHTS.get(weighting, "fixed-exp-decay"),
                loss_config=resolve_loss_config("kl_div" if weighting == "kl" else "ce", "eager"),
            )
        finally:
            core.select_anchors = SELECT
        return loss, metrics, batch

    def save(self, directory):
        """Write it as the package writes a checkpoint."""
        self.model.save_pretrained(directory)


SELECT = core.select_anchors


class _Own:
    """Its defaults: Muon for matrices, AdamW for the rest, clipped, a straight line down."""

    def __init__(self, model, total_steps):
        self.model = model
        settings = TrainConfig(verifier_name_or_path="target").optimizer
        self.optimizers = build_optimizers(model, settings)
        self.schedules = [
            get_linear_schedule_with_warmup(one, total_steps // 100, total_steps)
            for one in self.optimizers
        ]

    def step(self):
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for one in (*self.optimizers, *self.schedules):
            one.step()
        self.model.zero_grad()


def _entry(example):
    """A sample as its data set yields it."""
    sample = example.sample
    return {
        "hidden_states": sample.features,
        "input_ids": sample.input_ids,
        "verifier_last_hidden_states": example.last_states,
        "loss_mask": sample.loss_mask,
        "lengths": torch.tensor([len(sample)]),
        "position_ids": torch.arange(len(sample)),
    }


def attempts(folder):
    """What does not run on a CPU, by what it is: functions that raise."""

    def flex():
        system = System(folder, RECIPES["speculators"], 0, 1, "simple_flex_attention")
        system.learn(folder.examples[:2])

    def fused():
        ((loss, _),) = resolve_loss_config("ce", "fused").values()
        loss(torch.zeros(1, 2, 3), torch.zeros(1, 2, 3))

    def to_device():
        system = System(folder, RECIPES["speculators"], 0, 1)
        system.model.to(0)

    return {
        "flex attention, its default: backward": flex,
        "fused loss, its default": fused,
        "its trainer: the model goes to device 0": to_device,
    }


def real_share(lengths):
    """Of rows of its default length, as its sampler packs them on one device."""
    row = TrainConfig(verifier_name_or_path="target").data.total_seq_len
    sampler = MultipackDistributedBatchSamplerV2(row, lengths, num_replicas=1, rank=0)
    batches = list(sampler)
    return sum(lengths[batch].sum() for batch in batches) / (row * len(batches))
