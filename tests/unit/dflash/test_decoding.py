"""Plain and speculative decoding: the same tokens, whatever is proposed."""

import functools

import pytest
import torch

from lengthwise.dflash.decoding import DrafterProposer, generate, greedy, speculate
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.target import Target
from lengthwise.errors import ConfigError, DataError, ModelError
from support.dflash_decoding import (
    Scripted,
    adversary,
    cacheless_greedy,
    hf_greedy,
    oracle,
    partly_right,
    random_proposer,
)
from support.dflash_models import (
    FAMILIES,
    RECURRENT,
    VOCAB,
    tiny_drafter_config,
    tiny_gpt2,
    tiny_llama,
)

BLOCK = 4
NEW = 13
PROMPTS = ([5], [7, 3, 11, 2, 40, 8, 9, 1, 30, 21, 17])
KINDS_OF_CACHE = ["gemma3", "gpt2", "llama", "mamba2", "qwen3-next"]


@pytest.fixture(scope="module")
def targets():
    return {name: Target(make()) for name, make in FAMILIES.items()}


@pytest.fixture(scope="module")
def llama(targets):
    return targets["llama"]


def _drafter(target, **settings):
    return Drafter(tiny_drafter_config(target.model, **settings), seed=1)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("prompt", PROMPTS, ids=len)
def test_plain_decoding_is_hugging_face_generate(targets, name, prompt):
    # generate shares no code with ours but the model itself.
    target = targets[name]
    assert greedy(target, prompt, NEW).token_ids == hf_greedy(target.model, prompt, NEW)


@pytest.mark.parametrize("name", ["llama", "gemma3"])
def test_plain_decoding_is_the_definition_without_any_cache(targets, name):
    # The largest logit after the whole text, token by token: what greedy decoding means.
    target = targets[name]
    assert greedy(target, PROMPTS[1], 12).token_ids == cacheless_greedy(
        target.model, PROMPTS[1], 12
    )


@pytest.mark.parametrize("name", FAMILIES)
def test_no_proposer_changes_a_token(targets, name):
    # Untrained, random, always wrong and partly right: the target decides each token, so all
    # outputs are the plain one.
    target, prompt = targets[name], PROMPTS[1]
    truth = greedy(target, prompt, NEW).token_ids
    proposers = {
        "untrained": _drafter(target),
        "random": random_proposer(BLOCK, VOCAB),
        "wrong": adversary(truth, len(prompt), BLOCK, VOCAB),
        "partly right": partly_right(truth, len(prompt), BLOCK, VOCAB),
    }
    outputs = {
        kind: speculate(target, proposer, prompt, max_new_tokens=NEW)
        for kind, proposer in proposers.items()
    }
    changed = [kind for kind, found in outputs.items() if found.token_ids != truth]
    assert changed == []
    assert set(outputs["wrong"].num_accepted) == {0}
    assert len(set(outputs["partly right"].num_accepted)) > 1


@pytest.mark.parametrize("name", KINDS_OF_CACHE)
def test_a_prompt_of_one_token_is_decoded_like_any_other(targets, name):
    # The first context has one position, and the first features one row.
    target = targets[name]
    truth = greedy(target, [5], NEW).token_ids
    for proposer in (_drafter(target), partly_right(truth, 1, BLOCK, VOCAB)):
        assert speculate(target, proposer, [5], max_new_tokens=NEW).token_ids == truth


def test_hiding_the_context_from_the_drafter_changes_no_token(llama):
    # It changes what is drafted, which the target then decides on.
    drafter = DrafterProposer(_drafter(llama), llama.ends, zero_context=True)
    found = speculate(llama, drafter, PROMPTS[1], max_new_tokens=NEW)
    assert found.token_ids == greedy(llama, PROMPTS[1], NEW).token_ids


