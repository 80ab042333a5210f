"""BatchMonitor: exact counters, a clock of our own, and the loss curve against its definition."""

from __future__ import annotations

import json
import math
import sys
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

import lengthwise as lw
from lengthwise.errors import ConfigError, MissingDependencyError
from lengthwise.loader.batch_sampler import BucketBatchSampler
from lengthwise.loader.monitor import (
    BatchMonitor,
    JsonlWriter,
    TensorBoardWriter,
    TrackioWriter,
    WandbWriter,
)
from lengthwise.loader.monitor.curve import LossCurve
from lengthwise.loader.monitor.words import duration

BOUNDARIES = (0, 20, 40, 61)


class Clock:
    """A clock that stands still until it is told."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


class Kept:
    """A writer that keeps what it is given."""

    def __init__(self):
        self.records = []
        self.closed = False

    def write(self, record):
        self.records.append(dict(record))

    def close(self):
        self.closed = True


def planner_of(num_replicas=1, **settings):
    lengths = np.random.default_rng(4).integers(1, 61, 400)
    limits = lw.BatchLimits(max_tokens=240, pad_to_multiple_of=4)
    config = lw.BatchingConfig(limits=limits, **{"boundaries": BOUNDARIES, **settings})
    return lw.Planner(lengths, config, num_replicas=num_replicas)


def adjusted_by_definition(losses, buckets, half_life):
    """Each step's own sums, from the docstring: no state, no shortcuts."""
    found = []
    for t, (loss, bucket) in enumerate(zip(losses, buckets, strict=True)):
        before = [(2 ** (-(t - s) / half_life), s) for s in range(t) if math.isfinite(losses[s])]
        own = [(w, s) for w, s in before if buckets[s] == bucket]
        if not own or not math.isfinite(loss):
            found.append(loss)
            continue
        means = [
            sum(w * losses[s] for w, s in part) / sum(w for w, _ in part) for part in (before, own)
        ]
        found.append(loss - means[1] + means[0])
    return found


@given(
    st.lists(st.tuples(st.floats(-50, 50) | st.just(math.nan), st.integers(0, 3)), max_size=40),
    st.floats(0.5, 300),
)
def test_the_adjusted_curve_is_the_one_of_its_definition(steps, half_life):
    # The curve keeps one sum and one weight a bucket; the definition sums over all steps before.
    losses, buckets = [loss for loss, _ in steps], [bucket for _, bucket in steps]
    curve = LossCurve(4, half_life)
    found = [curve.add(t, k, loss) for t, (loss, k) in enumerate(steps)]
    expected = adjusted_by_definition(losses, buckets, half_life)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True)
    assert curve.num_non_finite == sum(math.isnan(loss) for loss in losses)


def test_a_curve_that_jumps_only_between_buckets_is_told_from_a_noisy_one():
    # Loss = falling trend + a constant a bucket: all jumps are the buckets'. Shuffled constants
    # (the same values, bucket names unrelated to them) explain nothing.
    rng = np.random.default_rng(0)
    buckets = rng.integers(0, 3, 3000)
    trend = 2 + np.exp(-np.arange(3000) / 700)
    offsets = np.array([0.8, 0.0, -0.8])[buckets]
    for noise, lowest, highest in ((offsets, 0.99, 1.0), (rng.permutation(offsets), 0.0, 0.02)):
        curve = LossCurve(3, 200)
        steps = zip(range(3000), buckets, trend + noise, strict=True)
        adjusted = np.array([curve.add(*step) for step in steps])
        assert lowest <= curve.jumps.share_of_buckets <= highest
        if lowest:
            # Never further from the trend than its means lag behind, once they are filled.
            assert np.abs(adjusted[300:] - trend[300:]).max() < 0.2


@pytest.mark.parametrize("num_replicas", [1, 3])
def test_tokens_of_a_whole_run_are_those_of_its_plans(num_replicas):
    # Totals over all replicas from one replica's monitor, exact, without communication.
    planner = planner_of(num_replicas)
    monitor = BatchMonitor(planner, rank=num_replicas - 1, num_epochs=2)
    plans = [planner.plan(epoch) for epoch in (0, 1)]
    assert monitor.remaining_tokens == sum(plan.stats.real_tokens for plan in plans)
    for plan in plans:
        for _ in range(plan.num_steps):
            monitor.step()
    summary = monitor.summary()
    assert summary["real_tokens"] == sum(plan.stats.real_tokens for plan in plans)
    assert summary["padded_tokens"] == sum(plan.stats.padded_tokens for plan in plans)
    assert summary["remaining_tokens"] == 0
    assert summary["planned_efficiency"] == plans[1].stats.efficiency
    assert (summary["epoch"], summary["epoch_step"]) == (1, plans[1].num_steps)
    own = [planner.lengths[i] for plan in plans for i in plan.for_rank(num_replicas - 1)]
    by_hand = [[0, 0] for _ in range(3)]
    for lengths in own:
        bucket = np.searchsorted(BOUNDARIES, lengths[0], side="right") - 1
        by_hand[bucket][0] += 1
        by_hand[bucket][1] += int(lengths.sum())
    assert [[b["num_batches"], b["real_tokens"]] for b in summary["buckets"]] == by_hand
    assert [b["lo"] for b in summary["buckets"]] == [0, 20, 40]


