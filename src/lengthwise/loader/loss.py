"""Every supervised token weighs the same: over batches, accumulation steps and replicas.

Batches of a plan hold unequal numbers of tokens. A mean of their mean losses would give a token of
a small batch more weight than one of a large batch, and a length class a weight that depends on how
it was batched. The right loss of an optimiser step is a quotient of two sums, each taken over all
micro-batches and replicas: of token losses, and of supervised tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import torch
import torch.distributed as dist
from torch.nn import functional

from lengthwise.core.limits import require_int
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable

Count: TypeAlias = Literal["before", "after"]
_HALF = (torch.float16, torch.bfloat16)


def count_tokens(
    labels: torch.Tensor, *, shift: bool = False, ignore_index: int = -100
) -> torch.Tensor:
    """Supervised tokens of one batch on this replica; int64, shape ()."""
    counted = labels[..., 1:] if shift else labels
    return (counted != ignore_index).sum()


def token_weighted_loss(
    output: torch.Tensor,
    labels: torch.Tensor,
    num_tokens: torch.Tensor | int | None = None,
    *,
    shift: bool = False,
    ignore_index: int = -100,
    num_replicas: int = 1,
) -> torch.Tensor:
    """Sum of the batch's token losses over ``num_tokens``; where nothing is supervised, 0.

    The zero hangs on the graph: it can be called ``backward`` on, gives gradients of zero and
    lets every replica take part in the gradients' reduction.

    Args:
        output: logits, shape (*labels.shape, classes), or losses a token, shape of ``labels``.
        labels: target classes; ``ignore_index`` where there is none.
        num_tokens: supervised tokens of the whole optimiser step: all micro-batches, all replicas.
            Default: those of this batch.
        shift: the logits at a position predict the label of the next one, as in language models
            whose labels are their inputs. False: that of the same position.
        ignore_index: the label that is no target.
        num_replicas: what gradients are averaged over afterwards (DDP, FSDP), which this undoes.

    Returns:
        The loss to call ``backward`` on; shape (). Half precision is summed in float32.

    Raises:
        ConfigError: shapes that do not fit together.
    """
    total = _sum_of_losses(output, labels, shift=shift, ignore_index=ignore_index)
    if num_tokens is None:
        num_tokens = count_tokens(labels, shift=shift, ignore_index=ignore_index)
    divisor = torch.as_tensor(num_tokens, device=total.device).clamp(min=1)
    return total * num_replicas / divisor


def _sum_of_losses(
    output: torch.Tensor, labels: torch.Tensor, *, shift: bool, ignore_index: int
) -> torch.Tensor:
    if output.ndim == labels.ndim + 1 and output.shape[:-1] == labels.shape:
        targets = labels.to(torch.int64)
        if shift:
            targets = functional.pad(targets[..., 1:], (0, 1), value=ignore_index)
        flat = output.reshape(-1, output.shape[-1])
        flat = flat.float() if flat.dtype in _HALF else flat
        return functional.cross_entropy(
            flat, targets.reshape(-1), ignore_index=ignore_index, reduction="sum"
        )
    if output.shape != labels.shape:
        raise ConfigError(
            f"output must be logits of shape (*labels.shape, classes) or losses of the labels' "
            f"shape; got output {tuple(output.shape)}, labels {tuple(labels.shape)}"
        )
    if shift:
        raise ConfigError("shift=True works on logits; losses a token are shifted by who made them")
    # where, not a product: a masked position may hold inf or NaN.
    kept = torch.where(labels != ignore_index, output, torch.zeros_like(output))
    return (kept.float() if kept.dtype in _HALF else kept).sum()


@dataclass(frozen=True, slots=True, eq=False)
class StepLoss:
    """An optimiser step's loss, over all micro-batches and replicas; reading a value waits for it.

    Attributes:
        loss_sum: sum of the token losses; float, shape ().
        num_tokens: supervised tokens; float (exact below 2**53), shape ().
        num_empty_batches: micro-batches without a supervised token; float, shape ().
    """

    loss_sum: torch.Tensor
    num_tokens: torch.Tensor
    num_empty_batches: torch.Tensor

    @property
    def mean(self) -> torch.Tensor:
        """Loss a token; 0 where the step supervises nothing. Shape ()."""
        return self.loss_sum / self.num_tokens.clamp(min=1)

    def __float__(self) -> float:
        """Loss a token."""
        return float(self.mean)


class TokenWeightedLoss:
    """The loss of an optimiser step in which every supervised token weighs the same.

    Where the step's micro-batches are at hand before the first forward pass, count them first:

        loss_function.begin_step(batch["labels"] for batch in micro_batches)   # one all-reduce
        for batch in micro_batches:
            loss_function(model(batch["input_ids"]), batch["labels"]).backward()
        optimizer.step()

    Where they come one by one (``count="after"``), sums are run backward and the gradients are
    scaled once all are there:

        for batch in micro_batches:
            loss_function(model(batch["input_ids"]), batch["labels"]).backward()
        loss_function.rescale_gradients(model.parameters())                    # one all-reduce
        optimizer.step()

    What a call returns is scaled for ``backward``; :class:`StepLoss` is what to log. Collective:
    every replica must make the same calls. With NCCL, labels must be on the replica's device.

    Args:
        shift: see :func:`token_weighted_loss`.
        count: ``"before"`` or ``"after"``.
        ignore_index: the label that is no target.
        gradients_averaged: whether gradients are averaged over the replicas, as DDP and FSDP do;
            False if they are summed.
        trainer_divides_by: what a trainer divides each loss by before ``backward``: Accelerate by
            ``gradient_accumulation_steps``, Lightning by ``accumulate_grad_batches``.
        provisional_tokens: with ``count="after"``, what sums are divided by until the tokens are
            known; about a step's tokens keeps float16 gradients in range. No result depends on it.
        group: the process group of the replicas; default: all processes.

    Attributes:
        num_empty_batches: micro-batches on this replica, so far, that supervised nothing.

    Raises:
        ConfigError: a setting that cannot work, or calls in an order that would weigh wrongly.
    """

    def __init__(
        self,
        *,
        shift: bool = False,
        count: Count = "before",
        ignore_index: int = -100,
        gradients_averaged: bool = True,
        trainer_divides_by: int = 1,
        provisional_tokens: int = 1,
        group: Any = None,
    ) -> None:
        """Keep the settings; see the class."""
        if count not in get_args(Count):
            raise ConfigError(f"count must be before or after, got {count!r}")
        self.shift = shift
        self.count = count
        self.ignore_index = ignore_index
        self.gradients_averaged = gradients_averaged
        self.trainer_divides_by = require_int("trainer_divides_by", trainer_divides_by, least=1)
        self.provisional_tokens = require_int("provisional_tokens", provisional_tokens, least=1)
        self.group = group
        self._step: tuple[torch.Tensor, torch.Tensor] | None = None
        self._calls_left = 0
        self._sums: torch.Tensor | None = None
        self._empty: torch.Tensor | int = 0

    @property
    def num_empty_batches(self) -> int:
        """Micro-batches on this replica, so far, that supervised nothing; waits for the device."""
        return int(self._empty)

    def begin_step(self, labels: torch.Tensor | Iterable[torch.Tensor]) -> torch.Tensor:
        """Count the step's supervised tokens on all replicas. Call it once an optimiser step.

        Args:
            labels: of every micro-batch of the step on this replica.

        Returns:
            Supervised tokens of the step, on all replicas; int64, shape ().
        """
        if self.count != "before":
            raise ConfigError("begin_step belongs to count='before'; else call rescale_gradients")
        batches = [labels] if isinstance(labels, torch.Tensor) else list(labels)
        if not batches:
            raise ConfigError("a step needs at least one micro-batch, got no labels")
        counts = [
            count_tokens(b, shift=self.shift, ignore_index=self.ignore_index) for b in batches
        ]
        local = torch.stack(counts).sum()
        totals = self._all_reduced(torch.stack((local, torch.ones_like(local))))
        self._step = (self._undone(totals[1]), totals[0].clamp(min=1))
        self._calls_left = len(batches)
        self._sums = None
        return totals[0]

    def __call__(self, output: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The loss of one micro-batch, to call ``backward`` on; arguments as in the function."""
        if self.count == "before":
            if self._calls_left == 0:
                raise ConfigError(
                    "more micro-batches than begin_step was given labels for; call it at the start "
                    "of every optimiser step with the labels of all its micro-batches"
                )
            self._calls_left -= 1
        total = _sum_of_losses(output, labels, shift=self.shift, ignore_index=self.ignore_index)
        self._add(total.detach(), labels)
        if self._step is not None:
            undone, num_tokens = self._step
            return total * undone / num_tokens
        return total / self.provisional_tokens

    def rescale_gradients(self, parameters: Iterable[torch.Tensor]) -> StepLoss:
        """Divide the step's gradients by its supervised tokens; then clip and step.

        Call it once an optimiser step, after the last ``backward`` and on every replica.

        Args:
            parameters: the model's; those without a gradient are passed over.

        Returns:
            The step's loss.
        """
        if self.count != "after":
            raise ConfigError(
                "with count='before' losses are divided already; rescale_gradients would do it "
                "twice"
            )
        sums = self._reduced_sums()
        scale = self._undone(sums[3]) * self.provisional_tokens / sums[1].clamp(min=1)
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(scale.to(parameter.grad.device))
        return StepLoss(*sums[:3].unbind())

    def end_step(self) -> StepLoss:
        """The step's loss, for logging, with ``count="before"``; one all-reduce."""
        if self.count != "before":
            raise ConfigError("with count='after', rescale_gradients ends the step")
        return StepLoss(*self._reduced_sums()[:3].unbind())

    def _add(self, total: torch.Tensor, labels: torch.Tensor) -> None:
        num_tokens = count_tokens(labels, shift=self.shift, ignore_index=self.ignore_index)
        empty = num_tokens == 0
        # MPS has no float64; counts are exact up to 2**24 there, and up to 2**53 elsewhere.
        dtype = torch.float32 if total.device.type == "mps" else torch.float64
        sums = torch.stack([value.to(total.device, dtype) for value in (total, num_tokens, empty)])
        self._sums = sums if self._sums is None else self._sums + sums
        self._empty = self._empty + empty.long()

    def _reduced_sums(self) -> torch.Tensor:
        """Loss sum, tokens, empty micro-batches and replicas, over all of them; ends the step."""
        if self._sums is None:
            raise ConfigError("the step has no micro-batch yet: nothing was run forward")
        sums = torch.cat((self._sums, self._sums.new_ones(1)))
        self._sums = None
        return self._all_reduced(sums)

    def _undone(self, num_replicas: torch.Tensor) -> torch.Tensor:
        """What makes up for the averaging of gradients and the trainer's own division."""
        averaged = num_replicas if self.gradients_averaged else torch.ones_like(num_replicas)
        return averaged * self.trainer_divides_by

    def _all_reduced(self, values: torch.Tensor) -> torch.Tensor:
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(values, group=self.group)
        return values
