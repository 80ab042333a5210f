"""The two ends of a target without the rest: the same as from the whole target."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from lengthwise.dflash.target import load_ends, load_target
from lengthwise.errors import DataError
from support.dflash_models import FAMILIES, tiny_llama, tiny_qwen3

torch.set_num_threads(1)

IDS = torch.tensor([[3, 14, 15, 92, 6]])
WHOLE = "lengthwise.dflash.target.ends_load.load_target"
READ_WHOLE = {"gpt-neox", "qwen3.5-vision"}
"""Families whose weights stand in the files under other names than in the model."""


def check_same(ends, whole):
    """Same values, types and ties; the embedding module does what the target's own does."""
    assert ends.tied == whole.tied
    assert ends.weight.dtype == whole.weight.dtype
    assert torch.equal(ends.weight, whole.weight)
    assert (ends.bias is None) == (whole.bias is None)
    assert ends.bias is None or torch.equal(ends.bias, whole.bias)
    assert torch.equal(ends.embed(IDS), whole.embed(IDS))
    assert not any(one.requires_grad for one in ends.parameters())


def refuse(*_args, **_settings):
    raise AssertionError("the whole target was loaded")


@pytest.mark.parametrize("family", FAMILIES)
def test_ends_are_those_of_the_whole_target(family, tmp_path, monkeypatch):
    """Every family, tied or not; the whole is read only where names differ."""
    FAMILIES[family]().save_pretrained(tmp_path)
    whole = load_target(tmp_path).ends
    if family not in READ_WHOLE:
        monkeypatch.setattr(WHOLE, refuse)
    check_same(load_ends(tmp_path), whole)


@pytest.mark.parametrize("dtype", ["auto", "bfloat16"])
def test_the_dtype_is_the_one_the_target_would_have(dtype, tmp_path, monkeypatch):
    """The files say float16 here, by their config or, without it, by their tensors."""
    tiny_llama().half().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    for named in (True, False):
        if not named:
            (tmp_path / "config.json").write_text(
                json.dumps({k: v for k, v in config.items() if k not in {"dtype", "torch_dtype"}})
            )
        whole = load_target(tmp_path, dtype=dtype).ends
        with monkeypatch.context() as patch:
            patch.setattr(WHOLE, refuse)
            check_same(load_ends(tmp_path, dtype=dtype), whole)


def test_shards_are_found_by_their_index(tmp_path, monkeypatch):
    tiny_qwen3().save_pretrained(tmp_path, max_shard_size="20KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2
    whole = load_target(tmp_path).ends
    monkeypatch.setattr(WHOLE, refuse)
    check_same(load_ends(tmp_path), whole)


@pytest.mark.parametrize("same", [True, False])
def test_a_tied_model_whose_files_hold_a_head_too(same, tmp_path, monkeypatch):
    """As some published checkpoints do. Where it is the table again it is tied; where it differs
    the whole target decides.
    """
    tiny_llama(tied=True).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    head = tensors["model.embed_tokens.weight"].clone()
    tensors["lm_head.weight"] = head if same else head.flip(0)
    save_file(tensors, file, metadata={"format": "pt"})
    whole = load_target(tmp_path).ends
    if same:
        monkeypatch.setattr(WHOLE, refuse)
    check_same(load_ends(tmp_path), whole)


def test_files_of_another_kind_are_read_whole(tmp_path):
    model = tiny_llama()
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    check_same(load_ends(tmp_path), load_target(tmp_path).ends)


def test_a_head_that_is_missing_is_an_error_as_ever(tmp_path):
    """Not a random one."""
    tiny_llama().save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    tensors = load_file(file)
    del tensors["lm_head.weight"]
    save_file(tensors, file, metadata={"format": "pt"})
    with pytest.raises(ValueError, match=r"weights of the target are not in the files"):
        load_ends(tmp_path)


def test_nothing_there_is_an_error_as_ever(tmp_path):
    with pytest.raises(DataError, match="no such directory"):
        load_ends(tmp_path / "nowhere")


def test_random_numbers_are_left_as_they_were(tmp_path):
    """Training draws from the global generator nowhere, and users do."""
    tiny_llama().save_pretrained(tmp_path)
    before = torch.get_rng_state()
    load_ends(tmp_path)
    assert torch.equal(torch.get_rng_state(), before)
