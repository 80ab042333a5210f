"""The drafter: what its outputs depend on, training against drafting, and the official package."""

from __future__ import annotations

import dataclasses
import pickle
from functools import cache
from typing import Any

import pytest
import torch
import transformers
from dflash.model import DFlashDraftModel, _crop_to, _make_cache

from lengthwise.dflash.attention import BlockAttention
from lengthwise.dflash.config import DrafterConfig
from lengthwise.dflash.drafter import Drafter, init_std
from lengthwise.errors import ModelError
from support.dflash_attention import DenseAttention, anchors_at, lay_out

HIDDEN, BLOCK, WINDOW = 32, 4, 6
FEATURES = 2 * HIDDEN

LAYERS = {
    "full": ("full_attention",) * 3,
    "sliding": ("sliding_attention",) * 3,
    "mixed": ("sliding_attention", "full_attention", "sliding_attention"),
}


def config_of(layers: str = "full", **changes: Any) -> DrafterConfig:
    fields: dict[str, Any] = {
        "hidden_size": HIDDEN,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "intermediate_size": 48,
        "vocab_size": 96,
        "block_size": BLOCK,
        "mask_token_id": 95,
        "target_layer_ids": (1, 3),
        "num_target_layers": 6,
        "layer_types": LAYERS[layers],
        "sliding_window": WINDOW,
    }
    return DrafterConfig(**{**fields, **changes})


@cache
def drafter_of(layers: str = "full") -> Drafter:
    """A drafter with wide random weights, norms included, so that every weight shows."""
    return widened(Drafter(config_of(layers)))


def widened(drafter: Drafter) -> Drafter:
    generator = torch.Generator().manual_seed(5)
    for name, weight in drafter.named_parameters():
        drawn = torch.randn(weight.shape, generator=generator)
        weight.data = 1 + 0.3 * drawn if "norm" in name else 0.3 * drawn
    return drafter


def embeddings_for(rows: int, blocks: int, seed: int = 11) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, blocks * BLOCK, HIDDEN, generator=generator)


PADDED = lay_out([[12], [9]], 12, FEATURES), anchors_at([[2, 5, 7, 11], [0, 4, 8]], 1)
PACKED = lay_out([[6, 7], [3, 9]], 13, FEATURES), anchors_at([[2, 4, 8, 11], [1, 2, 3, 10]])
BATCHES = {"padded": PADDED, "packed": PACKED}


def test_names_and_shapes_are_those_of_the_published_format() -> None:
    """3 + 11 a layer; the official model is made of the same, and loads them strictly below."""
    drafter = Drafter(config_of())
    shapes = {name: tuple(weight.shape) for name, weight in drafter.state_dict().items()}
    expected = {"fc.weight": (32, 64), "hidden_norm.weight": (32,), "norm.weight": (32,)}
    for i in range(3):
        expected |= {
            f"layers.{i}.input_layernorm.weight": (32,),
            f"layers.{i}.post_attention_layernorm.weight": (32,),
            f"layers.{i}.self_attn.q_proj.weight": (64, 32),
            f"layers.{i}.self_attn.k_proj.weight": (32, 32),
            f"layers.{i}.self_attn.v_proj.weight": (32, 32),
            f"layers.{i}.self_attn.o_proj.weight": (32, 64),
            f"layers.{i}.self_attn.q_norm.weight": (16,),
            f"layers.{i}.self_attn.k_norm.weight": (16,),
            f"layers.{i}.mlp.gate_proj.weight": (48, 32),
            f"layers.{i}.mlp.up_proj.weight": (48, 32),
            f"layers.{i}.mlp.down_proj.weight": (32, 48),
        }
    assert shapes == expected
    biases = set(Drafter(config_of(attention_bias=True)).state_dict()) - set(expected)
    assert len(biases) == 3 * 4
    assert all(name.endswith("proj.bias") for name in biases)


