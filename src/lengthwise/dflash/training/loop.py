"""The loop: step after step, evaluations, checkpoints, an orderly end.

It asks a source for samples and a learner to learn from them, and does not know whether they come
from this process or from many.
"""

from __future__ import annotations

import signal
import time
import warnings
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch

from lengthwise._version import __version__
from lengthwise.dflash.formats.native import save_native
from lengthwise.dflash.training.places import write_folder
from lengthwise.dflash.training.progress import Outcome, Position, StepFacts
from lengthwise.dflash.training.random_states import random_states, set_random_states
from lengthwise.dflash.training.resume import check_same_run
from lengthwise.errors import CheckpointWriteError, LengthwiseWarning

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from transformers import PretrainedConfig

    from lengthwise.dflash.training.checkpoint import Checkpoint, Saver
    from lengthwise.dflash.training.config import TrainConfig
    from lengthwise.dflash.training.learner import Learner
    from lengthwise.dflash.training.places import Location
    from lengthwise.dflash.training.plan import Epoch, TrainingPlan
    from lengthwise.dflash.training.progress import Evaluator, Observer
    from lengthwise.dflash.training.source import SampleSource


class TrainingLoop:
    """Runs the steps of a plan.

    Args:
        config: the run's.
        plan: its epochs.
        learner: learns.
        source: hands out samples.
        store: takes checkpoints; None for none (ranks other than the first).
        evaluator: decodes held-out prompts with the drafter as it is; None for never.
        observer: is told.
        drafter_dir: where the drafter goes at the end, float32 in the published format; None for
            nowhere.
        catch_signals: end in good order on SIGINT and SIGTERM; False where the source decides.
        target_config: the target's, for what is written about it beside the drafter.
    """

    def __init__(
        self,
        config: TrainConfig,
        plan: TrainingPlan,
        learner: Learner,
        source: SampleSource,
        *,
        store: Saver | None,
        evaluator: Evaluator | None,
        observer: Observer,
        drafter_dir: Location | None = None,
        catch_signals: bool = True,
        target_config: PretrainedConfig | None = None,
    ) -> None:
        """Stand at the beginning."""
        self._config = config
        self._plan = plan
        self._learner = learner
        self._source = source
        self._store = store
        self._evaluator = evaluator
        self._observer = observer
        self._drafter_dir = drafter_dir
        self._catch_signals = catch_signals
        self._target_config = target_config
        self._num_steps = 0
        self._saved_steps: int | None = None
        self._saved: Location | None = None
        self._stop = False

    @property
    def position(self) -> Position:
        """Where the run stands."""
        return Position.after(self._num_steps, self._plan.steps_per_epoch)

    def resume(self, checkpoint: Checkpoint) -> list[str]:
        """Stand where a checkpoint was made.

        Returns:
            Harmless differences between its config and this one.

        Raises:
            CheckpointError: it belongs to another run.
        """
        from lengthwise.dflash.formats.load import load_native

        changed = check_same_run(checkpoint, self._config, self._plan.fingerprint)
        learner = self._learner
        learner.drafter.load_state_dict(load_native(checkpoint.drafter_dir).state_dict())
        learner.update.optimizer.load_state_dict(checkpoint.optimizer_state())
        learner.update.load_state_dict(checkpoint.state["update"])
        set_random_states(checkpoint.state["random"])
        self._num_steps = checkpoint.num_steps
        self._saved_steps, self._saved = checkpoint.num_steps, checkpoint.place
        return changed

    def run(self) -> Outcome:
        """Run to the end, or until a signal.

        The first SIGINT or SIGTERM ends the run after the step at hand, with a checkpoint; a
        second one ends it at once.
        """
        with self._signals() if self._catch_signals else nullcontext():
            if self._num_steps == 0 and self._config.evaluation.at_start:
                self._ask_evaluation(final=False)
            while self._num_steps < self._plan.num_steps and not self._stop:
                epoch = self._plan.epoch(self.position.epoch)
                self._source.begin(epoch, self.position.step)
                self._run_epoch(epoch)
        saved = self._save() if self._num_steps else None
        finished = self._num_steps >= self._plan.num_steps
        if self._drafter_dir is not None and finished:
            write_folder(self._drafter_dir, self._write_drafter)
        return Outcome(self.position, not finished, saved)

    def _run_epoch(self, epoch: Epoch) -> None:
        last = min(epoch.num_steps, self._plan.num_steps - epoch.number * epoch.num_steps)
        for step in range(self.position.step, last):
            if not self._run_step(epoch, step):
                self._stop = True
                break
            self._evaluate(at_end=step == last - 1)
            if self._num_steps % self._config.checkpoint.every_steps == 0:
                self._save_on_the_way()
            if self._stop:
                break

    def _run_step(self, epoch: Epoch, step: int) -> bool:
        """One step; False if the source says that the run is to end."""
        began = time.perf_counter()
        samples = self._source.take(step)
        if samples is None:
            return False
        taken = time.perf_counter()
        result = self._learner.learn(samples, epoch.number)
        self._num_steps += 1
        facts = StepFacts(
            num_samples=epoch.step(step).size,
            real_tokens=epoch.tokens(step),
            wait_seconds=taken - began,
            learn_seconds=time.perf_counter() - taken,
            **epoch.entered(step)._asdict(),
        )
        self._observer.stepped(self.position, result, facts)
        return True

    def _evaluate(self, *, at_end: bool) -> None:
        """Evaluate where it is due: at the end of an epoch, or every so many steps."""
        every = self._config.evaluation.every_steps
        final = self._num_steps == self._plan.num_steps
        due = final or (at_end if every is None else self._num_steps % every == 0)
        if due:
            self._ask_evaluation(final=final)

    def _ask_evaluation(self, *, final: bool) -> None:
        if self._evaluator is not None:
            self._evaluator.evaluate(self.position, self._observer, compare=final)

    def _save_on_the_way(self) -> None:
        """A checkpoint that cannot be written is no reason to end a run; the last one is."""
        try:
            self._save()
        except CheckpointWriteError as error:
            warnings.warn(f"training goes on: {error}", LengthwiseWarning, stacklevel=2)

    def _save(self) -> Location | None:
        if self._store is None:
            return None
        if self._saved_steps == self._num_steps:
            return self._saved
        learner = self._learner
        state = {
            "num_steps": self._num_steps,
            "epoch": self.position.epoch,
            "step": self.position.step,
            "plan": self._plan.fingerprint,
            "config": self._config.model_dump(mode="json"),
            "update": learner.update.state_dict(),
            "random": random_states(),
            "versions": {"lengthwise": __version__, "torch": torch.__version__},
        }
        path = self._store.save(
            state,
            learner.update.optimizer.state_dict(),
            self._write_drafter,
        )
        self._saved_steps, self._saved = self._num_steps, path
        self._observer.saved(self.position, path)
        return path

    def _write_drafter(self, folder: Path) -> None:
        save_native(
            self._learner.drafter,
            folder,
            self._target_config,
            dtype=torch.float32,
            target_name=self._config.target.model,
        )

    @contextmanager
    def _signals(self) -> Iterator[None]:
        def note(number: int, _frame: object) -> None:
            if self._stop:
                signal.signal(number, signal.SIG_DFL)
                raise KeyboardInterrupt
            self._stop = True

        numbers = (signal.SIGINT, signal.SIGTERM)
        before = [signal.signal(number, note) for number in numbers]
        try:
            yield
        finally:
            for number, handler in zip(numbers, before, strict=True):
                signal.signal(number, handler)
