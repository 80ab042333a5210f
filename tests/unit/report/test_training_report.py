"""The training report: what it reads from records, and the page that comes out."""

from __future__ import annotations

import json
import math
import random
import re
from html.parser import HTMLParser

import pytest

from lengthwise.errors import DataError
from lengthwise.report.data import Provenance
from lengthwise.report.training import TrainingRun, render_training_html, sections
from lengthwise.report.training.curves import mean_of_first, mean_of_last, smoothed, spans, thinned
from lengthwise.report.training.plots import plots
from support.training_records import (
    evaluation_records,
    flow_records,
    pipeline_records,
    step_records,
)

ALL = (
    "acceptance",
    "loss",
    "lengths",
    "accuracy",
    "positions",
    "learning-rate",
    "gradient",
    "speed",
    "step-times",
    "fullness",
    "ready",
    "busy",
)


@pytest.fixture(scope="module")
def page():
    origin = Provenance(source="out/run", command="lengthwise dflash report out/run")
    return render_training_html(TrainingRun.from_records(pipeline_records(), origin))


class Tags(HTMLParser):
    """All tags, and whether each is closed in order."""

    VOID = frozenset({"meta", "img", "source", "br", "link", "input"})

    def __init__(self, page):
        super().__init__()
        self.all, self.open = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.all.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def curves_of(plot):
    """name -> points of every line of a spec."""
    found = {}
    for layer in plot.spec["layer"]:
        kind = layer["mark"]["type"]
        if kind == "line":
            rows = layer["data"]["values"]
            found[rows[0]["name"]] = [(row["x"], row["y"]) for row in rows]
    return found


def test_records_are_told_apart_and_sorted():
    records = pipeline_records()
    random.Random(0).shuffle(records)
    run = TrainingRun.from_records(
        sorted(records, key=lambda one: one.get("flow_seconds", 0))  # flows come in time
    )
    assert [row["step"] for row in run.steps] == list(range(2, 121, 2))
    assert [row["step"] for row in run.evaluations] == [40, 80, 120]
    assert len(run.flows) == 40
    assert run.devices == ["target_0", "target_1", "drafter_0"]
    assert run.positions == [1, 2, 3, 4, 5, 6, 7]
    assert run.lengths == [
        ("loss_length_4_12", "4 to 12 tokens"),
        ("loss_length_13_60", "13 to 60 tokens"),
    ]


def test_steps_made_again_after_an_interruption_replace_the_first():
    # A killed run goes on from its checkpoint; the file then has these steps twice.
    again = [{**record, "loss": 9.0} for record in step_records(5)]
    run = TrainingRun.from_records([*step_records(8), *again])
    assert [row["loss"] == 9.0 for row in run.steps] == [True] * 5 + [False] * 3
    assert run.num_repeated == 5
    assert "5 steps made again" in sections.setting(run)


def test_the_clock_goes_on_where_a_resumed_run_counts_anew():
    run = TrainingRun.from_records([*step_records(2), *flow_records(30), *flow_records(20)])
    seconds = [row["seconds"] for row in run.flows]
    assert seconds == sorted(seconds)
    assert seconds[-1] == 50
    assert run.over_time("flow_prefetch")[-1][0] == 50
    assert run.time_unit == "seconds"


def test_the_unit_of_time_suits_the_run():
    for last, unit in ((100, "seconds"), (400, "minutes"), (20_000, "hours"), (3e5, "days")):
        records = [*step_records(2), *flow_records(1, begin=last)]
        assert TrainingRun.from_records(records).time_unit == unit


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "no record of an optimiser step yet"),
        (evaluation_records(), "no record of an optimiser step yet"),
        ([{"loss": 1.0}], "record 0 has no whole-number step"),
        ([{"step": 1, "loss": 1.0}, {"step": 2.5, "loss": 1.0}], "record 1 has no whole-number"),
        ([{"step": True, "loss": 1.0}], "record 0 has no whole-number step"),
    ],
)
def test_records_that_are_no_run_are_refused(records, message):
    with pytest.raises(DataError, match=message):
        TrainingRun.from_records(records)


