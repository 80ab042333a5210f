"""From a training run's records to one self-contained HTML page.

Pure like the rest of the report: records in, text out. Order of reading: ``run`` (what comes in),
``curves`` (thinned and smoothed), ``specs`` (plots), ``sections`` (what the page says), ``page``.
"""

from lengthwise.report.training.page import render_training_html
from lengthwise.report.training.run import TrainingRun

__all__ = ["TrainingRun", "render_training_html"]
