"""What the comparison with other libraries computes from batches, beside definitions and ours."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers import metrics

from lengthwise.core import diversity
from lengthwise.core.batches import Batches
from support import oracles_diversity as oracle


@st.composite
def cut_into_batches(draw, num_samples):
    """The samples in some order, cut into batches of 1 to 6."""
    order, batches = draw(st.permutations(range(num_samples))), []
    while order:
        size = draw(st.integers(1, 6))
        batches.append(list(order[:size]))
        order = order[size:]
    return batches


@st.composite
def epochs(draw):
    """Lengths, and two epochs' batches of all samples."""
    lengths = draw(st.lists(st.integers(1, 50), min_size=2, max_size=30))
    return lengths, *(draw(cut_into_batches(len(lengths))) for _ in range(2))


@given(epochs(), st.integers(1, 4))
def test_every_number_is_that_of_its_definition(case, per_step):
    """Sets of pairs, exact fractions and the standard library's statistics, sample by sample."""
    lengths, first, second = case
    array, flat = np.array(lengths), metrics.Flat.of(first)
    assert metrics.repeat_rate(flat, metrics.Flat.of(second)) == oracle.repeat_rate(first, second)
    assert metrics.design_effect(flat, array, per_step) == pytest.approx(
        oracle.effect(first, lengths, per_step)
    )
    assert metrics.order_correlation(flat, array) == pytest.approx(
        oracle.lag_correlation(first, lengths, 1), abs=1e-9
    )


@given(epochs(), st.integers(20, 120))
def test_padding_is_counted_batch_by_batch(case, max_tokens):
    lengths, batches, _ = case
    found = metrics.padding(metrics.Flat.of(batches), np.array(lengths), max_tokens)
    padded = [len(batch) * max(lengths[i] for i in batch) for batch in batches]
    over = [tokens for tokens in padded if tokens > max_tokens]
    assert found["num_batches"] == len(batches)
    assert found["efficiency"] == pytest.approx(sum(lengths) / sum(padded))
    assert found["utilization"] == pytest.approx(sum(lengths) / (len(batches) * max_tokens))
    assert found["over_share"] == pytest.approx(len(over) / len(batches))
    assert found["over_worst"] == pytest.approx(max(over, default=max_tokens) / max_tokens)
    assert found["largest_batch"] == max(map(len, batches))


@given(epochs())
def test_a_packed_row_is_as_long_as_its_samples_together(case):
    lengths, batches, _ = case
    sums = [sum(lengths[i] for i in batch) for batch in batches]
    found = metrics.padding(metrics.Flat.of(batches), np.array(lengths), max(sums), packed=True)
    assert (found["efficiency"], found["over_share"]) == (1, 0)


def test_attention_adds_the_thousandth_of_every_rows_square():
    """Two rows of 20: 2 (20 + 0.4). Packed, 10 and 20 attend apart: 10 + 0.1 + 20 + 0.4."""
    lengths, flat = np.array([10, 20]), metrics.Flat.of([[0, 1]])
    assert flat.attention_costs(lengths) == pytest.approx([40.8])
    assert flat.attention_costs(lengths, packed=True) == pytest.approx([30.5])


@given(epochs(), st.integers(1, 4))
def test_lengthwise_itself_computes_the_same_numbers(case, per_step):
    """Two implementations that share no code; ours is the one that reports and docs use."""
    lengths, first, second = case
    array, flat = np.array(lengths, np.int64), metrics.Flat.of(first)
    ours = _as_batches(flat, array)
    following = _as_batches(metrics.Flat.of(second), array)
    assert metrics.repeat_rate(flat, metrics.Flat.of(second)) == pytest.approx(
        diversity.partner_repeat_rate(ours, following)
    )
    assert metrics.order_correlation(flat, array) == pytest.approx(
        diversity.order_correlation(ours, array), abs=1e-9
    )
    assert metrics.design_effect(flat, array, per_step) == pytest.approx(
        diversity.design_effect(ours, array, per_step)
    )


def _as_batches(flat, lengths):
    return Batches(
        flat.samples.astype(np.uint32),
        flat.starts,
        flat.sizes,
        np.maximum.reduceat(lengths[flat.samples], flat.starts),
        flat.sums(lengths),
    )


@given(st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=5), min_size=1, max_size=6))
def test_what_is_left_out_and_what_comes_twice_is_counted(batches):
    counts = Counter(index for batch in batches for index in batch)
    found = metrics.coverage(metrics.Flat.of(batches), 7)
    assert found["left_out"] == sum(index not in counts for index in range(7))
    assert found["repeated"] == sum(count - 1 for count in counts.values())


def test_a_sample_that_is_none_of_the_data_sets_is_an_error_of_the_adapter():
    with pytest.raises(ValueError, match="sample 7 of 7"):
        metrics.coverage(metrics.Flat.of([[0, 7]]), 7)


def test_an_empty_batch_is_an_error_of_the_adapter():
    with pytest.raises(ValueError, match="1 of 2 batches are empty"):
        metrics.Flat.of([[1], []])


def test_pairs_that_an_epoch_leaves_out_do_not_repeat():
    """0 and 1 meet twice, 2 and 3 meet once and are missing in the second epoch: one of two."""
    first, second = metrics.Flat.of([[0, 1], [2, 3]]), metrics.Flat.of([[1, 0], [4]])
    assert metrics.repeat_rate(first, second) == 0.5


def test_balance_is_the_largest_over_the_mean_of_the_steps_that_all_have():
    """Steps (4, 4) and (6, 2): 1 and 6 / 4; the third step of one replica alone is left out."""
    assert metrics.replica_balance([[4, 6, 9], [4, 2]]) == pytest.approx((1 + 1.5) / 2)
    assert metrics.replica_balance([[4], []]) is None