def test_unknown_and_non_finite_figures_are_no_points():
    # JSON lines have null where a loss was not finite.
    records = [
        {"step": 1, "loss": 2.0},
        {"step": 2, "loss": None},
        {"step": 3, "loss": math.nan},
        {"step": 4, "loss": True},
        {"step": 5, "loss": 1},
    ]
    run = TrainingRun.from_records(records)
    assert run.over_steps("loss") == [(1.0, 2.0), (5.0, 1.0)]
    assert run.over_steps("grad_norm") == []


def test_thinning_keeps_means_and_extremes():
    points = [(float(x), float(x % 7)) for x in range(1000)]
    few = thinned(points, 300)
    assert len(few) == 250, "groups of four"
    assert few[1] == ((4 + 5 + 6 + 7) / 4, (4 + 5 + 6 + 0) / 4)
    assert sum(y for _, y in few) / 250 == pytest.approx(sum(y for _, y in points) / 1000)
    assert spans(points, 300)[1] == (5.5, 0.0, 6.0)
    assert thinned(points[:300], 300) == points[:300]
    assert thinned([]) == []


def test_smoothing_halves_after_its_half_life():
    points = [(0.0, 0.0)] * 500 + [(1.0, 1.0)] * 10
    # After one half-life half of the old value is left (its weights are all in by then).
    assert smoothed(points, half_life=10)[-1][1] == pytest.approx(0.5, abs=1e-6)
    assert smoothed([(3.0, 7.0)]) == [(3.0, 7.0)]


def test_tenths_have_at_least_one_point():
    points = [(0.0, 1.0), (1.0, 2.0), (2.0, 6.0)]
    assert (mean_of_first(points), mean_of_last(points)) == (1.0, 6.0)
    assert mean_of_first([]) is mean_of_last([]) is None
    many = [(float(x), float(x)) for x in range(100)]
    assert (mean_of_first(many), mean_of_last(many)) == (4.5, 94.5)


def test_every_plot_is_there_and_shows_the_records():
    records = pipeline_records()
    found = plots(TrainingRun.from_records(records))
    assert tuple(found) == ALL
    loss = curves_of(found["loss"])
    assert loss["each step"] == [(row["step"], row["loss"]) for row in step_records()]
    assert loss["held out"] == [(row["step"], row["eval_loss"]) for row in evaluation_records()]
    acceptance = curves_of(found["acceptance"])
    assert acceptance["tokens per verification, held out"] == [(40, 1.25), (80, 1.5), (120, 1.75)]
    busy = curves_of(found["busy"])
    assert {name: points[-1] for name, points in busy.items()} == {
        "target 0": (40, 0.9),
        "target 1": (40, 0.91),
        "drafter 0": (40, 0.4),
    }
    fullness = curves_of(found["fullness"])
    assert fullness["prefetch"] == [(second, 1.0) for second in range(1, 41)]
    assert fullness["arena"][0] == (1, 31 / 74)
    positions = curves_of(found["positions"])
    assert positions["held out, last evaluation"][1] == (2, 0.2)


def test_a_bar_of_one_standard_error_stands_at_each_evaluation():
    spec = plots(TrainingRun.from_records(pipeline_records()))["acceptance"].spec
    (rules,) = [layer for layer in spec["layer"] if layer["mark"]["type"] == "rule"]
    ends = [(row["lo"], row["hi"]) for row in rules["data"]["values"]]
    assert ends[0] == pytest.approx((1.2, 1.3))


def test_many_devices_are_shown_as_means_of_their_stage():
    records = [*step_records(3), *flow_records(5, targets=6, drafters=2)]
    found = curves_of(plots(TrainingRun.from_records(records))["busy"])
    assert {name: points[-1][1] for name, points in found.items()} == {
        "targets, mean of 6": pytest.approx(0.925),
        "drafters, mean of 2": pytest.approx(0.4),
    }


def test_a_long_run_is_thinned_with_a_band_of_extremes():
    records = step_records(5000, every=1)
    spec = plots(TrainingRun.from_records(records))["loss"].spec
    assert spec["layer"][0]["mark"]["type"] == "area"
    assert all(len(layer["data"]["values"]) <= 300 for layer in spec["layer"])
    lowest = min(row["lo"] for row in spec["layer"][0]["data"]["values"])
    assert lowest == min(record["loss"] for record in records)


