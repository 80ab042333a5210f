"""Losses told apart by the length of the document, and the curve made of them."""

from __future__ import annotations

import json
import random
from itertools import pairwise

import numpy as np
import pytest
import torch

from lengthwise.dflash.anchors import draw_anchors
from lengthwise.dflash.batch import pack_rows, pad_rows
from lengthwise.dflash.length_classes import length_classes
from lengthwise.dflash.loss import LossConfig
from lengthwise.dflash.metrics import DraftSums
from lengthwise.dflash.step import draft_step
from lengthwise.dflash.training.config import parse_train_config
from lengthwise.dflash.training.data import HeldOut, TrainingData
from lengthwise.dflash.training.log import RunLog
from lengthwise.dflash.training.progress import Position, StepFacts
from lengthwise.dflash.training.setup import assemble, set_up, store_of
from lengthwise.dflash.update import StepResult
from lengthwise.loader.monitor.curve import LossCurve, MixedLossCurve
from support.dflash_ranks import draft_sample, drafter_of, frozen_ends
from support.dflash_runs import read_records, small_config, small_run_folder

LENGTHS = (5, 9, 10, 23, 24, 40)
SAMPLES = [draft_sample([True] * length, i) for i, length in enumerate(LENGTHS)]
BOUNDARIES = (5, 10, 24, 41)
CLASS_OF = (0, 0, 1, 1, 2, 2)


@pytest.mark.parametrize("batch", [pad_rows(SAMPLES), pack_rows(SAMPLES, 64)], ids=["pad", "pack"])
def test_the_sums_of_a_class_are_those_of_its_documents_alone(batch):
    """A batch of the documents of one class has no other losses; anchors depend on the sample."""
    drafter, ends, config = drafter_of(4), frozen_ends(), LossConfig()

    def sums(batch, boundaries=None):
        anchors = draw_anchors(batch, seed=1, epoch=0, max_anchors=6)
        return draft_step(drafter, ends, batch, anchors, config, boundaries=boundaries)

    together = sums(batch, BOUNDARIES)
    for number in range(3):
        own = [one for one, k in zip(SAMPLES, CLASS_OF, strict=True) if k == number]
        alone = sums(pad_rows(own))
        torch.testing.assert_close(together.by_length[0, number], alone.loss_sum.detach())
        torch.testing.assert_close(together.by_length[1, number], alone.weight_sum)
        assert together.loss_by_length[number] == pytest.approx(alone.loss, rel=1e-5)
    assert sums(batch).by_length.shape == (2, 0)
    torch.testing.assert_close(sums(batch).loss_sum, together.loss_sum)


def test_every_block_has_the_class_of_its_document():
    """By the sample ids; lengths outside of the boundaries belong to the nearest class."""
    batch = pack_rows(SAMPLES, 64)
    anchors = draw_anchors(batch, seed=1, epoch=0)
    found = length_classes(batch, anchors, (9, 10, 24))
    assert found.num_classes == 2
    for row, column in anchors.keep.nonzero().tolist():
        document = int(batch.document_ids[row, anchors.index[row, column]])
        length = LENGTHS[int(batch.sample_ids[document])]
        assert int(found.index[row, column]) == (0 if length < 10 else 1)


def test_sums_of_other_classes_cannot_be_added():
    # (2, 0) and (2, 1) would broadcast, and lose the losses without a word.
    with pytest.raises(AssertionError, match="different length classes"):
        DraftSums.zeros(4) + DraftSums.zeros(4, num_classes=1)


def test_classes_hold_about_equally_many_blocks():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 500, 3000)
    anchors = np.minimum(lengths, 100)
    held_out = HeldOut(None, np.arange(0))
    data = TrainingData(None, np.arange(3000), lengths, anchors, held_out)
    edges = data.length_boundaries()
    assert (edges[0], edges[-1]) == (lengths.min(), lengths.max() + 1)
    blocks = [anchors[(lengths >= lo) & (lengths < hi)].sum() for lo, hi in pairwise(edges)]
    assert len(blocks) == 5
    assert sum(blocks) == anchors.sum()
    # A length is never cut in two; one length has a 300th of the blocks here.
    assert max(blocks) - min(blocks) < anchors.sum() / 50


