"""Tables of step times: what stands between the knots, what beyond them, what is refused."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.core.cost import StepTime, TableTime, resolve_objective
from lengthwise.errors import ConfigError

TABLE = TableTime(
    tokens=(0, 1000, 4000), longest=(10, 110), seconds=((1.0, 2.0, 8.0), (1.0, 6.0, 24.0))
)


def at(table, size, longest):
    return float(table(np.array([size]), np.array([longest]))[0])


def twin(table, tokens, longest):
    """The same table in plain Python: along each row, then between rows, by the docstring."""

    def along(row):
        for place in range(1, len(table.tokens)):
            if tokens <= table.tokens[place] or place == len(table.tokens) - 1:
                left, right = table.tokens[place - 1], table.tokens[place]
                slope = (row[place] - row[place - 1]) / (right - left)
                return row[place - 1] + slope * (tokens - left)
        raise AssertionError

    rows, knots = table.seconds, table.longest
    if longest <= knots[0] or len(knots) == 1:
        return along(rows[0])
    for place in range(1, len(knots)):
        if longest <= knots[place]:
            share = (longest - knots[place - 1]) / (knots[place] - knots[place - 1])
            return (1 - share) * along(rows[place - 1]) + share * along(rows[place])
    # Above the last row each rise from entry to entry goes on growing, or stays.
    share = (longest - knots[-1]) / (knots[-1] - knots[-2])
    far = []
    for place in range(len(table.tokens)):
        before = [row[place] - (row[place - 1] if place else 0.0) for row in rows[-2:]]
        rise = before[1] + share * max(before[1] - before[0], 0.0)
        far.append((far[-1] if far else 0.0) + rise)
    return along(far)


@pytest.mark.parametrize(
    ("size", "longest", "expected"),
    [
        (100, 10, 2.0),  # a knot: 1000 tokens at longest 10
        (50, 10, 1.5),  # half-way from 0 to 1000 tokens
        (800, 10, 16.0),  # 8000 tokens: the last slope, 6 s for 3000 tokens, goes on: 8 + 8
        (200, 5, 2.0),  # below the first longest its row holds: 1000 tokens
        (100, 60, 24.0),  # 6000 tokens half-way between rows: (8 + 4 + 24 + 12) / 2
    ],
)
def test_a_table_is_linear_between_its_knots(size, longest, expected):
    # Each expectation is worked out beside its case.
    assert at(TABLE, size, longest) == pytest.approx(expected)


def test_above_the_last_longest_a_rise_goes_on():
    # From longest 10 to 110 the entry at 0 tokens stays 1 s, the rise to 1000 tokens goes from
    # 1 to 5 s; at 210 it is 9 s: 1 + 9 * 420 / 1000 for two samples.
    assert at(TABLE, 2, 210) == pytest.approx(1 + 9 * 0.42)


def test_above_the_last_longest_a_fall_stops():
    # Long samples are cheaper here, but going on would reach 0 at longest 210.
    falling = TableTime(tokens=(0, 1000), longest=(10, 110), seconds=((0, 2), (0, 1)))
    assert at(falling, 10, 110) == at(falling, 1, 1100) == pytest.approx(1.1)


@given(
    st.floats(0, 1), st.floats(0, 1e-3), st.floats(0, 1e-6),
    st.integers(1, 500), st.integers(10, 5_000),
)  # fmt: skip
def test_a_table_holds_every_formula_exactly(fixed, linear, squared, size, longest):
    # The formula is linear in n * m and in m, so knots at any places reproduce it, from the first
    # longest up, inside and outside.
    fixed += 1e-6
    tokens, rows = (0.0, 700.0, 5_000.0), (10.0, 300.0, 900.0)
    entries = tuple(tuple(fixed + t * (linear + squared * m) for t in tokens) for m in rows)
    table = TableTime(tokens=tokens, longest=rows, seconds=entries)
    formula = StepTime(
        fixed_seconds=fixed, seconds_per_token=linear, seconds_per_token_squared=squared
    )
    assert at(table, size, longest) == pytest.approx(at(formula, size, longest), rel=1e-9)


@st.composite
def tables(draw):
    columns, rows = draw(st.integers(2, 4)), draw(st.integers(1, 4))
    tokens = np.cumsum(draw(st.lists(st.integers(1, 900), min_size=columns, max_size=columns)))
    longest = np.cumsum(draw(st.lists(st.integers(1, 90), min_size=rows, max_size=rows)))
    rise = st.lists(st.floats(0, 10), min_size=columns, max_size=columns)
    seconds = [np.cumsum(draw(rise)) + 0.5 for _ in range(rows)]
    return TableTime(
        tokens=tuple(tokens - tokens[0]), longest=tuple(longest), seconds=tuple(map(tuple, seconds))
    )


@given(tables(), st.integers(1, 60), st.integers(1, 500))
def test_every_table_equals_its_plain_twin_and_its_weights(table, size, longest):
    # The twin interpolates by the docstring; the weights say the same as a linear function of the
    # rises; and both are never negative and never fall with another sample.
    value = at(table, size, longest)
    assert value == pytest.approx(twin(table, size * longest, longest), rel=1e-9)
    rises = np.diff(np.array(table.seconds), axis=1, prepend=0.0)
    weights = table.weights(np.array([size]), np.array([longest]))[0]
    assert float((weights * rises).sum()) == pytest.approx(value, rel=1e-9)
    assert value >= 0
    assert at(table, size + 1, longest) >= value * (1 - 1e-12)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"tokens": (5, 1000, 4000)}, "rise from 0"),
        ({"tokens": (0, 1000, 1000)}, "rise from 0"),
        ({"longest": (110, 10)}, "longest must rise"),
        ({"longest": (10,)}, "a row for each"),
        ({"seconds": ((1, 2, 8), (1, 6))}, "a row for each"),
        ({"seconds": ((1, 2, 8), (1, 0.5, 24))}, "must not fall"),
        ({"seconds": ((-1, 2, 8), (1, 6, 24))}, "not negative"),
        ({"seconds": ((0, 0, 0), (0, 0, 0))}, "not all 0"),
        ({"seconds": ((1, 2, float("inf")), (1, 6, 24))}, "finite"),
    ],
)
def test_tables_that_make_no_sense_are_refused(changed, words):
    # Each breaks one rule of the docstring.
    values = {"tokens": TABLE.tokens, "longest": TABLE.longest, "seconds": TABLE.seconds}
    with pytest.raises(ConfigError, match=words):
        TableTime(**{**values, **changed})


def test_boundaries_are_optimised_for_seconds_with_a_table():
    # Like a formula, a table's unit is seconds.
    assert resolve_objective(TABLE) == ("seconds", TABLE)