def test_rates_and_the_time_left_follow_the_clock():
    # The first step starts the clock and is in no rate; then 2 s a step, so tokens of those steps
    # over 2 s each, and the rest of the run at that rate. A half-life this long weighs all alike.
    planner, clock = planner_of(), Clock()
    plan = planner.plan(0)
    real, padded = plan.batches.tokens, plan.batches.padded_tokens
    monitor = BatchMonitor(planner, clock=clock, half_life=1e12)
    assert monitor.eta_seconds is None
    for _ in range(5):
        clock.now += 2
        monitor.step()
    with monitor.paused():
        clock.now += 1000
    clock.now += 2
    monitor.step()
    summary = monitor.summary()
    assert summary["seconds"] == 10
    assert summary["overall_tokens_per_second"] == real[1:6].sum() / 10
    assert summary["overall_padded_tokens_per_second"] == padded[1:6].sum() / 10
    assert summary["tokens_per_second"] == pytest.approx(real[1:6].sum() / 10)
    assert summary["eta_seconds"] == pytest.approx(real[6:].sum() / (real[1:6].sum() / 10))
    assert summary["efficiency"] == real[:6].sum() / padded[:6].sum()


def test_the_recent_rate_forgets_the_half_of_it_in_a_half_life():
    # Steps of 100 tokens: 1 s each, then 3 s. With a half-life of one step the last four weigh
    # 1, 1/2, 1/4, 1/8: 187.5 tokens over 3 + 1.5 + 0.25 + 0.125 s.
    clock = Clock()
    monitor = BatchMonitor(boundaries=[0, 200], clock=clock, half_life=1, total_tokens=1000)
    for seconds in (5, 1, 1, 3, 3):
        clock.now += seconds
        monitor.step([50, 50])
    assert monitor.summary()["tokens_per_second"] == pytest.approx(187.5 / 4.875)
    assert monitor.remaining_tokens == 500
    assert monitor.eta_seconds == pytest.approx(500 / (187.5 / 4.875))


def test_losses_are_read_together_and_in_order():
    # A loss that is read at every step would make the loop wait for the device at every step.
    class Watched(torch.Tensor):
        reads = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if getattr(func, "__name__", "") in ("item", "tolist", "__float__", "cpu", "numpy"):
                cls.reads += 1
            return super().__torch_function__(func, types, args, kwargs or {})

    kept = Kept()
    monitor = BatchMonitor(planner_of(), writers=[kept], interval=4)
    losses = [3.0, 2.5, 2.0, 1.5]
    buffer = torch.zeros(()).as_subclass(Watched)
    for number, loss in enumerate(losses):
        assert (Watched.reads, kept.records) == (0, [])
        buffer.fill_(loss)  # as a CUDA graph writes each loss to the same memory
        monitor.step(loss=buffer)
        assert monitor.next_step == number + 1
    assert [record["loss"] for record in kept.records] == losses
    assert [record["step"] for record in kept.records] == [0, 1, 2, 3]
    assert Watched.reads == 1


def test_a_step_reads_no_value_from_the_device():
    # A tensor on "meta" has no value, so reading one, as waiting for a GPU would, raises.
    monitor = BatchMonitor(boundaries=[0, 9], interval=100)
    for _ in range(5):
        loss = torch.zeros((), device="meta")
        monitor.step([5, 3], loss=loss, per_sample_loss=torch.zeros(2, device="meta"))
    with pytest.raises((NotImplementedError, RuntimeError), match="meta"):
        monitor.flush()