def test_first_weights_are_narrow_and_follow_the_seed_alone() -> None:
    """Standard deviation 1 / sqrt(32) within sampling error, norms 1; no global state is moved."""
    before = torch.random.get_rng_state()
    first, same, other = (Drafter(config_of(), seed=seed) for seed in (3, 3, 4))
    assert torch.equal(before, torch.random.get_rng_state())
    drawn = torch.cat(
        [w.detach().flatten() for n, w in first.named_parameters() if "norm" not in n]
    )
    assert abs(float(drawn.std()) - 32**-0.5) < 0.005
    assert abs(float(drawn.mean())) < 0.005
    assert all(bool((w == 1).all()) for n, w in first.named_parameters() if "norm" in n)
    assert all(map(torch.equal, first.state_dict().values(), same.state_dict().values()))
    assert not torch.equal(first.fc.weight, other.fc.weight)


@pytest.mark.parametrize("batch_kind", BATCHES)
@pytest.mark.parametrize("layers", LAYERS)
def test_all_blocks_at_once_equal_a_dense_mask_of_the_four_conditions(
    layers: str, batch_kind: str
) -> None:
    """The same weights with the oracle's attention, in several layers one after another."""
    batch, anchors = BATCHES[batch_kind]
    drafter = drafter_of(layers)
    embeddings = embeddings_for(*anchors.index.shape)
    with torch.no_grad():
        attention = BlockAttention(batch, anchors, drafter.config)
        found = drafter(embeddings, batch.features, attention)
        dense = DenseAttention(batch, anchors, BLOCK, WINDOW)
        expected = drafter(embeddings, batch.features, dense)
    assert found.isfinite().all()
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def visible(batch, anchors, row: int, block: int) -> torch.Tensor:
    """Columns that may decide the block: (R, S), bool; sliding layers see some of them."""
    columns = torch.zeros_like(batch.loss_mask)
    if anchors.keep[row, block]:
        anchor = anchors.index[row, block]
        same = batch.document_ids[row] == batch.document_ids[row, anchor]
        columns[row] = same & (torch.arange(len(same)) < anchor)
    return columns


@pytest.mark.parametrize("batch_kind", BATCHES)
@pytest.mark.parametrize("layers", ["full", "mixed"])
def test_features_from_the_anchor_on_change_nothing_of_its_block(
    layers: str, batch_kind: str
) -> None:
    """At inference the anchor's features do not exist yet (B43): no value, no gradient may come
    from them, from padding or from another document; and each seen column must have its say."""
    batch, anchors = BATCHES[batch_kind]
    drafter = drafter_of(layers)
    embeddings = embeddings_for(*anchors.index.shape)
    attention = BlockAttention(batch, anchors, drafter.config)
    features = batch.features.clone().requires_grad_()
    out = drafter(embeddings, features, attention).unflatten(1, (-1, BLOCK))
    for row in range(len(out)):
        for block in range(out.shape[1]):
            allowed = visible(batch, anchors, row, block)
            weights = torch.linspace(-1, 2, HIDDEN)
            (gradient,) = torch.autograd.grad(
                (out[row, block] * weights).sum(), features, retain_graph=True
            )
            assert bool((gradient[~allowed] == 0).all()), (row, block)
            if layers == "full":
                assert bool((gradient[allowed].abs().amax(-1) > 0).all()), (row, block)
            with torch.no_grad():
                moved = torch.where(allowed[..., None], features, features + 7)
                again = drafter(embeddings, moved, attention).unflatten(1, (-1, BLOCK))
            torch.testing.assert_close(again[row, block], out[row, block], rtol=0, atol=0)


@pytest.mark.parametrize("batch_kind", BATCHES)
def test_a_block_changes_no_other_block(batch_kind: str) -> None:
    """Blocks overlap in the text, but none sees another (B43); kept or not."""
    batch, anchors = BATCHES[batch_kind]
    drafter = drafter_of()
    embeddings = embeddings_for(*anchors.index.shape)
    attention = BlockAttention(batch, anchors, drafter.config)
    with torch.no_grad():
        out = drafter(embeddings, batch.features, attention).unflatten(1, (-1, BLOCK))
        for row in range(len(out)):
            for block in range(out.shape[1]):
                moved = embeddings.clone().unflatten(1, (-1, BLOCK))
                moved[row, block, 1] += 3
                again = drafter(moved.flatten(1, 2), batch.features, attention)
                changed = (again.unflatten(1, (-1, BLOCK)) != out).flatten(2).any(-1)
                assert changed.nonzero().tolist() == [[row, block]]


