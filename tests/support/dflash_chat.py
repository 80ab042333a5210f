"""Tokenizers made on the spot, a character a token, and chat templates of the usual kinds.

Ids are those of the tiny models: 94 characters, then the two special tokens. A character's id is
its place in ``CHARACTERS``, so an oracle encodes without a tokenizer.
"""

from __future__ import annotations

import tokenizers
from transformers import PreTrainedTokenizerFast

CHARACTERS = "\n" + "".join(map(chr, range(32, 125)))
END, START = "<|im_end|>", "<|im_start|>"
END_ID, START_ID = 94, 95

CHATML = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HEADERS = (
    "{% for message in messages %}"
    "{{ '[h]' + message.role + '[/h]\n\n' + message.content | trim + '<|im_end|>' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '[h]assistant[/h]\n\n' }}{% endif %}"
)
MARKED = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message.role + '\n' }}"
    "{% if message.role == 'assistant' %}"
    "{% generation %}{{ message.content + '<|im_end|>' }}{% endgeneration %}"
    "{% else %}{{ message.content + '<|im_end|>' }}{% endif %}"
    "{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
FORGETFUL = (
    "{% for message in messages %}"
    "{% set content = message.content %}"
    "{% if message.role == 'assistant' and not loop.last and '</t>' in content %}"
    "{% set content = content.split('</t>')[-1] %}{% endif %}"
    "{{ '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '<t></t>' }}{% endif %}"
    "{% endif %}"
)
"""Drops what stands before ``</t>`` in every answer but the last, as thinking models do."""


def char_tokenizer(template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """A fast tokenizer with 96 ids; its end of sequence is ``<|im_end|>``."""
    vocabulary = {character: place for place, character in enumerate(CHARACTERS)}
    inner = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    inner.decoder = tokenizers.decoders.Fuse()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token=END, additional_special_tokens=[START]
    )
    tokenizer.chat_template = template
    assert len(tokenizer) == 96
    return tokenizer


def encode(text: str) -> list[int]:
    """The ids of a text, by hand."""
    ids: list[int] = []
    while text:
        for special, number in ((END, END_ID), (START, START_ID)):
            if text.startswith(special):
                ids.append(number)
                text = text[len(special) :]
                break
        else:
            ids.append(CHARACTERS.index(text[0]))
            text = text[1:]
    return ids


def pieces(*parts: tuple[str, bool]) -> tuple[list[int], list[bool]]:
    """Ids and mask of (text, whether it has loss) written one after the other."""
    ids: list[int] = []
    mask: list[bool] = []
    for text, loss in parts:
        more = encode(text)
        ids += more
        mask += [loss] * len(more)
    return ids, mask


def read_samples(directory) -> list[dict]:
    """Every row of every shard, in order."""
    import pyarrow.parquet as pq

    files = sorted(directory.glob("samples-*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]
