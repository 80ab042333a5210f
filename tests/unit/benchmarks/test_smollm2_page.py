"""The part of docs/concepts/dflash.md about a real chat model is that of the result file."""

from __future__ import annotations

import json

import smollm2_page


def test_the_page_has_what_was_measured():
    part = smollm2_page.part(json.loads(smollm2_page.RESULT.read_text(encoding="utf-8")))
    page = smollm2_page.PAGE.read_text(encoding="utf-8")
    assert f"<!-- smollm2 -->\n{part}\n<!-- /smollm2 -->" in page


def test_no_output_of_the_real_model_was_changed():
    # Greedy decoding keeps only what the target itself says, whoever drafts.
    found = json.loads(smollm2_page.RESULT.read_text(encoding="utf-8"))
    assert set(smollm2_page.KINDS) == set(found["decoding"])
    assert all(one["num_mismatches"] == 0 for one in found["decoding"].values())
