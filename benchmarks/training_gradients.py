"""How noisy a step's gradient is, by which batches the step takes.

The gradient of every sample is computed once, at one checkpoint, and projected; steps of any plan
over these samples are then sums of what is at hand. So all orders are compared on the same samples,
over many arrangements, and with what random batches of the same samples would give.
"""

from __future__ import annotations

import numpy as np
import torch
from training_data import Functions
from training_runs import ARMS, LIMITS, Run, take_batches

import lengthwise as lw
from lengthwise.core.diversity import design_effect
from lengthwise.core.order import OrderRule, arrange
from lengthwise.loader import token_weighted_loss

NUM_PROJECTIONS = 128
ORDERS = ("shuffled", "stratified", "balanced")
GROUPS = (1, 2, 4, 8, 16)
"""Batches of an optimiser step."""


def noise_a_token(sums, tokens):
    """Variance of steps' token-weighted means, times the tokens of a step.

    With S a step's sum, N its tokens and m the mean a token over all steps, the variance of S / N
    is, to first order, E|S - m N|^2 / E[N]^2. Times E[N] this is what a token contributes, and two
    kinds of steps compare whatever their size: it is the numerator of the design effect, with
    tokens for samples. The steps share the samples out among them, so that one is determined by
    the others: hence K / (K - 1), with which the mean over all ways to deal single samples of
    equal tokens is their variance itself.

    Args:
        sums: of K steps, shape (K, D); |.| is the norm over D.
        tokens: of the steps, shape (K,).
    """
    rest = sums - tokens[:, None] * (sums.sum(axis=0) / tokens.sum())
    return float((rest**2).sum() / tokens.sum() * len(tokens) / (len(tokens) - 1))


def sums_of(places, values):
    """Sums of ``values`` over each row of ``places``; incomplete rows are not given."""
    return values[places].sum(axis=1)


def steps_in_order(batches, order, group, key):
    """Which batches make the steps of one arrangement; shape (steps, group)."""
    rule = OrderRule(order, "none", 1, group)
    places = arrange(batches.tokens, batches.sizes, batches.padded_tokens, None, rule=rule, key=key)
    return in_steps(places, group)


