"""The bottleneck in words: where work piles up, and who is busy."""

from __future__ import annotations

from itertools import product

import pytest

from lengthwise.simulate.bottleneck import Load, find_bottleneck


def load(**changes):
    """A pipeline in which nothing is full and nobody is busy."""
    values = {
        "prefetch": 0.0,
        "hidden_states": 0.0,
        "pages": 0.0,
        "target_busy": 0.0,
        "drafter_busy": 0.0,
    }
    return Load(**(values | changes))


def kind(**changes):
    return find_bottleneck(load(**changes)).kind


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # Full prefetch, empty hidden states, busy targets: the case of the original run.
        ({"prefetch": 1, "target_busy": 0.99, "drafter_busy": 0.3}, "targets"),
        # Steps pile up before a busy drafter; its full arena keeps the targets from going on.
        (
            {"hidden_states": 5, "pages": 1, "target_busy": 0.2, "drafter_busy": 0.95},
            "drafter",
        ),
        # The pile need not be of steps: one step a rank is enough to keep it busy.
        ({"pages": 1, "target_busy": 0.2, "drafter_busy": 0.95}, "drafter"),
        # Targets have all they can have, and wait: their samples are not there.
        ({"prefetch": 1, "target_busy": 0.3, "drafter_busy": 0.3}, "reading"),
        # Steps are ready and the drafter waits: it does not get them.
        ({"hidden_states": 3, "target_busy": 0.3, "drafter_busy": 0.3}, "copying"),
        # Neither works, and there is no room for the batch that would complete a step.
        ({"pages": 1, "target_busy": 0.4, "drafter_busy": 0.5}, "channel"),
        # Neither works, and there is room.
        ({"pages": 0.5, "target_busy": 0.4, "drafter_busy": 0.5}, "dispatching"),
        ({"prefetch": 1, "target_busy": 0.9, "drafter_busy": 0.9}, "balanced"),
        # Busy both, but one has time to spare: the other is named.
        ({"prefetch": 1, "target_busy": 0.95, "drafter_busy": 0.75}, "targets"),
        ({"prefetch": 0.2, "target_busy": 0.75, "drafter_busy": 0.95}, "drafter"),
    ],
)
def test_a_typical_load_is_named(changes, expected):
    assert kind(**changes) == expected


@pytest.mark.parametrize(
    ("name", "limit", "below", "from_there", "others"),
    [
        ("target_busy", 0.7, "reading", "targets", {"prefetch": 1, "drafter_busy": 0.1}),
        ("drafter_busy", 0.7, "channel", "drafter", {"pages": 1, "target_busy": 0.1}),
        ("drafter_busy", 0.7, "copying", "drafter", {"hidden_states": 1, "target_busy": 0.1}),
        ("drafter_busy", 0.85, "targets", "balanced", {"target_busy": 0.9}),
        ("target_busy", 0.85, "drafter", "balanced", {"drafter_busy": 0.9}),
        ("hidden_states", 0.5, "targets", "copying", {"target_busy": 0.8}),
        ("prefetch", 0.75, "dispatching", "reading", {}),
        ("pages", 0.95, "dispatching", "channel", {}),
    ],
)
def test_the_limits_are_those_of_the_documentation(name, limit, below, from_there, others):
    # On the limit the upper answer holds, a hair below it the lower one.
    assert kind(**others, **{name: limit}) == from_there
    assert kind(**others, **{name: limit - 1e-9}) == below


def test_every_load_has_exactly_one_answer_with_a_change_to_try():
    # A grid over all limits, and both sides of each.
    shares = (0.0, 0.69, 0.7, 0.75, 0.84, 0.85, 0.95, 1.0)
    for prefetch, pages, target, drafter in product(shares, repeat=4):
        for steps in (0.0, 0.49, 0.5, 7.0):
            found = find_bottleneck(Load(prefetch, steps, pages, target, drafter))
            assert found is not None
            assert found.sentence == f"{found.finding}: {found.advice}."
            if found.kind in {"targets", "reading"}:
                assert steps < 0.5, "the drafter has all it needs"
            if found.kind == "drafter":
                assert drafter >= 0.7
            if found.kind == "channel":
                assert pages >= 0.95


def test_nothing_is_said_before_there_is_something_to_say():
    # While models load and the pool fills everyone waits, which is nobody's fault.
    busy = {"prefetch": 1, "target_busy": 1, "drafter_busy": 0}
    assert find_bottleneck(load(**busy, starting=True)) is None
    assert find_bottleneck(load(**busy | {"target_busy": None})) is None
    assert find_bottleneck(load(**busy | {"drafter_busy": None})) is None
