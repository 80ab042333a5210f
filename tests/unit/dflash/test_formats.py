"""Drafters on disk: what is written, what comes back, what is refused and why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.formats import (
    load_checkpoint,
    load_native,
    load_speculators,
    save_native,
    save_speculators,
)
from lengthwise.dflash.training.checkpoint import CheckpointStore
from lengthwise.errors import CheckpointError, ConfigError, LengthwiseWarning, ModelError
from support.dflash_models import HIDDEN, MASK_TOKEN, VOCAB, tiny_drafter_config, tiny_qwen3

GOLDEN = Path(__file__).parents[2] / "golden" / "dflash_speculators.json"


@pytest.fixture(scope="module")
def target():
    config = tiny_qwen3().config
    config.architectures = ["Qwen3ForCausalLM"]  # as a loaded one has them
    return config


@pytest.fixture(scope="module")
def drafter():
    return Drafter(tiny_drafter_config(tiny_qwen3(), num_hidden_layers=3), seed=4)


@pytest.fixture
def native(tmp_path, drafter, target):
    """A native directory in fp32, to look at and to damage."""
    return save_native(drafter, tmp_path / "native", target, torch.float32, target_name="a/target")


@pytest.fixture
def speculators(tmp_path, drafter, target):
    """Likewise in the speculators format."""
    return save_speculators(drafter, tmp_path / "spec", target, torch.float32, target_name="a/t")


def edit(directory, **changes):
    """Change fields of a config.json; a dotted name reaches into an object, None removes."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    for name, value in changes.items():
        *objects, last = name.split("__")
        place = config
        for part in objects:
            place = place[part]
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    path.write_text(json.dumps(config))


def rewrite(directory, change):
    """Replace the tensors of a directory by what ``change`` makes of them."""
    path = directory / "model.safetensors"
    save_file(change(load_file(path)), path)


def equal(ours, theirs):
    """Whether two drafters have the same config and, bit by bit, the same weights."""
    first, second = ours.state_dict(), theirs.state_dict()
    same = first.keys() == second.keys() and all(torch.equal(first[n], second[n]) for n in first)
    return same and ours.config == theirs.config


def test_the_native_file_holds_the_published_tensors_and_no_other(native):
    # The list is the specification's, written out by hand for three layers: 3 + 11 * 3 tensors; no
    # embedding, no head, no rotary buffers.
    layer = [
        *("input_layernorm", "post_attention_layernorm"),
        *(f"self_attn.{name}_proj" for name in "qkvo"),
        *("self_attn.q_norm", "self_attn.k_norm"),
        *(f"mlp.{name}_proj" for name in ("gate", "up", "down")),
    ]
    names = {"fc.weight", "hidden_norm.weight", "norm.weight"}
    names |= {f"layers.{i}.{name}.weight" for i in range(3) for name in layer}
    tensors = load_file(native / "model.safetensors")
    assert len(names) == 36
    assert set(tensors) == names
    assert tensors["fc.weight"].shape == (HIDDEN, 2 * HIDDEN)
    assert {tensor.dtype for tensor in tensors.values()} == {torch.float32}
    assert {path.name for path in native.iterdir()} == {"config.json", "model.safetensors"}


def test_the_native_config_says_each_thing_where_each_reader_looks(native):
    # Older readers take block_size from the top, newer ones from dflash_config; transformers 4
    # takes rope_theta, 5 rope_parameters; nobody may be sent to code that is not there.
    config = json.loads((native / "config.json").read_text())
    assert config["architectures"] == ["DFlashDraftModel"]
    assert config["block_size"] == config["dflash_config"]["block_size"] == 4
    assert config["dflash_config"]["mask_token_id"] == MASK_TOKEN
    assert config["dflash_config"]["target_layer_ids"] == [1, 2]
    assert config["num_target_layers"] == 6
    assert config["rope_theta"] == config["rope_parameters"]["rope_theta"] == 10_000
    assert config["hidden_act"] == "silu"
    assert config["tie_word_embeddings"] is False
    assert config["vocab_size"] == VOCAB
    assert "auto_map" not in config


