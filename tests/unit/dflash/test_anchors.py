"""Anchors and labels against literal loops; what a document gets is its own affair."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.core.random import Purpose, stream_key
from lengthwise.dflash.anchors import (
    Anchors,
    draft_inputs,
    draft_labels,
    draw_anchors,
    num_valid_anchors,
)
from lengthwise.dflash.batch import pack_rows, pad_rows
from lengthwise.errors import ConfigError
from support.dflash_loss import (
    anchors_by_document,
    answer,
    literal_labels,
    sample_of,
    smallest_keys,
    valid_anchors,
)

MASKS = st.lists(st.lists(st.booleans(), min_size=1, max_size=30), min_size=1, max_size=6)


@given(MASKS, st.integers(1, 12), st.integers(-5, 2**70), st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_the_valid_positions_with_the_smallest_keys_win(masks, most, seed, epoch):
    """The twin sorts positions by plain-integer SplitMix64 words, a document at a time."""
    batch = pad_rows([sample_of(mask, i) for i, mask in enumerate(masks)])
    found = anchors_by_document(
        batch, draw_anchors(batch, max_anchors=most, seed=seed, epoch=epoch)
    )
    for i, mask in enumerate(masks):
        key = stream_key(seed, epoch, Purpose.ANCHORS, i)
        assert found[i] == smallest_keys(mask, most, key)


@given(MASKS, st.randoms(use_true_random=False), st.integers(1, 8))
@settings(max_examples=100, deadline=None)
def test_a_document_gets_the_same_anchors_alone_padded_packed_and_in_any_order(masks, rng, most):
    samples = [sample_of(mask, 10 + i) for i, mask in enumerate(masks)]
    shuffled = rng.sample(samples, len(samples))
    batches = [
        pad_rows(samples),
        pad_rows(shuffled, multiple_of=8, rows_multiple_of=4),
        pack_rows(samples, 64),
        pack_rows(shuffled, 30),
    ]
    alone: dict[int, list[int]] = {}
    for sample in samples:
        batch = pad_rows([sample])
        alone |= anchors_by_document(batch, draw_anchors(batch, max_anchors=most, seed=1, epoch=2))
    for batch in batches:
        anchors = draw_anchors(batch, max_anchors=most, seed=1, epoch=2, multiple_of=3)
        assert anchors_by_document(batch, anchors) == alone


def test_every_position_is_chosen_equally_often():
    """20 of 40 positions in 600 epochs. Chosen counts have variance n p (1-p) and correlation
    -1/39, so sum (c - 300)^2 / (150 * 40/39) is chi-square with 39 degrees of freedom; it exceeds
    85.6 with probability 2e-5. The seed is fixed: this is the chance that it was a lucky one."""
    batch = pad_rows([sample_of([True] * 41, 7)])
    counts = torch.zeros(40)
    for epoch in range(600):
        anchors = draw_anchors(batch, max_anchors=20, seed=3, epoch=epoch)
        counts[anchors.index[0]] += 1
    statistic = float(((counts - 300) ** 2).sum() / (150 * 40 / 39))
    assert counts.sum() == 600 * 20
    assert statistic < 85.6
    assert statistic > 9.0  # and below this with probability 1e-6: keys that are not random


@pytest.mark.parametrize(
    ("seed", "epoch", "sample_id"), [(3, 1, 7), (4, 0, 7), (3, 0, 8)], ids=["epoch", "seed", "id"]
)
def test_another_epoch_seed_or_sample_gives_other_anchors(seed, epoch, sample_id):
    """200 of 400 positions twice: equal sets by chance have probability below 1e-100."""
    mask = [True] * 401
    first = draw_anchors(pad_rows([sample_of(mask, 7)]), max_anchors=200, seed=3, epoch=0)
    other = pad_rows([sample_of(mask, sample_id)])
    second = draw_anchors(other, max_anchors=200, seed=seed, epoch=epoch)
    assert first.index.shape == second.index.shape
    assert not torch.equal(first.index, second.index)


def test_short_samples_and_a_three_token_answer_keep_exactly_their_valid_anchors():
    """B42: block 8, samples of 1, 7, 8 and 9 tokens, and a long one that answers in 3."""
    masks = [[True], [True] * 7, [True] * 8, [True] * 9, answer(500, 3)]
    samples = [sample_of(mask, i) for i, mask in enumerate(masks)]
    for batch in (pad_rows(samples), pack_rows(samples, 512), pack_rows(samples, 600)):
        anchors = draw_anchors(batch, seed=0, epoch=0)
        assert anchors_by_document(batch, anchors) == {
            0: [],
            1: list(range(6)),
            2: list(range(7)),
            3: list(range(8)),
            4: [497, 498],
        }
        assert draft_labels(batch, anchors, 8).valid.any(2).sum() == 6 + 7 + 8 + 2
    assert [sample.num_valid_anchors for sample in samples] == [0, 6, 7, 8, 2]


@given(MASKS)
@settings(max_examples=100, deadline=None)
def test_no_block_of_packed_rows_leaves_its_document_and_every_valid_anchor_is_found(masks):
    """B44: anchor and labels of a block share the document, and none is lost at the seams."""
    samples = [sample_of(mask, i) for i, mask in enumerate(masks)]
    batch = pack_rows(samples, 64)
    anchors = draw_anchors(batch, seed=5, epoch=0)
    assert int(anchors.keep.sum()) == sum(len(valid_anchors(mask)) for mask in masks)
    assert int(anchors.keep.sum()) == sum(num_valid_anchors(s.loss_mask) for s in samples)
    valid = draft_labels(batch, anchors, 8).valid
    for row, block, k in valid.nonzero().tolist():
        first = int(anchors.index[row, block])
        assert batch.document_ids[row, first] == batch.document_ids[row, first + k] >= 0
    assert valid[..., 1].equal(anchors.keep)  # the first label of every block counts


@given(MASKS, st.integers(2, 9))
@settings(max_examples=100, deadline=None)
def test_labels_are_the_tokens_at_their_own_places(masks, block_size):
    """B45: position k predicts the token k places after the anchor; a loop over blocks agrees."""
    batch = pack_rows([sample_of(mask, i) for i, mask in enumerate(masks)], 40)
    anchors = draw_anchors(batch, max_anchors=4, seed=0, epoch=0, multiple_of=2)
    labels = draft_labels(batch, anchors, block_size)
    for place, token in literal_labels(batch, anchors, block_size).items():
        assert bool(labels.valid[place]) == (token is not None)
        if token is not None:
            assert int(labels.token_ids[place]) == token


def test_a_block_is_given_its_anchor_and_masks():
    batch = pad_rows([sample_of([True] * 6, 1)])
    anchors = Anchors(torch.tensor([[2, 0]]), torch.tensor([[True, False]]))
    ids = draft_inputs(batch, anchors, block_size=3, mask_token_id=49)
    assert ids.tolist() == [[int(batch.input_ids[0, 2]), 49, 49, 49, 49, 49]]


def test_a_batch_without_any_valid_anchor_has_one_block_that_is_not_kept():
    """So that it takes the same way through the model as every other batch (B42)."""
    batch = pad_rows([sample_of([False, True, False], 0), sample_of([True], 1)])
    anchors = draw_anchors(batch, seed=0, epoch=0)
    assert anchors.index.tolist() == [[0], [0]]
    assert anchors.keep.tolist() == [[False], [False]]
    assert draw_anchors(batch, seed=0, epoch=0, multiple_of=16).keep.shape == (2, 16)


def test_settings_that_cannot_work_are_refused():
    batch = pad_rows([sample_of([True], 0)])
    with pytest.raises(ConfigError, match="max_anchors"):
        draw_anchors(batch, max_anchors=0, seed=0, epoch=0)
    with pytest.raises(ConfigError, match="multiple_of"):
        draw_anchors(batch, multiple_of=0, seed=0, epoch=0)
