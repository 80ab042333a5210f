"""Sampled decoding: what comes out has the target's distribution, whatever the drafter's is.

Every statistical test here is a chi-square test of counts against probabilities multiplied out
over all sequences, at a false-alarm rate of 1e-6. Seeds are fixed, so a pass is a pass for good;
the rate says how likely a right implementation was to fail when a seed was chosen. That the test
sees wrong rules is shown beside it.
"""

import importlib
from collections import Counter

import pytest
import torch

from lengthwise.dflash.decoding import DrafterProposer, Proposal, Sampling, generate, speculate
from lengthwise.dflash.decoding import sampling as rules
from lengthwise.dflash.decoding.sampling import draw, verify_sampled
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.target import Target
from lengthwise.errors import ConfigError
from support.dflash_decoding import chi_square_p_value, filtered, joint
from support.dflash_models import tiny_drafter_config, tiny_llama

V = 6
FALSE_ALARM = 1e-6
SETTINGS = {
    "plain": Sampling(1.0),
    "cold": Sampling(0.6),
    "hot": Sampling(1.7),
    "top-k": Sampling(1.0, top_k=3),
    "top-p": Sampling(1.2, top_p=0.8),
    "both": Sampling(0.8, top_k=4, top_p=0.9),
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_probabilities_are_those_of_the_rules_one_number_at_a_time(setting):
    # The oracle sorts and sums in plain Python; Hugging Face's filters are what runs.
    logits = torch.randn(7, V, generator=torch.Generator().manual_seed(3)) * 2
    found = setting.probabilities(logits)
    for row, scores in zip(found, logits, strict=True):
        expected = filtered(scores, setting.temperature, setting.top_k, setting.top_p)
        torch.testing.assert_close(row, torch.tensor(expected), atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"temperature": -0.1}, "temperature must be"),
        ({"temperature": float("nan")}, "temperature must be"),
        ({"temperature": float("inf")}, "temperature must be"),
        ({"top_k": 0}, "top_k must be"),
        ({"top_p": 0.0}, "top_p must be"),
        ({"top_p": 1.1}, "top_p must be"),
    ],
)
def test_settings_outside_their_range_are_refused(settings, words):
    # Each names the field and the value.
    with pytest.raises(ConfigError, match=words):
        Sampling(**settings)


class _Tables:
    """A target and a drafter that are tables: logits by prefix, and by place in the block."""

    def __init__(self, setting, block_size, seed=0):
        self.setting, self.block_size = setting, block_size
        self.generator = torch.Generator().manual_seed(seed)
        self.target = torch.randn(V**4, V, generator=self.generator)
        self.drafter = 2 * torch.randn(block_size, V, generator=self.generator)

    def logits(self, prefix):
        place = 0
        for token in prefix:
            place = place * V + token + 1
        return self.target[place % len(self.target)]

    def next_distribution(self, prefix):
        setting = self.setting
        return filtered(self.logits(prefix), setting.temperature, setting.top_k, setting.top_p)

    def sequence(self, length, verify):
        """One sequence of ``length`` tokens, block by block, as decoding does it."""
        text = draw(self.setting.probabilities(self.logits(()))[None], self.generator).tolist()
        while len(text) < length:
            count = min(self.block_size, length - len(text)) - 1
            q = self.setting.probabilities(self.drafter[:count])
            drafted = draw(q, self.generator) if count else torch.empty(0, dtype=torch.long)
            offered = drafted.tolist()
            logits = torch.stack([self.logits([*text, *offered[:i]]) for i in range(count + 1)])
            text += verify(logits, Proposal(drafted, q), self.setting, self.generator)
        return tuple(text)


def _p_value(setting, verify, num_draws=1200, length=3, block_size=3):
    tables = _Tables(setting, block_size)
    counts = Counter(tables.sequence(length, verify) for _ in range(num_draws))
    return chi_square_p_value(counts, joint(tables.next_distribution, V, length), num_draws)


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_the_acceptance_rule_keeps_the_joint_distribution(setting):
    # Three tokens: the first from the target, the others through a block with two drafts.
    assert _p_value(setting, verify_sampled) > FALSE_ALARM


