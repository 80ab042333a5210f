"""A drafter's training step beside that of ``speculators``: same weights, batch, anchors, thread.

Needs the package, which pins another transformers than we test with, so it goes elsewhere:

    pip install --target PEERS --no-deps speculators==0.9.0 loguru pydantic-settings openai httpx
    PYTHONPATH=PEERS python benchmarks/run.py dflash_step

Both get the same packed row of documents, fp32 weights (ours, exported and read by the package
itself), anchors and cross-entropy with decay, and both find accuracy and streak. Before anything is
timed, hidden states, loss and every gradient must agree. What differs by design: the package makes
its labels in the step, by the target's head on the target's last states, where we take the text's
own tokens. So its step is timed as it is, and again with these logits given to it; and the layers
are timed without any head. Its attention is torch's SDPA with a dense mask: its default,
flex attention, has no backward on a CPU. Optimiser and data are left out on both sides. The two
alternate, and seconds are those of the processor, so that other work on the machine counts little.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn
from transformers import Qwen3Config
from workloads import summary

from lengthwise.dflash.anchors import Anchors, draft_inputs, draw_anchors
from lengthwise.dflash.attention import BlockAttention
from lengthwise.dflash.batch import Sample, pack_rows
from lengthwise.dflash.config import DrafterConfig
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.formats import save_speculators
from lengthwise.dflash.loss import LossConfig
from lengthwise.dflash.step import draft_step
from lengthwise.dflash.target.ends import FrozenEnds

SMALL = {"hidden_size": 128, "heads": 4, "key_heads": 2, "inner": 384, "vocab": 4096}
SMOLLM2 = {"hidden_size": 576, "heads": 9, "key_heads": 3, "inner": 1536, "vocab": 49_152}
CASES = {
    "narrow": {**SMALL, "tokens": 1024, "documents": 4, "blocks": 64},
    "narrow, one document": {**SMALL, "tokens": 1024, "documents": 1, "blocks": 64},
    "SmolLM2-135M's sizes": {**SMOLLM2, "tokens": 1024, "documents": 4, "blocks": 64},
}
BLOCK_SIZE = 16
LAYERS = 5
PROMPT = 32
"""Tokens of each document without a label; more than a block, so that none reaches the next
document's labels, which the package would count and we do not."""
GAMMA = 7.0
ATTENTION = "sdpa"
"""The package's: the faster of those that work on a CPU; the other is "eager"."""
HEAD_DIM = 64


def measure(quick):
    """Ratios of seconds (theirs / ours), or None where the package is not installed."""
    try:
        peer = version("speculators")
        import speculators  # noqa: F401
    except (PackageNotFoundError, ImportError) as error:
        print(f"left out: {error}; the head of dflash_step.py says how to install it")
        return None
    torch.set_num_threads(1)
    names = list(CASES)[:1] if quick else CASES
    rows = [_case(name, CASES[name], 2 if quick else 3) for name in names]
    versions = {name: version(name) for name in ("torch", "transformers")}
    return {"speculators": peer, **versions, "rows": rows}


def _case(name, sizes, repeats):
    ends, drafter = _ours(sizes)
    batch = _batch(sizes, drafter.config)
    anchors = _anchors(batch, sizes)
    with tempfile.TemporaryDirectory() as place:
        peer = _Peer(drafter, ends, batch, anchors, sizes, Path(place))
    ours = _Ours(drafter, ends, batch, anchors)
    agreement = _agree(ours, peer)
    row = {"name": name, **sizes, "block_size": BLOCK_SIZE, "layers": LAYERS, **agreement}
    print(f"{name}: " + ", ".join(f"{what} within {gap:.1e}" for what, gap in agreement.items()))
    pairs = {
        "step": (ours.step, peer.step),
        "step, their labels given": (ours.step, lambda: peer.step(peer.target_logits)),
        "layers without a head": (ours.layers, peer.layers),
    }
    for what, (own, other) in pairs.items():
        seconds = _alternate(own, other, repeats)
        ratios = [b / a for a, b in zip(*seconds, strict=True)]
        row[what] = {
            "ours": summary(seconds[0]),
            "speculators": summary(seconds[1]),
            "ratio": statistics.median(ratios),
        }
        print(
            f"  {what:26} ours {statistics.median(seconds[0]):7.2f} s, "
            f"speculators {statistics.median(seconds[1]):7.2f} s: "
            f"{row[what]['ratio']:.2f} x as fast ({min(ratios):.2f} to {max(ratios):.2f})"
        )
    return row


