"""Loading a target: what comes out, and what is refused with which words."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from lengthwise.dflash.target import Target, load_target, load_target_config, load_tokenizer
from lengthwise.errors import ConfigError, DataError, MissingDependencyError, ModelError
from support.dflash_models import (
    HIDDEN,
    VOCAB,
    build,
    tiny_hybrid,
    tiny_llama,
    tiny_neox,
    tiny_qwen2,
    tiny_qwen35_vision,
)

torch.set_num_threads(1)

IDS = torch.tensor([[3, 14, 15, 92, 6]])


@pytest.mark.parametrize(
    "make", [tiny_llama, tiny_qwen2, tiny_neox, tiny_hybrid, tiny_qwen35_vision]
)
def test_a_saved_model_comes_back_as_the_same_target(make, tmp_path):
    # The published Qwen3.5 checkpoints have a vision tower; only the text part is wanted of them.
    model = make()
    model.save_pretrained(tmp_path)
    expected, loaded = Target(model), load_target(tmp_path)
    layer_ids = range(expected.num_layers)
    assert torch.equal(
        loaded.features(IDS, None, layer_ids), expected.features(IDS, None, layer_ids)
    )
    assert torch.equal(loaded.ends.weight, expected.ends.weight)
    assert loaded.ends.tied is expected.ends.tied
    assert loaded.recurrent is expected.recurrent
    assert not any(p.requires_grad for p in loaded.model.parameters())


def test_dtype_is_that_of_the_files_or_as_asked(tmp_path):
    tiny_llama().to(torch.bfloat16).save_pretrained(tmp_path)
    assert load_target(tmp_path).dtype == torch.bfloat16
    assert load_target(str(tmp_path), dtype="float32").dtype == torch.float32
    assert load_target(tmp_path, dtype=torch.float64).dtype == torch.float64
    with pytest.raises(ConfigError, match=r"dtype must be 'auto' or one of .*'fp8'"):
        load_target(tmp_path, dtype="fp8")


@pytest.mark.parametrize("make", [tiny_llama, tiny_qwen35_vision])
def test_the_configuration_alone_tells_what_the_loaded_target_has(make, tmp_path):
    make().to(torch.bfloat16).save_pretrained(tmp_path)
    target = load_target(tmp_path)
    (tmp_path / "model.safetensors").unlink()  # no weight may be read
    config, dtype = load_target_config(tmp_path)
    assert dtype == target.dtype == torch.bfloat16
    assert load_target_config(tmp_path, dtype="float64")[1] == torch.float64
    for name in ("model_type", "hidden_size", "num_hidden_layers", "vocab_size"):
        assert getattr(config, name) == getattr(target.config, name)


def test_attention_implementation_is_passed_on(tmp_path):
    tiny_llama().save_pretrained(tmp_path)
    target = load_target(tmp_path, attn_implementation="eager")
    assert target.config._attn_implementation == "eager"


@pytest.mark.parametrize("name", ["./no/such", "/no/such", "~/no-such-directory", "a/b/c"])
def test_a_path_that_is_not_there_is_never_asked_of_the_hub(name, monkeypatch):
    def asked(*_, **__):
        raise AssertionError("the hub was asked")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", asked)
    monkeypatch.setattr(transformers.AutoTokenizer, "from_pretrained", asked)
    with pytest.raises(DataError, match="no such directory"):
        load_target(name)
    with pytest.raises(DataError, match="no such directory"):
        load_tokenizer(name)


def test_a_name_that_the_hub_cannot_give_is_a_data_error_with_the_way_out(monkeypatch):
    def offline(*_, **__):
        raise OSError("We couldn't connect to the hub.\nCheckout the documentation.")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", offline)
    with pytest.raises(DataError, match=r"'some/model': We couldn't connect to the hub\. It must"):
        load_target("some/model")


def test_a_directory_without_a_checkpoint_is_a_data_error(tmp_path):
    with pytest.raises(DataError, match="could not load the target"):
        load_target(tmp_path)
    with pytest.raises(DataError, match="could not load the tokenizer"):
        load_tokenizer(tmp_path)
    tiny_llama().config.save_pretrained(tmp_path)  # a config and no weights
    with pytest.raises(DataError, match="could not load the target"):
        load_target(tmp_path)


def test_a_weight_that_the_files_lack_is_an_error_and_no_random_head(tmp_path):
    # B45: transformers only warns, and a random head trains a drafter that is never accepted.
    tiny_llama().save_pretrained(tmp_path)
    weights = load_file(tmp_path / "model.safetensors")
    del weights["lm_head.weight"]
    save_file(weights, tmp_path / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 weights .* are not in the files .*lm_head.weight"):
        load_target(tmp_path)


def test_a_truncated_file_is_a_data_error(tmp_path):
    tiny_llama().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(DataError, match="could not load the target"):
        load_target(tmp_path)


def test_weights_of_another_shape_are_refused(tmp_path):
    tiny_llama().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["intermediate_size"] = 40
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises((ModelError, DataError), match=r"shape|size"):
        load_target(tmp_path)


class Touch:
    """Unpickled, it makes a file: what a hostile checkpoint could do, made visible."""

    def __init__(self, path) -> None:
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_a_pickle_runs_no_code(tmp_path):
    tiny_llama().config.save_pretrained(tmp_path)
    touched = tmp_path / "touched"
    torch.save({"lm_head.weight": Touch(touched)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(DataError, match="could not load the target"):
        load_target(tmp_path)
    assert not touched.exists()


def test_plain_weights_in_a_torch_file_load(tmp_path):
    model = tiny_llama()
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    expected = Target(model).features(IDS, None, (1,))
    assert torch.equal(load_target(tmp_path).features(IDS, None, (1,)), expected)


def bert_config() -> transformers.BertConfig:
    return transformers.BertConfig(
        vocab_size=VOCAB,
        hidden_size=HIDDEN,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        initializer_range=0.2,
    )


def test_a_model_that_looks_ahead_is_refused(tmp_path):
    # Its class has an output head and loads as a causal language model; it attends both ways.
    build(transformers.BertLMHeadModel, bert_config()).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=r"later token changed .* no causal language model"):
        load_target(tmp_path)


def test_kinds_of_models_that_predict_no_text_are_refused(tmp_path):
    sizes = {"d_model": 16, "d_kv": 4, "d_ff": 16, "num_layers": 2, "num_heads": 2}
    transformers.T5Config(vocab_size=VOCAB, **sizes).save_pretrained(tmp_path / "t5")
    with pytest.raises(ModelError, match=r"'t5' is an encoder-decoder"):
        load_target(tmp_path / "t5")
    transformers.ViTConfig(hidden_size=16, num_attention_heads=2).save_pretrained(tmp_path / "vit")
    with pytest.raises(ModelError, match=r"'vit' is no causal language model"):
        load_target(tmp_path / "vit")


def test_a_package_that_a_checkpoint_needs_is_named(monkeypatch, tmp_path):
    def missing(*_, **__):
        raise ImportError("Please install torch and gguf>=0.10.0 to load a GGUF checkpoint.")

    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", missing)
    (tmp_path / "model.gguf").touch()
    with pytest.raises(MissingDependencyError, match="pip install gguf"):
        load_target(tmp_path, gguf_file="model.gguf")


def test_a_gguf_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(DataError, match=r"model\.gguf: no such file"):
        load_target(tmp_path, gguf_file="model.gguf")


def write_gguf(model, path) -> None:
    """A llama.cpp file of a tiny Llama: its names, and its order of rotary halves."""
    import gguf

    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    names = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    for i in range(config.num_hidden_layers):
        for ours, theirs in (
            ("input_layernorm", "attn_norm"),
            ("post_attention_layernorm", "ffn_norm"),
            ("self_attn.q_proj", "attn_q"),
            ("self_attn.k_proj", "attn_k"),
            ("self_attn.v_proj", "attn_v"),
            ("self_attn.o_proj", "attn_output"),
            ("mlp.gate_proj", "ffn_gate"),
            ("mlp.up_proj", "ffn_up"),
            ("mlp.down_proj", "ffn_down"),
        ):
            names[f"model.layers.{i}.{ours}.weight"] = f"blk.{i}.{theirs}.weight"
    for ours, theirs in names.items():
        weight = model.state_dict()[ours]
        for part, heads in (("attn_q", 4), ("attn_k", 2)):
            if part in theirs:  # rotary pairs: (half, pair) here, (pair, half) there
                weight = weight.reshape(heads, 2, -1, HIDDEN).transpose(1, 2).reshape(-1, HIDDEN)
        writer.add_tensor(theirs, weight.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_is_the_same_target(tmp_path):
    pytest.importorskip("gguf", reason="reads and writes GGUF files")
    model = tiny_llama()
    write_gguf(model, tmp_path / "model.gguf")
    expected = Target(model)
    loaded = load_target(tmp_path, gguf_file="model.gguf", dtype="float32")
    torch.testing.assert_close(
        loaded.features(IDS, None, range(4)), expected.features(IDS, None, range(4))
    )
    assert torch.equal(loaded.ends.weight, expected.ends.weight)


def test_a_tokenizer_loads_from_the_same_directory(tmp_path):
    vocab = {"a": 0, "b": 1, "<unk>": 2}
    backend = Tokenizer(models.WordLevel(vocab, unk_token="<unk>"))
    transformers.PreTrainedTokenizerFast(tokenizer_object=backend).save_pretrained(tmp_path)
    assert load_tokenizer(tmp_path)("b")["input_ids"] == [1]
