"""What a run leaves in its output directory, by name; whoever reads it need not import torch."""

from __future__ import annotations

METRICS_FILE = "metrics.jsonl"
CONFIG_FILE = "train_config.json"
"""The config as the run was last started or resumed with, for whoever looks at it later."""
PREDICTION_FILE = "prediction.json"
PREDICTION_FORMAT, PREDICTION_VERSION = "lengthwise prediction", 1
TARGETS_FILE = "targets.json"
"""How many target workers a run on Ray is to have from now on."""
