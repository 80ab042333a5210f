"""What a run writes down: one record a step or evaluation, to files and to tracking services."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.core.file_format import TRAIN_CONFIG
from lengthwise.dflash.training.run_files import CONFIG_FILE, METRICS_FILE
from lengthwise.loader.monitor import JsonlWriter, TensorBoardWriter, TrackioWriter, WandbWriter
from lengthwise.loader.monitor.curve import MixedLossCurve

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lengthwise.dflash.decoding.evaluation import Evaluation
    from lengthwise.dflash.metrics import DraftSums
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.places import Location
    from lengthwise.dflash.training.progress import Position, StepFacts
    from lengthwise.dflash.update import StepResult
    from lengthwise.loader.monitor import Writer

SECTIONS = {
    "": "train/",
    "accuracy_": "by_position/accuracy_",
    "eval_": "eval/",
    "eval_accuracy_": "by_position/eval_accuracy_",
    "loss_length_": "by_length/loss_",
    "share_length_": "by_length/share_",
    "total_": "totals/",
    "flow_": "pipeline/",
    "flow_busy_": "devices/busy_",
    "flow_input_seconds_": "devices/input_seconds_",
    "flow_meeting_seconds_": "devices/meeting_seconds_",
    "flow_overall_busy_": "devices/overall_busy_",
    "flow_padded_tokens_target_": "devices/padded_tokens_target_",
    "flow_wait_seconds_": "devices/wait_seconds_",
}
"""Sections of charts in tracking services: a hundred charts in one would bury the loss."""
HALF_LIFE = 100.0
"""Steps after which a loss counts half in the usual loss of its length class."""


class Totals:
    """Sums over all steps since the run was started or resumed, those between records too.

    Args:
        clock: seconds, rising.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        """No step yet."""
        self._clock = clock
        self._began: float | None = None
        self._sums: dict[str, float] = {}

    def add(self, facts: StepFacts) -> dict[str, float]:
        """Take in a step that has just been made; all sums, under ``total_``.

        ``total_seconds`` is all the time since the first of the steps began.
        """
        if self._began is None:
            self._began = self._clock() - facts.wait_seconds - facts.learn_seconds
        now: dict[str, float] = {"steps": 1, **asdict(facts)}
        self._sums = {name: self._sums.get(name, 0) + value for name, value in now.items()}
        found = {f"total_{name}": value for name, value in self._sums.items()}
        return {"total_seconds": self._clock() - self._began, **found}


