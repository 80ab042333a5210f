"""Embedding and head that a drafter shares with its target."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import PhiConfig, PhiForCausalLM

from lengthwise.dflash.target import Target
from lengthwise.errors import DataError
from support.dflash_models import (
    FAMILIES,
    HIDDEN,
    VOCAB,
    build,
    tiny_gemma3,
    tiny_llama,
    tiny_qwen2,
)

torch.set_num_threads(1)

IDS = torch.tensor([[3, 14, 15, 92, 6]])


def tiny_phi():
    """Phi: its head has a bias."""
    config = PhiConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        initializer_range=0.2,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = build(PhiForCausalLM, config)
    torch.nn.init.normal_(model.lm_head.bias, generator=torch.Generator().manual_seed(1))
    return model


def final_states_and_logits(model):
    """What goes into the model's own head, and the logits that the model gives."""
    kept = []
    handle = model.get_output_embeddings().register_forward_pre_hook(
        lambda module, args: kept.append(args[0])
    )
    with torch.no_grad():
        logits = model(input_ids=IDS).logits
    handle.remove()
    return kept[0], logits


@pytest.mark.parametrize("family", FAMILIES)
def test_the_shared_head_gives_the_targets_choices(family):
    # Gemma 2 caps its logits afterwards: another value, the same order.
    model = FAMILIES[family]()
    hidden, logits = final_states_and_logits(model)
    ours = Target(model).ends.logits(hidden)
    assert torch.equal(ours.argsort(-1), logits.argsort(-1))
    if family != "gemma2":
        torch.testing.assert_close(ours, logits)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_shared_embedding_is_what_enters_the_first_layer(family):
    # Oracle: the input that the decoder itself hands to its first layer. GPT-2 adds learned
    # positions to it, which belong to the decoder, not to the token.
    model = FAMILIES[family]()
    target = Target(model)
    entered = []
    layer = next(m for m in target.decoder.modules() if isinstance(m, torch.nn.ModuleList))[0]
    layer.register_forward_pre_hook(
        lambda module, args, kwargs: entered.append(args[0] if args else kwargs["hidden_states"]),
        with_kwargs=True,
    )
    target.features(IDS, None, (0,))
    expected = entered[0]
    if family == "gpt2":
        expected = expected - model.transformer.wpe.weight[: IDS.shape[1]]
    torch.testing.assert_close(target.ends.embed(IDS), expected)


def test_tied_and_untied_heads():
    # B45: a tied head is the embedding table itself; an untied one has values of its own.
    tied = Target(tiny_qwen2()).ends
    assert tied.tied
    assert tied.weight is tied.embeddings.weight
    untied = Target(tiny_llama()).ends
    assert not untied.tied
    assert not torch.allclose(untied.weight, untied.embeddings.weight)


def test_a_bias_of_the_head_counts():
    model = tiny_phi()
    hidden, logits = final_states_and_logits(model)
    ends = Target(model).ends
    torch.testing.assert_close(ends.logits(hidden), logits)
    torch.testing.assert_close(hidden @ ends.weight.T + ends.bias, logits)
    assert Target(tiny_llama()).ends.bias is None


def test_scaled_embeddings_keep_their_scale():
    ends = Target(tiny_gemma3()).ends
    expected = ends.embeddings.weight[IDS] * math.sqrt(HIDDEN)
    torch.testing.assert_close(ends.embed(IDS), expected)
    torch.testing.assert_close(ends.copy_to("cpu").embed(IDS), expected)


@pytest.mark.parametrize("make", [tiny_qwen2, tiny_llama, tiny_phi])
def test_a_copy_stands_alone(make):
    target = Target(make())
    ends = target.ends.copy_to("cpu")
    hidden = torch.randn(2, HIDDEN, generator=torch.Generator().manual_seed(0))
    expected = target.ends.embed(IDS).clone(), target.ends.logits(hidden).clone()
    assert ends.tied is target.ends.tied
    assert not any(p.requires_grad for p in ends.parameters())
    with torch.no_grad():
        for parameter in target.model.parameters():
            parameter.zero_()
    torch.testing.assert_close((ends.embed(IDS), ends.logits(hidden)), expected)


def test_a_copy_moves_and_the_target_stays():
    # "meta" is a device that every machine has; it holds shapes and no values.
    target = Target(tiny_qwen2())
    ends = target.ends.copy_to("meta", torch.bfloat16)
    assert ends.weight.device.type == "meta"
    assert ends.weight.dtype == torch.bfloat16
    assert ends.tied
    assert target.device.type == "cpu"
    assert target.dtype == torch.float32


def test_gradients_flow_through_the_head_and_stop_at_its_weights():
    ends = Target(tiny_llama()).ends
    hidden = torch.randn(3, HIDDEN, requires_grad=True)
    ends(hidden)[:, 5].sum().backward()
    torch.testing.assert_close(hidden.grad, ends.weight[5].expand(3, -1))
    assert ends.weight.grad is None
    assert not ends.embed(IDS).requires_grad


def test_more_rows_than_the_config_says_are_usable():
    # Tables are padded for speed, and grow by resizing; the rows decide, not config.vocab_size.
    model = tiny_llama()
    model.resize_token_embeddings(VOCAB + 32)
    model.config.vocab_size = VOCAB
    target = Target(model)
    assert target.vocab_size == target.ends.num_embeddings == VOCAB + 32
    beyond = torch.tensor([[VOCAB + 31]])
    assert target.ends.embed(beyond).shape == (1, 1, HIDDEN)
    assert target.features(beyond, None, (0,)).shape == (1, 1, HIDDEN)
    with pytest.raises(DataError, match=r"mask: token ids must lie in \[0, 128\).*found 128"):
        target.ends.check_ids(beyond + 1, "mask")