@pytest.mark.parametrize("generation", [4, 5])
@pytest.mark.parametrize("kind", ["default", "yarn"])
def test_both_generations_of_transformers_read_the_same_positions(
    tmp_path, target, generation, kind
):
    # Each generation ignores the other's fields, so each reader is given its own alone.
    yarn = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 64}
    rope = {"rope_theta": 5e5, **(yarn if kind == "yarn" else {"rope_type": "default"})}
    config = tiny_drafter_config(tiny_qwen3(), rope_parameters=rope)
    written = save_native(Drafter(config), tmp_path / "d", target)
    raw = json.loads((written / "config.json").read_text())
    for name in ["rope_parameters"] if generation == 4 else ["rope_theta", "rope_scaling"]:
        del raw[name]
    found = transformers.Qwen3Config(**raw).rope_parameters
    assert {name: found[name] for name in rope} == rope
    edit(written, **{name: None for name in ("rope_parameters",) if generation == 4})
    assert load_native(written).config == config


def test_a_drafter_comes_back_bit_by_bit(native, drafter, target):
    # fp32 in, fp32 out: nothing may be rounded on the way of a training checkpoint.
    assert equal(load_native(native, target_config=target), drafter)


def test_a_bfloat16_drafter_comes_back_as_it_was_stored(tmp_path, drafter, target):
    # bfloat16 -> fp32 is exact, and so is the way back.
    first = save_native(drafter, tmp_path / "first", target)
    second = save_native(load_native(first), tmp_path / "second", target)
    assert (first / "model.safetensors").read_bytes() == (second / "model.safetensors").read_bytes()
    tensors = load_file(first / "model.safetensors")
    expected = drafter.state_dict()["fc.weight"].bfloat16()
    assert torch.equal(tensors["fc.weight"], expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_native_to_speculators_to_native_changes_no_byte(tmp_path, drafter, target, dtype):
    # Both formats hold the same facts, so the way there and back must give the same two files.
    first = save_native(drafter, tmp_path / "1", target, dtype, target_name="a/target")
    there = load_checkpoint(first)
    middle = tmp_path / "2"
    save_speculators(there.drafter, middle, target, dtype, target_name=there.target.name)
    back = load_checkpoint(middle)
    last = save_native(back.drafter, tmp_path / "3", target, dtype, target_name=back.target.name)
    for name in ("config.json", "model.safetensors"):
        assert (first / name).read_bytes() == (last / name).read_bytes()
    assert back.target == there.target
    assert (there.format, back.format) == ("native", "speculators")


def test_the_speculators_config_is_what_the_package_itself_writes(tmp_path, target):
    # The golden file is the package's own; support/golden_speculators.py made it from the same
    # drafter. Fields that only we write, and those that only it derives, are named here.
    config = tiny_drafter_config(tiny_qwen3(), num_hidden_layers=3, sliding_window=16)
    directory = save_speculators(Drafter(config), tmp_path / "d", target, target_name="target")
    ours = json.loads((directory / "config.json").read_text())
    theirs = json.loads(GOLDEN.read_text())
    for name in ("auto_map", "transformers_version"):  # the first points at code, the second varies
        theirs.pop(name)
    assert {ours.pop(name) is not None for name in ("num_target_layers", "lengthwise")} == {True}
    inner, golden = ours.pop("transformer_layer_config"), theirs.pop("transformer_layer_config")
    assert ours == theirs
    for name in ("transformers_version", "initializer_range", "pad_token_id"):
        golden.pop(name)
    assert {n: inner[n] for n in golden} == golden
    assert set(inner) - set(golden) == {"rope_theta", "rope_scaling"}  # for transformers 4


def test_a_directory_of_the_speculators_package_is_read(tmp_path, speculators, target):
    # The golden config, of a drafter with sliding layers, beside the tensors of such a drafter. The
    # package does not store how many layers the target has, so that has to come from the target.
    config = tiny_drafter_config(tiny_qwen3(), num_hidden_layers=3, sliding_window=16)
    made = Drafter(config)
    directory = save_speculators(made, tmp_path / "d", target, torch.float32, target_name="target")
    (directory / "config.json").write_text(GOLDEN.read_text())
    with pytest.raises(ModelError, match="how many layers the target has"):
        load_speculators(directory)
    assert equal(load_speculators(directory, target_config=target), made)


def test_a_training_checkpoint_is_read_once_it_is_whole(tmp_path, drafter):
    # The drafter lies in a folder of it; a changed byte anywhere must be found before it is used.
    store = CheckpointStore(tmp_path / "run")
    place = store.save(
        {"num_steps": 7},
        {},
        lambda folder: save_native(drafter, folder, dtype=torch.float32),
    )
    assert equal(load_checkpoint(place).drafter, drafter)
    with pytest.raises(ModelError, match=r"name one of them, such as .*step-00000007"):
        load_checkpoint(tmp_path / "run")
    path = place / "drafter" / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with pytest.raises(CheckpointError, match="is not what was written"):
        load_checkpoint(place)


def test_a_prefix_before_every_name_is_taken_off(native, drafter):
    # Some published files have `model.` before each name.
    rewrite(native, lambda tensors: {f"model.{n}": t for n, t in tensors.items()})
    assert equal(load_native(native), drafter)


def test_shards_are_read_as_one_file_is(native, drafter):
    # Large checkpoints come in shards with an index; here one shard a tensor group.
    tensors = load_file(native / "model.safetensors")
    (native / "model.safetensors").unlink()
    names = sorted(tensors)
    for number, part in enumerate((names[::2], names[1::2])):
        save_file({name: tensors[name] for name in part}, native / f"part-{number}.safetensors")
    index = {name: f"part-{place % 2}.safetensors" for place, name in enumerate(names)}
    (native / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    assert equal(load_native(native), drafter)
    index[names[0]] = "../elsewhere.safetensors"
    (native / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    with pytest.raises(CheckpointError, match="outside its directory"):
        load_native(native)
    index[names[0]] = "part-9.safetensors"
    (native / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    with pytest.raises(CheckpointError, match=r"part-9.safetensors is missing"):
        load_native(native)


def test_tensors_without_a_place_are_told_and_left_out(native, drafter):
    # A head of its own and a mask embedding are dropped with a warning; rotary buffers follow from
    # the config, so they are dropped without one.
    extra = {
        "lm_head.weight": torch.zeros(VOCAB, HIDDEN),
        "mask_embedding": torch.zeros(HIDDEN),
        "rotary_emb.inv_freq": torch.zeros(8),
    }
    rewrite(native, lambda tensors: {**tensors, **extra})
    with pytest.warns(LengthwiseWarning, match="mask embedding of its own") as caught:
        found = load_checkpoint(native)
    assert found.unused_tensors == ("lm_head.weight", "mask_embedding")
    assert "inv_freq" not in str(caught[0].message)
    assert equal(found.drafter, drafter)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("layers.0.attention_conv.base_kernel", "DFlash 2"),
        ("candidate_selector.hidden_projection.weight", "DFlash 2"),
        ("markov_head.weight", "DSpark"),
        ("d2t", "a reduced vocabulary"),
        ("mask_hidden", "vLLM refuses too"),
    ],
)
def test_a_relatives_tensors_are_refused_with_the_reason(native, name, message):
    # Each of these changes what is computed; without it the drafter would be another one.
    rewrite(native, lambda tensors: {**tensors, name: torch.zeros(2)})
    with pytest.raises(ModelError, match=message):
        load_native(native)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"architectures": ["DFlash2DraftModel"]}, "convolutions and a candidate selector"),
        ({"architectures": ["LlamaForCausalLM"]}, "native format has DFlashDraftModel"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"quantization_config": {"bits": 4}}, "quantization_config"),
        ({"dflash_config__output_multiplier": 0.5}, "output_multiplier is 0.5"),
        ({"dflash_config__use_swa": True}, "use_swa"),
        ({"dflash_config__causal": True}, "causal is True"),
        ({"is_causal": True}, "is_causal is True"),
        ({"block_size": 8}, "block_size is 8 at the top and 4 in dflash_config"),
        ({"block_size": None, "dflash_config__block_size": None}, "block_size is neither"),
        ({"dflash_config__mask_token_id": VOCAB}, "mask_token_id"),
        ({"dflash_config__target_layer_ids": [1, 6]}, "target_layer_ids"),
        ({"rope_theta": 1e6}, "transformers 4 and 5 would read two models"),
        ({"rope_parameters": {"full_attention": {"rope_theta": 1e4}}}, "one for all layers"),
        ({"layer_types": None, "use_sliding_window": True}, "layer_types does not say where"),
        ({"num_key_value_heads": 3}, "num_key_value_heads"),
        ({"model_type": "no such model"}, "which the installed transformers does not have"),
        ({"dflash_config": [1]}, "dflash_config must be an object"),
        ({"speculators_model_type": "eagle3"}, "speculators format, not native"),
    ],
)
def test_a_config_that_describes_another_model_is_refused(native, change, message):
    # Each would load and then draft badly, or be read in two ways; the message names the field.
    edit(native, **change)
    with pytest.raises(ModelError, match=message) as caught:
        load_native(native)
    assert str(native) in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"speculators_model_type": "eagle3"}, "only 'dflash' is read"),
        ({"draft_vocab_size": 32}, "draft_vocab_size is 32, but the drafter's is 96"),
        ({"target_hidden_size": 64}, "target_hidden_size is 64"),
        ({"sample_from_anchor": True}, "sample_from_anchor"),
        ({"aux_hidden_state_layer_ids": [0, 2]}, r"tap the embedding \(0\)"),
        ({"transformer_layer_config": None}, "needs transformer_layer_config"),
        ({"transformer_layer_config__hidden_act": "gelu"}, "hidden_act"),
    ],
)
def test_a_speculators_config_that_describes_another_model_is_refused(speculators, change, message):
    # As above; a shifted anchor or a small vocabulary would be served without an error.
    edit(speculators, **change)
    with pytest.raises(ModelError, match=message):
        load_speculators(speculators)