def test_losses_may_be_numbers_tensors_with_gradients_or_missing():
    # What a loop has at hand; a tensor must not keep its graph alive.
    monitor = BatchMonitor(boundaries=[0, 10], interval=100)
    weight = torch.ones(1, requires_grad=True)
    for loss in (1.0, (weight * 2).sum(), None, torch.tensor([3.0], dtype=torch.bfloat16), np.inf):
        monitor.step([5], loss=loss)
    summary = monitor.summary()
    assert summary["num_non_finite_losses"] == 1
    assert summary["loss"] == math.inf
    assert summary["mean_loss"] == pytest.approx(2, rel=0.01)
    assert "1 losses not finite" in monitor.line()


def test_losses_of_single_samples_enter_their_own_buckets():
    # Batches that mix lengths (random, pooled) have no one bucket; their samples have.
    monitor = BatchMonitor(boundaries=BOUNDARIES)
    monitor.step([5, 15, 50], per_sample_loss=torch.tensor([1.0, 3.0, 7.0]), loss=4.0)
    monitor.step(torch.tensor([25, 5]), per_sample_loss=[math.nan, 5.0])
    buckets = monitor.summary()["buckets"]
    assert [bucket["mean_sample_loss"] for bucket in buckets] == [3.0, None, 7.0]
    # 70 tokens in 3 samples are 23 a sample, 30 in 2 are 15.
    assert [bucket["num_batches"] for bucket in buckets] == [1, 1, 0]
    assert buckets[1]["mean_loss"] == 4.0
    assert buckets[1]["offset"] == 0.0


def test_without_a_plan_lengths_are_all_it_needs():
    # 3 x 60 padded; what the collator really made replaces it where that is told.
    monitor = BatchMonitor(boundaries=BOUNDARIES)
    monitor.step(np.array([30, 60, 45]))
    assert (monitor.real_tokens, monitor.padded_tokens) == (135, 180)
    monitor.step([30, 60, 45], measured_padded_tokens=192)
    assert monitor.padded_tokens == 372
    summary = monitor.summary()
    assert summary["measured_efficiency"] == 135 / 192
    assert summary["planned_efficiency"] is None
    assert (summary["epoch"], summary["eta_seconds"]) == (None, None)
    monitor.step([500])  # above the last boundary: the last class
    assert monitor.summary()["buckets"][2]["real_tokens"] == 135 + 135 + 500


def test_a_collator_that_pads_more_than_planned_is_seen():
    # The plan says 4-token rounding; a collator that pads to 64 has other numbers.
    planner = planner_of()
    plan = planner.plan(0)
    monitor = BatchMonitor(planner)
    made = [int(plan.batches.sizes[b]) * 64 for b in range(5)]
    for b in range(5):
        monitor.step(b, measured_padded_tokens=made[b])
    summary = monitor.summary()
    assert summary["measured_efficiency"] == plan.batches.tokens[:5].sum() / sum(made)
    assert (
        summary["efficiency"]
        == plan.batches.tokens[:5].sum() / plan.batches.padded_tokens[:5].sum()
    )


@pytest.mark.parametrize("num_workers", [0, 1])
def test_with_a_sampler_it_follows_epochs_and_a_resumed_run(num_workers):
    # Prefetching workers are ahead of the loop; the monitor counts what the loop has done.
    planner = planner_of()
    first = BucketBatchSampler.from_planner(planner, rank=0)
    data = [None] * planner.lengths.size
    iterator = iter(DataLoader(data, batch_sampler=first, collate_fn=len, num_workers=num_workers))
    monitor = BatchMonitor(first, num_epochs=2)
    for _ in range(7):
        next(iterator)
        monitor.step()
    state = first.state_dict(consumed=7)
    del iterator

    second = BucketBatchSampler.from_planner(planner, rank=0)
    resumed = BatchMonitor(second, num_epochs=2, initial_step=7)  # made before the state is loaded
    second.load_state_dict(state)
    loader = DataLoader(data, batch_sampler=second, collate_fn=len, num_workers=num_workers)
    for _ in range(2):
        for _ in loader:
            resumed.step()
    tokens = [planner.plan(epoch).stats.real_tokens for epoch in (0, 1)]
    assert monitor.real_tokens == planner.plan(0).batches.tokens[:7].sum()
    assert monitor.real_tokens + resumed.real_tokens == sum(tokens)
    assert monitor.remaining_tokens == sum(tokens) - monitor.real_tokens
    assert resumed.remaining_tokens == 0
    assert resumed.summary()["epoch"] == 1