def _keeps_all(logits, proposal, setting, generator):
    """Wrong: every draft is believed."""
    last = draw(setting.probabilities(logits[-1:]), generator)
    return [*proposal.token_ids.tolist(), *last.tolist()]


def _draws_from_p(logits, proposal, setting, generator):
    """Wrong: after a refusal it draws from p instead of from what is left of it."""
    p = setting.probabilities(logits)
    for place, token in enumerate(proposal.token_ids.tolist()):
        chance = torch.rand((), generator=generator)
        if chance * proposal.probabilities[place, token] >= p[place, token]:
            return [*proposal.token_ids[:place].tolist(), *draw(p[place][None], generator).tolist()]
    return [*proposal.token_ids.tolist(), *draw(p[-1:], generator).tolist()]


def _upside_down(logits, proposal, setting, generator):
    """Wrong: accepts with min(1, q / p)."""
    p = setting.probabilities(logits)
    for place, token in enumerate(proposal.token_ids.tolist()):
        q = proposal.probabilities[place]
        if torch.rand((), generator=generator) * p[place, token] >= q[token]:
            rest = (p[place] - q).clamp_min(0)
            return [*proposal.token_ids[:place].tolist(), *draw(rest[None], generator).tolist()]
    return [*proposal.token_ids.tolist(), *draw(p[-1:], generator).tolist()]


def _one_place_off(logits, proposal, setting, generator):
    """Wrong: each draft is judged by the distribution of the next place."""
    return verify_sampled(logits.roll(-1, dims=0), proposal, setting, generator)


@pytest.mark.parametrize("wrong", [_keeps_all, _draws_from_p, _upside_down, _one_place_off])
def test_the_statistical_test_sees_wrong_rules(wrong):
    # Power: with the same number of draws each of these must be found out far beyond the rate.
    assert _p_value(SETTINGS["plain"], wrong) < FALSE_ALARM / 1000


def test_drafts_without_distributions_are_kept_with_probability_p():
    # A certain draft (q = 1) is right with probability p; else the rest of p is drawn from.
    logits = torch.tensor([[0.3, 1.0, -1.0, 0.0, 0.5, 2.0]]).repeat(2, 1)
    generator = torch.Generator().manual_seed(5)
    proposal = Proposal(torch.tensor([4]))
    runs = [verify_sampled(logits, proposal, Sampling(1.0), generator) for _ in range(1200)]
    p = filtered(logits[0], 1.0, None, 1.0)
    counts = Counter(run[0] for run in runs)
    assert chi_square_p_value(counts, dict(enumerate(p)), len(runs)) > FALSE_ALARM
    assert sum(len(run) == 2 for run in runs) == counts[4]


def test_where_drafter_and_target_agree_every_draft_is_kept():
    # p / q = 1 at each place, and chance is below 1.
    logits = torch.randn(5, V, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1)
    q = Sampling(1.0).probabilities(logits[:4])
    for _ in range(200):
        drafted = draw(q, generator)
        run = verify_sampled(logits, Proposal(drafted, q), Sampling(1.0), generator)
        assert run[:4] == drafted.tolist()
        assert len(run) == 5


def test_a_token_that_the_target_filters_out_is_never_emitted():
    # The drafter offers only what top-k = 2 forbids.
    logits = torch.tensor([[5.0, 4.0, 0.0, 0.0, 0.0, 0.0]]).repeat(3, 1)
    setting, generator = Sampling(1.0, top_k=2), torch.Generator().manual_seed(2)
    q = torch.zeros(2, V)
    q[:, 3] = 1.0
    runs = [
        verify_sampled(logits, Proposal(torch.tensor([3, 3]), q), setting, generator)
        for _ in range(100)
    ]
    assert {len(run) for run in runs} == {1}
    assert {run[0] for run in runs} == {0, 1}