class RunLog:
    """Writes records to ``metrics.jsonl`` and to the writers that a config asks for.

    Args:
        config: the run's; its output directory takes the files.
        boundaries: of the length classes whose losses are told apart; None for none.
        clock: seconds, rising.

    Attributes:
        last: the newest step's record.
        last_evaluation: the newest evaluation's.
    """

    def __init__(
        self,
        config: TrainConfig,
        boundaries: Sequence[int] | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """Open the writers."""
        self._boundaries = tuple(boundaries or ())
        self._curve = MixedLossCurve(max(0, len(self._boundaries) - 1), HALF_LIFE)
        directory = Path(config.output_dir)
        self._every = config.logging.every_steps
        self._writers: list[Writer] = [JsonlWriter(directory / METRICS_FILE)]
        values = {**TRAIN_CONFIG.stamp(), **config.model_dump(mode="json")}
        text = json.dumps(values, indent=2) + "\n"
        (directory / CONFIG_FILE).write_text(text, encoding="utf-8")
        self._writers += [_writer(name, config) for name in config.logging.writers]
        self._totals = Totals(clock)
        self.last: dict[str, Any] = {}
        self.last_evaluation: dict[str, Any] = {}

    def stepped(self, position: Position, result: StepResult, facts: StepFacts) -> None:
        """Keep a step's record; write the first, one every so many, and all that were skipped."""
        first = not self.last
        self.last = step_record(position, result, facts)
        self.last |= self._totals.add(facts) | self._by_length(position, result)
        due = first or position.num_steps % self._every == 0
        if due or result.outcome != "stepped":
            self.write(self.last)

    def evaluated(self, position: Position, evaluation: Evaluation, sums: DraftSums) -> None:
        """Write an evaluation's record."""
        self.last_evaluation = evaluation_record(position, evaluation, sums)
        self.write(self.last_evaluation)

    def saved(self, position: Position, path: Location) -> None:
        """Nothing: a checkpoint speaks for itself."""

    def close(self) -> None:
        """Close all writers."""
        for writer in self._writers:
            writer.close()

    def write(self, record: dict[str, Any]) -> None:
        """Pass a record to all writers; ``step`` must be among its names."""
        for writer in self._writers:
            writer.write(record)

    def _by_length(self, position: Position, result: StepResult) -> dict[str, float | None]:
        """Losses of the length classes, and the step's loss without its mixture's usual part."""
        losses = result.sums.loss_by_length
        if not losses or len(losses) != len(self._boundaries) - 1:
            return {}
        weights = result.sums.by_length[1]
        total = float(weights.sum())
        shares = (weights / total).tolist() if total else [0.0] * len(losses)
        adjusted = self._curve.add(position.num_steps, result.sums.loss, losses, shares)
        classes = [f"length_{lo}_{hi - 1}" for lo, hi in pairwise(self._boundaries)]
        return {
            "adjusted_loss": adjusted,
            **{f"loss_{name}": loss for name, loss in zip(classes, losses, strict=True)},
            **{f"share_{name}": share for name, share in zip(classes, shares, strict=True)},
        }


def step_record(position: Position, result: StepResult, facts: StepFacts) -> dict[str, Any]:
    """One step in plain numbers; names as in the documentation, unknown values None."""
    sums = result.sums
    seconds = facts.wait_seconds + facts.learn_seconds
    return {
        "step": position.num_steps,
        "epoch": position.epoch,
        "loss": sums.loss,
        "streak": sums.streak,
        "accuracy": _mean_accuracy(sums),
        **_by_position(sums, "accuracy_"),
        "learning_rate": result.learning_rate,
        "grad_norm": result.grad_norm,
        "skipped": int(result.outcome == "skipped"),
        "num_samples": facts.num_samples,
        "num_blocks": int(sums.num_blocks),
        "real_tokens": facts.real_tokens,
        "tokens_per_second": facts.real_tokens / seconds if seconds else None,
        "wait_seconds": facts.wait_seconds,
        "learn_seconds": facts.learn_seconds,
    }


def evaluation_record(
    position: Position, evaluation: Evaluation, sums: DraftSums
) -> dict[str, Any]:
    """One evaluation in plain numbers, all under ``eval_``."""
    overall = evaluation.overall
    return {
        "step": position.num_steps,
        "eval_loss": sums.loss,
        "eval_accuracy": _mean_accuracy(sums),
        **_by_position(sums, "eval_accuracy_"),
        "eval_streak": sums.streak,
        "eval_tokens_per_verify": overall.tokens_per_verify,
        "eval_num_accepted": overall.num_accepted,
        "eval_standard_error": overall.standard_error,
        "eval_speedup": overall.speedup,
        "eval_mismatches": overall.num_mismatches,
        "eval_num_prompts": overall.num_prompts,
        "eval_seconds": evaluation.seconds,
    }


def _mean_accuracy(sums: DraftSums) -> float | None:
    valid = int(sums.valid.sum())
    return int(sums.correct.sum()) / valid if valid else None


def _by_position(sums: DraftSums, prefix: str) -> dict[str, float]:
    return {f"{prefix}{k}": value for k, value in enumerate(sums.accuracy, 1)}


def _writer(name: str, config: TrainConfig) -> Writer:
    if name == "tensorboard":
        return TensorBoardWriter(Path(config.output_dir) / "tensorboard", sections=SECTIONS)
    project = config.logging.project
    about = {"name": Path(config.output_dir).name, "config": config.model_dump(mode="json")}
    if name == "wandb":
        return WandbWriter(sections=SECTIONS, project=project, dir=config.output_dir, **about)
    return TrackioWriter(project, sections=SECTIONS, **about)
