"""Sums that add up."""

from __future__ import annotations

import math

import torch

from lengthwise.dflash.metrics import DraftSums


def sums(scale):
    return DraftSums(
        loss_sum=torch.tensor(3.0 * scale, requires_grad=True),
        weight_sum=torch.tensor(2.0 * scale),
        correct=torch.tensor([2, 1, 0]) * scale,
        valid=torch.tensor([4, 2, 0]) * scale,
        streak_sum=torch.tensor(7 * scale),
        num_blocks=torch.tensor(4 * scale),
    )


def test_means_are_of_sums_not_of_means():
    """10 times as much of the same, and one more of nothing, leave means as they are."""
    total = sums(1) + sums(10) + DraftSums.zeros(4)
    assert total.loss == 33 / 22
    assert total.streak == 77 / 44
    assert total.accuracy[:2] == [22 / 44, 11 / 22]
    assert math.isnan(total.accuracy[2])
    assert total.loss_sum.requires_grad
    assert not total.detach().loss_sum.requires_grad


def test_nothing_has_no_mean():
    none = DraftSums.zeros(3)
    assert math.isnan(none.loss)
    assert math.isnan(none.streak)
    assert all(math.isnan(value) for value in none.accuracy)


def test_without_other_ranks_the_total_is_ones_own():
    """The reduction over real ranks is tested with the update."""
    reduced = sums(2).all_reduced()
    assert reduced.loss == 1.5
    assert not reduced.loss_sum.requires_grad
