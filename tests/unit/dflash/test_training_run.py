"""A training run: every sample once an epoch, resumed exactly, ended in good order."""

from __future__ import annotations

import os
import signal
import warnings

import pytest
import torch

from lengthwise.dflash.formats.load import load_native
from lengthwise.dflash.training.checkpoint import CheckpointStore, read_checkpoint
from lengthwise.dflash.training.setup import assemble, set_up, store_of
from lengthwise.errors import CheckpointError, DataError, LengthwiseWarning, TrainingError
from support.dflash_runs import Silent, small_config, small_run_folder, write_samples


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run_folder(tmp_path_factory.mktemp("run"))


class Stopping(Silent):
    """Sends this process a real SIGINT when a step is done."""

    def __init__(self, after):
        super().__init__()
        self.after = after

    def stepped(self, position, result, facts):
        super().stepped(position, result, facts)
        if position.num_steps == self.after:
            os.kill(os.getpid(), signal.SIGINT)


def run(folder, output, observer=None, *, spoil=None, **changes):
    """One process's part of a run: from the newest checkpoint on."""
    config = small_config(folder, output, **changes)
    setup, store, observer = set_up(config), store_of(config), observer or Silent()
    loop = assemble(setup, store, observer)
    if spoil is not None:
        spoil(loop)
    checkpoint = store.latest()
    if checkpoint is not None:
        loop.resume(checkpoint)
    return setup, loop.run(), observer


def losses(observer):
    return [result.sums.loss for _, result, _ in observer.steps]


def test_each_epoch_learns_from_every_sample_once(folder, tmp_path):
    """Counted by the source: samples taken, an epoch, against the data; nothing is left waiting."""
    config = small_config(folder, tmp_path / "out")
    setup = set_up(config)
    loop = assemble(setup, store_of(config), Silent())
    taken = {0: [], 1: []}
    source = loop._source
    plain = source.take

    def take(step):
        samples = plain(step)
        taken[loop.position.epoch] += [sample.sample_id for sample in samples]
        return samples

    source.take = take
    loop.run()
    held_out = set(setup.data.held_out.sample_ids.tolist())
    # The last two of forty have no two supervised tokens in a row.
    expected = [sample for sample in range(38) if sample not in held_out]
    assert len(held_out) == 3
    assert {epoch: sorted(ids) for epoch, ids in taken.items()} == {0: expected, 1: expected}
    assert taken[0] != taken[1]
    assert setup.data.left_out == {"no two supervised tokens in a row": 2}
    assert source._pool == {}


def test_an_interrupted_run_goes_on_as_if_nothing_had_happened(folder, tmp_path):
    """Stopped by a real signal after steps 2, 3 and 7: every loss is that of the whole run, bit for
    bit. Step 3 is a checkpoint's, 7 is in the second epoch.
    """
    _, outcome, whole = run(folder, tmp_path / "whole")
    assert not outcome.interrupted
    pieces = []
    for after in (2, 3, 7):
        setup, outcome, piece = run(folder, tmp_path / "parts", Stopping(after))
        assert outcome.interrupted
        assert outcome.position.num_steps == after
        pieces += losses(piece)
    setup, outcome, piece = run(folder, tmp_path / "parts")
    assert setup.plan.steps_per_epoch > 3
    assert setup.plan.num_steps > 7
    assert pieces + losses(piece) == losses(whole)
    first = load_native(tmp_path / "whole" / "drafter").state_dict()
    second = load_native(tmp_path / "parts" / "drafter").state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_padded_rows_and_other_budgets_give_the_same_losses(folder, tmp_path):
    """How a step is cut into rows and micro-batches changes rounding alone."""
    _, _, packed = run(folder, tmp_path / "packed")
    step = {"rows": "padded", "max_anchors_per_batch": 64, "shape_multiple": 1}
    _, _, padded = run(folder, tmp_path / "padded", step=step)
    assert losses(padded) == pytest.approx(losses(packed), rel=1e-5)


def test_it_learns(folder, tmp_path):
    """Random texts have nothing to teach but themselves; in many epochs the loss falls."""
    changes = {"evaluation": {"num_prompts": 0}, "optimizer": {"learning_rate": 1e-2}}
    _, _, seen = run(folder, tmp_path / "out", epochs=24, **changes)
    assert sum(losses(seen)[-3:]) < 0.75 * sum(losses(seen)[:3])


def test_the_drafter_of_a_checkpoint_decodes_without_a_mismatch(folder, tmp_path):
    """The evaluation at the end compares with plain decoding; in float32 no token may differ."""
    _, _, seen = run(folder, tmp_path / "out")
    _, evaluation, sums = seen.evaluations[-1]
    assert evaluation.overall.num_prompts == 2
    assert evaluation.overall.mismatches == ()
    assert int(sums.num_blocks) > 0


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"optimizer": {"learning_rate": 1e-3}}, "optimizer.learning_rate: 0.003 -> 0.001"),
        ({"epochs": 3}, "epochs: 2 -> 3"),
        ({"seed": 1}, "seed: 0 -> 1"),
        ({"step": {"anchors_per_step": 96}}, "step.anchors_per_step: 64 -> 96"),
    ],
)
def test_a_changed_config_is_refused_field_by_field(folder, tmp_path, change, named):
    run(folder, tmp_path / "out", Stopping(1))
    with pytest.raises(CheckpointError, match=named):
        run(folder, tmp_path / "out", **change)