def test_one_length_makes_one_class():
    held_out = HeldOut(None, np.arange(0))
    data = TrainingData(None, np.arange(4), np.full(4, 7), np.full(4, 3), held_out)
    assert data.length_boundaries() == (7, 8)


def test_a_mixed_curve_of_single_classes_is_the_loss_curve():
    """The two are written apart and must agree where both apply."""
    draw = random.Random(0)
    plain, mixed = LossCurve(3, 20), MixedLossCurve(3, 20)
    for step in range(200):
        bucket, loss = draw.randrange(3), draw.random() * 4
        shares = [float(k == bucket) for k in range(3)]
        values = [loss if k == bucket else float("nan") for k in range(3)]
        expected = plain.add(step, bucket, loss)
        assert mixed.add(step, loss, values, shares) == pytest.approx(expected, abs=1e-12)


def test_mixtures_that_vary_do_not_show_in_the_adjusted_curve():
    """Classes differ by a constant and every step mixes them anew: nothing else makes it jump."""
    draw = random.Random(1)
    curve = MixedLossCurve(3, 50)
    offsets = (0.6, 0.0, -0.9)
    raw, adjusted = [], []
    for step in range(1500):
        level = 3.0 - step / 3000
        weights = [draw.random() for _ in offsets]
        shares = [weight / sum(weights) for weight in weights]
        losses = [level + offset for offset in offsets]
        loss = sum(share * one for share, one in zip(shares, losses, strict=True))
        raw.append(loss)
        adjusted.append(curve.add(step, loss, losses, shares))
    jumps = [np.diff(values[200:]).var() for values in (raw, adjusted)]
    assert jumps[1] < 0.02 * jumps[0]


def test_a_loss_that_is_not_finite_enters_no_mean():
    curve = MixedLossCurve(2, 10)
    curve.add(0, 2.0, [2.0, 2.0], [0.5, 0.5])
    assert np.isnan(curve.add(1, float("nan"), [float("nan"), 2.0], [0.5, 0.5]))
    assert curve.add(2, 2.0, [2.0, 2.0], [0.5, 0.5]) == 2.0


def test_a_training_run_writes_losses_by_length_that_add_up(tmp_path):
    folder = small_run_folder(tmp_path)
    config = small_config(folder, tmp_path / "out", epochs=1)
    setup = set_up(config)
    boundaries = setup.data.length_boundaries()
    log = RunLog(config, boundaries)
    weights = []

    class Watching(RunLog):
        def stepped(self, position, result, facts):
            weights.append(result.sums.by_length[1].tolist())
            log.stepped(position, result, facts)

        def evaluated(self, *args):
            log.evaluated(*args)

    watching = Watching.__new__(Watching)
    assemble(setup, store_of(config), watching).run()
    log.close()
    records = [record for record in read_records(tmp_path / "out") if "loss" in record]
    names = [name for name in records[0] if name.startswith("loss_length_")]
    edges = [tuple(map(int, name.split("_")[2:])) for name in names]
    assert edges == [(lo, hi - 1) for lo, hi in pairwise(boundaries)]
    assert len(records) == len(weights) > 3
    for record, own in zip(records, weights, strict=True):
        total = sum(w * record[name] for w, name in zip(own, names, strict=True) if w)
        assert total / sum(own) == pytest.approx(record["loss"], rel=1e-5)
    shares = [name.replace("loss_", "share_") for name in names]
    for record, own in zip(records, weights, strict=True):
        assert [record[name] for name in shares] == pytest.approx([w / sum(own) for w in own])
    assert records[0]["adjusted_loss"] == records[0]["loss"]
    assert any(record["adjusted_loss"] != record["loss"] for record in records)


