"""The training step against decoding's own path, one block at a time, and its edges."""

from __future__ import annotations

import pytest
import torch

from lengthwise.dflash.anchors import draft_labels, draw_anchors
from lengthwise.dflash.batch import pack_rows, pad_rows
from lengthwise.dflash.loss import LossConfig
from lengthwise.dflash.step import draft_step
from support.dflash_loss import answer, literal_loss
from support.dflash_ranks import draft_sample, drafter_of, frozen_ends, plain, step_of

# B42: block 8, samples of 1, 7, 8 and 9 tokens, and a long one whose answer is its last 3.
MASKS = [[True], [True] * 7, [True] * 8, [True] * 9, answer(60, 3), answer(30, 20)]
SAMPLES = [draft_sample(mask, i) for i, mask in enumerate(MASKS)]
LAYOUTS = {
    "padded": pad_rows(SAMPLES),
    "packed": pack_rows(SAMPLES, 64),
    "one row": pack_rows(SAMPLES, 128),
}
BLOCK = 8


def decoded_states(drafter, ends, batch, anchors):
    """The drafter's states block by block as decoding finds them: what is before the anchor goes
    to a cache, the block is drafted alone."""
    rows, blocks = anchors.index.shape
    states = torch.zeros(rows, blocks, BLOCK, drafter.config.hidden_size)
    for row in range(rows):
        for block in range(blocks):
            if anchors.keep[row, block]:
                column = int(anchors.index[row, block])
                start = column - int(batch.position_ids[row, column])
                cache = drafter.new_cache()
                if column > start:
                    drafter.append_context(batch.features[row : row + 1, start:column], cache)
                ids = torch.full((1, BLOCK), drafter.config.mask_token_id)
                ids[0, 0] = batch.input_ids[row, column]
                states[row, block] = drafter.draft(ends.embed(ids), cache)[0]
    return states.view(rows, blocks * BLOCK, -1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("weighting", ["decay", "dpace"])
def test_its_sums_are_those_of_blocks_that_are_decoded_one_by_one(layout, weighting):
    """The two ways share the layers' weights, and neither mask, positions, labels nor loss."""
    drafter, ends, batch = drafter_of(BLOCK), frozen_ends(), LAYOUTS[layout]
    anchors = draw_anchors(batch, seed=1, epoch=0)
    ours = draft_step(drafter, ends, batch, anchors, LossConfig(weighting))
    labels = draft_labels(batch, anchors, BLOCK)
    theirs = literal_loss(
        decoded_states(drafter, ends, batch, anchors).double(),
        labels.token_ids,
        labels.valid,
        ends.weight.double(),
        ends.bias.double(),
        weighting=weighting,
    )
    assert ours.loss_sum.item() == pytest.approx(theirs["loss_sum"].item(), rel=1e-5)
    assert ours.weight_sum.item() == pytest.approx(theirs["weight_sum"], rel=1e-5)
    assert ours.correct.tolist() == theirs["correct"]
    assert ours.valid.tolist() == theirs["valid"]
    assert int(ours.streak_sum) == theirs["streak_sum"]


def test_padded_and_packed_rows_give_the_same_sums_and_gradients():
    found = []
    for batch in LAYOUTS.values():
        drafter = drafter_of(BLOCK)
        sums = step_of(drafter, batch)
        sums.loss_sum.backward()
        found.append((sums, [p.grad for p in drafter.parameters()]))
    (first, gradients), *others = found
    for sums, other in others:
        assert sums.loss == pytest.approx(first.loss, rel=1e-5)
        assert sums.valid.tolist() == first.valid.tolist()
        for a, b in zip(gradients, other, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * float(a.abs().max()))


@pytest.mark.parametrize("samples", [SAMPLES[:1], [draft_sample(answer(40, 1), 8)] * 2])
def test_without_a_valid_anchor_sums_are_zero_and_every_parameter_gets_a_zero_gradient(
    samples,
):
    """B42: such a rank must run what all ranks run, in training and in evaluation."""
    drafter, batch = drafter_of(BLOCK), pad_rows(samples)
    anchors = draw_anchors(batch, seed=0, epoch=0)
    sums = draft_step(drafter, frozen_ends(), batch, anchors, LossConfig())
    sums.loss_sum.backward()
    for name, parameter in drafter.named_parameters():
        assert parameter.grad is not None, name
        assert not parameter.grad.any(), name
    with torch.no_grad():
        evaluated = draft_step(drafter, frozen_ends(), batch, anchors, LossConfig())
    assert plain(evaluated) == plain(sums)
    assert sums.loss_sum.item() == sums.weight_sum.item() == sums.num_blocks.item() == 0


@pytest.mark.parametrize("mode", ["train", "eval"])
@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: f"{len(sample)}-tokens")
def test_every_short_sample_goes_through_alone(sample, mode):
    """B42: lengths about the block size, and an answer of three tokens, have finite sums."""
    drafter = drafter_of(BLOCK)
    with torch.set_grad_enabled(mode == "train"):
        sums = step_of(drafter, pad_rows([sample]), max_anchors=100)
    assert int(sums.num_blocks) == sample.num_valid_anchors
    assert torch.isfinite(sums.loss_sum)
    assert sums.loss_sum.requires_grad == (mode == "train")


def test_rounding_shapes_up_changes_the_loss_by_less_than_a_millionth():
    """More columns, rows and anchors of padding: what ``torch.compile`` needs for few shapes."""
    drafter = drafter_of(BLOCK)
    tight = step_of(drafter, pad_rows(SAMPLES))
    wide = step_of(drafter, pad_rows(SAMPLES, multiple_of=64, rows_multiple_of=8), multiple_of=16)
    assert abs(wide.loss - tight.loss) < 1e-6
    assert wide.valid.tolist() == tight.valid.tolist()
    assert int(wide.streak_sum) == int(tight.streak_sum)


def test_rounding_bounds_the_number_of_shapes():
    """Lengths 1..60 in rows rounded to 32, anchors to 32 (at most 59 are valid): 2 x 2 shapes,
    less the one that cannot be (60 columns always have room for what they hold)."""
    shapes = set()
    for length in range(1, 61):
        batch = pad_rows([draft_sample([True] * length, length)], multiple_of=32)
        anchors = draw_anchors(batch, seed=0, epoch=0, multiple_of=32)
        shapes.add((*batch.input_ids.shape, anchors.index.shape[1]))
    assert shapes == {(1, 32, 32), (1, 64, 32), (1, 64, 64)}


def test_a_module_around_the_drafter_is_looked_through():
    """As wrappers of data-parallel training hold it, under ``module``."""

    class Wrapper(torch.nn.Module):
        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, *args):
            return self.module(*args)

    batch = LAYOUTS["packed"]
    inside, outside = step_of(drafter_of(BLOCK), batch), step_of(Wrapper(drafter_of(BLOCK)), batch)
    assert plain(inside) == plain(outside)
