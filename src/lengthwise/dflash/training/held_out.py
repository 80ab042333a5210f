"""The truth about a drafter in training: decoding held-out prompts with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from lengthwise.dflash.decoding.evaluate import evaluate
from lengthwise.dflash.training.source import TargetRunner

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.dflash.decoding.evaluation import Evaluation
    from lengthwise.dflash.metrics import DraftSums
    from lengthwise.dflash.target.model import Target
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.data import HeldOut
    from lengthwise.dflash.training.learner import Learner
    from lengthwise.dflash.training.progress import Observer, Position


class HeldOutEvaluator:
    """Decodes held-out prompts with the drafter as it is, and measures its loss on their answers.

    A prompt is a sample up to its first supervised token.

    Args:
        target: the frozen model.
        learner: has the drafter.
        held_out: the samples.
        config: the run's.
    """

    def __init__(
        self, target: Target, learner: Learner, held_out: HeldOut, config: TrainConfig
    ) -> None:
        """Read the prompts."""
        self._target = target
        self._learner = learner
        self._held_out = held_out
        self._config = config
        rows = [held_out.dataset[int(sample)] for sample in held_out.sample_ids]
        prompts = [_prompt(row["input_ids"], row["loss_mask"]) for row in rows]
        most = config.evaluation.num_prompts
        self.prompts = [prompt for prompt in prompts if prompt][:most]
        self.stop_token_ids = stop_tokens(target)

    def evaluate(self, position: Position, observer: Observer, *, compare: bool) -> None:
        """Evaluate at once; see :class:`~lengthwise.dflash.training.loop.Evaluator`."""
        observer.evaluated(position, self.decode(compare=compare), self.measure())

    def decode(self, *, compare: bool) -> Evaluation:
        """Decode every prompt, greedily, with the drafter.

        Args:
            compare: without it too, which costs more than the rest: speed-up, mismatches.
        """
        drafter = self._learner.drafter
        drafter.eval()
        return evaluate(
            self._target,
            drafter,
            self.prompts,
            max_new_tokens=self._config.evaluation.max_new_tokens,
            stop_token_ids=self.stop_token_ids,
            compare=compare,
        )

    def measure(self) -> DraftSums:
        """Loss and accuracy on the held-out answers, always at the same anchors."""
        config = self._learner.drafter.config
        runner = TargetRunner(self._target, self._held_out.dataset, config.target_layer_ids)
        sums = self._learner.measure([])
        # One by one: held-out samples are few, and no batch of theirs could be too large.
        for sample in self._held_out.sample_ids:
            sums = sums + self._learner.measure(runner.run(sample[None]))
        return sums


def stop_tokens(target: Target) -> list[int]:
    """Token ids that end an answer, as the model's generation config says."""
    generation = getattr(target.model, "generation_config", None)
    found = getattr(generation, "eos_token_id", None)
    if found is None:
        found = getattr(target.config, "eos_token_id", None)
    if found is None:
        return []
    return [int(found)] if isinstance(found, int) else [int(token) for token in found]


def _prompt(input_ids: torch.Tensor, loss_mask: torch.Tensor) -> Sequence[int]:
    """The tokens before the first supervised one."""
    supervised = torch.nonzero(loss_mask)
    stop = int(supervised[0]) if len(supervised) else 0
    ids: list[int] = input_ids[:stop].tolist()
    return ids
