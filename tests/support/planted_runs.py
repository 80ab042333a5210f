"""Records of pipelines with faults that were planted: a little simulation, batch by batch.

It shares nothing with lengthwise: when each batch and step begins and ends follows from the stage
costs given, in plain Python, and the records are the sums of what had ended by each second. So
where the time went is known beforehand.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Planted:
    """A pipeline: one step takes ``batches_per_step`` batches, in order.

    Attributes:
        num_batches: of the target; all of one shape but for ``longer``.
        batch_size: samples of each.
        longest: tokens that each sample is padded to.
        efficiency: real tokens over padded.
        planned_efficiency: what the plan said.
        cost: (fixed, per padded token, per padded token times longest) seconds of a batch.
        target_factors: of each worker: how many times longer it takes.
        reading_seconds: until the rows of a batch are there.
        step_seconds: of each rank, to learn from its part.
        exchange_seconds: to sum gradients.
        saving: step number -> seconds that the first rank then saves.
        channel_batches: batches that have room between the stages.
        late_room: room is free when a step ends, not when it begins.
        tail_seconds: after the last step.
    """

    num_batches: int = 120
    batches_per_step: int = 2
    batch_size: int = 8
    longest: int = 100
    efficiency: float = 0.95
    planned_efficiency: float = 0.95
    cost: tuple[float, float, float] = (0.02, 2e-4, 1e-7)
    target_factors: tuple[float, ...] = (1.0, 1.0)
    reading_seconds: float = 0.0
    step_seconds: tuple[float, ...] = (0.15, 0.15)
    exchange_seconds: float = 0.01
    saving: dict[int, float] = field(default_factory=dict)
    channel_batches: int = 8
    late_room: bool = False
    tail_seconds: float = 0.0

    @property
    def padded(self):
        return self.batch_size * self.longest

    @property
    def real(self):
        return round(self.padded * self.efficiency)

    @property
    def batch_seconds(self):
        """By the cost, without any fault."""
        fixed, each, squared = self.cost
        return fixed + each * self.padded + squared * self.padded * self.longest


class Course:
    """What happens when, and the sums of it."""

    def __init__(self, run):
        self.run = run
        self.targets = [{"free": 0.0, "pieces": []} for _ in run.target_factors]
        self.ranks = [{"free": 0.0, "pieces": []} for _ in run.step_seconds]
        self.given, self.arrived, self.began, self.ended = [], [], [], []
        for batch in range(run.num_batches):
            self._run_batch(batch)
            if (batch + 1) % run.batches_per_step == 0:
                self._learn()

    @property
    def seconds(self):
        """Of the whole run."""
        last = max(self.ended[-1], *(rank["free"] for rank in self.ranks))
        return last + self.run.tail_seconds

    def _run_batch(self, batch):
        run = self.run
        number = min(range(len(self.targets)), key=lambda one: self.targets[one]["free"])
        worker = self.targets[number]
        before = batch - run.channel_batches
        freed = self.ended if run.late_room else self.began
        room = freed[before // run.batches_per_step] if before >= 0 else 0.0
        given = max(worker["free"], room)
        begin = given + run.reading_seconds
        busy = run.batch_seconds * run.target_factors[number]
        worker["pieces"].append(
            {
                "end": begin + busy,
                "busy": busy,
                "wait": begin - worker["free"],
                "input": run.reading_seconds,
                "padded": run.padded,
            }
        )
        worker["free"] = begin + busy
        self.given.append(given)
        self.arrived.append(begin + busy)

    def _learn(self):
        run, step = self.run, len(self.began)
        mine = self.arrived[step * run.batches_per_step : (step + 1) * run.batches_per_step]
        ready = max(mine)
        begins = [max(rank["free"], ready) for rank in self.ranks]
        alone = [b + s for b, s in zip(begins, run.step_seconds, strict=True)]
        end = max(alone) + run.exchange_seconds
        for number, rank in enumerate(self.ranks):
            saved = run.saving.get(step, 0.0) if number == 0 else 0.0
            rank["pieces"].append(
                {
                    "end": end + saved,
                    "busy": end + saved - begins[number],
                    "wait": begins[number] - rank["free"],
                    "input": 0.0,
                    "meeting": end - alone[number],
                    "learn": end - begins[number],
                }
            )
            rank["free"] = end + saved
        self.began.append(max(begins))
        self.ended.append(end)

    def total(self, stage, number, name, until=None):
        """Sum of a figure over what a process had finished."""
        pieces = (self.targets if stage == "target" else self.ranks)[number]["pieces"]
        return sum(
            one.get(name, 0.0) for one in pieces if until is None or one["end"] <= until + 1e-9
        )

    def records(self, bottleneck=None, every=0.37):
        """One every so many seconds, and the last at the end."""
        whole = self.seconds
        times = [every * number for number in range(1, int(whole / every) + 1)]
        if not times or whole - times[-1] > 1e-6:
            times.append(whole)
        return [self._record(now, bottleneck) for now in times]

    def _record(self, now, bottleneck):
        run = self.run
        done = sum(arrived <= now + 1e-9 for arrived in self.arrived)
        steps = sum(ended <= now + 1e-9 for ended in self.ended)
        given = sum(given <= now for given in self.given)
        begun = sum(began <= now for began in self.began)
        complete = sum(
            max(self.arrived[s * run.batches_per_step : (s + 1) * run.batches_per_step]) <= now
            for s in range(len(self.began))
        )
        record = {
            "step": steps,
            "flow_seconds": now,
            "flow_prefetch": given - done,
            "flow_prefetch_room": len(self.targets),
            "flow_hidden_states": complete - begun,
            "flow_pages_used": given - (steps if run.late_room else begun) * run.batches_per_step,
            "flow_usable_pages": run.channel_batches,
            "flow_num_batches": done,
            "flow_real_tokens": done * run.real,
            "flow_padded_tokens": done * run.padded,
            "flow_token_squares": done * run.padded * run.longest,
            "flow_learnt_tokens": steps * run.batches_per_step * run.real,
            "flow_learnt_steps": steps,
            "flow_learn_seconds": self.total("drafter", 0, "learn", now),
            "flow_planned_efficiency": run.planned_efficiency,
            "flow_planned_batch_tokens": run.planned_efficiency * run.padded,
            "flow_bottleneck": bottleneck,
        }
        for stage, devices in (("target", self.targets), ("drafter", self.ranks)):
            for number in range(len(devices)):
                key = f"{stage}_{number}"
                for name in ("busy", "wait", "input"):
                    record[f"flow_{name}_seconds_{key}"] = self.total(stage, number, name, now)
                if stage == "target":
                    record[f"flow_padded_tokens_{key}"] = self.total(stage, number, "padded", now)
                else:
                    record[f"flow_meeting_seconds_{key}"] = self.total(
                        stage, number, "meeting", now
                    )
        return record

    def prediction(self):
        """A prediction that this course keeps exactly."""
        targets, ranks = len(self.targets), len(self.ranks)
        fixed, each, squared = self.run.cost
        tokens = len(self.ended) * self.run.batches_per_step * self.run.real
        busy = {
            stage: sum(self.total(stage, n, "busy") for n in range(count)) / count / self.seconds
            for stage, count in (("target", targets), ("drafter", ranks))
        }
        rate = tokens / self.seconds
        return {
            "format": "lengthwise prediction",
            "version": 1,
            "tokens_per_second": rate,
            "low": 0.97 * rate,
            "high": 1.03 * rate,
            "seconds": self.seconds,
            "num_tokens": tokens,
            "num_targets": targets,
            "num_drafters": ranks,
            "target_busy": busy["target"],
            "drafter_busy": busy["drafter"],
            "bottleneck": None,
            "target": {
                "cost": {
                    "kind": "step_time",
                    "fixed_seconds": fixed,
                    "seconds_per_token": each,
                    "seconds_per_token_squared": squared,
                }
            },
        }


def step_row(step, loss=3.0, **more):
    """A record of an optimiser step, as short as they come."""
    return {"step": step, "loss": loss, "skipped": 0, **more}


def write_run(folder, run, *, promised=None, bottleneck=None, rows=None):
    """A run's directory; ``promised`` is the pipeline that the prediction was made for."""
    folder.mkdir(parents=True, exist_ok=True)
    course = Course(run)
    records = [*(rows or [step_row(len(course.ended))]), *course.records(bottleneck)]
    lines = [json.dumps(record) for record in records]
    (folder / "metrics.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    if promised is not None:
        text = json.dumps(Course(promised).prediction())
        (folder / "prediction.json").write_text(text, encoding="utf-8")
    return course


def balanced(**changes):
    """Targets that are a little slower than the drafter, and nothing wrong."""
    return replace(Planted(), **changes)
