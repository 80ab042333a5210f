"""Finding the parts of a model by structure, and saying what is missing."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from transformers import OPTConfig, OPTForCausalLM, T5Config, T5ForConditionalGeneration

from lengthwise.dflash.target import Target, find_architecture
from lengthwise.errors import ModelError
from support.dflash_models import HIDDEN, VOCAB, build, tiny_llama, tiny_qwen35_vision


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(8, 8)

    def forward(self, hidden_states):
        return (hidden_states.cumsum(1) + self.mix(hidden_states), None)


class HomeMade(nn.Module):
    """A causal language model that transformers does not know, with names of its own."""

    def __init__(self, *, depth: int = 3, width: int = 8) -> None:
        super().__init__()
        self.config = SimpleNamespace(num_hidden_layers=3, hidden_size=width)
        self.trunk = nn.Module()
        self.trunk.words = nn.Embedding(11, 8)
        self.trunk.gates = nn.ModuleList(nn.Linear(1, 1) for _ in range(3))
        self.trunk.stack = nn.Module()
        self.trunk.stack.blocks = nn.ModuleList(Block() for _ in range(depth))
        self.trunk.forward = self.run
        self.out = nn.Linear(8, 11)

    def run(self, input_ids, attention_mask):
        states = self.trunk.words(input_ids)
        for block in self.trunk.stack.blocks:
            states = block(states)[0]
        return states

    def get_decoder(self):
        return self.trunk

    def get_input_embeddings(self):
        return self.trunk.words

    def get_output_embeddings(self):
        return self.out


def test_a_model_that_no_list_of_names_knows():
    # Layers give tuples, the decoder takes no use_cache, no name is the usual one.
    model = HomeMade()
    model.trunk.gates = nn.ModuleList()  # the only list of three is then a level deeper
    ids = torch.tensor([[1, 2, 3], [4, 5, 6]])
    features = Target(model).features(ids, None, (0, 2))
    states = [model.trunk.words(ids)]
    for block in model.trunk.stack.blocks:
        states.append(states[-1].cumsum(1) + block.mix(states[-1]))
    torch.testing.assert_close(features, torch.cat([states[1], states[3]], dim=-1))


def test_of_two_lists_of_as_many_modules_the_larger_one_is_the_layers():
    model = tiny_llama(num_layers=3)
    model.model.gates = nn.ModuleList(nn.Linear(1, 1) for _ in range(3))
    assert find_architecture(model).layers is model.model.layers


def test_a_model_with_a_vision_tower_is_taken_by_its_text_part():
    # The tower has as many blocks in its ModuleList as asked of the text here: 2.
    model = tiny_qwen35_vision(num_layers=2)
    target = Target(model)
    assert target.config is model.config.text_config
    assert target.decoder is model.model.language_model
    assert target.features(torch.tensor([[1, 2]]), None, (1,)).shape == (1, 2, HIDDEN)


def test_a_decoder_that_no_method_gives_is_the_child_with_the_embeddings():
    # Llama 4, text only: get_decoder() and base_model both give the model itself.
    model = HomeMade()
    model.trunk.gates = nn.ModuleList()
    model.get_decoder = lambda: model
    assert Target(model).decoder is model.trunk


def no_decoder(model: HomeMade) -> None:
    model.get_decoder = lambda: None
    model.base_model = model
    model.get_input_embeddings = lambda: None


def broken(change) -> HomeMade:
    model = HomeMade()
    change(model)
    return model


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda m: delattr(m, "config"), "HomeMade has no .config"),
        (lambda m: delattr(m.config, "hidden_size"), "has no hidden_size"),
        (no_decoder, r"get_decoder\(\): NoneType, base_model: HomeMade, the child .*: NoneType"),
        (
            lambda m: setattr(m.config, "num_hidden_layers", 7),
            r"num_hidden_layers = 7 layers, and found gates \(3\), stack.blocks \(3\)",
        ),
        (lambda m: setattr(m, "get_input_embeddings", lambda: None), "found NoneType"),
        (lambda m: setattr(m, "get_output_embeddings", lambda: None), "load it as a causal"),
        (
            lambda m: setattr(m.config, "hidden_size", 16),
            r"hidden_size = 16\); Embedding of HomeMade has \(11, 8\)",
        ),
        (lambda m: setattr(m, "out", nn.Identity()), "Identity of HomeMade has no weight"),
    ],
)
def test_a_missing_part_is_named_with_what_was_found(change, message):
    with pytest.raises(ModelError, match=message):
        Target(broken(change))


def test_a_quantised_head_is_refused():
    model = HomeMade()
    model.out.weight = nn.Parameter(torch.zeros(11, 8, dtype=torch.int8), requires_grad=False)
    with pytest.raises(ModelError, match=r"stored as torch.int8.*without quantising"):
        Target(model)


def test_an_encoder_decoder_is_refused():
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2}
    model = build(T5ForConditionalGeneration, T5Config(vocab_size=VOCAB, **sizes))
    with pytest.raises(ModelError, match="is an encoder-decoder"):
        Target(model)


def test_embeddings_narrower_than_the_states_are_refused():
    # OPT-350m projects up behind its embeddings and down before its head: nothing to share.
    config = OPTConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        word_embed_proj_dim=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=32,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    with pytest.raises(ModelError, match=r"hidden_size = 32\); Embedding of .* has \(96, 16\)"):
        Target(build(OPTForCausalLM, config))
