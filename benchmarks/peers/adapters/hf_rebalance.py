"""Hugging Face Trainer's ``train_sampling_strategy="batch_rebalance"``."""

from __future__ import annotations

from transformers.trainer_pt_utils import BatchRebalanceSampler

from peers.case import STEP, About


def about():
    """What it promises."""
    return About(
        package="transformers",
        settings=f"batches of the mean size, {STEP} a step (64 with 64 replicas), drop_last=False",
        source="transformers/trainer_pt_utils.py, BatchRebalanceSampler",
        leaves_out="a last step that is too small repeats samples",
    )


def prepare(lengths):
    """Lengths as a list."""
    return lengths.tolist()


def make(lengths, case, replica):
    """One replica's sampler; it has no limit on tokens, and balances nothing in a lone batch."""
    alone = replica.num_replicas == replica.accumulation == 1
    accumulation = STEP if alone else replica.accumulation
    return BatchRebalanceSampler(
        lengths,
        effective_batch_size=case.mean_size * replica.num_replicas * accumulation,
        dp_size=replica.num_replicas,
        grad_accum=accumulation,
        seed=case.seed,
        rank=replica.rank,
        drop_last=False,
    )