def test_with_a_sampler_whose_replicas_changed_tokens_are_still_exact():
    # The rest of the epoch is dealt anew, so the plan's own steps would be the wrong ones.
    planner = planner_of()
    one = BucketBatchSampler.from_planner(planner, rank=0)
    iterator = iter(one)
    for _ in range(5):
        next(iterator)
    sampler = BucketBatchSampler(planner.lengths, config=planner.config, rank=1, num_replicas=2)
    sampler.load_state_dict(one.state_dict())
    monitor = BatchMonitor(sampler)
    own = 0
    for batch in sampler:
        monitor.step(measured_padded_tokens=1)
        own += int(planner.lengths[batch].sum())
    left = planner.plan(0).batches.tokens[5:].sum()
    assert monitor.real_tokens == left
    assert monitor.remaining_tokens == 0
    assert monitor.summary()["measured_efficiency"] == own / monitor.next_step
    assert sum(bucket["real_tokens"] for bucket in monitor.summary()["buckets"]) == own


def test_batches_may_come_in_any_order_by_their_index():
    # What is left is what lies behind the last index, as for a loop that skipped.
    planner = planner_of(2)
    plan = planner.plan(0)
    tokens = plan.batches.tokens.reshape(-1, 2).sum(1)
    monitor = BatchMonitor(plan, rank=1)
    monitor.step(2 * 2 + 1)
    assert monitor.real_tokens == tokens[2]
    assert monitor.remaining_tokens == tokens[3:].sum()
    monitor.step()
    assert monitor.remaining_tokens == tokens[4:].sum()


def test_classes_without_boundaries_hold_equally_many_batches():
    # Strategies without buckets get six classes from the plan's own batches.
    planner = planner_of(boundaries=None, strategy="pooled")
    monitor = BatchMonitor(planner)
    for _ in range(planner.plan(0).num_steps):
        monitor.step()
    counts = [bucket["num_batches"] for bucket in monitor.summary()["buckets"]]
    assert len(counts) == 6
    assert sum(counts) == planner.plan(0).num_steps
    assert max(counts) <= 2 * min(counts)


@pytest.mark.parametrize(
    ("make", "call", "message"),
    [
        (BatchMonitor, None, "needs boundaries"),
        (lambda: BatchMonitor(boundaries=[5, 5]), None, "strictly rising"),
        (lambda: BatchMonitor(boundaries=[0, 9], half_life=0), None, "half_life must be above 0"),
        (lambda: BatchMonitor(boundaries=[0, 9], interval=0), None, "interval must be from 1"),
        (lambda: BatchMonitor(planner_of(), num_epochs=0), None, "num_epochs must be from 1"),
        (lambda: BatchMonitor(planner_of(2)), None, "Give rank="),
        (lambda: BatchMonitor(boundaries=[0, 9]), (3,), "needs the lengths"),
        (lambda: BatchMonitor(boundaries=[0, 9]), (), "needs the lengths"),
        (lambda: BatchMonitor(boundaries=[0, 9]), ([],), "at least one sample"),
        (lambda: BatchMonitor(planner_of()), ([3, 4],), "lengths are for a monitor without a plan"),
        (lambda: BatchMonitor(planner_of()), (10**6,), "none of replica 0 of 1"),
        (lambda: BatchMonitor(planner_of(2), rank=0), (1,), "none of replica 0 of 2"),
    ],
)
def test_wrong_use_is_refused(make, call, message):
    # At construction where it can be known, else at the first step.
    if call is None:
        with pytest.raises(ConfigError, match=message):
            make()
        return
    monitor = make()
    with pytest.raises(ConfigError, match=message):
        monitor.step(*call)


def test_sample_losses_need_one_length_each():
    # Without them there is no telling which bucket a sample lies in.
    with pytest.raises(ConfigError, match="needs lengths="):
        BatchMonitor(planner_of()).step(per_sample_loss=[1.0])
    with pytest.raises(ConfigError, match="1 values for 2 lengths"):
        BatchMonitor(planner_of()).step(per_sample_loss=[1.0], lengths=[3, 4])


def test_a_plan_of_one_epoch_ends_with_it():
    # The next epoch's batches are not in it; guessing them would count wrongly.
    planner = planner_of()
    monitor = BatchMonitor(planner.plan(3))
    for _ in range(planner.plan(3).num_steps):
        monitor.step()
    with pytest.raises(ConfigError, match="give it the sampler or the planner instead"):
        monitor.step()


