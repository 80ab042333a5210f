"""Literal twins of anchors, labels and the loss, and what the tests of them are made with.

Nothing here comes from lengthwise.dflash but the types that hold tensors.
"""

from __future__ import annotations

import math
from types import SimpleNamespace

import torch
from torch.profiler import ProfilerActivity, profile

from lengthwise.dflash.batch import Sample
from support.twins_random import mix


def sample_of(mask, sample_id=0, features=3, vocabulary=50, dtype=torch.float32):
    """A sample with this loss mask; tokens and features are functions of its id alone."""
    generator = torch.Generator().manual_seed(1000 + sample_id)
    length = len(mask)
    return Sample(
        sample_id=sample_id,
        input_ids=torch.randint(vocabulary, (length,), generator=generator),
        loss_mask=torch.tensor(mask, dtype=torch.bool),
        features=torch.randn(length, features, generator=generator).to(dtype),
    )


def answer(length, supervised):
    """A loss mask whose last ``supervised`` of ``length`` tokens are to be learnt."""
    return [False] * (length - supervised) + [True] * supervised


def valid_anchors(mask):
    """Positions whose token and whose next token are supervised."""
    return [t for t in range(len(mask) - 1) if mask[t] and mask[t + 1]]


def smallest_keys(mask, count, key):
    """The valid positions with the ``count`` smallest words of the stream ``key``."""
    return sorted(sorted(valid_anchors(mask), key=lambda t: mix(key, t))[:count])


def anchors_by_document(batch, anchors):
    """Position ids of each document's anchors, by sample id; as a batch's tensors have them."""
    found = {int(sample_id): [] for sample_id in batch.sample_ids}
    for row in range(anchors.index.shape[0]):
        for index, keep in zip(anchors.index[row], anchors.keep[row], strict=True):
            if keep:
                document = int(batch.document_ids[row, index])
                sample_id = int(batch.sample_ids[document])
                found[sample_id].append(int(batch.position_ids[row, index]))
    return found


def literal_labels(batch, anchors, block_size):
    """For each (row, block, k): the token to predict there, or None where nothing counts."""
    num_rows, num_columns = batch.input_ids.shape
    labels = {}
    for row in range(num_rows):
        for block in range(anchors.index.shape[1]):
            first = int(anchors.index[row, block])
            for k in range(block_size):
                column = first + k
                labels[row, block, k] = (
                    int(batch.input_ids[row, column])
                    if anchors.keep[row, block]
                    and k > 0
                    and column < num_columns
                    and batch.document_ids[row, column] == batch.document_ids[row, first]
                    and batch.loss_mask[row, column]
                    else None
                )
    return labels


def ends_of(vocabulary, hidden, *, bias=False, dtype=torch.float32, seed=0):
    """A frozen head, random."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(vocabulary, hidden, generator=generator, dtype=torch.float64)
    offset = torch.randn(vocabulary, generator=generator, dtype=torch.float64)
    return SimpleNamespace(weight=weight.to(dtype), bias=offset.to(dtype) if bias else None)


def literal_loss(hidden, token_ids, valid, weight, bias, *, weighting, gamma=4.0, alpha=0.5):
    """Sums of the loss, block by block and label by label, from full logits by autograd.

    Returns a dict of loss_sum (with its graph), weight_sum, correct, valid, streak_sum, num_blocks.
    """
    num_rows, num_blocks, size = token_ids.shape
    logits = hidden @ weight.T
    if bias is not None:
        logits = logits + bias
    blocks = logits.view(num_rows, num_blocks, size, -1)
    sums = {"loss_sum": hidden.sum() * 0, "weight_sum": 0.0, "streak_sum": 0, "num_blocks": 0}
    correct, counts = [0] * (size - 1), [0] * (size - 1)
    for row in range(num_rows):
        for block in range(num_blocks):
            entropies = {}
            for k in range(1, size):
                if valid[row, block, k]:
                    scores = torch.log_softmax(blocks[row, block, k], -1)
                    entropies[k] = -scores[token_ids[row, block, k]]
            for k, entropy in entropies.items():
                worth = _worth(k, entropies, weighting, gamma, alpha)
                sums["loss_sum"] = sums["loss_sum"] + worth * entropy
                sums["weight_sum"] += worth
                counts[k - 1] += 1
            right = {
                k
                for k in entropies
                if int(blocks[row, block, k].argmax()) == int(token_ids[row, block, k])
            }
            for k in right:
                correct[k - 1] += 1
            if entropies:
                run = 0
                while run + 1 in right:
                    run += 1
                sums["streak_sum"] += run + 1
                sums["num_blocks"] += 1
    return {**sums, "correct": correct, "valid": counts}


def _worth(k, entropies, weighting, gamma, alpha):
    if weighting == "uniform":
        return 1.0
    if weighting == "decay":
        return math.exp(-(k - 1) / gamma)
    total = 0.0
    for m in entropies:
        if m >= k:
            reached = 1.0
            for i in entropies:
                if i <= m:
                    reached *= (1 - alpha) * math.exp(-entropies[i].item()) + alpha
            total += reached
    return total


def peak_bytes(run):
    """The most bytes that ``run()`` holds at once above what was there before it, on the CPU.

    From the allocator's own events, so that what an operator allocates inside counts too.
    """
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        kept = run()
    events = [e for e in profiler.profiler.kineto_results.events() if e.name() == "[memory]"]
    events.sort(key=lambda event: event.start_ns())
    held = most = 0
    for event in events:
        held += event.nbytes()
        most = max(most, held)
    del kept
    return most