def test_sliding_layers_that_see_their_whole_block_are_refused(tmp_path, target):
    # Ours are causal inside the block, as the published ones are.
    config = tiny_drafter_config(tiny_qwen3(), sliding_window=16)
    directory = save_speculators(Drafter(config), tmp_path / "d", target, target_name="a/t")
    assert load_speculators(directory).config == config
    edit(directory, sliding_window_non_causal=True)
    with pytest.raises(ModelError, match="sliding_window_non_causal is true"):
        load_speculators(directory)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {n: v for n, v in t.items() if n != "norm.weight"}, "no tensor norm.weight"),
        (lambda t: {**t, "fc.weight": t["fc.weight"].T.contiguous()}, "but the config says"),
        (lambda t: {**t, "norm.weight": t["norm.weight"] / 0}, "NaN or infinity"),
        (lambda t: {**t, "norm.weight": t["norm.weight"].to(torch.int8)}, "no quantised"),
        (lambda t: {**t, "model.norm.weight": t["norm.weight"].clone()}, "with and without"),
    ],
)
def test_damaged_tensors_are_named(native, change, message):
    # A partly loaded drafter looks like an untrained one, so nothing may be filled in.
    rewrite(native, change)
    with pytest.raises(CheckpointError, match=message):
        load_native(native)


