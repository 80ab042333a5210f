"""The estimator behind the training comparison, against closed forms and plain loops."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch
import training_gradients as gradients
import training_runs as runs
from tiny_transformer import TinyTransformer
from training_data import Functions

import lengthwise as lw
from lengthwise.loader import PadCollator, token_weighted_loss

RNG = np.random.default_rng(5)
TEXTS = [bytes(RNG.integers(32, 127, length).tolist()) for length in (1, 9, 4, 30, 17, 2, 25, 12)]


def test_for_steps_of_equal_tokens_the_noise_is_the_variance_of_the_mean_times_the_tokens():
    """What the name says: Var(S / N) * N with the unbiased variance, summed over dimensions."""
    sums, tokens = RNG.normal(size=(7, 3)), np.full(7, 40.0)
    variance = np.var(sums / 40, axis=0, ddof=1).sum()
    assert gradients.noise_a_token(sums, tokens) == pytest.approx(variance * 40)


def test_dealing_single_samples_at_random_gives_on_average_the_noise_of_single_samples():
    """Of all 720 ways to deal six samples into pairs: exactly what each sample alone has."""
    values, tokens = RNG.normal(size=(6, 2)), np.full(6, 3.0)
    noises = []
    for order in permutations(range(6)):
        steps = np.array(order).reshape(3, 2)
        found = gradients.summarise(steps, tokens, values, values[:, 0])
        noises.append(found["gradient"])
    assert np.mean(noises) == pytest.approx(gradients.noise_a_token(values, tokens))


def test_steps_of_copies_of_one_sample_have_so_many_times_the_noise():
    """Kish's design effect of a cluster whose members are alike is its size."""
    values, tokens = RNG.normal(size=(9, 2)), RNG.integers(1, 20, 9).astype(float)
    single = gradients.noise_a_token(values, tokens)
    assert gradients.noise_a_token(5 * values, 5 * tokens) == pytest.approx(5 * single)


def test_steps_that_all_have_the_mean_a_token_have_no_noise_whatever_their_size():
    """S = m N in every step: a token-weighted mean does not vary."""
    tokens = np.array([10.0, 30.0, 25.0])
    sums = tokens[:, None] * np.array([0.7, -2.0])
    assert gradients.noise_a_token(sums, tokens) == pytest.approx(0.0, abs=1e-20)


def test_projected_gradients_of_samples_add_up_to_that_of_their_padded_batch():
    """Sums over a batch's samples may stand for the batch: padding adds nothing to a gradient."""
    torch.manual_seed(0)
    model = TinyTransformer(width=8, num_layers=1, num_heads=2, longest=32)
    projected, losses = gradients.per_sample(model, TEXTS)
    samples = Functions(TEXTS)
    batch = PadCollator()([samples[index] for index in range(len(samples))])
    loss = token_weighted_loss(model(batch["input_ids"]), batch["labels"], num_tokens=1)
    whole = torch.autograd.grad(loss, list(model.parameters()))
    flat = torch.cat([gradient.flatten() for gradient in whole])
    expected = (flat @ gradients.projections(len(flat))).numpy()
    assert losses.sum() == pytest.approx(loss.item(), rel=1e-5)
    np.testing.assert_allclose(projected.sum(axis=0), expected, rtol=1e-3, atol=1e-2)


def test_a_projection_keeps_squared_norms_on_average():
    """E|xP|^2 = |x|^2; the mean over 128 dimensions varies by sqrt(2 / 128) = 12.5 %."""
    vector = torch.ones(4000)
    ratio = float((vector @ gradients.projections(4000)).square().sum() / vector.square().sum())
    assert 0.6 < ratio < 1.4


@pytest.mark.parametrize("order", gradients.ORDERS)
def test_every_arrangement_takes_each_batch_at_most_once_in_rows_of_one_step(order):
    """Steps share the batches out; only those of an incomplete last step are left."""
    batches = lw.build_plan(
        RNG.integers(1, 700, 400), lw.BatchingConfig(limits=runs.LIMITS)
    ).batches
    steps = gradients.steps_in_order(batches, order, 8, key=3)
    assert steps.shape == (len(batches) // 8, 8)
    assert np.unique(steps).size == steps.size
    assert set(steps.flat) <= set(range(len(batches)))


def test_sums_over_batches_are_those_of_a_plain_loop_also_in_the_batches_own_numbers():
    """Both ways of naming the samples must give the same sums."""
    lengths = RNG.integers(1, 700, 300)
    batches = lw.build_plan(lengths, lw.BatchingConfig(limits=runs.LIMITS)).batches
    chosen = batches.select(np.array([4, 0, 11]))
    values = RNG.normal(size=(300, 2))
    expected = [values[chosen.batch(place)].sum(axis=0) for place in range(3)]
    np.testing.assert_allclose(gradients.of_batches(chosen, values), expected)
    samples, _ = chosen.gather(np.arange(3))
    own = gradients.in_own_numbers(chosen)
    np.testing.assert_allclose(gradients.of_batches(own, values[samples]), expected)


@pytest.mark.parametrize("name", runs.ARMS)
def test_a_runs_cut_has_the_datas_mean_length_and_about_the_samples_asked_for(name):
    """So that all strategies train on as many samples and tokens, in part of one epoch."""
    lengths = np.random.default_rng(1).gamma(1.2, 200, 6000).clip(10, 700).astype(np.int64)
    texts = [bytes(length) for length in lengths]
    settings, batches_a_step = runs.ARMS[name]
    run = runs.Run(lengths, texts, settings, batches_a_step=batches_a_step, num_samples=600, seed=0)
    batches = run.sampler.planner.plan(0).batches
    tokens = int(batches.tokens[: run.num_batches].sum())
    num_samples = int(batches.sizes[: run.num_batches].sum())
    assert run.num_batches % batches_a_step == 0
    assert tokens / num_samples == pytest.approx(lengths.mean(), rel=0.01)
    assert num_samples == pytest.approx(600, rel=0.05)


def test_a_run_counts_what_it_trains_on():
    """Steps, samples and tokens of the record are those of the plan's first batches."""
    torch.set_num_threads(1)
    lengths = RNG.integers(300, 760, 24)
    texts = [bytes(length) for length in lengths]
    settings, batches_a_step = runs.ARMS["random_pairs"]
    run = runs.Run(lengths, texts, settings, batches_a_step=batches_a_step, num_samples=20, seed=0)
    run.train_until(0.5)
    assert run.record.num_batches == run.num_batches // 2
    run.train_until(1)
    batches = run.sampler.planner.plan(0).batches.select(np.arange(run.num_batches))
    assert run.record.num_batches == run.num_batches
    assert run.record.num_steps == run.num_batches // 2
    assert run.record.real_tokens == batches.tokens.sum()
    assert run.record.padded_tokens == batches.padded_tokens.sum()
    assert run.record.num_samples == batches.sizes.sum()


def test_a_run_longer_than_the_epoch_is_refused():
    """It would train on nothing for ever."""
    with pytest.raises(ValueError, match="2 batches wanted of an epoch of 1"):
        runs.Run(np.array([5, 6]), [b"12345", b"123456"], {}, num_samples=2, seed=0)