@pytest.fixture(scope="module")
def tiny():
    model = tiny_llama(
        vocab_size=V, num_layers=1, hidden_size=16, intermediate_size=16, eos_token_id=None
    )
    target = Target(model)
    config = tiny_drafter_config(
        model,
        mask_token_id=0,
        num_hidden_layers=1,
        block_size=3,
        target_layer_ids=(0,),
    )
    drafter = Drafter(config, seed=4)
    with torch.no_grad():
        drafter.norm.weight.mul_(6)  # sure of itself, and so far from the target
    return target, drafter


PROMPT = [1, 4, 2]


def _exact(target, setting, length):
    def next_distribution(prefix):
        with torch.no_grad():
            ids = torch.tensor([[*PROMPT, *prefix]])
            logits = target.model(ids, use_cache=False).logits[0, -1]
        return filtered(logits, setting.temperature, setting.top_k, setting.top_p)

    return joint(next_distribution, V, length)


def _settings(setting):
    return {
        "temperature": setting.temperature,
        "top_k": setting.top_k,
        "top_p": setting.top_p,
    }


def _decoded(tiny, setting, num_draws, length):
    target, drafter = tiny
    generator = torch.Generator().manual_seed(11)
    proposer = DrafterProposer(drafter, target.ends)
    settings = {"max_new_tokens": length, "generator": generator, **_settings(setting)}
    runs = [speculate(target, proposer, PROMPT, **settings) for _ in range(num_draws)]
    return runs, Counter(run.token_ids for run in runs)


@pytest.mark.parametrize("setting", [SETTINGS["plain"], SETTINGS["both"]], ids=["plain", "both"])
def test_decoding_with_a_drafter_has_the_targets_joint_distribution(tiny, setting):
    # The whole loop with caches: a bonus token, then a block of two drafts.
    runs, counts = _decoded(tiny, setting, 250, 3)
    assert chi_square_p_value(counts, _exact(tiny[0], setting, 3), len(runs)) > FALSE_ALARM
    accepted = {run.num_accepted[0] for run in runs}
    assert accepted == {0, 1}  # of two left tokens one is drafted


def test_decoding_with_a_wrong_rule_is_seen_by_the_same_test(tiny, monkeypatch):
    # Power of the test above, with the rule that believes every draft.
    loop = importlib.import_module("lengthwise.dflash.decoding.speculate")
    monkeypatch.setattr(loop, "verify_sampled", _keeps_all)
    runs, counts = _decoded(tiny, SETTINGS["plain"], 250, 3)
    exact = _exact(tiny[0], SETTINGS["plain"], 3)
    assert chi_square_p_value(counts, exact, len(runs)) < FALSE_ALARM


def test_plain_sampling_has_the_targets_joint_distribution(tiny):
    # What sampled drafting is compared with must be right itself.
    target, _ = tiny
    setting = SETTINGS["top-p"]
    generator = torch.Generator().manual_seed(2)
    counts = Counter(
        generate(
            target, PROMPT, max_new_tokens=2, generator=generator, **_settings(setting)
        ).token_ids
        for _ in range(300)
    )
    assert chi_square_p_value(counts, _exact(target, setting, 2), 300) > FALSE_ALARM


def test_one_seed_gives_one_output(tiny):
    # All chance comes from the generator: nothing else is drawn from, not even torch's own.
    target, drafter = tiny
    before = torch.random.get_rng_state()
    outputs = {
        speculate(
            target,
            drafter,
            PROMPT,
            max_new_tokens=12,
            temperature=1.3,
            generator=torch.Generator().manual_seed(7),
        ).token_ids
        for _ in range(3)
    }
    assert len(outputs) == 1
    assert torch.equal(torch.random.get_rng_state(), before)
    assert rules.GREEDY.greedy