def test_the_line_says_what_is_known():
    # Numbers chosen by hand: 100 tokens in 2 s, 150 left at 50 a second.
    clock = Clock()
    monitor = BatchMonitor(boundaries=[0, 99], clock=clock, total_tokens=350, half_life=1e9)
    assert monitor.line() == "step 0"
    monitor.step([50, 50], loss=2.0)
    clock.now += 2
    monitor.step([25, 75], loss=2.5)
    assert monitor.line() == (
        "step 2; 50 tokens/s; efficiency 80.0 %; 3 s left; loss 2.5, adjusted 2.5; "
        "buckets explain 0 % of its jumps"
    )
    planned = BatchMonitor(planner_of())
    planned.step()
    steps = planner_of().plan(0).num_steps
    assert planned.line().startswith(f"epoch 0, step 1 of {steps}; efficiency ")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.4, "59 s"), (60, "1 min 0 s"), (7500, "2 h 5 min"), (100_000, "1 d 3 h")],
)
def test_durations_have_two_units(seconds, text):
    # 7500 = 2 x 3600 + 5 x 60; 100,000 = 86,400 + 3 x 3600 + 2800.
    assert duration(seconds) == text


def test_json_lines_hold_every_step_and_strict_json(tmp_path):
    # Any JSON reader must read them: NaN is no JSON, so it is null.
    path = tmp_path / "run" / "monitor.jsonl"
    for loss in (1.0, math.nan):  # the second run continues the file
        with BatchMonitor(boundaries=[0, 9], writers=[JsonlWriter(path)]) as monitor:
            monitor.step([5, 3], loss=loss)

    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    lines = [json.loads(line, parse_constant=refuse) for line in path.read_text().splitlines()]
    assert [line["loss"] for line in lines] == [1.0, None]
    assert lines[0]["real_tokens"] == 8
    assert lines[0]["efficiency"] == 0.8


def test_an_error_in_the_loop_still_writes_the_last_steps():
    # The steps before a crash are the ones that one wants to read.
    kept = Kept()
    monitor = BatchMonitor(boundaries=[0, 9], writers=[kept])

    def train():
        with monitor:
            monitor.step([5], loss=1.0)
            raise RuntimeError("boom")

    with pytest.raises(RuntimeError, match="boom"):
        train()
    assert (len(kept.records), kept.closed) == (1, True)


def test_tensorboard_gets_scalars_by_step(tmp_path):
    # Read back with TensorBoard's own reader.
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with BatchMonitor(boundaries=[0, 9], writers=[TensorBoardWriter(tmp_path)]) as monitor:
        for loss in (3.0, None, 2.0):
            monitor.step([5, 3], loss=loss)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    found = [(event.step, event.value) for event in events.Scalars("lengthwise/loss")]
    assert found == [(0, 3.0), (2, 2.0)]
    assert len(events.Scalars("lengthwise/real_tokens")) == 3

    class Own:
        closed = False

        def flush(self):
            pass

    TensorBoardWriter(writer=Own()).close()  # has no close: it must stay open


class Recorder(ModuleType):
    """Stands for wandb or trackio: the calls of their public interface that we make."""

    def __init__(self, name):
        super().__init__(name)
        self.calls = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*args, **options):
            self.calls.append((name, args, options))
            return self

        return call


def test_wandb_and_trackio_get_numbers_and_end_only_their_own_runs(monkeypatch):
    # Neither is installed here, so their modules are stood in for. A run that was given stays open.
    for name, writer, options in (
        ("wandb", WandbWriter, {"project": "p"}),
        ("trackio", TrackioWriter, {"project": "p"}),
    ):
        module = Recorder(name)
        monkeypatch.setitem(sys.modules, name, module)
        with BatchMonitor(boundaries=[0, 9], writers=[writer(**options)]) as monitor:
            monitor.step([5, 3], loss=2.0)
        names = [call[0] for call in module.calls]
        assert names[0] == "init"
        assert names[-2:] == ["log", "finish"]
        assert module.calls[0][2]["project"] == "p"
        logged = module.calls[-2][1][0]
        assert logged["lengthwise/loss"] == 2.0
        assert "lengthwise/tokens_per_second" not in logged  # not known after one step
    wandb_run = Recorder("run")
    WandbWriter(wandb_run).close()
    TrackioWriter().close()
    assert [call[0] for call in wandb_run.calls] == ["define_metric", "define_metric"]
    assert [call[0] for call in module.calls].count("finish") == 1


@pytest.mark.parametrize(
    ("writer", "module", "package"),
    [
        (TensorBoardWriter, "torch.utils.tensorboard", "tensorboard"),
        (WandbWriter, "wandb", "wandb"),
        (TrackioWriter, "trackio", "trackio"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, writer, module, package):
    # None in sys.modules makes the import fail, installed or not.
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingDependencyError, match=rf"pip install 'lengthwise\[{package}\]'"):
        writer()
