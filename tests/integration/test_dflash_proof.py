"""The tiny target has its skill; a drafter learns it, in the short form of the proof."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoTokenizer

from lengthwise.dflash.decoding import greedy
from lengthwise.dflash.target import load_target
from prove_drafter import SHORT, SHORT_LEAST, TARGET, prove, shortfalls
from tiny_target_task import TASKS, exercises, is_held_out


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_no_held_out_prompt_is_ever_a_training_prompt():
    # The hash of the text decides, so it holds for every seed and number of prompts.
    training = {one.prompt for seed in range(3) for one in exercises(300, seed)}
    held_out = {one.prompt for seed in range(3) for one in exercises(300, seed, held_out=True)}
    assert len(training) > 800
    assert len(held_out) > 800
    assert not training & held_out
    assert all(map(is_held_out, held_out))


def test_the_exercises_of_a_seed_never_change():
    # The weights in data/ were trained on these; found once and written down.
    first = exercises(1, seed=0)[0]
    assert first.prompt == "table\nqueue 4\nheat 1\nsnow 3\ntraffic 0"
    assert first.answer.startswith("| queue | expected to last all week |\n| heat | a little")


def test_the_tiny_target_is_small_and_its_head_is_tied():
    # Tied weights are stored once; a copy that unties them would give other logits (B45).
    assert sum(path.stat().st_size for path in Path(TARGET).iterdir()) < 4 << 20
    target = load_target(TARGET)
    assert target.ends.tied
    assert target.dtype == torch.float32


def test_the_tiny_target_answers_held_out_prompts_rightly():
    # 95 of 100 are right (accuracy.json): of 18, more than three are wrong once in 90 draws.
    target, tokenizer = load_target(TARGET), AutoTokenizer.from_pretrained(TARGET)
    right = dict.fromkeys(TASKS, 0)
    for exercise in exercises(18, seed=1, held_out=True):
        prompt = tokenizer.apply_chat_template(
            exercise.messages, add_generation_prompt=True, return_dict=False
        )
        said = greedy(target, prompt, len(exercise.answer) + 1, [tokenizer.eos_token_id])
        assert said.token_ids
        text = tokenizer.decode(said.token_ids, skip_special_tokens=True)
        right[exercise.task] += text == exercise.answer
    assert sum(right.values()) >= 15
    assert min(right.values()) > 0


@pytest.mark.slow
def test_a_drafter_learns_and_never_changes_the_output(tmp_path):
    found = prove(SHORT, tmp_path)
    # The figures of the issue: 3 of 8 for the short form, 1.1 and 1.5 for those that cannot know;
    # whatever is offered, greedy decoding emits what the target emits alone.
    assert shortfalls(found, SHORT_LEAST) == []
    decoding = found["decoding"]
    rates = {name: one["tokens_per_verify"] for name, one in decoding.items()}
    assert rates["trained"] >= 2 * rates["untrained"]
    assert rates["random_tokens"] < 1.1
    assert all(one["num_prompts"] == SHORT.num_held_out for one in decoding.values())
