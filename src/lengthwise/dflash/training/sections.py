"""The sections of a training config: every field with its unit, range, default and reason.

The descriptions are what ``lengthwise dflash train --print-config`` prints beside each field.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Count = Annotated[int, Field(ge=1)]
Share = Annotated[float, Field(ge=0, le=1)]
Beta = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A group of fields; unknown names are refused, since they are mostly misspelt ones."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, protected_namespaces=(), allow_inf_nan=False
    )


class TargetSection(Section):
    """The frozen model whose next tokens are to be drafted."""

    model: str = Field(description="Directory, or name on the Hugging Face hub.")
    revision: str | None = Field(None, description="Branch, tag or commit on the hub.")
    gguf_file: str | None = Field(None, description="File inside the model, if it is GGUF.")
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = Field(
        "auto", description="Of its weights; auto takes the one they were saved in."
    )
    attn_implementation: str | None = Field(
        None, description="As in transformers: sdpa, eager, flash_attention_2."
    )
    trust_remote_code: bool = Field(
        False, description="Run Python code that comes with the model. Only if you trust it."
    )


class DrafterSection(Section):
    """The small model that is trained."""

    init_from: str | None = Field(
        None,
        description="Continue from this drafter (directory or hub name, native or speculators "
        "format); its architecture then counts, and the other fields here must be left out.",
    )
    mask_token_id: int | None = Field(
        None,
        ge=0,
        description="Token that stands for what is to be drafted: a reserved id of the target's "
        "vocabulary that no text contains. It has no default: a wrong one costs acceptance.",
    )
    num_hidden_layers: Count = Field(5, description="The paper's number; 3 are faster, 8 better.")
    block_size: int = Field(
        16, ge=2, le=256, description="Tokens of a block, the anchor among them. The paper's 16."
    )
    num_taps: Count | None = Field(
        None, description="Layers of the target that are read; default: as many as drafter layers."
    )
    target_layer_ids: tuple[int, ...] | None = Field(
        None,
        description="Which, counted from 0; default: spread from the second to the third-last.",
    )
    sliding_window: Count | None = Field(
        None, description="Tokens of context each layer sees; default: all of it."
    )


class DataSection(Section):
    """Prepared samples, as `lengthwise dflash prepare` writes them."""

    train: tuple[str, ...] = Field(min_length=1, description="Directories or Parquet files.")
    held_out: tuple[str, ...] = Field(
        (),
        description="The same, never trained on. Default: num_held_out samples are taken out of "
        "train, chosen by the hash of their number.",
    )
    num_held_out: int = Field(32, ge=0, description="Samples for evaluation; 0 for none.")


class BatchingSection(Section):
    """The target's batches. They feed no gradient, so only padding counts."""

    max_tokens: Count = Field(
        16_384, description="Padded tokens of a batch. What the target's device has room for."
    )
    max_batch_size: Count = Field(64, description="Samples of a batch.")
    pad_to_multiple_of: Count = Field(1, description="Round the padded length up to this.")
    strategy: Literal["pooled", "windowed", "bucketed", "sorted", "random"] = Field(
        "windowed", description="How samples come together; see docs/concepts/plans.md."
    )
    window_size: Count | None = Field(
        8_192,
        description="Samples sorted together (windowed). 8192 wastes less than half a percent on "
        "the lengths of the run this project began with.",
    )
    num_buckets: Count | None = Field(None, description="Length buckets (bucketed, windowed).")
    boundaries: tuple[int, ...] | None = Field(None, description="Of the buckets, instead.")
    oversize: Literal["error", "drop"] = Field(
        "error", description="A sample longer than max_tokens: stop, or leave it out and count it."
    )


class RemixSection(Section):
    """The pool between target and drafter, from which steps draw at random."""

    pool_batches: Count = Field(
        24,
        description="Target batches that wait in it, as multiples of batching.max_tokens. 24 give "
        "an optimiser step of 64 long samples a design effect of length below 1.1, 16 one near 1.2 "
        "(docs). Costs pool_batches x max_tokens x taps x hidden size x bytes of the target's "
        "dtype of memory: 15 GiB for Qwen3-8B with five taps and batches of 16,384.",
    )
    mixed_batches: Count = Field(
        8,
        description="Consecutive target batches that together represent the lengths of the data; "
        "8 serve pools of 8 to 32 batches best.",
    )


