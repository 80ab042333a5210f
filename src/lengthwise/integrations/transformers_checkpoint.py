"""What a checkpoint of Hugging Face ``Trainer`` says about the batches it counts."""

from __future__ import annotations

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any

from lengthwise.errors import LengthwiseWarning, PlanMismatchError

if TYPE_CHECKING:
    from lengthwise.loader import BucketBatchSampler


def callback() -> Any:
    """A ``TrainerCallback`` that saves whose batches are counted, and refuses to resume on others.

    The place itself is the trainer's: an epoch and a step of it, worked out from ``global_step``.
    """
    return _callback_class()()


@cache
def _callback_class() -> Any:
    from transformers import TrainerCallback
    from transformers.trainer_callback import ExportableState

    class LengthwiseCallback(TrainerCallback, ExportableState):
        plan: dict[str, Any] | None = None

        def state(self) -> dict[str, Any]:
            return {"args": {}, "attributes": {"plan": self.plan}}

        def on_train_begin(self, args: Any, state: Any, control: Any, **others: Any) -> None:
            del args, control
            sampler = others["train_dataloader"].batch_sampler
            saved = state.stateful_callbacks.setdefault(type(self).__name__, self.state())
            if state.global_step:
                _check(sampler, saved["attributes"]["plan"])
            self.plan = sampler.state_dict()

    return LengthwiseCallback


def _check(sampler: BucketBatchSampler, plan: dict[str, Any] | None) -> None:
    if plan is None:
        warnings.warn(
            "the checkpoint was not made with lengthwise, so samples of its epoch may come again",
            LengthwiseWarning,
            stacklevel=2,
        )
        return
    then, now = plan["num_replicas"], sampler.num_replicas
    if then != now:
        raise PlanMismatchError(
            f"the checkpoint was made on {then} replicas, this is {now}, and Trainer counts its "
            f"place in steps of all replicas: resume on {then}, or begin a run from the weights"
        )
    try:
        sampler.load_state_dict(plan)  # of the run's start, where it stands already
    except PlanMismatchError as error:
        raise PlanMismatchError(
            f"the checkpoint counts other batches: {error} If only the number of epochs changed, "
            f"give num_batches as it was then."
        ) from error
