"""From counts to figures: rates, busy shares, the time to go, and what holds the pipeline up.

Recent figures are of a window of the last seconds, overall ones of the run since it was started or
resumed. Pure: the only clock is ``Flow.seconds``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.pipeline.window import Moment, Window, account_figures, accounts_of, ratio
from lengthwise.simulate.bottleneck import Load, find_bottleneck

if TYPE_CHECKING:
    from lengthwise.dflash.training.progress import StepFacts
    from lengthwise.pipeline.flow import Flow
    from lengthwise.pipeline.setup import PipelineSetup
    from lengthwise.simulate.bottleneck import Bottleneck

WINDOW_SECONDS = 30.0
HALF_LIFE_SECONDS = 120.0
"""After which a second counts half in the rate that the time to go is found with."""
LEAST_SECONDS, MOST_SECONDS = 1.0, 30.0
"""Between records: a sixtieth of the time the run has taken, within these."""

Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What is known of a run before it begins.

    Attributes:
        total_tokens: real tokens of all its optimiser steps, over all epochs.
        done_tokens: of those steps that were made before.
        planned_efficiency: real over padded tokens of the target's batches, of the first epoch.
        planned_batch_tokens: real tokens of such a batch, on average.
        batch_pages: pages that a batch of the target needs, on average, at least 1.
        page_tokens: tokens of a page.
        page_bytes: bytes of a page.
    """

    total_tokens: int
    done_tokens: int
    planned_efficiency: float
    batch_pages: int
    page_tokens: int
    page_bytes: int
    planned_batch_tokens: float | None = None

    @classmethod
    def of(cls, setup: PipelineSetup, num_done: int = 0) -> RunFacts:
        """Of a pipeline that goes on after ``num_done`` steps."""
        plan, arena = setup.plan, setup.arena
        done = plan.tokens_until(num_done)
        total = plan.tokens_until(plan.num_steps)
        arrivals = plan.epoch(0).mix.arrivals
        # Half a page of every sample is lost on average.
        pages = arrivals.tokens.mean() / arena.page_tokens + arrivals.sizes.mean() / 2
        return cls(
            total_tokens=total,
            done_tokens=done,
            planned_efficiency=float(arrivals.tokens.sum() / arrivals.padded_tokens.sum()),
            batch_pages=max(1, round(float(pages))),
            page_tokens=arena.page_tokens,
            page_bytes=arena.num_bytes // arena.num_pages,
            planned_batch_tokens=float(arrivals.tokens.mean()),
        )


@dataclass(frozen=True, slots=True)
class Device:
    """What one process does with its time.

    Attributes:
        name: as the pipeline calls it, with its device.
        key: short, for records: ``target_0``, ``drafter_1``.
        recent: share of the last seconds at work; None before its first piece of work ended.
        overall: of the whole time.
    """

    name: str
    key: str
    recent: float | None
    overall: float | None