@pytest.mark.parametrize("name", FAMILIES)
def test_who_offers_the_truth_gets_a_whole_block_each_time(targets, name):
    # 12 tokens after the first are three blocks of four; one place off anywhere, and some token
    # would be turned down.
    target = targets[name]
    truth = greedy(target, PROMPTS[1], NEW).token_ids
    found = speculate(target, oracle(truth, len(PROMPTS[1]), BLOCK), PROMPTS[1], max_new_tokens=NEW)
    assert found.num_accepted == (BLOCK - 1,) * 3
    assert found.tokens_per_verify == BLOCK
    assert found.num_forwards == 4
    assert found.num_reruns == 0


def test_a_target_that_forgets_its_state_is_refused_with_the_reason(monkeypatch):
    # Model code exists that starts anew when several tokens come at once. Here: the cache is
    # dropped then. Verification would change the output, and plain decoding does not.
    target = Target(FAMILIES["mamba2"]())
    truth = greedy(target, [5, 6], NEW).token_ids
    forward = target.model.forward

    @functools.wraps(forward)
    def forgetful(input_ids, cache=None, **more):
        return forward(input_ids, cache=cache if input_ids.shape[1] == 1 else None, **more)

    monkeypatch.setattr(target.model, "forward", forgetful)
    assert greedy(target, [5, 6], NEW).token_ids == truth
    with pytest.raises(ModelError, match="several tokens at once"):
        speculate(target, random_proposer(BLOCK, VOCAB), [5, 6], max_new_tokens=NEW)


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3.5"])
def test_a_cache_that_is_not_cut_is_found_out(name, monkeypatch):
    # The trial must see it when taking tokens back does nothing, for every way of taking back.
    from lengthwise.dflash.decoding import target_cache

    target = Target(FAMILIES[name]())
    monkeypatch.setattr(target_cache.TargetCache, "keep", lambda self, count: None)
    with pytest.raises(ModelError, match="take tokens back"):
        speculate(target, random_proposer(BLOCK, VOCAB), [5, 6], max_new_tokens=8)


@pytest.mark.parametrize("name", sorted(RECURRENT))
def test_a_target_with_state_runs_accepted_tokens_again_only_where_one_was_refused(targets, name):
    # A block that is taken whole leaves the state right; any other needs one more forward, but
    # for the last, after which nothing comes.
    target = targets[name]
    truth = greedy(target, PROMPTS[1], NEW).token_ids
    proposer = partly_right(truth, len(PROMPTS[1]), BLOCK, VOCAB)
    found = speculate(target, proposer, PROMPTS[1], max_new_tokens=NEW)
    pairs = list(zip(found.num_accepted, found.num_drafted, strict=True))
    refused = sum(accepted < drafted for accepted, drafted in pairs[:-1])
    assert refused > 1
    assert found.num_reruns == refused
    assert found.num_forwards == 1 + found.num_verifications + found.num_reruns


@pytest.mark.parametrize("name", ["gemma2", "gemma3"])
def test_sliding_layers_that_cannot_record_are_copied_instead(name, monkeypatch):
    # As in transformers 4, whose sliding layers throw tokens away and cannot be cut.
    from transformers.cache_utils import DynamicSlidingWindowLayer

    monkeypatch.delattr(DynamicSlidingWindowLayer, "activate_past_recording", raising=False)
    target = Target(FAMILIES[name]())
    truth = greedy(target, PROMPTS[1], NEW).token_ids
    proposer = partly_right(truth, len(PROMPTS[1]), BLOCK, VOCAB)
    found = speculate(target, proposer, PROMPTS[1], max_new_tokens=NEW)
    assert found.token_ids == truth
    assert found.num_reruns > 0


@pytest.mark.parametrize("name", ["llama", "gemma3", "qwen3-next"])
def test_what_a_proposer_observes_are_the_features_of_the_accepted_text(targets, name):
    # Each token once, in order, with the states of an uncached run over the whole text.
    target = targets[name]
    prompt = PROMPTS[1]
    truth = greedy(target, prompt, NEW).token_ids
    proposer = partly_right(truth, len(prompt), BLOCK, VOCAB)
    proposer.layer_ids = (1, 2)
    speculate(target, proposer, prompt, max_new_tokens=NEW)
    text = [*prompt, *truth]
    assert len(proposer.observed) > len(prompt) + BLOCK
    assert proposer.observed == text[: len(proposer.observed)]
    expected = target.features(torch.tensor([proposer.observed]), None, (1, 2))
    torch.testing.assert_close(torch.cat(proposer.features, dim=1), expected, atol=1e-4, rtol=1e-4)