def in_steps(places, group):
    """Rows of ``group``; an incomplete last step is left out."""
    return places[: len(places) // group * group].reshape(-1, group)


def length_effects(lengths, group):
    """The design effect of length of the default's steps, in each order, over a whole epoch."""
    found = {}
    for order in ORDERS:
        config = lw.BatchingConfig(limits=LIMITS, order=order, accumulation_steps=group)
        batches = lw.build_plan(lengths, config).batches
        whole = batches.select(np.arange(len(batches) // group * group))
        found[order] = design_effect(whole, lengths, group)
    return found


def of_batches(batches, values):
    """Sums over the samples of each batch; (B, D)."""
    samples, edges = batches.gather(np.arange(len(batches)))
    return np.add.reduceat(values[samples], edges[:-1], axis=0)


def projections(size):
    """Gaussian, scaled so that squared norms keep their expectation; shape (size, 128)."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(size, NUM_PROJECTIONS, generator=generator) / NUM_PROJECTIONS**0.5


def per_sample(model, texts):
    """Of every sample alone: its projected gradient, shape (M, 128), and its loss, (M,).

    Both are sums over the sample's tokens, so that those of a batch are sums over its samples.
    """
    parameters = list(model.parameters())
    size = sum(parameter.numel() for parameter in parameters)
    project = projections(size)
    samples = Functions(texts)
    rows, losses, projected = [], [], []
    for index in range(len(samples)):
        sample = samples[index]
        inputs, labels = (torch.from_numpy(sample[key])[None] for key in ("input_ids", "labels"))
        loss = token_weighted_loss(model(inputs), labels, num_tokens=1)
        gradients = torch.autograd.grad(loss, parameters)
        rows.append(torch.cat([gradient.flatten() for gradient in gradients]))
        losses.append(loss.item())
        if len(rows) == 32 or index == len(samples) - 1:  # the projections are read once a block
            projected.append(torch.stack(rows) @ project)
            rows.clear()
    return torch.cat(projected).double().numpy(), np.array(losses)


def summarise(steps, tokens, gradients, losses):
    """Noise of gradient and loss over the steps, and the spread of the steps' losses."""
    step_tokens, step_losses = sums_of(steps, tokens), sums_of(steps, losses)
    return {
        "gradient": noise_a_token(sums_of(steps, gradients), step_tokens),
        "loss": noise_a_token(step_losses[:, None], step_tokens),
        "loss_variance": float(np.var(step_losses / step_tokens, ddof=1)),
        "tokens": float(step_tokens.mean()),
    }


def random_steps(lengths, gradients, losses, num_plans):
    """For every group size, :func:`summarise` of random batches of the same samples; mean."""
    found = {group: [] for group in GROUPS}
    for seed in range(num_plans):
        config = lw.BatchingConfig(limits=LIMITS, strategy="random", order="shuffled", seed=seed)
        batches = lw.build_plan(lengths, config).batches
        sums = of_batches(batches, np.column_stack((losses, gradients)))
        tokens = batches.tokens.astype(float)
        for group in sizes_for(batches):
            steps = in_steps(np.arange(len(batches)), group)
            found[group].append(summarise(steps, tokens, sums[:, 1:], sums[:, 0]))
    return {group: mean_of(rows) for group, rows in found.items() if rows}


def ordered_steps(batches, gradients, losses, num_keys):
    """For every group size and order, :func:`summarise` of the batches arranged so; mean."""
    sums = of_batches(batches, np.column_stack((losses, gradients)))
    tokens = batches.tokens.astype(float)
    return {
        group: {
            order: mean_of(
                [
                    summarise(
                        steps_in_order(batches, order, group, key), tokens, sums[:, 1:], sums[:, 0]
                    )
                    for key in range(num_keys)
                ]
            )
            for order in ORDERS
        }
        for group in sizes_for(batches)
    }


def sizes_for(batches):
    """The group sizes that leave two steps or more to compare."""
    return [group for group in GROUPS if len(batches) >= 2 * group]


def mean_of(rows):
    """Mean of each key over equal dicts."""
    return {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}


def measure_noise(corpus, checkpoints, num_batches, num_keys, seed):
    """Train with the default strategy; at checkpoints, measure on batches not trained on.

    Args:
        corpus: what is trained on.
        checkpoints: rising numbers of samples; training ends at the last.
        num_batches: measured on; the same at every checkpoint.
        num_keys: random arrangements of each order, and plans of random batches.
        seed: of weights, plans and the choice of batches.

    Returns:
        A dict a checkpoint: its step, and for every group size a row of random batches and of each
        order: see :func:`relative`.
    """
    torch.set_num_threads(1)
    settings, _ = ARMS["pooled"]
    lengths, last = corpus.lengths, checkpoints[-1]
    run = Run(lengths, corpus.training, settings, num_samples=last, seed=seed)
    batches = take_batches(run, num_batches, seed)
    samples, _ = batches.gather(np.arange(len(batches)))
    texts = [corpus.training[index] for index in samples]
    found = []
    for checkpoint in checkpoints:
        run.train_until(checkpoint / last)
        gradients, losses = per_sample(run.model, texts)
        own = in_own_numbers(batches)
        noise = compare_orders(own, lengths[samples], gradients, losses, num_keys)
        found.append({"step": run.record.num_steps, "num_samples": len(texts), **noise})
    return found


def compare_orders(batches, lengths, gradients, losses, num_keys):
    """For every group size that leaves two steps, rows of random batches and of each order."""
    random = random_steps(lengths, gradients, losses, num_keys)
    ordered = ordered_steps(batches, gradients, losses, num_keys)
    rows = {group: {"random": random[group]} | ordered[group] for group in ordered}
    alone = noise_a_token(gradients, lengths.astype(float))
    return {
        "single_samples": alone / random[GROUPS[0]]["gradient"],
        "groups": {
            str(group): {name: relative(row, random[group]) for name, row in named.items()}
            for group, named in rows.items()
        },
    }


def in_own_numbers(batches):
    """The same batches over samples numbered in the batches' order."""
    edges = np.concatenate(([0], np.cumsum(batches.sizes)))
    order = np.arange(edges[-1], dtype=batches.order.dtype)
    return type(batches)(order, edges[:-1], batches.sizes, batches.padded, batches.tokens)


def relative(row, random):
    """A row as it is reported."""
    return {
        "gradient_noise": row["gradient"] / random["gradient"],
        "loss_noise": row["loss"] / random["loss"],
        "loss_std": row["loss_variance"] ** 0.5,
        "tokens_a_step": row["tokens"],
    }