def test_sums_are_of_all_steps_those_without_a_record_too(tmp_path):
    """Every third step is written, on a clock that the test turns; 1 s passes between steps."""
    folder = small_run_folder(tmp_path)
    now = iter([10.0, 10.0, 14.0, 18.0, 22.0, 26.0])
    config = small_config(folder, tmp_path / "out", logging={"every_steps": 3})
    log = RunLog(config, clock=lambda: next(now))
    result = StepResult("stepped", DraftSums.zeros(4), 1.5, 1e-3)
    for step in range(1, 6):
        facts = StepFacts(2, 30, 1.0, 2.0, 1, 40, 50, 600)
        log.stepped(Position(step, 0, step), result, facts)
    log.close()
    first, third = read_records(tmp_path / "out")
    assert (first["step"], third["step"]) == (1, 3)
    # The first step began three seconds before it was heard of.
    assert (first["total_seconds"], third["total_seconds"]) == (3.0, 11.0)
    totals = {
        "steps": 3, "num_samples": 6, "real_tokens": 90, "wait_seconds": 3.0, "learn_seconds": 6.0,
        "num_batches": 3, "target_tokens": 120, "padded_tokens": 150, "token_squares": 1800,
    }  # fmt: skip
    assert {name: third[f"total_{name}"] for name in totals} == totals
    written = json.loads((tmp_path / "out" / "train_config.json").read_text(encoding="utf-8"))
    assert (written["format"], written["version"]) == ("lengthwise training config", 1)
    assert parse_train_config(written) == config


def test_words_go_to_the_json_lines_alone(tmp_path):
    """TensorBoard has no place for a word; the numbers beside it must still arrive."""
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = small_run_folder(tmp_path)
    logging = {"every_steps": 1, "writers": ["tensorboard"]}
    log = RunLog(small_config(folder, tmp_path / "out", logging=logging))
    log.write({"step": 3, "flow_prefetch": 2, "flow_bottleneck": "targets"})
    result = StepResult("stepped", DraftSums.zeros(4), 1.5, 1e-3)
    log.stepped(Position(4, 0, 4), result, StepFacts(2, 30, 0.1, 0.2))
    log.close()
    lines = (tmp_path / "out" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0])["flow_bottleneck"] == "targets"
    events = EventAccumulator(str(tmp_path / "out" / "tensorboard"))
    events.Reload()
    (value,) = events.Scalars("pipeline/prefetch")
    assert (value.step, value.value) == (3, 2.0)
    assert "pipeline/bottleneck" not in events.Tags()["scalars"]
    (norm,) = events.Scalars("train/grad_norm")
    assert (norm.step, norm.value) == (4, 1.5)


def test_charts_stand_in_sections(tmp_path):
    """Over a hundred charts of a run in one section would bury the loss; the longest beginning of a
    name decides, so an accuracy at one position is not among the evaluation's few figures.
    """
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder = small_run_folder(tmp_path)
    log = RunLog(small_config(folder, tmp_path / "out", logging={"writers": ["tensorboard"]}))
    names = {
        "loss": "train/loss",
        "accuracy": "train/accuracy",
        "accuracy_2": "by_position/accuracy_2",
        "eval_accuracy": "eval/accuracy",
        "eval_accuracy_2": "by_position/eval_accuracy_2",
        "loss_length_0_769": "by_length/loss_0_769",
        "flow_eta_seconds": "pipeline/eta_seconds",
        "flow_padded_tokens": "pipeline/padded_tokens",
        "flow_padded_tokens_target_0": "devices/padded_tokens_target_0",
    }
    log.write({"step": 1, **dict.fromkeys(names, 0.5)})
    log.close()
    events = EventAccumulator(str(tmp_path / "out" / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(names.values())
