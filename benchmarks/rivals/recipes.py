"""How each trainer is set: one setting for all, and what each one's authors recommend."""

from __future__ import annotations

from dataclasses import dataclass

COMMON_RATE = 3e-3
"""Of AdamW with betas 0.9 and 0.95, no weight decay, gradients clipped to a norm of 1, warm-up of
4 % and a cosine: what ``examples/prove_drafter.py`` does, a little lower for smaller steps."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One row of the comparison of acceptance."""

    system: str
    label: str
    start: str
    """``given``: the same first weights for all; ``own``: the trainer's own initialisation."""
    optimizer: str
    """``common``, ``own`` (its recommendation), or ``speculators`` (for ours: theirs)."""
    weighting: str
    """Of places in a block: ``decay`` (the paper's) or ``dpace``."""


RECIPES = {
    "lengthwise": Recipe("lengthwise", "lengthwise", "given", "common", "decay"),
    "speculators": Recipe("speculators", "speculators", "given", "common", "decay"),
    "specforge": Recipe("specforge", "SpecForge", "given", "common", "decay"),
    "lengthwise_own": Recipe("lengthwise", "lengthwise, defaults", "own", "own", "decay"),
    "speculators_own": Recipe("speculators", "speculators, defaults", "own", "own", "dpace"),
    "specforge_own": Recipe("specforge", "SpecForge, its recipe", "own", "own", "decay"),
    "lengthwise_muon": Recipe(
        "lengthwise", "lengthwise, speculators' settings", "own", "speculators", "dpace"
    ),
}
SYSTEMS = ("lengthwise", "speculators", "specforge")
LABELS = {"lengthwise": "lengthwise", "speculators": "speculators", "specforge": "SpecForge"}


@dataclass(frozen=True, slots=True)
class Step:
    """What an optimiser step was made of."""

    loss: float
    """As the trainer reports it."""
    labels: int
    anchors: int
    tokens: int
    """Of the step's samples."""
    places: int
    """Of the rows that hold them."""


@dataclass(frozen=True, slots=True)
class Value:
    """A loss on given weights, samples and anchors."""

    reported: float
    numerator: float | None
    """The weighted sum of cross-entropies that it is made of."""
    labels: int
    gradient: float
    """Norm of the numerator's gradient, or of the loss's where there is no numerator."""
