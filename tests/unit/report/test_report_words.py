"""Numbers as text, and the sentences of the report."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.report.data import ReportData
from lengthwise.report.words import (
    GLOSSARY,
    headline,
    measure,
    renewal,
    seconds,
    share,
    signed,
    significant,
)
from support.report_fixture import comparison, smallest_comparison


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.9736, "97.4 %"),
        (1.0, "100.0 %"),
        (0.0, "0.0 %"),
        (0.99998, "99.998 %"),
        (0.9999999, "> 99.999 %"),
        (0.00002, "0.002 %"),
        (1e-9, "< 0.001 %"),
        (None, "–"),
    ],
)
def test_a_share_is_a_percentage(value: float | None, text: str):
    assert share(value) == text


@given(st.floats(min_value=0, max_value=1, exclude_min=True, exclude_max=True))
def test_a_share_strictly_inside_never_reads_as_none_or_all(value: float):
    # "100.0 %" for a plan that still pads would be a lie, "0.0 %" likewise.
    assert float(share(value).strip("<> %")) not in {0.0, 100.0}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.000762, "0.00076"), (27.0, "27"), (140.2, "140"), (1_234.5, "1,234"), (0, "0"), (1.0, "1")],
)
def test_significant_digits_have_no_exponent(value: float, text: str):
    assert significant(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(2e-9, "< 0.001"), (0.0, "0"), (0.003, "0.003"), (27.4, "27"), (None, "–")]
)
def test_a_figure_below_a_thousandth_has_no_row_of_zeros(value: float | None, text: str):
    assert measure(value) == text


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_significant_digits_are_within_half_of_the_last_place(value: float):
    # Two significant digits: at most 5 % off, at 1.05 shown as 1.1 or 1.0.
    assert float(significant(value).replace(",", "")) == pytest.approx(value, rel=0.0501)


@pytest.mark.parametrize(
    ("value", "text"), [(0.89, "+0.89"), (-0.5, "−0.50"), (-0.001, "0.00"), (None, "–")]
)
def test_a_correlation_has_a_sign_unless_it_rounds_to_nothing(value: float | None, text: str):
    assert signed(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(4.5e-7, "0.45 µs"), (0.018, "18 ms"), (2.14, "2.1 s"), (312.0, "312 s"), (0.0, "0 µs")],
)
def test_a_duration_has_the_unit_that_suits_it(value: float, text: str):
    assert seconds(value) == text


def test_the_headline_says_what_padding_costs_and_what_the_plan_gets():
    # 1 - 0.4821 of tokens are padding at random, 1 - 0.98 in the plan; 1 - 40260/82721 = 51.3 %.
    text = headline(ReportData.from_dict(comparison()))
    for part in ("51.8 %", "2.0 %", "40,260 batches instead of 82,721 (51.3 % fewer)"):
        assert part in text


def without_gain() -> dict[str, Any]:
    whole = smallest_comparison()
    whole["strategies"]["random"]["efficiency"] = 0.8999
    return whole


def test_the_headline_claims_no_gain_where_there_is_none():
    assert "little to win" in headline(ReportData.from_dict(without_gain()))


def test_the_headline_without_a_random_row_speaks_of_the_plan_alone():
    whole = smallest_comparison()
    del whole["strategies"]["random"]
    text = headline(ReportData.from_dict(whole))
    assert text.startswith("The recommended plan (windowed) reaches 90.0 % efficiency")


def test_the_headline_without_a_recommendation_names_the_best():
    whole = smallest_comparison()
    whole["strategies"]["windowed"]["recommended"] = False
    assert headline(ReportData.from_dict(whole)).endswith("90.0 % (windowed).")


@pytest.mark.parametrize(
    ("rate", "part"),
    [(0.0, "no two samples"), (1.0, "every two"), (0.25, "25.0 %"), (0.0005, "one in 2,000")],
)
def test_a_repeat_rate_in_words(rate: float, part: str):
    assert part in renewal(rate)


def test_every_word_of_the_glossary_is_explained_once():
    names = [term.name for term in GLOSSARY]
    assert len(set(names)) == len(names)
    assert all(term.meaning.endswith(".") for term in GLOSSARY)
