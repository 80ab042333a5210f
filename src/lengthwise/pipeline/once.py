"""An observer that hears of everything once, where steps are made again after a restart."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lengthwise.dflash.decoding.evaluation import Evaluation
    from lengthwise.dflash.metrics import DraftSums
    from lengthwise.dflash.training.expect import Expectation
    from lengthwise.dflash.training.places import Location
    from lengthwise.dflash.training.progress import Position, StepFacts
    from lengthwise.dflash.update import StepResult
    from lengthwise.pipeline.flow import Flow, PipelineObserver


class Once:
    """Passes on what is new. What is made again is the same, to the last bit.

    Args:
        observer: is told.
    """

    def __init__(self, observer: PipelineObserver) -> None:
        """Nothing has been heard."""
        self._observer = observer
        self._stepped = self._saved = 0
        self._evaluated: set[int] = set()

    def stepped(self, position: Position, result: StepResult, facts: StepFacts) -> None:
        """An optimiser step was made."""
        if position.num_steps > self._stepped:
            self._stepped = position.num_steps
            self._observer.stepped(position, result, facts)

    def evaluated(self, position: Position, evaluation: Evaluation, sums: DraftSums) -> None:
        """Held-out prompts were decoded."""
        if position.num_steps not in self._evaluated:
            self._evaluated.add(position.num_steps)
            self._observer.evaluated(position, evaluation, sums)

    def saved(self, position: Position, path: Location) -> None:
        """A checkpoint is in place."""
        if position.num_steps > self._saved:
            self._saved = position.num_steps
            self._observer.saved(position, path)

    def expected(self, expectation: Expectation) -> None:
        """What the run can expect."""
        self._observer.expected(expectation)

    def flowed(self, flow: Flow) -> None:
        """How things flow."""
        self._observer.flowed(flow)