def test_a_pickle_is_not_read_and_the_way_out_is_told(native):
    # A .bin runs code when it is loaded; this one would write a file beside it.
    class Trap:
        def __reduce__(self):
            return Path.touch, (native / "sprung",)

    (native / "model.safetensors").unlink()
    torch.save(Trap(), native / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"runs code when it is read.*save_file"):
        load_native(native)
    assert not (native / "sprung").exists()


@pytest.mark.parametrize("content", ["{", "[1]", ""])
def test_a_config_that_is_no_object_is_told(native, content):
    # Half a file, or another one.
    (native / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        load_native(native)


def test_a_damaged_file_of_weights_is_told(native):
    # Cut off in the middle, as a full disk leaves it.
    path = native / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(CheckpointError, match="damaged"):
        load_native(native)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"no model\.safetensors"):
        load_native(native)


def test_a_drafter_for_another_target_is_refused(native):
    # The pair would run where the widths agree, and accept next to nothing.
    other = tiny_qwen3(num_layers=5).config
    with pytest.raises(ModelError, match=r"num_target_layers is 6, but the target's is 5"):
        load_native(native, target_config=other)


def test_a_config_in_the_form_of_the_published_ones_is_read(tmp_path):
    # Fields and their places as in the published Qwen3.5 drafters: block_size in dflash_config
    # alone, sliding layers, transformers 4 fields for positions; the sizes are small here.
    raw = {
        "architectures": ["DFlashDraftModel"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "auto_map": {"AutoModel": "dflash.DFlashDraftModel"},
        "dflash_config": {"block_size": 16, "mask_token_id": 90, "target_layer_ids": [1, 4, 8]},
        "dtype": "bfloat16",
        "head_dim": 16,
        "hidden_act": "silu",
        "hidden_size": 32,
        "intermediate_size": 64,
        "layer_types": ["sliding_attention", "full_attention"],
        "max_position_embeddings": 262144,
        "max_window_layers": 2,
        "model_type": "qwen3",
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "num_key_value_heads": 2,
        "num_target_layers": 12,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 10000000,
        "sliding_window": 4096,
        "tie_word_embeddings": True,
        "use_sliding_window": True,
        "vocab_size": 96,
    }
    config = tiny_drafter_config(
        tiny_qwen3(num_layers=12),
        block_size=16,
        mask_token_id=90,
        target_layer_ids=(1, 4, 8),
        intermediate_size=64,
        max_position_embeddings=262144,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7},
        sliding_window=4096,
    )
    made = Drafter(config, seed=2)
    directory = save_native(made, tmp_path / "d", dtype=torch.float32)
    (directory / "config.json").write_text(json.dumps(raw))
    assert equal(load_native(directory), made)


