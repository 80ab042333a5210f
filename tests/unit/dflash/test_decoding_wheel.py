"""The decode loop of the method's own package, on our files: same tokens, same counts."""

import warnings

import pytest
import torch

from lengthwise.dflash.decoding import greedy, speculate
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.formats import save_native
from lengthwise.dflash.target import Target
from support.dflash_models import FAMILIES, tiny_drafter_config

model_of_wheel = pytest.importorskip("dflash.model")


def _theirs(directory, model, prompt, max_new_tokens, stop_token_ids, monkeypatch):
    # Its clock is CUDA's; time is not what is compared here.
    monkeypatch.setattr(model_of_wheel, "_cuda_time", lambda: 0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the wheel and of transformers
        drafter = model_of_wheel.DFlashDraftModel.from_pretrained(directory, dtype=torch.float32)
        return model_of_wheel.dflash_generate(
            drafter.eval(),
            model,
            torch.tensor([prompt]),
            max_new_tokens=max_new_tokens,
            stop_token_ids=stop_token_ids,
            return_stats=True,
        )


@pytest.mark.parametrize("name", ["llama-tied", "qwen2", "qwen3", "gemma3"])
@pytest.mark.parametrize("prompt", [[5], [7, 3, 11, 2, 40, 8, 9, 1, 30]], ids=len)
@pytest.mark.parametrize("stops", [False, True])
def test_its_loop_emits_our_tokens_and_counts_what_we_count(
    tmp_path, monkeypatch, name, prompt, stops
):
    # Its acceptance_lengths count the emitted tokens of a verification, the target's own token
    # included and those after a stop token not: num_accepted + 1 each.
    model = FAMILIES[name]()
    target = Target(model)
    drafter = Drafter(tiny_drafter_config(model), seed=2)
    save_native(drafter, tmp_path / "drafter", model.config, torch.float32)
    truth = greedy(target, prompt, 18).token_ids
    stop = [truth[11]] if stops else None
    theirs = _theirs(tmp_path / "drafter", model, prompt, 18, stop, monkeypatch)
    ours = speculate(target, drafter, prompt, max_new_tokens=18, stop_token_ids=stop or ())
    assert theirs.output_ids[0, len(prompt) :].tolist() == list(ours.token_ids)
    assert theirs.acceptance_lengths == [count + 1 for count in ours.num_accepted]
