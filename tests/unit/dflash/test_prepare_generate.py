"""Answers of the built-in target, against greedy decoding written out: no cache, no padding."""

import pytest
import torch

from lengthwise.dflash.prepare.answers import Request
from lengthwise.dflash.prepare.generate import TargetAnswers, pad_left, padding_matters
from lengthwise.dflash.prepare.sampling import draw
from lengthwise.dflash.prepare.settings import GenerationSettings
from lengthwise.dflash.target import Target
from lengthwise.errors import ModelError
from support import dflash_models
from support.dflash_chat import END_ID

LENGTHS = (3, 17, 1, 9, 17, 5)


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def requests_of(lengths=LENGTHS):
    generator = torch.Generator().manual_seed(5)
    return [
        Request(row, 0, tuple(torch.randint(0, 90, (n,), generator=generator).tolist()), ())
        for row, n in enumerate(lengths)
    ]


def ask(target, requests, *, batch_tokens=1000, max_batch_size=None, stop=(END_ID,), **settings):
    settings = GenerationSettings(**{"max_new_tokens": 12, **settings})
    answers = TargetAnswers(
        target, settings, stop, batch_tokens=batch_tokens, max_batch_size=max_batch_size
    )
    reported = {}
    found = answers.answer(requests, reported.__setitem__)
    assert [reported[place] for place in range(len(requests))] == found
    return found, answers


@torch.no_grad()
def greedy(model, ids, max_new_tokens, stop):
    """The definition: run everything again for every token, alone, without a cache."""
    ids, new = list(ids), []
    while len(new) < max_new_tokens:
        token = int(model(torch.tensor([ids]), use_cache=False).logits[0, -1].argmax())
        ids.append(token)
        new.append(token)
        if token in stop:
            break
    return tuple(new)


MODELS = [
    *("tiny_llama", "tiny_qwen3", "tiny_gemma2", "tiny_gpt2", "tiny_neox"),
    *("tiny_hybrid", "tiny_qwen35", "tiny_mamba2"),
]
"""The last line's have recurrent layers."""


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_answers_as_each_prompt_would_be_answered_alone(name):
    # Prompts of six lengths in one batch, padded on the left; the oracle sees each alone. A token
    # that greedy answers contain is made the stop token, so that some answers end early.
    model = getattr(dflash_models, name)()
    requests = requests_of()
    stop = (END_ID, greedy(model, requests[0].prompt_ids, 5, ())[4])
    expected = [greedy(model, one.prompt_ids, 12, stop) for one in requests]
    found, answers = ask(Target(model), requests, stop=stop)
    assert [one.token_ids for one in found] == expected
    assert [one.finished for one in found] == [ids[-1] in stop for ids in expected]
    assert any(one.finished for one in found)
    assert all(one.exact for one in found)
    assert answers.pads is not None


def test_a_target_whose_recurrent_layers_mask_padding_takes_mixed_lengths():
    # The fact itself, so that a change in transformers that loses it is seen here.
    assert not padding_matters(Target(dflash_models.tiny_hybrid()), range(9))
    assert not padding_matters(Target(dflash_models.tiny_llama()), range(9))


class Leaking:
    """A target that does not look at the mask: padding takes part in everything."""

    def __init__(self, target):
        self._target = target
        self.device, self.dtype, self.config = target.device, target.dtype, target.config
        self.vocab_size = target.vocab_size
        self.widths = []
        self.model = self
        self.generation_config = target.model.generation_config

    def generate(self, input_ids, attention_mask, **more):
        self.widths.append(tuple(input_ids.shape))
        return self._target.model.generate(
            input_ids=input_ids, attention_mask=torch.ones_like(attention_mask), **more
        )


def test_a_target_that_lets_padding_in_gets_prompts_of_equal_length_only():
    model = dflash_models.tiny_llama()
    target = Leaking(Target(model))
    requests = requests_of()
    found, answers = ask(target, requests)
    assert answers.pads is False
    expected = [greedy(model, one.prompt_ids, 12, (END_ID,)) for one in requests]
    assert [one.token_ids for one in found] == expected
    # Two calls of the probe, then a batch for each of five lengths, the two of 17 together.
    assert sorted(target.widths[2:]) == [(1, 1), (1, 3), (1, 5), (1, 9), (2, 17)]


@pytest.mark.parametrize(
    ("batch_tokens", "max_batch_size", "most_rows"), [(60, None, 60), (1000, 2, 2), (20, None, 1)]
)
def test_batches_stay_within_the_budget_and_answers_do_not_change(
    batch_tokens, max_batch_size, most_rows
):
    model = dflash_models.tiny_llama()
    shapes = []
    plain = model.generate

    def watched(input_ids, **more):
        shapes.append(tuple(input_ids.shape))
        return plain(input_ids=input_ids, **more)

    model.generate = watched
    requests = requests_of()
    found, _ = ask(
        Target(model), requests, batch_tokens=batch_tokens, max_batch_size=max_batch_size
    )
    assert [one.token_ids for one in found] == [
        greedy(model, one.prompt_ids, 12, (END_ID,)) for one in requests
    ]
    for rows, width in shapes[2:]:  # after the two of the probe
        assert rows == 1 or rows * (width + 12) <= batch_tokens
        assert rows <= most_rows
    assert sum(rows for rows, _ in shapes[2:]) == len(requests)