def _alternate(own, other, repeats):
    """Processor seconds of each, turn by turn; the first turn is not counted."""
    found = ([], [])
    for turn in range(repeats + 1):
        for seconds, run in zip(found, (own, other), strict=True):
            started = time.process_time()
            run()
            if turn:
                seconds.append(time.process_time() - started)
    return found


def _ours(sizes):
    config = DrafterConfig(
        hidden_size=sizes["hidden_size"],
        num_hidden_layers=LAYERS,
        num_attention_heads=sizes["heads"],
        num_key_value_heads=sizes["key_heads"],
        head_dim=HEAD_DIM,
        intermediate_size=sizes["inner"],
        vocab_size=sizes["vocab"],
        block_size=BLOCK_SIZE,
        mask_token_id=sizes["vocab"] - 1,
        target_layer_ids=(1, 7, 14, 21, 27),
        num_target_layers=30,
    )
    generator = torch.Generator().manual_seed(0)
    embeddings = nn.Embedding(sizes["vocab"], sizes["hidden_size"])
    head = nn.Linear(sizes["hidden_size"], sizes["vocab"], bias=False)
    with torch.no_grad():
        for weight in (embeddings.weight, head.weight):
            weight.normal_(0, 0.02, generator=generator)
    return FrozenEnds(embeddings, head), Drafter(config, seed=1).train()


def _batch(sizes, config):
    """One row, packed full."""
    generator = torch.Generator().manual_seed(2)
    length = sizes["tokens"] // sizes["documents"]
    samples = [
        Sample(
            sample_id=number,
            input_ids=torch.randint(0, sizes["vocab"] - 1, (length,), generator=generator),
            loss_mask=torch.arange(length) >= PROMPT,
            features=torch.randn(length, config.feature_size, generator=generator),
        )
        for number in range(sizes["documents"])
    ]
    return pack_rows(samples, sizes["tokens"])


def _anchors(batch, sizes):
    """So many in all, of those that both would take: the package leaves out a row's last block."""
    blocks = sizes["blocks"]
    most = blocks // sizes["documents"] + BLOCK_SIZE
    drawn = draw_anchors(batch, max_anchors=most, seed=0, epoch=0)
    allowed = drawn.index[0][drawn.index[0] < batch.input_ids.shape[1] - BLOCK_SIZE]
    chosen = allowed[torch.linspace(0, len(allowed) - 1, blocks).long()][None]
    return Anchors(chosen, torch.ones_like(chosen, dtype=torch.bool))


class _Ours:
    """Our step."""

    def __init__(self, drafter, ends, batch, anchors):
        self.drafter, self.ends, self.batch, self.anchors = drafter, ends, batch, anchors
        self.loss = LossConfig("decay", gamma=GAMMA)

    def step(self):
        """Loss sum, number of labels; gradients of their quotient."""
        self.drafter.zero_grad(set_to_none=True)
        sums = draft_step(self.drafter, self.ends, self.batch, self.anchors, self.loss)
        count = int(sums.valid.sum())
        (sums.loss_sum / count).backward()
        return sums.loss_sum.item(), count

    def hidden(self):
        """Final states of all blocks."""
        config = self.drafter.config
        ids = draft_inputs(self.batch, self.anchors, config.block_size, config.mask_token_id)
        attention = BlockAttention(self.batch, self.anchors, config)
        return self.drafter(self.ends.embed(ids), self.batch.features, attention)

    def layers(self):
        """Forward and backward of the drafter alone."""
        self.drafter.zero_grad(set_to_none=True)
        hidden = self.hidden()
        hidden.backward(torch.ones_like(hidden))


