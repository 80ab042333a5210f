"""Plot specs are pure functions: right numbers in, and Vega-Lite draws them without a complaint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lengthwise.core.histogram import LengthHistogram
from lengthwise.errors import ConfigError, MissingDependencyError
from lengthwise.report import plots, sections, specs
from lengthwise.report.data import ReportData
from lengthwise.report.theme import COLOURS, colour, resolve
from support.report_fixture import comparison, smallest_comparison

DATA = ReportData.from_dict(comparison())
ALL = {name: plot.spec for name, plot in sections.plots(DATA).items()}


def texts(value: Any) -> list[str]:
    """Every string anywhere in a spec."""
    if isinstance(value, dict):
        return [text for part in value.values() for text in texts(part)]
    if isinstance(value, list):
        return [text for part in value for text in texts(part)]
    return [value] if isinstance(value, str) else []


def test_the_full_comparison_gives_every_plot():
    assert list(ALL) == [
        "efficiency",
        "batches",
        "frontier",
        "histogram",
        "bucket-efficiency",
        "bucket-padding",
        "baselines",
    ]


def test_missing_parts_leave_their_plots_out():
    assert list(sections.plots(ReportData.from_dict(smallest_comparison()))) == [
        "efficiency",
        "batches",
    ]


@pytest.mark.parametrize("name", ALL)
def test_a_spec_is_plain_json_and_loads_nothing(name: str):
    assert json.loads(json.dumps(ALL[name], allow_nan=False)) == ALL[name]
    assert '"url"' not in json.dumps(ALL[name])


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("name", ALL)
def test_a_resolved_spec_has_colours_and_no_names_of_colours(name: str, theme: Any):
    resolved = texts(resolve(ALL[name], theme))
    assert not [text for text in resolved if "var(" in text]
    assert COLOURS[theme]["muted"] in resolved


def test_both_themes_define_the_same_colours_and_a_wrong_name_fails():
    assert COLOURS["light"].keys() == COLOURS["dark"].keys()
    with pytest.raises(KeyError):
        colour("acent")


@pytest.mark.parametrize("name", ALL)
def test_vega_lite_draws_every_spec_as_svg(name: str):
    svg = plots.render_plot(ALL[name], "svg", theme="dark")
    assert svg.startswith("<svg")
    assert "NaN" not in svg
    assert "null" not in svg


def test_a_picture_is_a_png():
    png = plots.render_plot(ALL["frontier"], "png", width=300)
    assert png[:8] == b"\x89PNG\r\n\x1a\n"


def test_an_unknown_format_is_refused():
    with pytest.raises(ConfigError, match="'svg' or 'png', got 'pdf'"):
        plots.render_plot(ALL["batches"], "pdf")  # type: ignore[call-overload]


def test_a_missing_extra_names_the_install_command():
    with pytest.raises(MissingDependencyError, match=r"pip install 'lengthwise\[report\]'"):
        plots.require_extra("a_package_nobody_has")


def test_the_efficiency_bars_are_the_rows_of_the_comparison():
    rows = ALL["efficiency"]["data"]["values"]
    assert [row["value"] for row in rows] == [row.efficiency for row in DATA.strategies]
    assert [row["kind"] for row in rows].count("marked") == 1
    assert rows[-1]["kind"] == "bound"


def test_the_shares_in_the_bucket_plot_are_shares():
    rows = ALL["bucket-padding"]["data"]["values"]
    assert sum(row["value"] for row in rows) == pytest.approx(1)
    assert sum(row["tokens"] for row in rows) == pytest.approx(1)


def test_the_histogram_shows_inner_boundaries_only():
    histogram = LengthHistogram.from_counts([10, 20, 30], [1, 1, 1])
    spec = specs.histogram_plot(histogram, [0, 15, 31, 40])
    rules = spec["layer"][1]["data"]["values"]
    assert [row["edge"] for row in rules] == [15]
    assert len(specs.histogram_plot(histogram, [0, 31])["layer"]) == 1


def test_every_family_of_the_frontier_has_its_own_colour_shape_and_line():
    layers = ALL["frontier"]["layer"]
    lines = [layer["mark"] for layer in layers if layer["mark"]["type"] == "line"]
    assert len({line["color"] for line in lines}) == len(lines) == 4
    assert len({tuple(line["strokeDash"]) for line in lines}) == 4
    shapes = layers[4]["encoding"]["shape"]["scale"]["range"]
    assert len(set(shapes)) == 4


def test_a_frontier_of_one_point_without_repeats_can_be_drawn():
    # Tiny data: no pair meets again, and nothing is padded.
    whole = smallest_comparison() | {
        "frontier": [{"family": "a", "parameter": 1, "efficiency": 1.0, "repeat_rate": 0.0}]
    }
    data = ReportData.from_dict(whole)
    assert "NaN" not in plots.render_plot(specs.frontier_plot(data.frontier), "svg")


def test_sixty_four_buckets_stay_within_the_height_of_a_page():
    bucket = {"num_samples": 1, "padded_tokens": 10, "efficiency": 0.5}
    buckets = [bucket | {"lo": at, "hi": at + 1} for at in range(1, 65)]
    bucketing = {"boundaries": [1, 65], "efficiency": 0.5, "buckets": buckets}
    data = ReportData.from_dict(smallest_comparison() | {"bucketing": bucketing})
    assert data.bucketing is not None
    assert specs.bucket_efficiency(data.bucketing)["height"] <= 640
