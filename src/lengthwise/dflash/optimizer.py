"""Optimisers of the drafter: AdamW, or Muon for matrices with AdamW for the rest."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import torch

from lengthwise.errors import ConfigError, MissingDependencyError, ModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import nn

OptimizerKind: TypeAlias = Literal["adamw", "muon"]

_FUSED_DEVICES = ("cuda", "cpu")


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """How weights change. The defaults are the paper's where it gives them, else public recipes'.

    Args:
        kind: ``"adamw"``, or ``"muon"``: Muon for the 2-D weights (torch >= 2.9) and AdamW for
            the rest. Muon's updates are scaled to the size of AdamW's, so both take the same
            learning rate.
        learning_rate: at the schedule's peak.
        betas: AdamW's.
        eps: AdamW's.
        weight_decay: decoupled, of the 2-D weights; norms and biases have none.
        momentum: Muon's.
        max_grad_norm: gradients are clipped to this global norm; ``inf`` clips nothing.

    Raises:
        ConfigError: a value out of its range.
    """

    kind: OptimizerKind = "adamw"
    learning_rate: float = 6e-4
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = 1e-8
    weight_decay: float = 0.0
    momentum: float = 0.95
    max_grad_norm: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what cannot work."""
        if self.kind not in get_args(OptimizerKind):
            raise ConfigError(
                f"kind of optimiser must be one of {', '.join(get_args(OptimizerKind))}; "
                f"got {self.kind!r}"
            )
        for name in ("learning_rate", "eps", "max_grad_norm"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be a number above 0, got {getattr(self, name)!r}")
        for name in ("learning_rate", "eps", "weight_decay"):
            if not math.isfinite(getattr(self, name)):
                raise ConfigError(f"{name} must be finite, got {getattr(self, name)!r}")
        if self.weight_decay < 0:
            raise ConfigError(f"weight_decay must be at least 0, got {self.weight_decay!r}")
        for name, shares in (("betas", self.betas), ("momentum", (self.momentum,))):
            if not all(0 <= share < 1 for share in shares):
                raise ConfigError(f"{name} must be in [0, 1), got {getattr(self, name)!r}")


class Optimizers:
    """Several optimisers as one: each steps its own parameters.

    Args:
        parts: by name; the names are the keys of the state.
        learning_rate: of all of them, at the schedule's peak; no part of the state.
    """

    def __init__(self, parts: dict[str, torch.optim.Optimizer], learning_rate: float) -> None:
        """Take the parts over."""
        self.parts = parts
        self.learning_rate = learning_rate

    def scale_learning_rate(self, factor: float) -> float:
        """Set all groups to ``factor`` of the peak, and return that rate."""
        rate = self.learning_rate * factor
        for group in self.param_groups:
            group["lr"] = rate
        return rate

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of all parts."""
        return [group for part in self.parts.values() for group in part.param_groups]

    def step(self) -> None:
        """Step all parts."""
        for part in self.parts.values():
            part.step()

    def zero_grad(self, *, set_to_none: bool = True) -> None:
        """Forget all gradients."""
        for part in self.parts.values():
            part.zero_grad(set_to_none=set_to_none)

    def state_dict(self) -> dict[str, Any]:
        """The states by name of the part."""
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up a state.

        Raises:
            ConfigError: it is that of other optimisers.
        """
        if state_dict.keys() != self.parts.keys():
            raise ConfigError(
                f"the saved state is that of optimisers {', '.join(state_dict)}, this run has "
                f"{', '.join(self.parts)}; continue with the kind of optimiser the run began with"
            )
        for name, part in self.parts.items():
            part.load_state_dict(state_dict[name])


def build_optimizer(drafter: nn.Module, config: OptimizerConfig) -> Optimizers:
    """An optimiser of all trainable parameters of a drafter.

    Parameters stay what they are, float32: small updates would be lost in bfloat16. Narrow
    products come from autocast.

    Args:
        drafter: on the device it will be trained on.
        config: settings.

    Raises:
        ModelError: a parameter is narrower than float32, or there is none.
        MissingDependencyError: torch is too old for Muon.
    """
    named = [(name, p) for name, p in drafter.named_parameters() if p.requires_grad]
    if not named:
        raise ModelError("the drafter has no trainable parameter")
    for name, parameter in named:
        if parameter.dtype not in {torch.float32, torch.float64}:
            raise ModelError(
                f"parameters are trained in float32, {name} is {parameter.dtype}; call "
                f"drafter.float() and train with bfloat16 autocast"
            )
    matrices = [parameter for _, parameter in named if parameter.ndim == 2]
    rest = [parameter for _, parameter in named if parameter.ndim != 2]
    if config.kind == "muon":
        parts = {"muon": _muon(matrices, config)} if matrices else {}
        if rest:
            parts["adamw"] = _adamw([], rest, config)
    else:
        parts = {"adamw": _adamw(matrices, rest, config)}
    return Optimizers(parts, config.learning_rate)


def _adamw(
    decayed: Sequence[torch.Tensor], others: Sequence[torch.Tensor], config: OptimizerConfig
) -> torch.optim.Optimizer:
    groups: list[dict[str, Any]] = [
        {"params": params, "weight_decay": decay}
        for params, decay in ((decayed, config.weight_decay), (others, 0.0))
        if params
    ]
    # One kernel an update where there is one; else torch chooses (foreach where it can).
    fused = all(p.device.type in _FUSED_DEVICES for p in (*decayed, *others))
    return torch.optim.AdamW(
        groups, config.learning_rate, config.betas, config.eps, fused=fused or None
    )


def _muon(matrices: Sequence[torch.Tensor], config: OptimizerConfig) -> torch.optim.Optimizer:
    kind = getattr(torch.optim, "Muon", None)
    if kind is None:
        raise MissingDependencyError(
            f"the optimiser 'muon' needs torch >= 2.9, this is {torch.__version__}; upgrade torch "
            f"or take kind='adamw'"
        )
    muon: torch.optim.Optimizer = kind(
        matrices,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        momentum=config.momentum,
        adjust_lr_fn="match_rms_adamw",
    )
    return muon