def test_a_batch_without_a_kept_block_still_reaches_every_weight() -> None:
    """Ranks that add gradients wait for each weight's (B42): zeros are fine, none at all is not."""
    drafter = widened(Drafter(config_of()))
    batch, anchors = lay_out([[5], [3]], 5, FEATURES), anchors_at([[], []], 2)
    attention = BlockAttention(batch, anchors, drafter.config)
    out = drafter(embeddings_for(2, 2), batch.features, attention)
    assert out.isfinite().all()
    (out * 0).sum().backward()
    gradients = {name: weight.grad for name, weight in drafter.named_parameters()}
    assert [name for name, gradient in gradients.items() if gradient is None] == []
    assert all(not gradient.any() for gradient in gradients.values())


@pytest.mark.parametrize("layers", LAYERS)
def test_drafting_equals_training_at_every_anchor(layers: str) -> None:
    """Each document of both batches alone, cached and drafted, against the block in its row."""
    drafter = drafter_of(layers)
    compared = 0
    for rows in ([[12], [9]], [[6, 1, 7], [3, 9]]):
        columns = [list(range(sum(row))) for row in rows]
        batch, anchors = lay_out(rows, 15, FEATURES), anchors_at(columns)
        embeddings = embeddings_for(*anchors.index.shape)
        with torch.no_grad():
            attention = BlockAttention(batch, anchors, drafter.config)
            trained = drafter(embeddings, batch.features, attention).unflatten(1, (-1, BLOCK))
        blocks = embeddings.unflatten(1, (-1, BLOCK))
        for row, anchored in enumerate(columns):
            for block, anchor in enumerate(anchored):
                start = anchor - int(batch.position_ids[row, anchor])
                text = drafter.new_cache()
                drafter.append_context(batch.features[row : row + 1, start:anchor], text)
                assert text.length == anchor - start
                drafted = drafter.draft(blocks[row : row + 1, block], text)
                torch.testing.assert_close(drafted[0], trained[row, block], rtol=0, atol=1e-5)
                compared += 1
    assert compared == 12 + 9 + 14 + 12


@pytest.mark.parametrize("layers", LAYERS)
def test_context_in_pieces_and_after_a_crop_drafts_the_same(layers: str) -> None:
    """As decoding has it: some tokens a round, wrong ones taken back, and drafts in between."""
    drafter = drafter_of(layers)
    features = lay_out([[90]], None, FEATURES).features
    block = embeddings_for(1, 1)
    whole = drafter.new_cache()
    drafter.append_context(features, whole)
    expected = drafter.draft(block, whole)
    pieces = drafter.new_cache()
    for start, stop in ((0, 1), (1, 2), (2, 50), (50, 70)):
        drafter.append_context(features[:, start:stop], pieces)
        drafter.draft(block, pieces)
    drafter.append_context(torch.ones(1, 9, FEATURES), pieces)
    pieces.crop(64)
    drafter.append_context(features[:, 64:], pieces)
    assert pieces.length == 90
    torch.testing.assert_close(drafter.draft(block, pieces), expected, rtol=0, atol=1e-5)


def test_a_draft_of_fewer_tokens_is_allowed_and_leaves_the_cache() -> None:
    """Near the end of a text less than a block is wanted; the cache holds context only."""
    drafter = drafter_of()
    text = drafter.new_cache()
    drafter.append_context(lay_out([[7]], None, FEATURES).features, text)
    assert drafter.draft(embeddings_for(1, 1)[:, :2], text).shape == (1, 2, HIDDEN)
    assert text.length == 7


def official_model(config: DrafterConfig) -> DFlashDraftModel:
    """The published class, made as from a published config.json."""
    rope = dict(config.rope_parameters)
    theta = rope.pop("rope_theta")
    model = DFlashDraftModel(
        transformers.Qwen3Config(
            hidden_size=config.hidden_size,
            num_hidden_layers=config.num_hidden_layers,
            num_attention_heads=config.num_attention_heads,
            num_key_value_heads=config.num_key_value_heads,
            head_dim=config.head_dim,
            intermediate_size=config.intermediate_size,
            vocab_size=config.vocab_size,
            rms_norm_eps=config.rms_norm_eps,
            attention_bias=config.attention_bias,
            rope_theta=theta,
            rope_scaling=None if rope["rope_type"] == "default" else rope,
            max_position_embeddings=config.max_position_embeddings,
            layer_types=list(config.layer_types),
            sliding_window=config.sliding_window,
            use_sliding_window="sliding_attention" in config.layer_types,
            num_target_layers=config.num_target_layers,
            block_size=config.block_size,
            dflash_config={
                "mask_token_id": config.mask_token_id,
                "target_layer_ids": list(config.target_layer_ids),
            },
        )
    )
    return model.eval()


