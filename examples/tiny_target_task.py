"""The tiny target's task: notes of fields in, the same fields as JSON, in capitals or reversed.

A prompt names a format and lists fields, one a line; the answer writes them in that format:

    json                    {"city": "tovi ramo", "age": "41"}
    city=tovi ramo   ->
    age=41

What comes next is nearly always decided by the prompt, yet by its contents, not by habit: that is
where a drafter can only be good if it reads the target's features. Values are random syllables, so
no prompt is met twice; the number of fields has a heavy tail, and answers run from about ten to
some five hundred characters.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

TASKS = ("json", "capitals", "reverse")
MOST_FIELDS = 24
HELD_OUT_OF_256 = 26
"""Prompts whose hash falls below this are held out: no target and no drafter trains on them."""

_KEYS = (
    "age bird boat book city coat colour cup desk dish door drink farm field fish food friend "
    "game garden gift hat hobby home job lake lamp language meal month name number pet place "
    "plant river road room school season shop song street tool town train tree uncle"
)
_ONSETS = ("b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "ch", "tr")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "ou")


@dataclass(frozen=True)
class Exercise:
    """A prompt and its right answer.

    Attributes:
        task: one of ``TASKS``.
        prompt: what the user says.
        answer: what the target should say.
    """

    task: str
    prompt: str
    answer: str

    @property
    def messages(self) -> list[dict[str, str]]:
        """The user's turn, as chat templates take it."""
        return [{"role": "user", "content": self.prompt}]


def is_held_out(prompt: str) -> bool:
    """Whether a prompt belongs to evaluation: a property of its text alone."""
    return hashlib.blake2b(prompt.encode(), digest_size=1).digest()[0] < HELD_OUT_OF_256


def exercises(
    count: int, seed: int, *, held_out: bool = False, most_fields: int = MOST_FIELDS
) -> list[Exercise]:
    """Different exercises, all held out or none; the same for the same arguments."""
    generator = random.Random(f"{seed}/{held_out}/{most_fields}")  # noqa: S311
    found: dict[str, Exercise] = {}
    while len(found) < count:
        exercise = _exercise(generator, most_fields)
        if is_held_out(exercise.prompt) == held_out:
            found.setdefault(exercise.prompt, exercise)
    return list(found.values())


def _exercise(generator: random.Random, most_fields: int) -> Exercise:
    task = generator.choice(TASKS)
    count = min(max(1, round(generator.lognormvariate(1.3, 0.75))), most_fields)
    fields = [(key, _value(generator)) for key in generator.sample(_KEYS.split(), count)]
    prompt = "\n".join([task, *(f"{key}={value}" for key, value in fields)])
    return Exercise(task, prompt, _answer(task, fields))


def _answer(task: str, fields: list[tuple[str, str]]) -> str:
    if task == "json":
        return "{" + ", ".join(f'"{key}": "{value}"' for key, value in fields) + "}"
    if task == "capitals":
        return "\n".join(f"| {key} | {value.upper()} |" for key, value in fields)
    return "\n".join(f"{key}: {value}" for key, value in reversed(fields))


def _value(generator: random.Random) -> str:
    if generator.random() < 0.15:
        return str(generator.randint(10, 9999))
    words = generator.choices((1, 2, 3), weights=(6, 3, 1))[0]
    return " ".join(_word(generator) for _ in range(words))


def _word(generator: random.Random) -> str:
    syllables = generator.randint(2, 4)
    return "".join(generator.choice(_ONSETS) + generator.choice(_VOWELS) for _ in range(syllables))
