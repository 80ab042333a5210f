"""Oracles and made-up proposers for the tests of decoding."""

from __future__ import annotations

import math

import torch

from lengthwise.dflash.decoding import Proposal


def hf_greedy(model, prompt_ids, max_new_tokens, stop_token_ids=()):
    """What Hugging Face generate gives, greedy: none of our loop, cache handling or stopping."""
    stops = {"eos_token_id": sorted(stop_token_ids)} if stop_token_ids else {}
    saved = model.generation_config.eos_token_id
    model.generation_config.eos_token_id = None
    try:
        text = model.generate(
            torch.tensor([list(prompt_ids)]),
            attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.long),
            do_sample=False,
            max_new_tokens=max_new_tokens,
            pad_token_id=0,
            **stops,
        )
    finally:
        model.generation_config.eos_token_id = saved
    return tuple(text[0, len(prompt_ids) :].tolist())


def cacheless_greedy(model, prompt_ids, max_new_tokens):
    """The literal definition: the whole text through the model for every token, no cache."""
    text = list(prompt_ids)
    with torch.no_grad():
        for _ in range(max_new_tokens):
            logits = model(torch.tensor([text]), use_cache=False).logits
            text.append(int(logits[0, -1].argmax()))
    return tuple(text[len(prompt_ids) :])


class Scripted:
    """A proposer that knows the true continuation and offers a changed copy of it.

    ``change(offered, position)`` gets the true tokens from ``position`` of the output on and
    returns what to offer instead. Keeps all it is told.
    """

    def __init__(self, truth, prompt_length, block_size, change=None, layer_ids=()):
        self.truth = list(truth)
        self.prompt_length = prompt_length
        self.block_size = block_size
        self.layer_ids = tuple(layer_ids)
        self.change = change or (lambda offered, position: offered)
        self.begin()

    def begin(self):
        self.observed = []
        self.features = []

    def observe(self, token_ids, features):
        self.observed += list(token_ids)
        if features is not None:
            self.features.append(features)

    def propose(self, bonus, count, sampling, generator):
        # The bonus token stands at output place len(observed) - prompt_length.
        position = len(self.observed) - self.prompt_length + 1
        offered = self.truth[position : position + count]
        offered += [0] * (count - len(offered))
        offered = self.change(offered, position)
        return Proposal(torch.tensor(offered, dtype=torch.long))


def oracle(truth, prompt_length, block_size):
    """Offers the truth."""
    return Scripted(truth, prompt_length, block_size)


def adversary(truth, prompt_length, block_size, vocab):
    """Offers a wrong token at every place."""
    return Scripted(
        truth, prompt_length, block_size, lambda offered, _: [(t + 1) % vocab for t in offered]
    )


def partly_right(truth, prompt_length, block_size, vocab, seed=0, share=0.3):
    """Offers the truth with a share of wrong tokens at places drawn anew each time."""
    generator = torch.Generator().manual_seed(seed)

    def change(offered, _):
        wrong = torch.rand(len(offered), generator=generator) < share
        return [(t + 1) % vocab if w else t for t, w in zip(offered, wrong.tolist(), strict=True)]

    return Scripted(truth, prompt_length, block_size, change)


def random_proposer(block_size, vocab, seed=0):
    """Offers tokens drawn without looking at anything."""
    generator = torch.Generator().manual_seed(seed)
    return Scripted(
        [],
        0,
        block_size,
        lambda offered, _: torch.randint(vocab, (len(offered),), generator=generator).tolist(),
    )


def filtered(logits, temperature, top_k, top_p):
    """Probabilities after temperature, top-k and top-p, one number at a time."""
    scaled = [float(x) / temperature for x in logits]
    order = sorted(range(len(scaled)), key=lambda i: -scaled[i])
    kept = order[:top_k] if top_k else order
    top = max(scaled)
    weight = {i: math.exp(scaled[i] - top) for i in kept}
    total = sum(weight.values())
    nucleus, reached = [], 0.0
    for i in kept:
        if reached < top_p:
            nucleus.append(i)
        reached += weight[i] / total
    total = sum(weight[i] for i in nucleus)
    return [weight[i] / total if i in nucleus else 0.0 for i in range(len(scaled))]


def joint(next_distribution, vocab, length):
    """Probability of every sequence of ``length`` tokens, multiplied out along the tree."""
    found = {(): 1.0}
    for _ in range(length):
        found = {
            (*prefix, token): share * chance
            for prefix, share in found.items()
            for token, chance in enumerate(next_distribution(prefix))
            if share * chance > 0
        }
    assert abs(sum(found.values()) - 1) < 1e-6
    assert len(found) <= vocab**length
    return found


def chi_square_p_value(counts, expected, num_draws):
    """P value of counts against exact probabilities; cells of fewer than 5 expected are one.

    A draw that cannot happen gives 0.
    """
    if set(counts) - set(expected):
        return 0.0
    statistic, cells, rare, rare_seen = 0.0, 0, 0.0, 0
    for cell, share in expected.items():
        mean = share * num_draws
        seen = counts.get(cell, 0)
        if mean < 5:
            rare, rare_seen = rare + mean, rare_seen + seen
        else:
            statistic += (seen - mean) ** 2 / mean
            cells += 1
    if rare >= 5:
        statistic += (rare_seen - rare) ** 2 / rare
        cells += 1
    freedom = torch.tensor((cells - 1) / 2, dtype=torch.float64)
    half = torch.tensor(statistic / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom, half))
