"""Answers from the built-in target: transformers' ``generate`` on batches of similar length.

Prompts are padded on the left. A model may let that padding into its result (recurrent layers
whose code does not mask it, positions that count from the row's start), so before the first batch
the target is asked once, with and without padding; if the two differ, only prompts of equal length
go together.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from lengthwise.core.config import BatchingConfig
from lengthwise.core.limits import BatchLimits
from lengthwise.core.planner import build_plan
from lengthwise.dflash.prepare.answers import Answer
from lengthwise.dflash.prepare.sampling import KeyedSampler
from lengthwise.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from lengthwise.dflash.prepare.answers import Request
    from lengthwise.dflash.prepare.settings import GenerationSettings
    from lengthwise.dflash.target import Target

PROBE_TOKENS = 16
"""Tokens of the prompt that the target is asked with and without padding, and of the padding."""
_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
_LOOSE = 0.1
"""Relative difference of logits that padding may make: rounding only, in half precision more."""


class TargetAnswers:
    """Answers from a target in this process."""

    def __init__(
        self,
        target: Target,
        settings: GenerationSettings,
        stop_ids: tuple[int, ...],
        *,
        batch_tokens: int,
        max_batch_size: int | None = None,
    ) -> None:
        """Generate with ``target``.

        A batch has rows x (longest prompt + max_new_tokens) tokens, at most ``batch_tokens``; a
        longer row goes alone.
        """
        self._target = target
        self._settings = settings
        self._stop_ids = stop_ids
        self._limits = BatchLimits(batch_tokens, max_batch_size)
        self.pads: bool | None = None
        """Whether prompts of different lengths go together; None before the first batch."""

    def answer(
        self, requests: Sequence[Request], report: Callable[[int, Answer], None]
    ) -> list[Answer]:
        """An answer to each request, in order.

        Raises:
            ModelError: a prompt has tokens that the target does not know.
        """
        for request in requests:
            _check_known(request, self._target.vocab_size)
        found: list[Answer | None] = [None] * len(requests)
        if self.pads is None and requests:
            longest = max(requests, key=lambda request: len(request.prompt_ids))
            self.pads = not padding_matters(self._target, longest.prompt_ids[:PROBE_TOKENS])
        for batch in self._batches([len(request.prompt_ids) for request in requests]):
            answers = self._generate([requests[place] for place in batch])
            for place, answer in zip(batch, answers, strict=True):
                found[place] = answer
                report(place, answer)
        return [answer for answer in found if answer is not None]

    def _batches(self, lengths: list[int]) -> Iterator[list[int]]:
        """Places of the requests of each batch, by lengthwise's own plan."""
        if not lengths:
            return
        if self.pads:
            yield from self._plan(lengths, list(range(len(lengths))))
            return
        for length in sorted(set(lengths)):
            equal = [place for place, one in enumerate(lengths) if one == length]
            yield from self._plan(lengths, equal)

    def _plan(self, lengths: list[int], places: list[int]) -> Iterator[list[int]]:
        totals = np.array([lengths[place] for place in places]) + self._settings.max_new_tokens
        config = BatchingConfig(limits=self._limits, strategy="sorted", oversize="single")
        for batch in build_plan(totals, config):
            yield [places[index] for index in sorted(batch.tolist())]

    def _generate(self, requests: list[Request]) -> list[Answer]:
        from transformers import LogitsProcessorList

        rows = [request.prompt_ids for request in requests]
        ids, mask = pad_left(rows, self._stop_ids[0])
        processors = LogitsProcessorList()
        if self._settings.temperature > 0:
            keys = [(request.row, request.turn) for request in requests]
            processors.append(KeyedSampler(self._settings, keys, ids.shape[1]))
        device = self._target.device
        with _own_settings(self._target.model), torch.no_grad():
            out = self._target.model.generate(
                input_ids=ids.to(device),
                attention_mask=mask.to(device),
                generation_config=self._config(),
                logits_processor=processors,
            )
        return [self._cut(row) for row in out[:, ids.shape[1] :].tolist()]

    def _config(self) -> Any:
        return _generation_config(
            max_new_tokens=self._settings.max_new_tokens,
            eos_token_id=list(self._stop_ids),
            pad_token_id=self._stop_ids[0],
        )

    def _cut(self, row: list[int]) -> Answer:
        for place, token in enumerate(row):
            if token in self._stop_ids:
                return Answer(tuple(row[: place + 1]), finished=True)
        return Answer(tuple(row), finished=False)


def _check_known(request: Request, vocab_size: int) -> None:
    largest = max(request.prompt_ids)
    if largest >= vocab_size:
        raise ModelError(
            f"the tokenizer gives token {largest:,}, and the target's vocabulary ends at "
            f"{vocab_size - 1:,}: they do not belong together"
        )


def _generation_config(**settings: Any) -> Any:
    from transformers import GenerationConfig

    make: Any = GenerationConfig  # untyped upstream
    return make(do_sample=False, use_cache=True, **settings)


@contextmanager
def _own_settings(model: Any) -> Iterator[None]:
    """Without the checkpoint's generation settings, which transformers mixes into given ones.

    A repetition penalty from there would make answers that plain decoding never gives.
    """
    kept = model.generation_config
    model.generation_config = _generation_config()
    try:
        yield
    finally:
        model.generation_config = kept


def pad_left(rows: Sequence[Sequence[int]], pad_id: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Prompts as one tensor, padding first, and its mask; both int64 (R, S)."""
    width = max(map(len, rows))
    ids = torch.full((len(rows), width), pad_id, dtype=torch.int64)
    mask = torch.zeros((len(rows), width), dtype=torch.int64)
    for place, row in enumerate(rows):
        ids[place, width - len(row) :] = torch.tensor(row, dtype=torch.int64)
        mask[place, width - len(row) :] = 1
    return ids, mask


def padding_matters(target: Target, prompt_ids: Sequence[int]) -> bool:
    """Whether padding on the left changes what the target says after a prompt.

    Two tokens are generated with and without it, so that both ways through the model are asked:
    the whole prompt at once, and one token on top of the cache.
    """
    padded = (0,) * PROBE_TOKENS + tuple(prompt_ids)
    mask = torch.tensor([[0] * PROBE_TOKENS + [1] * len(prompt_ids)])
    alone = _two_steps(target, torch.tensor([list(prompt_ids)]), torch.ones(1, len(prompt_ids)))
    beside = _two_steps(target, torch.tensor([padded]), mask)
    allowed = _TOLERANCE.get(target.dtype, _LOOSE)
    for first, second in zip(alone, beside, strict=True):
        error = float((first - second).norm() / first.norm().clamp_min(1e-12))
        if not error <= allowed:
            return True
        if int(first.argmax()) != int(second.argmax()):
            return False  # a tie, decided by rounding; what follows is another text
    return False


def _two_steps(target: Target, ids: torch.Tensor, mask: torch.Tensor) -> list[torch.Tensor]:
    config = _generation_config(
        max_new_tokens=2,
        pad_token_id=0,
        output_logits=True,
        return_dict_in_generate=True,
    )
    with _own_settings(target.model), torch.no_grad():
        out = target.model.generate(
            input_ids=ids.to(target.device),
            attention_mask=mask.to(target.device, torch.int64),
            generation_config=config,
        )
    return [step[0].double() for step in out.logits]
