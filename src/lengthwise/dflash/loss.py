"""The drafter's loss: weighted cross-entropy of all blocks, in the memory of one chunk."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import torch

from lengthwise.core.limits import require_int
from lengthwise.dflash.metrics import DraftSums
from lengthwise.errors import ConfigError, ModelError, TrainingError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.dflash.anchors import Labels
    from lengthwise.dflash.length_classes import LengthClasses
    from lengthwise.dflash.target.ends import FrozenEnds

    Weigh: TypeAlias = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    """Cross-entropies and which are valid, both (blocks, B - 1), to weights; no gradient."""

Weighting: TypeAlias = Literal["decay", "dpace", "uniform"]

CHUNK_LOGITS = 1 << 27
"""Logits of a chunk where ``chunk_blocks`` is not given: 512 MiB in float32."""


@dataclass(frozen=True, slots=True)
class LossConfig:
    """How labels are weighted, and how much of the logits is made at once.

    Args:
        weighting: what a right prediction at position k of a block is worth:

            - ``"decay"``: ``exp(-(k - 1) / gamma)`` (DFlash, arXiv 2602.06036).
            - ``"dpace"``: the sum over m >= k of ``prod_{i <= m} ((1 - alpha) q_i + alpha)``, where
              q_i is the probability that the drafter now gives label i: what the expected streak
              would gain (D-PACE, arXiv 2605.18810). A position without a label has no part in it.
            - ``"uniform"``: 1.
        gamma: for ``"decay"``; by default 7 for blocks of 16, 5 for 10, 4 for 8 (the paper's), and
            on the lines between and beyond: see :func:`default_gamma`.
        alpha: for ``"dpace"``, in (0, 1].
        chunk_blocks: blocks whose logits are held at once; by default as many as make 2**27
            logits. The result does not depend on it.

    Raises:
        ConfigError: a value out of its range.
    """

    weighting: Weighting = "decay"
    gamma: float | None = None
    alpha: float = 0.5
    chunk_blocks: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.weighting not in get_args(Weighting):
            allowed = ", ".join(get_args(Weighting))
            raise ConfigError(f"weighting must be one of {allowed}; got {self.weighting!r}")
        if self.gamma is not None and not (self.gamma > 0 and math.isfinite(self.gamma)):
            raise ConfigError(f"gamma must be a number above 0, got {self.gamma!r}")
        if not 0 < self.alpha <= 1:
            raise ConfigError(f"alpha must be in (0, 1], got {self.alpha!r}")
        if self.chunk_blocks is not None:
            require_int("chunk_blocks", self.chunk_blocks, least=1)


def default_gamma(block_size: int) -> float:
    """The decay for a block size: B / 2 up to 10, then 5 + (B - 10) / 3.

    These two lines meet the three values of the paper: 4 for 8, 5 for 10 and 7 for 16.
    """
    return block_size / 2 if block_size <= 10 else 5 + (block_size - 10) / 3


def draft_loss(
    hidden: torch.Tensor,
    labels: Labels,
    ends: FrozenEnds,
    config: LossConfig,
    classes: LengthClasses | None = None,
) -> DraftSums:
    """Loss and metrics of all blocks of a batch.

    The head is frozen, so only the gradient with respect to ``hidden`` is needed. It is found in
    the forward pass, chunk by chunk, in one buffer that holds a chunk's logits, then their
    exponentials, then their gradient. So memory does not grow with the number of blocks, and
    backward is one multiplication. Blocks without a label are left out.

    The product with the head is in autocast's type where autocast is on, else in the head's own;
    the softmax is in float32 (in float64 for a head in float64).

    Args:
        hidden: final states of the drafter, shape (R, N * B, D).
        labels: of the same blocks; on the CPU, nothing waits for a GPU.
        ends: the target's; ``weight`` (V, D) and ``bias`` (V,) or None are used.
        config: weighting and chunk size.
        classes: of the same blocks, for ``by_length``; costs one scatter.

    Returns:
        Sums; ``loss_sum`` carries the gradient, also where there is no label at all (it is zero
        then). There is no second derivative.

    Raises:
        ModelError: ``hidden`` does not fit the labels or the head.
    """
    num_rows, num_blocks, block_size = labels.token_ids.shape
    weight, bias = ends.weight, ends.bias
    wanted = (num_rows, num_blocks * block_size, weight.shape[1])
    if tuple(hidden.shape) != wanted:
        raise ModelError(
            f"the loss needs hidden states of shape {wanted} for {num_blocks:,} blocks of "
            f"{block_size} a row and this head; got {tuple(hidden.shape)}"
        )
    valid = labels.valid[:, :, 1:].flatten(0, 1)
    blocks = valid.any(1).nonzero().squeeze(1)
    valid = valid[blocks].to(hidden.device, non_blocking=True)
    token_ids = labels.token_ids[:, :, 1:].flatten(0, 1)[blocks]
    head = _Head(
        weight=weight,
        bias=bias,
        blocks=blocks.to(hidden.device, non_blocking=True),
        token_ids=token_ids.to(hidden.device, non_blocking=True),
        valid=valid,
        weigh=_weigher(config, block_size),
        chunk_blocks=_chunk_blocks(config, block_size, weight.shape[0]),
        dtype=_compute_dtype(hidden, weight),
        wants_gradient=torch.is_grad_enabled() and hidden.requires_grad,
        num_classes=0 if classes is None else classes.num_classes,
        classes=None if classes is None else classes.of(blocks, hidden.device),
    )
    loss_sum, weight_sum, correct, by_length = _HeadLoss.apply(hidden, head)  # type: ignore[no-untyped-call]
    return DraftSums(
        loss_sum=loss_sum,
        weight_sum=weight_sum,
        correct=correct.sum(0),
        valid=valid.sum(0),
        streak_sum=correct.long().cumprod(1).sum() + blocks.numel(),
        num_blocks=torch.tensor(blocks.numel(), device=hidden.device),
        by_length=by_length,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Head:
    """All that turns hidden states into a loss, for n blocks that have labels."""

    weight: torch.Tensor
    bias: torch.Tensor | None
    blocks: torch.Tensor
    """Which of the R * N blocks they are, (n,)."""
    token_ids: torch.Tensor
    """Labels at positions 1 .. B - 1, (n, B - 1)."""
    valid: torch.Tensor
    weigh: Weigh
    chunk_blocks: int
    dtype: torch.dtype
    """Of the products with the weight."""
    wants_gradient: bool
    num_classes: int = 0
    classes: torch.Tensor | None = None
    """Length class of each block, (n,)."""

    def chunks(self) -> Iterator[slice]:
        """Slices of the blocks."""
        for start in range(0, len(self.blocks), self.chunk_blocks):
            yield slice(start, min(start + self.chunk_blocks, len(self.blocks)))


class _Buffers:
    """The logits of one chunk, in the softmax's type and, where it differs, in the product's."""

    def __init__(self, head: _Head, device: torch.device) -> None:
        blocks = min(head.chunk_blocks, len(head.blocks))
        shape = (blocks * head.token_ids.shape[1], head.weight.shape[0])
        self.weight = head.weight.to(head.dtype)
        self.bias = head.bias
        wide = torch.float64 if head.dtype == torch.float64 else torch.float32
        self.wide = torch.empty(shape, dtype=wide, device=device)
        same = head.dtype == wide
        self.narrow = self.wide if same else torch.empty(shape, dtype=head.dtype, device=device)

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Logits (m, V) of states (m, D), in the buffer."""
        size = len(states)
        torch.mm(states.to(self.weight.dtype), self.weight.t(), out=self.narrow[:size])
        logits = self.wide[:size]
        if self.narrow is not self.wide:
            logits.copy_(self.narrow[:size])
        return logits if self.bias is None else logits.add_(self.bias)

    def through_head(self, gradient: torch.Tensor) -> torch.Tensor:
        """The gradient (m, D) of states from that of logits, (m, V), which is in the buffer."""
        if self.narrow is not self.wide:
            gradient = self.narrow[: len(gradient)].copy_(gradient)
        return gradient @ self.weight


class _HeadLoss(torch.autograd.Function):
    """Weighted cross-entropies summed, with the gradient made in the forward pass."""

    @staticmethod
    def forward(
        ctx: Any, hidden: torch.Tensor, head: _Head
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        block_size = head.token_ids.shape[1] + 1
        states = hidden.reshape(-1, block_size, hidden.shape[-1])
        gradient = torch.zeros_like(states) if head.wants_gradient else None
        with torch.autocast(hidden.device.type, enabled=False):
            buffers = _Buffers(head, hidden.device)
            losses = buffers.wide.new_zeros(head.valid.shape)
            weights = torch.zeros_like(losses)
            correct = torch.zeros_like(head.valid)
            for chunk in head.chunks():
                _run_chunk(states, gradient, head, chunk, buffers, (losses, weights, correct))
        if gradient is not None:
            ctx.save_for_backward(gradient.reshape(hidden.shape))
        weighted = losses * weights
        by_length = losses.new_zeros(2, head.num_classes)
        if head.classes is not None:
            by_length.index_add_(1, head.classes, torch.stack([weighted.sum(1), weights.sum(1)]))
        loss_sum, weight_sum = weighted.sum(), weights.sum()
        ctx.mark_non_differentiable(weight_sum, correct, by_length)
        return loss_sum, weight_sum, correct, by_length

    @staticmethod
    def backward(ctx: Any, *outer: torch.Tensor) -> tuple[torch.Tensor, None]:
        if torch.is_grad_enabled():
            raise TrainingError(
                "the drafter's loss has no second derivative: its gradient is made in the forward "
                "pass. Call backward() without create_graph=True"
            )
        (gradient,) = ctx.saved_tensors
        return gradient * outer[0].to(gradient.dtype), None


def _run_chunk(
    states: torch.Tensor,
    gradient: torch.Tensor | None,
    head: _Head,
    chunk: slice,
    buffers: _Buffers,
    found: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
) -> None:
    """Fill one chunk of losses, weights and correct, and of the gradient; all in place."""
    blocks, valid = head.blocks[chunk], head.valid[chunk]
    losses, weights, correct = (values[chunk] for values in found)
    token_ids = head.token_ids[chunk].reshape(-1, 1)
    logits = buffers.logits(states[blocks, 1:].flatten(0, 1))
    largest, best = logits.max(1, keepdim=True)
    correct.copy_((best == token_ids).view_as(valid) & valid)
    picked = logits.gather(1, token_ids) - largest
    exponentials = logits.sub_(largest).exp_()
    total = exponentials.sum(1, keepdim=True)
    entropies = (total.log() - picked).view_as(valid)
    losses.copy_(torch.where(valid, entropies, entropies.new_zeros(())))
    weights.copy_(head.weigh(losses, valid))
    if gradient is None:
        return
    scale = weights.reshape(-1, 1)
    slopes = exponentials.mul_(scale / total).scatter_add_(1, token_ids, -scale)
    through = buffers.through_head(slopes).view(*valid.shape, -1)
    gradient[blocks, 1:] = through.to(gradient.dtype)


def _weigher(config: LossConfig, block_size: int) -> Weigh:
    gamma = config.gamma if config.gamma is not None else default_gamma(block_size)

    def decay(losses: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        places = torch.arange(losses.shape[1], dtype=losses.dtype, device=losses.device)
        return torch.exp(-places / gamma) * valid

    def dpace(losses: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        smooth = (1 - config.alpha) * torch.exp(-losses) + config.alpha
        reached = torch.where(valid, smooth, torch.ones_like(smooth)).cumprod(1) * valid
        return reached.flip(1).cumsum(1).flip(1) * valid

    def uniform(losses: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
        return valid.to(losses.dtype)

    kinds: dict[str, Weigh] = {"decay": decay, "dpace": dpace, "uniform": uniform}
    return kinds[config.weighting]


def _chunk_blocks(config: LossConfig, block_size: int, vocab_size: int) -> int:
    if config.chunk_blocks is not None:
        return config.chunk_blocks
    return max(1, CHUNK_LOGITS // ((block_size - 1) * vocab_size))


def _compute_dtype(hidden: torch.Tensor, weight: torch.Tensor) -> torch.dtype:
    kind = hidden.device.type
    if torch.is_autocast_enabled(kind):
        return torch.get_autocast_dtype(kind)
    return weight.dtype
