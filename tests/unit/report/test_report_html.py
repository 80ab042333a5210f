"""The page as text: complete, self-contained, and safe with hostile names."""

from __future__ import annotations

import re
from functools import cache
from html.parser import HTMLParser
from typing import Any

import pytest

from lengthwise.report import render_html
from lengthwise.report.data import ReportData
from support.report_fixture import comparison, smallest_comparison


@cache
def full_page() -> str:
    return render_html(ReportData.from_dict(comparison()))


class Outline(HTMLParser):
    """Collects what the tests ask for: tags with attributes, open elements, ids."""

    VOID = frozenset({"meta", "img", "source", "br", "link", "input"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, f"</{tag}> closes something else"

    def having(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


@pytest.mark.parametrize("make", [comparison, smallest_comparison])
def test_every_element_is_closed_and_every_id_is_unique(make: Any):
    outline = Outline(render_html(ReportData.from_dict(make())))
    assert outline.open == []
    ids = [attributes["id"] for _, attributes in outline.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_nothing_in_the_page_points_to_the_network():
    page = full_page()
    for tag, attributes in Outline(page).tags:
        for name in ("src", "href", "srcset", "action", "data", "poster"):
            address = attributes.get(name)
            assert address is None or address.startswith(("data:", "#")), (tag, name, address)
    styles = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert not [rule for rule in styles if "url(" in rule or "@import" in rule]


def test_the_page_forbids_itself_to_load_anything():
    # The browser then refuses what this project might overlook.
    policies = [
        attributes["content"]
        for attributes in Outline(full_page()).having("meta")
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert len(policies) == 1
    assert policies[0] is not None
    assert "default-src 'none'" in policies[0]
    assert "http" not in policies[0]
    assert "unsafe-eval" not in policies[0]


def test_every_label_refers_to_an_element_that_exists():
    outline = Outline(full_page())
    ids = {attributes.get("id") for _, attributes in outline.tags}
    for _, attributes in outline.tags:
        for name in ("aria-labelledby", "aria-describedby"):
            assert attributes.get(name) is None or attributes[name] in ids


def test_every_plot_has_a_picture_with_a_text_alternative():
    outline = Outline(full_page())
    figures = [a for a in outline.having("figure") if a.get("class") == "plot"]
    pictures = outline.having("img")
    assert len(figures) == len(pictures) == 7
    assert all(len(picture["alt"] or "") > 20 for picture in pictures)


def test_every_table_has_a_caption():
    outline = Outline(full_page())
    assert len(outline.having("caption")) == len(outline.having("table")) > 0


def test_hostile_labels_stay_text():
    # Column names, file names and warnings come from users' data.
    evil = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"
    whole = comparison(warnings=[evil], reason=evil)
    whole["strategies"]["random"]["label"] = evil
    whole["frontier"][0]["family"] = evil
    whole["provenance"]["source"] = evil
    outline = Outline(render_html(ReportData.from_dict(whole)))
    assert outline.open == []
    assert not [a for a in outline.having("img") if a.get("src") == "x"]
    assert len(outline.having("script")) == len(Outline(full_page()).having("script"))


def test_sections_without_figures_are_left_out():
    page = render_html(ReportData.from_dict(smallest_comparison()))
    headings = re.findall(r'<h2 id="(\w+)"', page)
    assert headings == ["recommended", "strategies", "words", "reproduce"]


def test_the_same_comparison_gives_the_same_page():
    # Byte for byte: no clock and no random ids, so that two reports can be compared.
    assert render_html(ReportData.from_dict(comparison())) == full_page()
