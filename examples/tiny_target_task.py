"""The tiny target's task: short notes in, the same as sentences or as a table.

A prompt names a form and lists notes, a topic and a level a line; the answer says them in words:

    report                  The rain in the valley is slowly coming to an end. The wind from the
    rain 3           ->     west is a little stronger than before.
    wind 1

How a topic and a level are said never changes, so an answer is nearly always decided by its prompt.
But which topic and level come next only the prompt says: a drafter that does not read the target's
states must guess. Prompts are so many that none is met twice by chance, and lengths have a heavy
tail.
"""

from __future__ import annotations

import hashlib
import random
from dataclasses import dataclass

TASKS = ("report", "table")
LEAST_NOTES, MOST_NOTES = 2, 10
HELD_OUT_OF_256 = 26
"""Prompts whose hash falls below this are held out: no target and no drafter trains on them."""

_TOPICS = {
    "rain": "The rain in the valley",
    "wind": "The wind from the west",
    "snow": "The snow on the mountain",
    "fog": "The fog along the coast",
    "tide": "The tide in the harbour",
    "heat": "The heat of the afternoon",
    "smoke": "Smoke above the old factory",
    "dust": "Dust on the northern road",
    "river": "Water in the lower river",
    "traffic": "Traffic across the bridge",
    "crowd": "The crowd near the station",
    "noise": "Noise around the market",
    "music": "Music from the open square",
    "price": "The price of bread and milk",
    "demand": "Demand for winter clothing",
    "queue": "The queue outside the museum",
}
_LEVELS = (
    "as calm as it ever was",
    "a little stronger than before",
    "far too much for comfort",
    "slowly coming to an end",
    "expected to last all week",
    "hardly worth a mention",
)


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
    count: int, seed: int, *, held_out: bool = False, most_notes: int = MOST_NOTES
) -> list[Exercise]:
    """Different exercises, all held out or none; the same for the same arguments."""
    generator = random.Random(f"{seed}/{held_out}/{most_notes}")  # noqa: S311
    found: dict[str, Exercise] = {}
    while len(found) < count:
        exercise = _exercise(generator, most_notes)
        if is_held_out(exercise.prompt) == held_out:
            found.setdefault(exercise.prompt, exercise)
    return list(found.values())


def _exercise(generator: random.Random, most_notes: int) -> Exercise:
    task = generator.choice(TASKS)
    count = min(max(LEAST_NOTES, round(generator.lognormvariate(1.2, 0.5))), most_notes)
    notes = [
        (topic, generator.randrange(len(_LEVELS))) for topic in generator.sample([*_TOPICS], count)
    ]
    prompt = "\n".join([task, *(f"{topic} {level}" for topic, level in notes)])
    return Exercise(task, prompt, _answer(task, notes))


def _answer(task: str, notes: list[tuple[str, int]]) -> str:
    if task == "report":
        return " ".join(f"{_TOPICS[topic]} is {_LEVELS[level]}." for topic, level in notes)
    return "\n".join(f"| {topic} | {_LEVELS[level]} |" for topic, level in notes)