class _Peer:
    """The package's step, on a directory that we exported."""

    def __init__(self, drafter, ends, batch, anchors, sizes, place):
        from speculators.losses import resolve_loss_config
        from speculators.models.dflash import core

        self.core = core
        self.anchors = anchors
        self.model = _load_peer(core, drafter, ends, place)
        self.loss = resolve_loss_config("ce", "eager")
        self.arguments = {
            "hidden_states": batch.features,
            "input_ids": batch.input_ids,
            "loss_mask": batch.loss_mask.long(),
            "verifier_last_hidden_states": _last_states(ends, batch),
            "document_ids": batch.document_ids,
            "position_ids": batch.position_ids,
        }
        core.select_anchors = self._given_anchors
        self.blocks = sizes["blocks"]
        self.target_logits = self._target_logits()

    def _given_anchors(self, *_):
        return self.anchors.index[0], self.anchors.keep[0]

    def step(self, target_logits=None):
        """The loss, and its gradients; ``target_logits`` instead of making them."""
        self.model.zero_grad(set_to_none=True)
        with _giving(self.model, target_logits):
            _, loss, metrics = self.model(
                **self.arguments, max_anchors=self.blocks, gamma=GAMMA, loss_config=self.loss
            )
        loss.backward()
        return loss.item(), metrics

    def _target_logits(self):
        """What its target's head gives in a step."""
        found = []
        hook = self.model.verifier_lm_head.register_forward_hook(lambda *x: found.append(x[2]))
        with torch.no_grad():
            self.model._backbone_forward(  # noqa: SLF001
                **self.arguments, max_anchors=self.blocks
            )
        hook.remove()
        return found[0].detach()

    def hidden(self):
        """Final states of all blocks, without any head."""
        self.model.zero_grad(set_to_none=True)
        kept = self.model.lm_head
        self.model.lm_head = nn.Identity()
        try:
            with _giving(self.model, self.target_logits[..., :1]):
                found = self.model._backbone_forward(  # noqa: SLF001
                    **self.arguments, max_anchors=self.blocks
                )
        finally:
            self.model.lm_head = kept
        return found[0]

    def layers(self):
        """Forward and backward of its layers alone."""
        hidden = self.hidden()
        hidden.backward(torch.ones_like(hidden))


@contextmanager
def _giving(model, logits):
    """The target's norm and head give ``logits`` for as long as this lasts; None: as they are."""
    kept = model.verifier_norm, model.verifier_lm_head
    if logits is not None:
        model.verifier_norm, model.verifier_lm_head = nn.Identity(), _Given(logits)
    try:
        yield
    finally:
        model.verifier_norm, model.verifier_lm_head = kept


class _Given(nn.Module):
    """Gives the same tensor whatever it is asked."""

    def __init__(self, value):
        super().__init__()
        self.value = [value]  # in a list: no buffer, nothing to move

    def forward(self, _):
        """The tensor."""
        return self.value[0]


def _load_peer(core, drafter, ends, place):
    """The package's model, from our export and a target of two ends and a norm."""
    target, export = place / "target", place / "drafter"
    target.mkdir()
    config = Qwen3Config(
        hidden_size=drafter.config.hidden_size,
        num_hidden_layers=drafter.config.num_target_layers,
        vocab_size=drafter.config.vocab_size,
        architectures=["Qwen3ForCausalLM"],
    )
    config.save_pretrained(target)
    weights = {
        "model.embed_tokens.weight": ends.embeddings.weight.detach().clone(),
        "model.norm.weight": torch.ones(drafter.config.hidden_size),
        "lm_head.weight": ends.weight.detach().clone(),
    }
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    save_speculators(drafter, export, config, torch.float32, target_name=str(target))
    described = core.DFlashSpeculatorConfig.from_pretrained(export)
    described.transformer_layer_config._attn_implementation = ATTENTION  # noqa: SLF001
    return core.DFlashDraftModel.from_pretrained(
        export, config=described, dtype=torch.float32
    ).train()


def _last_states(ends, batch):
    """Last states of the target with which its head says each next token: the head's own row."""
    following = batch.input_ids.roll(-1, dims=1)
    return ends.weight[following].clone() * 50


def _agree(ours, peer):
    """Largest differences of hidden states, loss and gradients; raises where they are not small."""
    with torch.no_grad():
        hidden = (ours.hidden() - peer.hidden()).abs().max().item()
    loss_sum, count = ours.step()
    loss, metrics = peer.step()
    counted = int(metrics["full_acc_total"])
    if counted != count:
        raise RuntimeError(f"labels differ: ours {count}, speculators {counted}")
    theirs = dict(peer.model.named_parameters())
    gradients = max(
        ((p.grad - theirs[name].grad).norm() / theirs[name].grad.norm()).item()
        for name, p in ours.drafter.named_parameters()
    )
    # The package divides by the number of labels and 1e-5, we by what the caller likes.
    found = {"hidden": hidden, "loss": abs(loss_sum / count - loss) / loss, "gradients": gradients}
    if max(found.values()) > 1e-3 or not hidden < 1e-4:
        raise RuntimeError(f"the two do not compute the same: {found}")
    return found