def test_harmless_changes_are_taken(folder, tmp_path):
    """How much runs at once, and what is written down, change no result."""
    run(folder, tmp_path / "out", Stopping(1))
    _, outcome, _ = run(
        folder, tmp_path / "out", logging={"every_steps": 5}, step={"max_anchors_per_batch": 32}
    )
    assert not outcome.interrupted


def test_other_data_is_refused(folder, tmp_path):
    """The same file name, other samples: lengths and anchors differ, so the fingerprint does."""
    other = tmp_path / "other"
    other.mkdir()
    small_run_folder(other)
    run(other, tmp_path / "out", Stopping(1))
    write_samples(other / "samples.parquet", 40, seed=9, useless=2)
    with pytest.raises(CheckpointError, match="belongs to other data"):
        run(other, tmp_path / "out")


@pytest.mark.parametrize("damage", ["cut", "flip", "missing"])
def test_a_damaged_checkpoint_is_passed_over(folder, tmp_path, damage):
    """The one before it is taken, with a warning that names the file."""
    run(folder, tmp_path / "out", Stopping(4), checkpoint={"every_steps": 2})
    newest = max((tmp_path / "out" / "checkpoints").iterdir())
    victim = newest / "optimizer.pt"
    content = bytearray(victim.read_bytes())
    if damage == "missing":
        victim.unlink()
    else:
        content[len(content) // 2] ^= 1
        victim.write_bytes(content[: len(content) // 2] if damage == "cut" else content)
    with pytest.warns(LengthwiseWarning, match=r"damaged: optimizer\.pt"):
        found = CheckpointStore(newest.parent).latest()
    assert found.num_steps == 2
    with pytest.raises(CheckpointError, match=r"damaged: optimizer\.pt"):
        read_checkpoint(newest)


def test_when_all_are_damaged_nothing_is_begun_anew(folder, tmp_path):
    run(folder, tmp_path / "out", Stopping(1))
    for path in (tmp_path / "out" / "checkpoints").iterdir():
        (path / "manifest.json").write_text("{")
    store = CheckpointStore(tmp_path / "out" / "checkpoints")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LengthwiseWarning)
        with pytest.raises(CheckpointError, match="no checkpoint is whole"):
            store.latest()


def test_only_the_newest_checkpoints_stay(folder, tmp_path):
    run(folder, tmp_path / "out", checkpoint={"every_steps": 1, "keep": 2})
    names = sorted(path.name for path in (tmp_path / "out" / "checkpoints").iterdir())
    assert len(names) == 2
    assert int(names[1][5:]) == int(names[0][5:]) + 1


def test_a_failed_write_leaves_the_old_checkpoints(tmp_path):
    """A drafter that cannot be written, as on a full disk: nothing half-made is left."""
    store = CheckpointStore(tmp_path / "checkpoints")
    store.save({"num_steps": 1}, {}, lambda path: path.mkdir())

    def fail(path):
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointError, match=r"could not be written.*No space left"):
        store.save({"num_steps": 2}, {}, fail)
    assert [path.name for path in store.directory.iterdir()] == ["step-00000001"]
    assert store.latest().num_steps == 1


def test_an_endless_run_of_bad_steps_ends_with_its_samples(folder, tmp_path):
    """Features that are not finite in every sample: skipped, written down, then given up (B51)."""

    def spoil(loop):
        plain = loop._source.take

        def take(step):
            samples = plain(step)
            for sample in samples:
                sample.features[0] = float("inf")
            return samples

        loop._source.take = take

    with pytest.raises(
        TrainingError, match=r"not finite in .* steps in a row.*samples of the last"
    ):
        run(folder, tmp_path / "out", spoil=spoil, epochs=30)
    lines = (tmp_path / "out" / "skipped.jsonl").read_text().splitlines()
    assert len(lines) == 10


def test_samples_that_are_too_long_stop_the_run_or_are_counted(folder, tmp_path):
    with pytest.raises(DataError, match=r"batching\.max_tokens is 32.*oversize: drop"):
        run(folder, tmp_path / "out", batching={"max_tokens": 32})
    setup = set_up(
        small_config(folder, tmp_path / "out", batching={"max_tokens": 32, "oversize": "drop"})
    )
    assert setup.data.left_out["longer than 32 tokens"] > 0
    assert int(setup.data.lengths.max()) <= 32


def test_data_without_anything_to_learn_is_refused(tmp_path):
    """Every answer has one token: a block needs one to begin with and one to predict (B42)."""
    small_run_folder(tmp_path, count=10, useless=10)
    with pytest.raises(DataError, match=r"none of the 10 samples.*two supervised tokens in a row"):
        set_up(small_config(tmp_path, tmp_path / "out"))
