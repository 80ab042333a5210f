"""The one config of a training run: a YAML file, command-line overrides, all checked at once."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, Field, ValidationError, model_validator

from lengthwise.core.config import BatchingConfig
from lengthwise.core.file_format import TRAIN_CONFIG
from lengthwise.core.limits import BatchLimits
from lengthwise.dflash.training.pipeline_section import PipelineSection
from lengthwise.dflash.training.problems import problem_lines
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
    RemixSection,
    ScheduleSection,
    Section,
    StepSection,
    TargetSection,
)
from lengthwise.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


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
        problems = [*self._of_steps(), *self._of_drafter(), *self.pipeline.problems()]
        try:
            self.batching_config()
        except ConfigError as error:
            problems.append(f"batching: {error}")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def _of_steps(self) -> Iterator[str]:
        step = self.step
        for name in ("max_anchors_per_batch", "anchors_per_step"):
            if getattr(step, name) < step.max_anchors:
                yield (
                    f"step.{name} must be at least step.max_anchors ({step.max_anchors:,}), got "
                    f"{getattr(step, name):,}"
                )

    def _of_drafter(self) -> Iterator[str]:
        drafter = self.drafter
        if drafter.init_from is not None:
            given = drafter.model_fields_set - {"init_from"}
            if given:
                yield (
                    f"drafter.init_from brings its own architecture: leave out "
                    f"drafter.{', drafter.'.join(sorted(given))}"
                )
            return
        if drafter.mask_token_id is None:
            yield (
                "drafter.mask_token_id is missing: name a reserved token of the target's "
                "vocabulary that no text contains (Qwen3: 151669)"
            )
        if drafter.num_taps is not None and drafter.target_layer_ids is not None:
            yield "drafter.num_taps and drafter.target_layer_ids say the same: give one of them"

    @property
    def shared_dir(self) -> str:
        """Where checkpoints, the drafter and what is to be evaluated go; may be a URL."""
        return self.checkpoint.directory or self.output_dir

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
            ``optimizer.learning_rate=3e-4`` or ``data.train=[a, b]``.

    Raises:
        ConfigError: a field that is unknown, missing or out of range; all of them at once, each
            with its value and what is allowed. Fields that do not go together are looked for when
            each is right for itself.
    """
    import yaml

    path = Path(path)
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not valid YAML: {error}") from error
    if not isinstance(values, dict):
        found = "nothing" if values is None else type(values).__name__
        raise ConfigError(f"{path}: a config is a mapping of fields, the file holds {found}")
    for override in overrides:
        _apply(values, override)
    return parse_train_config(values, where=str(path))


def parse_train_config(values: dict[str, Any], where: str = "config") -> TrainConfig:
    """Check plain values; see :func:`read_train_config`."""
    try:
        TRAIN_CONFIG.check(values, where)
    except DataError as error:
        raise ConfigError(str(error)) from None
    values = {name: value for name, value in values.items() if name not in TRAIN_CONFIG.stamp()}
    try:
        return TrainConfig.model_validate(values)
    except ValidationError as error:
        fields = _field_names(TrainConfig)
        lines = [line for item in error.errors() for line in problem_lines(item, fields)]
        count = "1 problem" if len(lines) == 1 else f"{len(lines)} problems"
        raise ConfigError("\n".join([f"{where}: {count}", *lines])) from None


def _field_names(kind: type[BaseModel], prefix: str = "") -> list[str]:
    """Every section and field below ``kind``, as ``section`` and ``section.field``."""
    names = []
    for name, field in kind.model_fields.items():
        inner = field.annotation
        names.append(prefix + name)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            names += _field_names(inner, f"{prefix}{name}.")
    return names


def _apply(values: dict[str, Any], override: str) -> None:
    import yaml

    name, equals, text = override.partition("=")
    *parents, field = name.split(".")
    if not equals or not all([*parents, field]):
        raise ConfigError(f"an override reads section.field=value, got {override!r}")
    for parent in parents:
        inner = values.setdefault(parent, {})
        # A section that stands in the file without a field reads as nothing.
        inner = values[parent] = {} if inner is None else inner
        if not isinstance(inner, dict):
            raise ConfigError(f"override {override!r}: {parent} is no section")
        values = inner
    try:
        values[field] = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"override {override!r}: the value is not valid YAML: {error}") from error
