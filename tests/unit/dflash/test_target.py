"""Features of a target: which states they are, what runs for them, and what is left behind."""

from __future__ import annotations

import inspect
import weakref

import pytest
import torch
from transformers import DynamicCache

from lengthwise.dflash.target import Target
from lengthwise.errors import ConfigError, DataError, ModelError
from support.dflash_models import FAMILIES, HIDDEN, VOCAB, tiny_gpt2, tiny_llama, tiny_qwen3

torch.set_num_threads(1)

FINAL_NORMS = ("norm", "final_layer_norm", "ln_f", "norm_f")


def ids(rows: int, columns: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, VOCAB - 2, (rows, columns), generator=generator)


def hidden_states(model, input_ids):
    with torch.no_grad():
        return model(input_ids=input_ids, output_hidden_states=True, use_cache=False).hidden_states


def count_hooks(model) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


@pytest.mark.parametrize("family", FAMILIES)
def test_layer_id_i_is_the_output_of_decoder_layer_i(family):
    # transformers' own output_hidden_states is the oracle. It stores the input of layer 0 first,
    # so layer i is at i + 1; and in place of the last layer's output it stores the normed one.
    # Mamba 2 stores outputs alone: there layer i is at i. Put the embeddings back for the oracle.
    model = FAMILIES[family]()
    target = Target(model)
    expected = hidden_states(model, ids(2, 11))
    if family == "mamba2":
        expected = (target.ends.embed(ids(2, 11)), *expected)[: target.num_layers] + expected[-1:]
    layer_ids = range(target.num_layers)
    states = target.features(ids(2, 11), None, layer_ids).split(target.hidden_size, dim=-1)
    assert len(states) == target.num_layers == len(expected) - 1
    for layer_id in layer_ids[:-1]:
        torch.testing.assert_close(states[layer_id], expected[layer_id + 1])
        assert not torch.allclose(states[layer_id], expected[layer_id], atol=1e-2)
    norm = next(getattr(target.decoder, n) for n in FINAL_NORMS if hasattr(target.decoder, n))
    torch.testing.assert_close(norm(states[-1]), expected[-1])
    assert not torch.allclose(states[-1], expected[-1], atol=1e-2)


def test_states_stand_in_the_order_of_the_layer_ids():
    target = Target(tiny_llama())
    one = [target.features(ids(1, 5), None, (i,)) for i in range(4)]
    for order in ((2, 0), (0, 2), (3, 1, 2)):
        expected = torch.cat([one[i] for i in order], dim=-1)
        features = target.features(ids(1, 5), None, order)
        assert features.shape == (1, 5, len(order) * HIDDEN)
        assert torch.equal(features, expected)


def test_head_cache_and_layers_above_the_deepest_tap_do_not_run():
    # Logits are (rows, columns, vocabulary), a cache is all keys and values: both would be made
    # to be thrown away. Counted by hooks of the test, set before ours.
    model = tiny_qwen3()
    target = Target(model)
    calls: list[str] = []
    caches: list[object] = []
    model.lm_head.register_forward_hook(lambda *_: calls.append("head"))
    model.model.norm.register_forward_hook(lambda *_: calls.append("norm"))
    for i, layer in enumerate(model.model.layers):
        layer.register_forward_hook(lambda *_, i=i: calls.append(f"layer {i}"))
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: caches.append(kwargs["use_cache"]), with_kwargs=True
    )
    target.features(ids(1, 4), None, (3, 1))
    assert calls == ["layer 0", "layer 1", "layer 2", "layer 3"]
    assert caches == [False]


@pytest.mark.parametrize("family", ["llama", "gpt2", "qwen3-next"])
def test_a_forward_after_features_is_as_if_they_had_never_been_taken(family):
    # The forward pass is left early by an exception; nothing of it may stay in the model.
    model = FAMILIES[family]()
    with torch.no_grad():
        before = model(input_ids=ids(2, 9)).logits
    hooks = count_hooks(model)
    Target(model).features(ids(2, 9, seed=1), None, (0, 2))
    assert count_hooks(model) == hooks
    with torch.no_grad():
        after = model(input_ids=ids(2, 9)).logits
    assert torch.equal(before, after)
    assert len(hidden_states(model, ids(2, 9))) == Target(model).num_layers + 1


def test_hooks_are_gone_after_a_failure_inside_the_forward_pass():
    model = tiny_llama()
    target = Target(model)
    handle = model.model.layers[1].register_forward_pre_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        target.features(ids(1, 4), None, (0, 2))
    handle.remove()
    assert count_hooks(model) == 0
    taps = target.capture((0, 1))
    with pytest.raises(ZeroDivisionError, match=r"^2 hooks"), taps:
        raise ZeroDivisionError(f"{count_hooks(model)} hooks")
    assert count_hooks(model) == 0