class Telemetry:
    """Follows a pipeline and says how it is doing.

    Args:
        facts: of the run.
        window_seconds: what "recent" means.

    Attributes:
        bottleneck: what holds it up; None while nothing can be said.
        devices: of every process, target workers first.
    """

    def __init__(self, facts: RunFacts, window_seconds: float = WINDOW_SECONDS) -> None:
        """Nothing has flowed."""
        self.facts = facts
        self.bottleneck: Bottleneck | None = None
        self.devices: list[Device] = []
        self._window = Window(window_seconds)
        self._learnt = 0
        self._num_learnt = 0
        self._learn_seconds = 0.0
        self._largest_step = 0
        self._smooth = [0.0, 0.0]
        self._flow: Flow | None = None
        self._due = 0.0
        self._recorded: float | None = None

    def stepped(self, facts: StepFacts) -> None:
        """An optimiser step was made."""
        self._learnt += facts.real_tokens
        self._num_learnt += 1
        self._learn_seconds += facts.learn_seconds
        self._largest_step = max(self._largest_step, facts.real_tokens)

    def flowed(self, flow: Flow) -> None:
        """Take in how things flow."""
        self._flow = flow
        moment = self._moment(flow)
        before = self._window.last
        # The steps before the first one's end took unknown time: loading, filling the pool.
        if before is not None and before.learnt_tokens:
            self._add_rate(moment, before)
        self._window.add(moment)
        self.devices = self._devices(flow)
        self.bottleneck = find_bottleneck(self._load(flow))

    @property
    def remaining_tokens(self) -> int:
        """Real tokens that are still to be learnt from, over all epochs."""
        return max(0, self.facts.total_tokens - self.facts.done_tokens - self._learnt)

    @property
    def eta_seconds(self) -> float | None:
        """Seconds to go: remaining real tokens over the smoothed rate; None without one."""
        tokens, seconds = self._smooth
        return self.remaining_tokens * seconds / tokens if tokens else None

    def rates(self) -> dict[str, float | None]:
        """Tokens a second: recent ones, overall ones, and what each stage could do alone."""
        flow = self._flow
        spent = flow.seconds if flow is not None else 0.0
        recent = {
            name: self._window.rate(f"{kind}_tokens")
            for name, kind in (
                ("tokens_per_second", "real"),
                ("padded_tokens_per_second", "padded"),
                ("learnt_tokens_per_second", "learnt"),
            )
        }
        overall: dict[str, float | None] = {}
        if flow is not None:
            overall = {
                "overall_tokens_per_second": ratio(flow.real_tokens, spent),
                "overall_padded_tokens_per_second": ratio(flow.padded_tokens, spent),
            }
        stages = [
            self._window.capacity("target_", "real_tokens"),
            self._window.capacity("drafter_", "learnt_tokens"),
        ]
        known = [stage for stage in stages if stage is not None]
        return {
            **recent,
            **overall,
            "target_capacity": stages[0],
            "drafter_capacity": stages[1],
            "predicted_tokens_per_second": min(known) if len(known) == len(stages) else None,
        }

    def due(self) -> bool:
        """Whether it is time for a record; True at most once for a time."""
        if self._flow is None or self._flow.seconds < self._due:
            return False
        self._recorded = self._flow.seconds
        pause = min(max(self._flow.seconds / 60, LEAST_SECONDS), MOST_SECONDS)
        self._due = self._flow.seconds + pause
        return True

    @property
    def has_news(self) -> bool:
        """Whether anything was heard since the last time that was due."""
        return self._flow is not None and self._flow.seconds != self._recorded

    def record(self) -> Record:
        """Everything in plain numbers, under ``flow_``; unknown values are None."""
        flow = self._flow
        assert flow is not None, "nothing has flowed yet"
        figures: Record = {
            "seconds": flow.seconds,
            "prefetch": flow.prefetch,
            "prefetch_room": flow.prefetch_room,
            "hidden_states": flow.hidden_states,
            "pages_used": flow.pages_used,
            "num_pages": flow.num_pages,
            "usable_pages": self._usable_pages(flow),
            "bytes_used": flow.pages_used * self.facts.page_bytes,
            "num_batches": flow.num_batches,
            "num_reruns": flow.num_reruns,
            "num_bad": flow.num_bad,
            "real_tokens": flow.real_tokens,
            "padded_tokens": flow.padded_tokens,
            "token_squares": flow.token_squares,
            "learnt_tokens": self._learnt,
            "learnt_steps": self._num_learnt,
            "learn_seconds": self._learn_seconds,
            **self.rates(),
            "efficiency": ratio(flow.real_tokens, flow.padded_tokens),
            "planned_efficiency": self.facts.planned_efficiency,
            "planned_batch_tokens": self.facts.planned_batch_tokens,
            "remaining_tokens": self.remaining_tokens,
            "eta_seconds": self.eta_seconds,
            "target_wait_seconds": sum(one.wait_seconds for one in flow.workers.values()),
            "drafter_wait_seconds": sum(one.wait_seconds for one in flow.ranks.values()),
        }
        for device in self.devices:
            figures[f"busy_{device.key}"] = device.recent
            figures[f"overall_busy_{device.key}"] = device.overall
        for key, _, account in accounts_of(flow):
            figures |= account_figures(key, account)
        figures["bottleneck"] = None if self.bottleneck is None else self.bottleneck.kind
        return {f"flow_{name}": value for name, value in figures.items()}

    def _moment(self, flow: Flow) -> Moment:
        return Moment(
            flow.seconds,
            flow.real_tokens,
            flow.padded_tokens,
            self._learnt,
            flow.prefetch / flow.prefetch_room if flow.prefetch_room else 0.0,
            flow.hidden_states,
            min(1.0, flow.pages_used / self._usable_pages(flow)),
            {key: (one.busy_seconds, one.wait_seconds) for key, _, one in accounts_of(flow)},
        )

    def _usable_pages(self, flow: Flow) -> int:
        """Pages in use from which the next batch finds no room: then they count as full."""
        return max(1, flow.num_pages - self.facts.batch_pages + 1)

    def _add_rate(self, now: Moment, before: Moment) -> None:
        seconds = now.seconds - before.seconds
        decay = 0.5 ** (seconds / HALF_LIFE_SECONDS)
        learnt = now.learnt_tokens - before.learnt_tokens
        self._smooth = [
            self._smooth[0] * decay + learnt,
            self._smooth[1] * decay + seconds,
        ]

    def _devices(self, flow: Flow) -> list[Device]:
        known = {device.key: device.recent for device in self.devices}
        found = []
        for key, name, account in accounts_of(flow):
            busy, wait = self._window.spent(key)
            recent = ratio(busy, busy + wait)
            # A piece of work may last longer than the window; the last known share then stands.
            recent = known.get(key, account.busy_share) if recent is None else recent
            found.append(Device(name, key, recent, account.busy_share))
        return found

    def _load(self, flow: Flow) -> Load:
        window = self._window
        # At the end no batch is left: what is in the arena and with the ranks is all there is.
        left = flow.pages_used * self.facts.page_tokens + 2 * self._largest_step
        ending = not flow.prefetch and self.remaining_tokens <= left
        return Load(
            prefetch=window.mean("prefetch"),
            hidden_states=window.mean("hidden_states"),
            pages=window.mean("pages"),
            target_busy=self._mean_busy("target_"),
            drafter_busy=self._mean_busy("drafter_"),
            starting=ending or not window.tells,
        )

    def _mean_busy(self, stage: str) -> float | None:
        shares = [one.recent for one in self.devices if one.key.startswith(stage)]
        known = [share for share in shares if share is not None]
        return sum(known) / len(known) if known else None