def test_a_gradient_that_explodes_gets_a_logarithmic_axis():
    records = step_records()
    scale = plots(TrainingRun.from_records(records))["gradient"].spec["encoding"]["y"]["scale"]
    assert scale["type"] == "linear"
    records[7]["grad_norm"] = 1e4
    gradient = plots(TrainingRun.from_records(records))["gradient"]
    assert gradient.spec["encoding"]["y"]["scale"]["type"] == "log"
    assert "1 step was skipped" in gradient.summary


def test_what_was_not_measured_is_left_out():
    # One process without evaluation: no queues, no acceptance but the streak.
    run = TrainingRun.from_records(step_records(4))
    assert set(ALL) - set(plots(run)) == {"fullness", "ready", "busy"}
    page = render_training_html(run)
    headings = re.findall(r'<h2 id="(\w+)"', page)
    assert "pipeline" not in headings
    assert headings[-3:] == ["figures", "words", "reproduce"]
    assert "one process" in page
    smallest = render_training_html(TrainingRun.from_records([{"step": 1, "loss": 2.0}]))
    assert re.findall(r'<figure id="plot-([\w-]+)"', smallest) == ["loss"]
    assert Tags(smallest).open == []


def test_the_sentences_have_the_numbers():
    run = TrainingRun.from_records(pipeline_records())
    assert sections.headline(run) == (
        "After 120 optimiser steps the drafter gets 1.75 tokens per verification, 1.25 at the "
        "first evaluation (step 40), on prompts it was not trained on."
    )
    facts = {fact.name: (fact.value, fact.note) for fact in sections.facts(run)}
    assert facts["tokens per verification"] == ("1.75", "± 0.05 standard error")
    assert facts["tokens a second"] == ("2,250", "90.0 % of the slowest stage alone")
    assert sections.bottlenecks(run) == "the targets (100 %)"
    rows = dict(sections.pipeline_table(run).rows)
    assert rows["busy, drafter 0"] == "41.0 %"
    assert rows["efficiency by the plan"] == "96.0 %"
    without = TrainingRun.from_records(step_records())
    assert re.fullmatch(
        r"After 120 optimiser steps the loss is 3\.\d{3}, from 4\.\d{3}\.",
        sections.headline(without),
    )


def test_every_word_of_the_telemetry_has_its_words_here():
    """The report may not import the pipeline; the two lists are held together here."""
    from typing import get_args

    from lengthwise.simulate.bottleneck import Kind

    assert set(sections.BOTTLENECKS) == set(get_args(Kind))


def test_the_page_is_complete_in_itself(page):
    tags = Tags(page)
    assert tags.open == []
    ids = [attrs["id"] for _, attrs in tags.all if "id" in attrs]
    assert len(ids) == len(set(ids))
    for tag, attrs in tags.all:
        for name in ("src", "href", "srcset"):
            assert (attrs.get(name) or "#").startswith(("data:", "#")), (tag, name)
        for name in ("aria-labelledby", "aria-describedby"):
            assert attrs.get(name) is None or attrs[name] in ids
    (policy,) = [attrs["content"] for tag, attrs in tags.all if "http-equiv" in attrs]
    assert policy.startswith("default-src 'none'")
    assert [tag for tag, _ in tags.all].count("figure") == len(ALL)
    assert [tag for tag, _ in tags.all].count("img") == len(ALL)


def test_every_spec_in_the_page_is_json(page):
    specs = re.findall(r'<script type="application/json">(.*?)</script>', page)
    assert len(specs) == len(ALL)
    assert all(json.loads(spec)["width"] == "container" for spec in specs)


def test_names_from_outside_stay_text():
    evil = "</script><script>alert(1)</script>"
    records = step_records(3)
    run = TrainingRun.from_records(records, Provenance(source=evil, command=evil))
    assert "<script>alert(1)" not in render_training_html(run)


def test_the_same_records_give_the_same_page(page):
    origin = Provenance(source="out/run", command="lengthwise dflash report out/run")
    assert render_training_html(TrainingRun.from_records(pipeline_records(), origin)) == page