YARN = {
    "rope_type": "yarn",
    "rope_theta": 1e6,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5e5,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.mark.parametrize(
    ("layers", "changes"),
    [
        *((layers, {}) for layers in LAYERS),
        ("full", {"rope_parameters": YARN, "max_position_embeddings": 256}),
        ("full", {"rope_parameters": LLAMA3, "max_position_embeddings": 512}),
        ("full", {"attention_bias": True, "rms_norm_eps": 1e-3}),
    ],
)
def test_hidden_states_equal_the_official_models(layers: str, changes: dict[str, Any]) -> None:
    """Serving engines run that model, so its states, not ours, are what weights are trained for."""
    drafter = widened(Drafter(config_of(layers, **changes)))
    official = official_model(drafter.config)
    loaded = official.load_state_dict(drafter.state_dict(), strict=True)
    assert not loaded.missing_keys
    assert not loaded.unexpected_keys
    assert official.target_layer_ids == list(drafter.config.target_layer_ids)
    features = lay_out([[30]], None, FEATURES).features
    block = embeddings_for(1, 1)
    for past in (0, 1, 5, 6, 30):
        text = drafter.new_cache()
        drafter.append_context(features[:, :past], text)
        with torch.no_grad():
            expected = official(
                position_ids=torch.arange(past + BLOCK)[None],
                noise_embedding=block,
                target_hidden=features[:, :past],
            )
        torch.testing.assert_close(drafter.draft(block, text), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("layers", LAYERS)
def test_rounds_of_drafting_equal_the_official_models_with_its_cache(layers: str) -> None:
    """Its own loop: features of some tokens and the block in one call, then its cache cropped."""
    drafter = drafter_of(layers)
    official = official_model(drafter.config)
    official.load_state_dict(drafter.state_dict(), strict=True)
    features = lay_out([[40]], None, FEATURES).features
    text, kept, start = drafter.new_cache(), _make_cache(official.config), 0
    for round_, stop in enumerate((9, 10, 14, 15, 29, 40)):
        block = embeddings_for(1, 1, seed=round_)
        drafter.append_context(features[:, start:stop], text)
        with torch.no_grad():
            expected = official(
                position_ids=torch.arange(start, stop + BLOCK)[None],
                noise_embedding=block,
                target_hidden=features[:, start:stop],
                past_key_values=kept,
                use_cache=True,
            )
        _crop_to(kept, stop)
        torch.testing.assert_close(drafter.draft(block, text), expected, rtol=0, atol=1e-5)
        start = stop


@pytest.mark.parametrize("changes", [{}, {"head_dim": 8, "num_key_value_heads": 4}])
def test_recomputing_layers_gives_the_same_gradients(changes: dict[str, Any]) -> None:
    """Checkpointing trades time for memory, nothing else; it is off in evaluation."""
    drafter = widened(Drafter(config_of("mixed", **changes)))
    batch, anchors = PACKED
    attention = BlockAttention(batch, anchors, drafter.config)
    weights = torch.linspace(-1, 2, HIDDEN)
    gradients, calls = [], []
    drafter.layers[1].register_forward_pre_hook(lambda *_: calls.append(1))
    for recompute in (False, True):
        drafter.zero_grad()
        drafter.gradient_checkpointing = recompute
        out = drafter(embeddings_for(2, 4), batch.features, attention)
        (out * weights).sum().backward()
        gradients.append([weight.grad.clone() for weight in drafter.parameters()])
    assert len(calls) == 1 + 2
    for plain, recomputed in zip(*gradients, strict=True):
        assert plain.abs().max() > 0
        torch.testing.assert_close(recomputed, plain, rtol=0, atol=0)
    drafter.eval()
    drafter(embeddings_for(2, 4), batch.features, attention).sum().backward()
    assert len(calls) == 1 + 2 + 1


def test_autocast_computes_in_bf16_and_keeps_states_in_fp32() -> None:
    """Features and embeddings come in bf16; states between layers are the weights' fp32."""
    drafter = drafter_of()
    batch, anchors = PACKED
    attention = BlockAttention(batch, anchors, drafter.config)
    embeddings = embeddings_for(2, 4)
    with torch.no_grad():
        exact = drafter(embeddings, batch.features, attention)
        with torch.autocast("cpu", torch.bfloat16):
            half = drafter(embeddings.bfloat16(), batch.features.bfloat16(), attention)
    assert half.dtype == torch.float32
    error = (half - exact).abs().mean() / exact.abs().mean()
    assert 1e-4 < float(error) < 0.05  # not exact, or nothing ran in bf16


def test_bf16_features_train_fp32_weights_without_autocast() -> None:
    drafter = drafter_of()
    batch, anchors = PACKED
    half = dataclasses.replace(batch, features=batch.features.bfloat16())
    attention = BlockAttention(half, anchors, drafter.config)
    with torch.no_grad():
        found = drafter(embeddings_for(2, 4), half.features, attention)
        expected = drafter(embeddings_for(2, 4), half.features.float(), attention)
    assert torch.equal(found, expected)


def test_a_drafter_cast_to_bf16_keeps_exact_frequencies() -> None:
    """In bf16 a frequency has 8 bits, so position 4,000 would be off by a whole turn."""
    drafter = Drafter(config_of())
    before = drafter.rotary.inverse_frequencies.clone()
    drafter.to(torch.bfloat16)
    assert drafter.dtype == torch.bfloat16
    assert torch.equal(drafter.rotary.inverse_frequencies, before)
    text = drafter.new_cache()
    drafter.append_context(lay_out([[7]], None, FEATURES).features, text)
    assert drafter.draft(embeddings_for(1, 1), text).dtype == torch.bfloat16


@pytest.mark.slow
def test_compiling_ends_after_the_first_few_shapes() -> None:
    """Every batch has other lengths and anchors; code is made for kinds of shapes, not for batches.

    The compiler is called for each piece of new code. It first takes sizes for constants and learns
    with the second batch that they change; from then on it has nothing left to do.
    """
    pieces = []

    def count(module: torch.fx.GraphModule, _inputs: list[torch.Tensor]) -> object:
        pieces.append(module)
        return module.forward

    drafter = drafter_of("mixed")
    compiled = torch.compile(drafter, backend=count, dynamic=True)
    counts = []
    for length in (9, 14, 11, 17, 23, 12, 30, 19):
        batch = lay_out([list(range(length)), list(range(length - 3))], None, FEATURES)
        anchors = anchors_at([[1, 4, length - 4], [0, 2, 5]])
        attention = BlockAttention(batch, anchors, drafter.config, "sdpa")
        with torch.no_grad():
            found = compiled(embeddings_for(2, 3), batch.features, attention)
            expected = drafter(embeddings_for(2, 3), batch.features, attention)
        assert torch.allclose(found, expected, atol=1e-6)
        counts.append(len(pieces))
    assert counts[0] > 0
    assert counts[2:] == [counts[1]] * 6


@pytest.mark.parametrize(("width", "std"), [(64, 0.125), (2_500, 0.02), (5_120, 0.02)])
def test_narrow_drafters_start_from_wider_weights(width: int, std: float) -> None:
    """1 / sqrt(64) is 1/8; from 2,500 on it would be under the 0.02 that recipes use."""
    assert init_std(width) == pytest.approx(std)


def test_features_of_another_width_are_refused_with_the_layers_to_take() -> None:
    text = drafter_of().new_cache()
    with pytest.raises(
        ModelError, match=r"must be 64 wide \(2 taps of hidden_size 32\), got 96; .* \[1, 3\]"
    ):
        drafter_of().append_context(torch.zeros(1, 3, 96), text)


def test_a_drafter_survives_pickling() -> None:
    """Worker processes get it that way."""
    drafter = drafter_of("mixed")
    copy = pickle.loads(pickle.dumps(drafter))
    assert copy.config == drafter.config
    assert all(map(torch.equal, copy.state_dict().values(), drafter.state_dict().values()))
