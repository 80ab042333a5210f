"""From a comparison's numbers to plots and one self-contained HTML page.

Everything here is a pure function of :class:`~lengthwise.report.data.ReportData`: no files, no
clock. Order of reading: ``data`` (what comes in), ``words`` and ``tables`` (numbers as text, shared
with the terminal), ``theme`` and ``specs`` (plots as Vega-Lite dicts), ``plots`` (pictures),
``html`` (the page).
"""

from lengthwise.report import specs
from lengthwise.report.data import ReportData
from lengthwise.report.html import render_html
from lengthwise.report.plots import render_plot

__all__ = ["ReportData", "render_html", "render_plot", "specs"]
