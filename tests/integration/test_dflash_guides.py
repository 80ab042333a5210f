"""Pieces of config in the guides to DFlash are right."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from lengthwise.dflash.training.config import parse_train_config
from support.page_code import blocks

PROJECT = Path(__file__).parents[2]
SMALL = yaml.safe_load((PROJECT / "examples" / "dflash_small.yaml").read_text(encoding="utf-8"))
PIECES = [
    block
    for page in sorted(PROJECT.glob("docs/**/*.md"))
    for block in blocks(page)
    if block.language == "yaml"
]


@pytest.mark.parametrize("block", PIECES, ids=lambda block: f"{block.page.name}:{block.line}")
def test_a_piece_of_config_fits_into_a_config(block):
    # A field that does not exist, or a value out of range, is refused.
    assert parse_train_config({**SMALL, **yaml.safe_load(block.code)})
