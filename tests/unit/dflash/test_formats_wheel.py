"""What we write, as the method's own package (the ``dflash`` wheel) reads it: states and text."""

from __future__ import annotations

import time
import warnings

import pytest
import torch

from lengthwise.dflash.anchors import draw_anchors
from lengthwise.dflash.batch import pad_rows
from lengthwise.dflash.decoding import greedy, speculate
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.formats import load_native, save_native
from lengthwise.dflash.loss import LossConfig
from lengthwise.dflash.step import draft_step
from lengthwise.dflash.target import Target
from lengthwise.dflash.target.samples import samples_of
from support.dflash_models import MASK_TOKEN, tiny_drafter_config, tiny_llama, tiny_qwen3

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 5_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}


def scattered(config, seed=0):
    """A drafter whose norms and biases are no ones and zeros, so that a swapped one shows."""
    drafter = Drafter(config, seed=seed)
    generator = torch.Generator().manual_seed(seed + 1)
    with torch.no_grad():
        for parameter in drafter.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.15)
    return drafter.eval()


def published(directory):
    """The directory's drafter as the wheel loads it."""
    from dflash.model import DFlashDraftModel

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the wheel's and transformers' own
        model, report = DFlashDraftModel.from_pretrained(
            directory, dtype=torch.float32, output_loading_info=True
        )
    # Nothing of the file was left over and nothing of the model was left as drawn.
    assert not any(report[what] for what in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


SETTINGS = {
    "full": {},
    "three taps, four layers": {"num_hidden_layers": 4, "target_layer_ids": (0, 2, 4)},
    "biases": {"attention_bias": True},
    "sliding": {"num_hidden_layers": 3, "sliding_window": 7},
    "rope llama3": {"rope_parameters": LLAMA3},
    "rope yarn": {"rope_parameters": YARN},
    "rope linear": {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
    "one key head, other epsilon": {"num_key_value_heads": 1, "rms_norm_eps": 1e-3},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_wheel_computes_our_hidden_states_from_our_files(tmp_path, settings):
    # The wheel reads our config.json and tensors by itself and shares no code with the drafter. Its
    # block stands right after the context, in one forward; ours takes the context in two steps.
    target = tiny_qwen3()
    drafter = scattered(tiny_drafter_config(target, block_size=5, **settings))
    save_native(drafter, tmp_path / "drafter", target.config, torch.float32)
    theirs = published(tmp_path / "drafter")
    assert theirs.block_size == 5
    assert theirs.mask_token_id == MASK_TOKEN
    assert tuple(theirs.target_layer_ids) == drafter.config.target_layer_ids

    generator = torch.Generator().manual_seed(5)
    features = torch.randn(1, 13, drafter.config.feature_size, generator=generator)
    block = torch.randn(1, 5, drafter.config.hidden_size, generator=generator)
    cache = drafter.new_cache()
    drafter.append_context(features[:, :9], cache)
    drafter.append_context(features[:, 9:], cache)
    with torch.no_grad():
        ours = drafter.draft(block, cache)
        expected = theirs(
            target_hidden=features, noise_embedding=block, position_ids=torch.arange(18)[None]
        )
    assert expected.std() > 0.1  # not a constant that anything would match
    torch.testing.assert_close(ours, expected, rtol=0, atol=1e-5)


def taught(target, drafter, prompt, num_tokens):
    """Teach the drafter the target's own continuation of one prompt, so that it gets some right."""
    text = torch.tensor([*prompt, *greedy(target, prompt, num_tokens).token_ids])
    taps = drafter.config.target_layer_ids
    samples = samples_of(target, [text], [torch.ones(len(text), dtype=torch.bool)], [0], taps)
    batch = pad_rows(samples)
    anchors = draw_anchors(batch, max_anchors=len(text), seed=0, epoch=0)
    optimizer = torch.optim.Adam(drafter.parameters(), lr=3e-3)
    for _ in range(15):
        optimizer.zero_grad()
        draft_step(drafter, target.ends, batch, anchors, LossConfig()).loss_sum.backward()
        optimizer.step()
    return drafter.eval()


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_the_wheels_decoding_gives_our_tokens_and_accepts_as_many(tmp_path, monkeypatch, tied):
    # Both loops are lossless, so equal tokens alone say little about the drafter; the number that
    # is accepted in every verification does, once the drafter gets some tokens right and some not.
    from dflash import model as wheel

    monkeypatch.setattr(wheel, "_cuda_time", time.perf_counter)  # its clock asks for a GPU
    model = tiny_llama(tied=tied, num_layers=6)
    target = Target(model)
    prompt = [3, 14, 15, 9, 2, 6, 53, 58]
    config = tiny_drafter_config(model, block_size=4, target_layer_ids=(2, 4))
    drafter = taught(target, Drafter(config, seed=11), prompt, 40)
    save_native(drafter, tmp_path / "drafter", model.config, torch.float32)
    ours = speculate(target, drafter, prompt, max_new_tokens=40)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = wheel.dflash_generate(
            published(tmp_path / "drafter"),
            model,
            torch.tensor([prompt]),
            max_new_tokens=40,
            stop_token_ids=None,
            return_stats=True,
        )
    plain = greedy(target, prompt, 40)
    assert theirs.output_ids[0, len(prompt) :].tolist() == list(ours.token_ids)
    assert ours.token_ids == plain.token_ids
    assert [n - 1 for n in theirs.acceptance_lengths] == list(ours.num_accepted)
    assert 0 < sum(ours.num_accepted) < 3 * len(ours.num_accepted)


def test_a_directory_of_the_wheel_is_read_and_its_drafter_is_the_same(tmp_path):
    # The other way round: the wheel's own save_pretrained writes the file that we read.
    target = tiny_qwen3()
    drafter = scattered(tiny_drafter_config(target))
    save_native(drafter, tmp_path / "ours", target.config, torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        published(tmp_path / "ours").save_pretrained(tmp_path / "theirs")
    again = load_native(tmp_path / "theirs", target_config=target.config)
    assert again.config == drafter.config
    for name, tensor in drafter.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor), name