def test_a_sliding_drafter_changes_nothing_either(llama):
    # Causal, windowed layers draft other tokens than full ones; the target still decides.
    settings = {"layer_types": ("sliding_attention", "full_attention"), "sliding_window": 3}
    drafter = _drafter(llama, **settings)
    found = speculate(llama, drafter, PROMPTS[1], max_new_tokens=NEW)
    assert found.token_ids == greedy(llama, PROMPTS[1], NEW).token_ids


@pytest.mark.parametrize("max_new_tokens", range(1, 12))
@pytest.mark.parametrize("block_size", [1, 2, 4, 16])
def test_the_number_of_new_tokens_is_exact(llama, max_new_tokens, block_size):
    # A block is shortened to what is left to emit, down to nothing drafted.
    truth = greedy(llama, PROMPTS[1], 12).token_ids
    proposer = partly_right(truth, len(PROMPTS[1]), block_size, VOCAB, share=0.2)
    found = speculate(llama, proposer, PROMPTS[1], max_new_tokens=max_new_tokens)
    assert found.token_ids == truth[:max_new_tokens]
    assert found.finish_reason == "length"
    assert sum(found.num_accepted) + found.num_verifications + 1 == max_new_tokens
    left = max_new_tokens - 1
    for accepted, drafted in zip(found.num_accepted, found.num_drafted, strict=True):
        assert drafted == min(block_size, left) - 1
        left -= accepted + 1


@pytest.mark.parametrize("place", range(9))
def test_a_stop_token_ends_the_output_wherever_it_stands_in_a_run(llama, place):
    # With the truth offered, runs end at outputs 0, 4, 8: the stop token stands first, within and
    # last. It is emitted, and nothing after it.
    prompt = PROMPTS[1]
    truth = greedy(llama, prompt, NEW).token_ids
    stop = truth[place]
    first = truth.index(stop)
    plain = greedy(llama, prompt, NEW, {stop})
    found = speculate(
        llama, oracle(truth, len(prompt), BLOCK), prompt, max_new_tokens=NEW, stop_token_ids={stop}
    )
    assert found.token_ids == plain.token_ids == truth[: first + 1]
    assert found.token_ids == hf_greedy(llama.model, prompt, NEW, {stop})
    assert found.finish_reason == plain.finish_reason == "stop"
    assert sum(found.num_accepted) + found.num_verifications + 1 == len(found.token_ids)


def test_offered_stop_tokens_that_are_not_accepted_do_not_stop(llama):
    # The adversary offers the stop token at every place; the target never says it.
    truth = greedy(llama, PROMPTS[1], NEW).token_ids
    stop = next(token for token in range(VOCAB) if token not in truth)
    proposer = Scripted(truth, len(PROMPTS[1]), BLOCK, lambda offered, _: [stop] * len(offered))
    found = speculate(llama, proposer, PROMPTS[1], max_new_tokens=NEW, stop_token_ids=[stop])
    assert found.token_ids == truth
    assert found.finish_reason == "length"


@pytest.mark.parametrize(
    "make", [lambda: tiny_gpt2(n_positions=20), lambda: tiny_llama(max_position_embeddings=20)]
)
def test_decoding_stops_where_the_context_is_full(make):
    # 20 positions, learned or rotary: a prompt of 11 leaves room for 9.
    target = Target(make())
    plain = greedy(target, PROMPTS[1], NEW)
    found = speculate(target, _drafter(target), PROMPTS[1], max_new_tokens=NEW)
    assert found.token_ids == plain.token_ids
    assert len(found.token_ids) == 20 - len(PROMPTS[1])
    assert found.finish_reason == plain.finish_reason == "context"
    with pytest.raises(DataError, match="20 tokens, and the target's context holds 20"):
        greedy(target, list(range(20)), 1)