class StepSection(Section):
    """What an optimiser step is made of. The drafter's cost goes with anchors, not tokens."""

    anchors_per_step: Count = Field(
        8_192,
        description="Anchors of an optimiser step over all devices: the global batch. 8192 are 16 "
        "long samples, as in public recipes.",
    )
    max_anchors: Count = Field(512, description="Anchors of a sample and epoch; the paper's 512.")
    max_anchors_per_batch: Count = Field(
        1_024,
        description="Anchors that run at once on a device; more need more memory. At least "
        "max_anchors. Gradients add up over batches, so it does not change the result.",
    )
    rows: Literal["packed", "padded"] = Field(
        "packed", description="How a batch lies in memory; the loss is the same."
    )
    shape_multiple: Count = Field(
        64, description="Rows' tokens and anchors are rounded up to this, for few shapes."
    )


class LossSection(Section):
    """Cross-entropy over the tokens of each block."""

    weighting: Literal["decay", "dpace", "uniform"] = Field(
        "decay",
        description="decay: exp(-(k-1)/gamma) at position k, the paper's; dpace: by how likely "
        "it is that a position is reached (arXiv 2605.18810); uniform.",
    )
    gamma: float | None = Field(
        None, gt=0, description="Positions; default by block size: 7 for 16, 5 for 10, 4 for 8."
    )
    alpha: float = Field(0.5, gt=0, le=1, description="Smoothing of dpace; 1 is uniform.")


class OptimizerSection(Section):
    """How weights change. Weights and optimiser state are kept in float32."""

    kind: Literal["adamw", "muon"] = Field(
        "adamw", description="muon: for matrices, with AdamW for the rest."
    )
    learning_rate: float = Field(6e-4, gt=0, description="The paper's, at its peak.")
    betas: tuple[Beta, Beta] = Field(
        (0.9, 0.95), description="AdamW's, as in public recipes; two numbers in [0, 1)."
    )
    weight_decay: float = Field(0.0, ge=0, description="Public recipes use none.")
    max_grad_norm: float = Field(
        1.0,
        gt=0,
        allow_inf_nan=True,
        description="Gradients are clipped to this norm; .inf clips nothing.",
    )


class ScheduleSection(Section):
    """The learning rate over optimiser steps."""

    kind: Literal["cosine", "wsd", "constant"] = Field(
        "cosine", description="cosine falls all along; wsd stays up and falls at the end."
    )
    warmup_ratio: Share = Field(0.04, description="Share of all steps; the paper's.")
    warmup_steps: int | None = Field(None, ge=0, description="Steps, instead of the ratio.")
    final_ratio: Share = Field(0.0, description="Of the peak, at the end.")
    decay_ratio: Share = Field(0.2, description="Share of all steps in which wsd falls.")


class EvaluationSection(Section):
    """What decides: decoding held-out prompts for real, with the weights of the moment."""

    every_steps: Count | None = Field(
        None, description="Optimiser steps between evaluations; default: once an epoch."
    )
    at_start: bool = Field(
        True,
        description="Evaluate before the first step too: where the curve begins, and whether "
        "evaluating works, is known at once.",
    )
    num_prompts: int = Field(16, ge=0, description="Held-out prompts to decode; 0 for none.")
    max_new_tokens: Count = Field(128, description="Tokens to decode for each.")


class CheckpointSection(Section):
    """What a run can be resumed from."""

    every_steps: Count = Field(500, description="Optimiser steps between checkpoints.")
    keep: Count = Field(3, description="How many are kept, the newest.")
    directory: str | None = Field(
        None,
        description="Where they go, and the drafter: a folder, or a URL that fsspec knows, such "
        "as s3://bucket/run; default: output_dir. On several machines one that all reach.",
    )


class LoggingSection(Section):
    """Where the figures go. metrics.jsonl is always written."""

    every_steps: Count = Field(10, description="Optimiser steps between lines.")
    writers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = Field(
        (), description="Besides; each needs its package."
    )
    project: str = Field("lengthwise", description="Name for wandb and trackio.")