def test_the_target_is_frozen_and_its_features_may_enter_a_backward_pass():
    # Tensors of inference_mode cannot be saved for backward; a linear layer saves its input.
    model = tiny_llama(attention_dropout=0.9).train()
    target = Target(model)
    features = target.features(ids(2, 6), None, (1, 2))
    assert not model.training
    assert not any(p.requires_grad for p in model.parameters())
    assert not features.requires_grad
    assert not features.is_inference()
    fuse = torch.nn.Linear(2 * HIDDEN, 3)
    fuse(features).sum().backward()
    expected = features.sum(dim=(0, 1)).expand(3, -1)
    torch.testing.assert_close(fuse.weight.grad, expected)
    assert torch.equal(features, target.features(ids(2, 6), None, (1, 2)))  # no dropout


def test_only_the_tapped_states_outlive_the_forward_pass():
    # The peak is the result and one layer's output: untapped and even tapped outputs are freed,
    # and the result is one tensor without slack.
    model = tiny_qwen3()
    target = Target(model)
    outputs: list[weakref.ref] = []
    alive: list[int] = []

    def watch(module, args, output):
        state = output[0] if isinstance(output, tuple) else output
        alive.append(sum(ref() is not None for ref in outputs))
        outputs.append(weakref.ref(state))

    for layer in model.model.layers:
        layer.register_forward_hook(watch)
    features = target.features(ids(2, 6), None, (0, 1, 4))
    assert features.untyped_storage().nbytes() == 2 * 6 * 3 * HIDDEN * 4
    assert max(alive) <= 1  # only the state that the next layer just took
    assert not any(ref() is not None for ref in outputs)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_features_have_the_type_of_the_target(dtype):
    model = tiny_llama()
    exact = Target(model).features(ids(2, 6), None, (0, 3))
    target = Target(model.to(dtype))
    features = target.features(ids(2, 6), None, (0, 3))
    assert target.dtype == features.dtype == dtype
    torch.testing.assert_close(features.float(), exact, atol=0.2, rtol=0.1)


def test_sizes_of_a_target():
    target = Target(tiny_gpt2(num_layers=3))  # its config calls them n_layer and n_embd
    assert (target.num_layers, target.hidden_size, target.vocab_size) == (3, HIDDEN, VOCAB)
    assert target.device == torch.device("cpu")


@pytest.mark.parametrize("layer_ids", [(), (4,), (-1,), (1, 1)])
def test_layer_ids_that_are_not_there_are_refused(layer_ids):
    with pytest.raises(ConfigError, match=r"distinct ids in \[0, 3\]"):
        Target(tiny_llama()).features(ids(1, 4), None, layer_ids)


@pytest.mark.parametrize("bad", [-1, VOCAB])
def test_an_id_outside_the_vocabulary_is_refused_before_the_device_sees_it(bad):
    row = ids(1, 4)
    row[0, 2] = bad
    with pytest.raises(DataError, match=rf"\[0, {VOCAB}\).*found {bad}$"):
        Target(tiny_llama()).features(row, None, (0,))


def test_capture_has_the_features_of_the_latest_forward_cached_or_not():
    # One pass over all positions is the oracle for a pass in three cached pieces.
    model = tiny_qwen3()
    target = Target(model)
    text = ids(1, 9)
    expected = target.features(text, None, (1, 4))
    names = inspect.signature(model.forward).parameters
    cache = {"cache" if "cache" in names else "past_key_values": DynamicCache()}
    with torch.no_grad(), target.capture((1, 4)) as taps:
        model(input_ids=text[:, :5], use_cache=True, **cache)
        first = taps.features
        torch.testing.assert_close(first, expected[:, :5])
        output = model(input_ids=text[:, 5:8], use_cache=True, **cache)
        torch.testing.assert_close(taps.features, expected[:, 5:8])
        model(input_ids=text[:, 8:], use_cache=True, **cache)
        torch.testing.assert_close(taps.features, expected[:, 8:])
        torch.testing.assert_close(first, expected[:, :5])  # earlier features are not overwritten
    assert output.logits.shape == (1, 3, VOCAB)  # all of the model ran
    assert count_hooks(model) == 0


def test_features_of_a_capture_without_a_forward_are_an_error():
    target = Target(tiny_llama())
    with target.capture((1, 2)) as taps, pytest.raises(ModelError, match=r"layers \[1, 2\]"):
        _ = taps.features


def test_an_output_that_is_no_hidden_state_is_refused_with_its_shape():
    model = tiny_llama()
    model.model.layers[2].register_forward_hook(lambda m, args, out: out[..., :7])
    with pytest.raises(ModelError, match=r"layer 2 \(LlamaDecoderLayer\).*gave \(1, 4, 7\)"):
        Target(model).features(ids(1, 4), None, (0, 2))