def test_tokens_are_told_as_they_come(llama):
    # Joined, the parts are the output; each but the first is one verification's run.
    prompt = PROMPTS[1]
    truth = greedy(llama, prompt, NEW).token_ids
    parts = []
    proposer = partly_right(truth, len(prompt), BLOCK, VOCAB)
    found = speculate(llama, proposer, prompt, max_new_tokens=NEW, on_tokens=parts.append)
    assert [token for part in parts for token in part] == list(truth)
    assert [len(part) - 1 for part in parts[1:]] == list(found.num_accepted)
    plain_parts = []
    generate(llama, prompt, max_new_tokens=3, on_tokens=plain_parts.append)
    assert plain_parts == [[truth[0]], [truth[1]], [truth[2]]]


def test_the_record_counts_the_forwards_of_the_target(llama):
    # Counted from outside, by a hook on the model.
    calls = []
    hook = llama.model.register_forward_hook(lambda *_: calls.append(1))
    try:
        speculate(llama, random_proposer(BLOCK, VOCAB), [3], max_new_tokens=2)  # tries the target
        calls.clear()
        found = speculate(llama, _drafter(llama), PROMPTS[1], max_new_tokens=NEW)
    finally:
        hook.remove()
    assert len(calls) == found.num_forwards == 1 + found.num_verifications


def test_one_drafter_serves_one_sequence_after_the_other(llama):
    # The context of the first prompt must not reach the second: same proposals as when fresh.
    drafter = _drafter(llama)
    used = DrafterProposer(drafter, llama.ends)
    speculate(llama, used, [9, 9, 9, 9], max_new_tokens=9)
    again = speculate(llama, used, PROMPTS[1], max_new_tokens=NEW)
    fresh = speculate(llama, drafter, PROMPTS[1], max_new_tokens=NEW)
    assert again.num_accepted == fresh.num_accepted
    assert again.token_ids == fresh.token_ids


def test_decoding_leaves_gradients_and_hooks_as_they_were(llama):
    # It runs in the midst of training: the drafter must still learn, and no tap may stay behind.
    drafter = _drafter(llama)
    speculate(llama, drafter, PROMPTS[1], max_new_tokens=5)
    layers = llama.model.model.layers
    assert not any(layer._forward_hooks for layer in layers)
    assert all(parameter.requires_grad for parameter in drafter.parameters())
    features = torch.randn(1, 3, drafter.config.feature_size)
    drafter.fuse(features).sum().backward()
    assert drafter.fc.weight.grad is not None


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"prompt_ids": []}, DataError, "at least one token"),
        ({"prompt_ids": [VOCAB]}, DataError, "token ids must lie in"),
        ({"prompt_ids": [-1]}, DataError, "token ids must lie in"),
        ({"max_new_tokens": 0}, ConfigError, "max_new_tokens"),
        ({"temperature": 1.0}, ConfigError, "needs a torch.Generator"),
        ({"temperature": -1.0}, ConfigError, "temperature"),
    ],
)
def test_what_cannot_be_decoded_is_refused(llama, settings, error, words):
    # Both ways of decoding check the same things.
    asked = {"prompt_ids": [1, 2], "max_new_tokens": 4, **settings}
    prompt = asked.pop("prompt_ids")
    with pytest.raises(error, match=words):
        generate(llama, prompt, **asked)
    with pytest.raises(error, match=words):
        speculate(llama, random_proposer(BLOCK, VOCAB), prompt, **asked)


def test_a_drafter_of_another_target_is_refused(llama):
    # Width, taps and mask are what can be told without running it.
    wide = Drafter(tiny_drafter_config(tiny_llama(hidden_size=64)), seed=0)
    deep = Drafter(tiny_drafter_config(tiny_llama(num_layers=9), target_layer_ids=(1, 6)), seed=0)
    large = Drafter(tiny_drafter_config(tiny_llama(vocab_size=200), mask_token_id=150), seed=0)
    for drafter, words in (
        (wide, "hidden_size 64"),
        (deep, "taps layer"),
        (large, "mask_token_id"),
    ):
        with pytest.raises(ModelError, match=words):
            speculate(llama, drafter, [1, 2], max_new_tokens=4)
