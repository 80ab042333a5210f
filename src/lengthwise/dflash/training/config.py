"""The one config of a training run: a YAML file, command-line overrides, all checked at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, ValidationError, model_validator

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.dflash.training.sections import (
    BatchingSection,
    CheckpointSection,
    Count,
    DataSection,
    DrafterSection,
    EvaluationSection,
    LoggingSection,
    LossSection,
    OptimizerSection,
    PipelineSection,
    RemixSection,
    ScheduleSection,
    Section,
    StepSection,
    TargetSection,
)
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence


class TrainConfig(Section):
    """Everything that decides a training run, apart from the files it names."""

    output_dir: str = Field(description="Where checkpoints, metrics and the drafter go.")
    target: TargetSection
    drafter: DrafterSection
    data: DataSection
    epochs: Count = Field(6, description="Passes over the data; the paper's 6.")
    max_steps: Count | None = Field(None, description="Optimiser steps, if that is less.")
    seed: int = Field(0, description="Decides weights, batches, mixing and anchors.")
    device: str = Field("auto", description="auto takes cuda where there is one, else cpu.")
    precision: Literal["auto", "bf16", "fp32"] = Field(
        "auto", description="The drafter computes in this; auto: bf16 on cuda, fp32 on cpu."
    )
    compile: bool = Field(False, description="torch.compile the drafter; slow to start.")
    gradient_checkpointing: bool = Field(
        False, description="Less memory for a third more computation."
    )
    attention: Literal["auto", "sdpa", "flex"] = Field(
        "auto", description="How blocks attend; auto decides by device."
    )
    batching: BatchingSection = Field(default_factory=BatchingSection)
    remix: RemixSection = Field(default_factory=RemixSection)
    step: StepSection = Field(default_factory=StepSection)
    loss: LossSection = Field(default_factory=LossSection)
    optimizer: OptimizerSection = Field(default_factory=OptimizerSection)
    schedule: ScheduleSection = Field(default_factory=ScheduleSection)
    evaluation: EvaluationSection = Field(default_factory=EvaluationSection)
    checkpoint: CheckpointSection = Field(default_factory=CheckpointSection)
    logging: LoggingSection = Field(default_factory=LoggingSection)
    pipeline: PipelineSection = Field(default_factory=PipelineSection)

    @model_validator(mode="after")
    def _fields_agree(self) -> TrainConfig:
        if self.step.max_anchors_per_batch < self.step.max_anchors:
            raise ValueError(
                f"step.max_anchors_per_batch must be at least step.max_anchors "
                f"({self.step.max_anchors:,}), got {self.step.max_anchors_per_batch:,}"
            )
        if self.step.anchors_per_step < self.step.max_anchors:
            raise ValueError(
                f"step.anchors_per_step must be at least step.max_anchors "
                f"({self.step.max_anchors:,}), got {self.step.anchors_per_step:,}"
            )
        if self.drafter.init_from is None and self.drafter.mask_token_id is None:
            raise ValueError(
                "drafter.mask_token_id is missing: name a reserved token of the target's "
                "vocabulary that no text contains (Qwen3: 151669)"
            )
        if self.drafter.init_from is not None:
            given = self.drafter.model_fields_set - {"init_from"}
            if given:
                raise ValueError(
                    f"drafter.init_from brings its own architecture: leave out "
                    f"drafter.{', drafter.'.join(sorted(given))}"
                )
        if bool(self.pipeline.target_devices) != bool(self.pipeline.drafter_devices):
            raise ValueError(
                "pipeline.target_devices and pipeline.drafter_devices belong together: give both "
                "or neither"
            )
        self.batching_config()
        return self

    def batching_config(self) -> BatchingConfig:
        """The target's batches, as the planner takes them.

        Raises:
            ConfigError: fields of ``batching`` that do not go together.
        """
        section = self.batching
        window = section.window_size if section.strategy == "windowed" else None
        return BatchingConfig(
            limits=BatchLimits(
                section.max_tokens,
                section.max_batch_size,
                pad_to_multiple_of=section.pad_to_multiple_of,
            ),
            strategy=section.strategy,
            boundaries=section.boundaries,
            num_buckets=section.num_buckets,
            window_size=window,
            order="shuffled" if section.strategy == "sorted" else "balanced",
            accumulation_steps=self.remix.mixed_batches,
            balance="none",
            oversize=section.oversize,
            seed=self.seed,
        )


def read_train_config(path: str | Path, overrides: Sequence[str] = ()) -> TrainConfig:
    """Read a YAML file; fields may be given anew.

    Args:
        path: the file: one mapping, sections as nested mappings.
        overrides: each ``section.field=value``, the value in YAML, such as
            ``optimizer.learning_rate=3e-4``.

    Raises:
        ConfigError: a field that is unknown, missing or out of range; all of them at once, each
            with its value and what is allowed.
    """
    import yaml

    path = Path(path)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: expected a mapping of fields, got {type(values).__name__}")
    for override in overrides:
        _apply(values, override)
    return parse_train_config(values, where=str(path))


def parse_train_config(values: dict[str, Any], where: str = "config") -> TrainConfig:
    """Check plain values; see :func:`read_train_config`."""
    try:
        return TrainConfig.model_validate(values)
    except ValidationError as error:
        lines = [_problem(item) for item in error.errors()]
        raise ConfigError("\n".join([f"{where}: {len(lines)} problem(s)", *lines])) from None


def _problem(item: Any) -> str:
    field = ".".join(str(part) for part in item["loc"])
    message = item["msg"].removeprefix("Value error, ")
    if not field:
        return f"  {message}"
    if item["type"] == "missing":
        return f"  {field}: is missing; it has no default"
    if item["type"] == "extra_forbidden":
        return f"  {field}: no such field; --print-config lists all"
    return f"  {field}: {message}; got {item['input']!r}"


def _apply(values: dict[str, Any], override: str) -> None:
    import yaml

    name, equals, text = override.partition("=")
    if not equals or not name:
        raise ConfigError(f"an override reads section.field=value, got {override!r}")
    *parents, field = name.split(".")
    for parent in parents:
        inner = values.setdefault(parent, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"{override!r}: {parent} is no section")
        values = inner
    value = yaml.safe_load(text)
    # YAML 1.1 takes 6e-4 for a string, since it has no point; a number is meant.
    values[field] = _number(value) if isinstance(value, str) else value


def _number(text: str) -> Any:
    try:
        return float(text)
    except ValueError:
        return text
