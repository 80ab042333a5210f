"""Evaluation: what is counted, what is compared, and what happens at awkward places."""

import importlib
import math

import pytest

from lengthwise.dflash.decoding import Generation, TaskEvaluation, evaluate, greedy, speculate
from lengthwise.dflash.decoding.evaluation import Pair
from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.target import Target
from lengthwise.errors import DataError
from support.dflash_decoding import Scripted, random_proposer
from support.dflash_models import VOCAB, tiny_drafter_config, tiny_llama, tiny_qwen35

PROMPTS = {"short": [[5], [6, 7]], "long": [[9, 8, 7, 6, 5], [1, 2, 3, 4, 5, 6, 7, 8], [3] * 20]}


@pytest.fixture(scope="module")
def target():
    return Target(tiny_llama())


@pytest.fixture(scope="module")
def drafter(target):
    return Drafter(tiny_drafter_config(target.model), seed=1)


def _record(num_accepted, seconds=1.0, tokens=None):
    count = sum(num_accepted) + len(num_accepted) + 1 if tokens is None else tokens
    return Generation(
        token_ids=tuple(range(count)),
        finish_reason="length",
        num_accepted=tuple(num_accepted),
        num_drafted=(3,) * len(num_accepted),
        decode_seconds=seconds,
    )


def test_figures_of_a_task_are_those_counted_by_hand():
    # Two prompts: verifications of 1+3 and 0+2+2 accepted tokens. 5 verifications emit 13 tokens
    # in 2 s; the target alone emits 13 in 6.5 s.
    pairs = (
        Pair(_record([1, 3], 0.5), _record([], 2.5, tokens=7)),
        Pair(_record([0, 2, 2], 1.5), _record([], 4.0, tokens=8)),
    )
    task = TaskEvaluation("t", 4, pairs)
    assert task.histogram == [1, 1, 2, 1]
    assert task.num_verifications == 5
    assert task.tokens_per_verify == 13 / 5
    assert task.num_accepted == 8 / 5
    assert task.speedup == pytest.approx((13 / 2) / (13 / 6.5))
    # Ratio estimator by hand: residuals 6 - 2.6*2 = 0.8 and 7 - 2.6*3 = -0.8.
    assert task.standard_error == pytest.approx(math.sqrt(2 * (0.64 + 0.64)) / 5)


def test_figures_that_do_not_exist_are_none():
    # Outputs of one token are never verified, so there is no mean, no error and no rate.
    task = TaskEvaluation("t", 4, (Pair(_record([])), Pair(_record([]))))
    assert task.tokens_per_verify is None
    assert task.standard_error is None
    assert task.speedup is None
    assert task.num_mismatches is None
    assert task.to_dict()["tokens_per_verify"] is None
    assert TaskEvaluation("t", 4, (Pair(_record([1, 2])),)).standard_error is None


def test_evaluation_is_decoding_of_each_prompt(target, drafter):
    # The same counts as from decoding by hand; none differs from the target's own output.
    found = evaluate(target, drafter, PROMPTS, max_new_tokens=9)
    assert [task.task for task in found.tasks] == ["short", "long"]
    for task in found.tasks:
        runs = [speculate(target, drafter, ids, max_new_tokens=9) for ids in PROMPTS[task.task]]
        assert [pair.drafted.num_accepted for pair in task.pairs] == [r.num_accepted for r in runs]
        assert [pair.plain.token_ids for pair in task.pairs] == [r.token_ids for r in runs]
    assert found.num_mismatches == 0
    assert found.complete
    assert sum(found.overall.histogram) == found.overall.num_verifications
    about = found.to_dict()
    assert set(about["tasks"]) == {"short", "long"}
    assert about["num_prompts"] == about["num_given"] == 5


def test_a_list_of_prompts_is_one_task(target):
    # As the trainer gives them; without comparison the target alone does not run.
    found = evaluate(
        target, random_proposer(4, VOCAB), [[1, 2], [3]], max_new_tokens=5, compare=False
    )
    assert [task.task for task in found.tasks] == ["all"]
    assert found.overall.pairs[0].plain is None
    assert found.num_mismatches is None
    assert found.overall.speedup is None


