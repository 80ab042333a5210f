"""The check of an export: silent faults of engines, each told in one message."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.formats import (
    check_export,
    export_drafter,
    save_native,
    save_speculators,
    serving_commands,
)
from lengthwise.dflash.formats.transformer import TargetFacts
from lengthwise.errors import CheckpointError, ConfigError, ModelError
from support.dflash_models import VOCAB, tiny_drafter_config, tiny_llama, tiny_qwen3

SAVE = {"native": save_native, "speculators": save_speculators}
FACTS = TargetFacts(name="a/target")


@pytest.fixture(scope="module")
def target():
    return tiny_qwen3().config


@pytest.fixture(scope="module")
def drafter():
    return Drafter(tiny_drafter_config(tiny_qwen3()), seed=4)


@pytest.fixture
def written(tmp_path, drafter, target):
    """A function that writes a faultless directory in one format."""

    def write(form):
        return SAVE[form](drafter, tmp_path / form, target, target_name="a/target")

    return write


def edit(directory, place, value):
    """Set the field at ``place``, a path of names; ``...`` removes it."""
    path = directory / "config.json"
    config = json.loads(path.read_text())
    part = config
    for name in place[:-1]:
        part = part[name]
    if value is ...:
        del part[place[-1]]
    else:
        part[place[-1]] = value
    path.write_text(json.dumps(config))


@pytest.mark.parametrize("form", SAVE)
@pytest.mark.parametrize("settings", [{}, {"sliding_window": 8}, {"attention_bias": True}])
def test_what_we_write_has_no_fault(tmp_path, target, form, settings):
    # Otherwise the check would be wrong, or the writer; the wheel's own reading is tested beside.
    drafter = Drafter(tiny_drafter_config(tiny_qwen3(), **settings))
    directory = SAVE[form](drafter, tmp_path / "d", target, target_name="a/target")
    report = check_export(directory, target)
    assert report.problems == ()
    assert report.format == form
    assert "fits the target" in [check.name for check in report.checks]
    report.require()


TRANSFORMER_FAULTS = [
    (("hidden_act",), "gelu", "hidden_act"),
    (("head_dim",), ..., "lacks head_dim"),
    (("rope_parameters",), ..., "lacks rope_parameters"),
    (("rope_theta",), ..., "lacks rope_theta"),
    (("rope_theta",), 5.0, "rope_theta is 5.0, but rope_parameters say 10000.0"),
    (("rope_scaling",), {"rope_type": "yarn", "factor": 2.0}, "rope_scaling says 'yarn'"),
    (("layer_types",), ["full_attention"], "layer_types"),
    (("use_sliding_window",), True, "use_sliding_window is True"),
    (("tie_word_embeddings",), True, "tie_word_embeddings must be false"),
    (("model_type",), "llama", "model_type must be 'qwen3'"),
    (("dtype",), "float32", "dtype is float32"),
    (("hidden_size",), 64, "the config says"),
    (("num_hidden_layers",), 3, "layer_types"),
    (("intermediate_size",), 49, "mlp.down_proj"),
]


@pytest.mark.parametrize("form", SAVE)
@pytest.mark.parametrize(("place", "value", "message"), TRANSFORMER_FAULTS)
def test_a_fault_of_the_transformers_fields_is_told(written, form, place, value, message):
    # One field of a faultless file is changed, so the report must name that one.
    directory = written(form)
    inner = place if form == "native" else ("transformer_layer_config", *place)
    edit(directory, inner, value)
    assert message in "; ".join(check_export(directory).problems)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("architectures",), ["Other", "DFlashDraftModel"], "architectures must be"),
        (("architectures",), ["DFlash2DraftModel"], "candidate selector"),
        (("block_size",), 8, "block_size is 8 at the top"),
        (("block_size",), ..., "lacks block_size"),
        (("dflash_config", "block_size"), ..., "None in dflash_config, which newer ones take"),
        (("dflash_config", "mask_token_id"), VOCAB, "mask_token_id"),
        (("dflash_config", "mask_token_id"), ..., "dflash_config lacks mask_token_id"),
        (("dflash_config", "target_layer_ids"), [1, 9], "target_layer_ids"),
        (("dflash_config", "target_layer_ids"), [1, 2, 3], "fc.weight has the shape"),
        (("dflash_config", "target_layer_ids"), [1, 5], "the last layer of the target (5)"),
        (("num_target_layers",), ..., "lacks num_target_layers"),
    ],
)
def test_a_fault_of_the_native_fields_is_told(written, place, value, message):
    # As above, for the fields of this format.
    directory = written("native")
    edit(directory, place, value)
    assert message in "; ".join(check_export(directory).problems)


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("block_size",), 8, "speculative_tokens is 3; a block of 8 drafts 7"),
        (("aux_hidden_state_layer_ids",), [0, 1], "tap the embedding"),
        (("aux_hidden_state_layer_ids",), [2, 6], "the last layer of the target (5)"),
        (("draft_vocab_size",), 32, "draft_vocab_size is 32"),
        (("sample_from_anchor",), True, "sample_from_anchor"),
        (("mask_token_id",), ..., "lacks mask_token_id"),
        (("speculators_config", "algorithm"), "eagle3", "algorithm is 'eagle3'"),
        (("speculators_config", "default_proposal_method"), "tree", "none of proposal_methods"),
        (("speculators_config", "verifier", "name_or_path"), None, "no name_or_path"),
        (("speculators_config",), ..., "lacks speculators_config"),
    ],
)
def test_a_fault_of_the_speculators_fields_is_told(written, place, value, message):
    # As above, for the fields of the other format.
    directory = written("speculators")
    edit(directory, place, value)
    assert message in "; ".join(check_export(directory).problems)


def test_vllm_taps_the_layers_that_we_trained_on(written, drafter):
    # vLLM takes 1 off aux_hidden_state_layer_ids; off by one would be served without an error.
    config = json.loads((written("speculators") / "config.json").read_text())
    served = [i - 1 for i in config["aux_hidden_state_layer_ids"]]
    assert served == list(drafter.config.target_layer_ids) == [1, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: {n: v for n, v in t.items() if n != "norm.weight"}, "no tensor norm.weight"),
        (lambda t: {**t, "mask_hidden": torch.zeros(2).bfloat16()}, "unknown tensor mask_hidden"),
        (lambda t: {f"model.{n}": v for n, v in t.items()}, "unknown tensor model.fc.weight"),
        (lambda t: {**t, "norm.weight": t["norm.weight"].float()}, "not of norm.weight"),
        (lambda t: {**t, "norm.weight": t["norm.weight"] / 0}, "NaN or infinity in norm.weight"),
        (lambda t: {**t, "norm.weight": t["norm.weight"][1:].clone()}, "has the shape (31,)"),
    ],
)
def test_a_fault_of_the_tensors_is_told(written, change, message):
    # SGLang skips names that it does not know and leaves what is missing as it was drawn.
    directory = written("native")
    path = directory / "model.safetensors"
    save_file(change(load_file(path)), path)
    (problem,) = {p for p in check_export(directory).problems if message in p}
    assert message in problem
    with pytest.raises(ModelError, match=r"native: "):
        check_export(directory).require()


def test_a_target_that_does_not_fit_is_told(written):
    # Three sizes of the target are in the drafter; each mismatch has its own message.
    directory = written("native")
    narrow = tiny_llama(hidden_size=16, num_layers=5, vocab_size=VOCAB - 1).config
    problems = "; ".join(check_export(directory, narrow).problems)
    assert "hidden_size is 32, but the target's is 16" in problems
    assert "num_target_layers is 6, but the target's is 5" in problems
    assert "mask_token_id is 95, but the target's config has ids up to 94" in problems
    wide = tiny_qwen3(vocab_size=VOCAB + 1).config
    (problem,) = check_export(directory, wide).problems
    assert "vocab_size is 96, but the target's is 97" in problem


def test_shards_are_told_and_a_directory_without_files_is_refused(written, tmp_path):
    # Engines read shards too, but the wheel's and our exports are one file.
    directory = written("native")
    (directory / "model.safetensors").rename(directory / "part.safetensors")
    index = {"weight_map": {"fc.weight": "part.safetensors"}}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    (problem,) = check_export(directory).problems
    assert "the weights are in shards" in problem
    with pytest.raises(CheckpointError, match=r"has no config\.json"):
        check_export(tmp_path)


@pytest.mark.parametrize("form", SAVE)
def test_an_export_appears_only_when_it_passes(tmp_path, drafter, target, form):
    # The first is faultless; the others have values that bfloat16 and float16 cannot hold, a tap
    # that readers understand differently, and another target: none of them may leave a directory.
    good = tmp_path / "good"
    report = export_drafter(drafter, good, form=form, target_config=target, target=FACTS)
    assert report.directory == good
    assert {path.name for path in good.iterdir()} == {"config.json", "model.safetensors"}

    large = Drafter(drafter.config)
    torch.nn.init.constant_(large.norm.weight, 1e6)  # float16 ends at 65504
    last_tapped = Drafter(tiny_drafter_config(tiny_qwen3(), target_layer_ids=(1, 5)))
    attempts = [
        (large, target, torch.float16, "NaN or infinity in norm.weight"),
        (last_tapped, target, torch.bfloat16, "the last layer"),
        (drafter, tiny_qwen3(num_layers=7).config, torch.bfloat16, "num_target_layers is 6"),
    ]
    for tried, for_target, dtype, message in attempts:
        with pytest.raises(ModelError, match=f"bad was not written: .*{message}"):
            export_drafter(
                tried,
                tmp_path / "bad",
                form=form,
                target_config=for_target,
                target=FACTS,
                dtype=dtype,
            )
    assert [path.name for path in tmp_path.iterdir()] == ["good"]


def test_an_unknown_format_is_refused(tmp_path, drafter):
    # From Python any text can come.
    with pytest.raises(ConfigError, match="form must be native or speculators, got 'gguf'"):
        export_drafter(drafter, tmp_path / "d", form="gguf")


def test_the_serving_commands_count_as_each_engine_does(tmp_path, drafter):
    # A block of 4 is 3 drafted tokens for vLLM, and 4 with the anchor for SGLang.
    native = export_drafter(drafter, tmp_path / "my drafter", target=FACTS)
    commands = serving_commands(native, 4, "a/target")
    assert commands["vllm"].startswith("vllm serve a/target --speculative-config '{")
    options = json.loads(commands["vllm"].split("'")[1])
    assert options == {
        "method": "dflash",
        "model": str(tmp_path / "my drafter"),
        "num_speculative_tokens": 3,
    }
    assert "--speculative-algorithm DFLASH" in commands["sglang"]
    assert commands["sglang"].endswith("--speculative-num-draft-tokens 4")
    assert f"'{tmp_path / 'my drafter'}'" in commands["sglang"]  # quoted, for its space
    other = export_drafter(drafter, tmp_path / "s", form="speculators", target=FACTS)
    assert set(serving_commands(other, 4, None)) == {"vllm"}