def test_nothing_is_written_over_and_nothing_half_written_stays(tmp_path, drafter, monkeypatch):
    # A directory with something in it is somebody's; a failure leaves no trace of the attempt.
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "note").write_text("mine")
    with pytest.raises(ConfigError, match="not empty"):
        save_native(drafter, tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["note"]

    (tmp_path / "empty").mkdir()
    assert equal(
        load_native(save_native(drafter, tmp_path / "empty", dtype=torch.float32)), drafter
    )

    def fails(*_args, **_options):
        raise OSError("no space left on device")

    monkeypatch.setattr("lengthwise.dflash.formats.files.save_file", fails)
    with pytest.raises(OSError, match="no space"):
        save_native(drafter, tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "full"]


def test_only_dtypes_that_engines_serve_are_written(tmp_path, drafter):
    # float64 would be halved silently by some readers.
    with pytest.raises(ConfigError, match="dtype must be float32, bfloat16, float16"):
        save_native(drafter, tmp_path / "d", dtype=torch.float64)


def test_the_speculators_format_needs_the_targets_name(tmp_path, drafter):
    # vLLM starts the target from that name.
    with pytest.raises(ConfigError, match="names its target"):
        save_speculators(drafter, tmp_path / "d")


def test_a_name_of_the_hub_is_fetched_and_a_wrong_path_is_not(native, drafter, monkeypatch):
    # The hub is asked for `owner/name` alone, and for no pickles; a mistyped path is no name.
    asked = []

    def fetch(name, *, revision, allow_patterns):
        asked.append((name, revision, tuple(allow_patterns)))
        if name == "some/nothing":
            raise OSError("no such repository")
        return str(native)

    monkeypatch.setattr("huggingface_hub.snapshot_download", fetch)
    assert equal(load_native("some/drafter", revision="v1"), drafter)
    assert asked == [("some/drafter", "v1", ("*.json", "*.safetensors"))]
    with pytest.raises(ModelError, match="the hub did not give it: no such repository"):
        load_native("some/nothing")
    for path in ("drafter", "./a/b", "/a/b", "a/b/c", str(native / "config.json")):
        with pytest.raises(ModelError, match="is no directory with a drafter"):
            load_native(path)
    assert len(asked) == 2