def test_a_changed_output_is_reported_with_place_and_gap(target, monkeypatch):
    # A loop that believes every draft: the first difference is where the draft leaves the truth.
    loop = importlib.import_module("lengthwise.dflash.decoding.speculate")
    honest = loop.verify_greedy

    def believing(logits, drafted):
        return [*drafted.tolist(), honest(logits[-1:], drafted[:0])[0]]

    monkeypatch.setattr(loop, "verify_greedy", believing)
    prompt = [4, 5, 6]
    truth = greedy(target, prompt, 9).token_ids
    wrong = [(token + 1) % VOCAB for token in truth]
    proposer = Scripted([*truth[:2], *wrong[2:]], len(prompt), 4)
    found = evaluate(target, proposer, {"t": [prompt]}, max_new_tokens=9)
    (mismatch,) = found.overall.mismatches
    assert found.num_mismatches == 1
    assert (mismatch.task, mismatch.prompt, mismatch.position) == ("t", 0, 2)
    assert (mismatch.plain_token, mismatch.drafted_token) == (truth[2], wrong[2])
    assert mismatch.logit_gap > 0
    assert found.to_dict()["mismatches"][0]["position"] == 2


def test_time_ends_an_evaluation_and_every_task_has_had_its_turn(target, drafter):
    # With no time at all one prompt is still decoded; tasks take turns, so after three prompts
    # both have been.
    assert evaluate(target, drafter, PROMPTS, max_new_tokens=3, max_seconds=0).num_given == 5
    done = []

    def stop(count, given):
        done.append((count, given))
        if count == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluate(target, drafter, PROMPTS, max_new_tokens=3, on_prompt=stop)
    assert done == [(1, 5), (2, 5), (3, 5)]
    early = evaluate(target, drafter, PROMPTS, max_new_tokens=3, max_seconds=0)
    assert [task.num_prompts for task in early.tasks] == [1, 0]
    assert not early.complete
    assert early.tasks[1].tokens_per_verify is None
    assert early.to_dict()["tasks"]["long"]["tokens_per_verify"] is None


@pytest.mark.parametrize("max_new_tokens", [1, 2, 3])
def test_answers_shorter_than_a_block_are_evaluated(target, drafter, max_new_tokens):
    # Block 4, prompts of one token, answers of 1 to 3: nothing, or one shortened block each.
    found = evaluate(target, drafter, [[5], [6], [7]], max_new_tokens=max_new_tokens)
    assert found.overall.num_tokens == 3 * max_new_tokens
    assert found.num_mismatches == 0
    assert (found.tokens_per_verify is None) == (max_new_tokens == 1)


def test_sampled_evaluation_counts_no_mismatches(target, drafter):
    # Outputs are drawn, so they differ by chance; the same seed gives the same evaluation.
    runs = [
        evaluate(target, drafter, PROMPTS, max_new_tokens=6, temperature=1.0, seed=3)
        for _ in range(2)
    ]
    assert runs[0].num_mismatches is None
    outputs = [[pair.drafted.token_ids for pair in run.overall.pairs] for run in runs]
    assert outputs[0] == outputs[1]
    assert len(set(outputs[0])) == len(outputs[0])


def test_targets_with_state_report_their_re_runs(drafter):
    # What a rejected draft costs them shows beside the acceptance.
    hybrid = Target(tiny_qwen35())
    found = evaluate(hybrid, random_proposer(4, VOCAB), [[1, 2, 3]], max_new_tokens=6)
    assert found.num_mismatches == 0
    assert found.to_dict()["num_reruns"] > 0


@pytest.mark.parametrize("prompts", [[], {}, {"a": []}])
def test_no_prompts_are_refused(target, drafter, prompts):
    # There is nothing to tell then, and no figure to invent.
    with pytest.raises(DataError, match="no prompts"):
        evaluate(target, drafter, prompts)