def test_the_checkpoints_own_generation_settings_do_not_bend_the_answers():
    # transformers mixes a checkpoint's repetition penalty into any settings given to generate().
    model = dflash_models.tiny_llama()
    model.generation_config.repetition_penalty = 50.0
    model.generation_config.temperature = 3.0
    kept = model.generation_config
    requests = requests_of()
    found, _ = ask(Target(model), requests)
    assert [one.token_ids for one in found] == [
        greedy(model, one.prompt_ids, 12, (END_ID,)) for one in requests
    ]
    assert model.generation_config is kept


def test_sampled_answers_do_not_depend_on_the_batch_and_do_on_the_seed():
    target = Target(dflash_models.tiny_llama())
    requests = requests_of()
    together, _ = ask(target, requests, temperature=1.0, seed=1)
    apart = [ask(target, [one], temperature=1.0, seed=1)[0][0] for one in requests]
    assert together == apart
    again, _ = ask(target, requests[::-1], temperature=1.0, seed=1, max_batch_size=2)
    assert again[::-1] == together
    other, _ = ask(target, requests, temperature=1.0, seed=2)
    assert other != together
    assert together[1].token_ids != together[4].token_ids
    torch.manual_seed(0)
    moved = torch.random.get_rng_state()
    ask(target, requests[:1], temperature=1.0, seed=1)
    assert torch.equal(torch.random.get_rng_state(), moved)  # no global generator is used


def test_a_draw_is_the_inverse_of_the_cumulative_distribution():
    # Probabilities .5 .3 .15 .05 in another order: the hand-made intervals, likeliest first.
    scores = torch.tensor([[0.15, 0.5, 0.05, 0.3]]).log()
    settings = GenerationSettings(temperature=1.0)

    def at(place, chosen=settings):
        return int(draw(scores, torch.tensor([place], dtype=torch.float64), chosen))

    places = (0.0, 0.49, 0.51, 0.79, 0.81, 0.94, 0.96, 1 - 2**-53)
    assert [at(place) for place in places] == [1, 1, 3, 3, 0, 0, 2, 2]
    # top_p .7 keeps .5 and .3 (the first alone does not reach it): 5/8 and 3/8 of the places.
    narrow = GenerationSettings(temperature=1.0, top_p=0.7)
    assert [at(place, narrow) for place in (0.0, 0.62, 0.63, 1 - 2**-53)] == [1, 1, 3, 3]
    assert at(1 - 2**-53, GenerationSettings(temperature=1.0, top_k=1)) == 1
    assert at(1 - 2**-53, GenerationSettings(temperature=1.0, top_p=1e-9)) == 1
    # At half the temperature probabilities are squared: .25 .09 .0225 .0025 of .365.
    cold = GenerationSettings(temperature=0.5)
    assert [at(place, cold) for place in (0.68, 0.69, 0.92, 0.94)] == [1, 3, 3, 0]


def test_draws_follow_the_distribution():
    # 20,000 draws of four tokens; each share is within 5 standard errors, so a right sampler
    # fails once in about 500,000 runs, and the keys are fixed.
    from lengthwise.dflash.prepare.sampling import KeyedSampler

    shares = torch.tensor([0.15, 0.5, 0.05, 0.3], dtype=torch.float64)
    rows = 20_000
    sampler = KeyedSampler(
        GenerationSettings(temperature=1.0, seed=3), [(row, 0) for row in range(rows)], 4
    )
    out = sampler(torch.zeros(rows, 4, dtype=torch.long), shares.log().expand(rows, 4))
    assert bool((torch.isfinite(out).sum(dim=1) == 1).all())
    found = torch.bincount(out.argmax(dim=1), minlength=4) / rows
    error = (shares * (1 - shares) / rows).sqrt()
    assert bool(((found - shares).abs() < 5 * error).all())


def test_padding_stands_left():
    ids, mask = pad_left([(1, 2, 3), (4,)], 9)
    assert ids.tolist() == [[1, 2, 3], [9, 9, 4]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]


def test_tokens_that_the_target_does_not_know_are_refused():
    target = Target(dflash_models.tiny_llama())
    with pytest.raises(ModelError, match=r"token 96, and the target's vocabulary ends at 95"):
        ask(target, [Request(0, 0, (1, 96), ())])


def test_nothing_to_answer():
    found, answers = ask(Target(dflash_models.tiny_llama()), [])
    assert (found, answers.pads) == ([], None)
