"""Export: write a drafter for the engines, and let it appear only when it passes every check."""

from __future__ import annotations

import json
from shlex import quote
from typing import TYPE_CHECKING, Literal, get_args

import torch

from lengthwise.dflash.formats.check import CheckReport, check_export
from lengthwise.dflash.formats.files import write_checkpoint
from lengthwise.dflash.formats.native import native_dict
from lengthwise.dflash.formats.speculators import speculators_dict
from lengthwise.dflash.formats.transformer import TargetFacts
from lengthwise.dflash.formats.weights import stored_tensors
from lengthwise.errors import ConfigError, ModelError

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PretrainedConfig

    from lengthwise.dflash.drafter import Drafter

Format = Literal["native", "speculators"]


def export_drafter(
    drafter: Drafter,
    directory: str | Path,
    *,
    form: Format = "native",
    target_config: PretrainedConfig | None = None,
    target: TargetFacts | None = None,
    dtype: torch.dtype = torch.bfloat16,
) -> CheckReport:
    """Write a drafter for the engines and check what was written.

    Args:
        drafter: any device and dtype.
        directory: must not exist yet, or be empty.
        form: ``native`` (the dflash package, SGLang, vLLM) or ``speculators`` (vLLM).
        target_config: the target's; where given, the drafter must fit it.
        target: what to say about the target; default: what ``target_config`` says.
        dtype: of the stored tensors.

    Returns:
        What was checked; it has no problems.

    Raises:
        ConfigError: the directory is not empty, a setting has another value than those above, or
            the speculators format has no name of a target.
        ModelError: engines would read something else than was trained; nothing was written.
    """
    if form not in get_args(Format):
        raise ConfigError(f"form must be {' or '.join(get_args(Format))}, got {form!r}")
    facts = target or TargetFacts.of(target_config)
    describe = native_dict if form == "native" else speculators_dict
    reports: list[CheckReport] = []

    def check(written: Path) -> None:
        report = check_export(written, target_config)
        if report.problems:
            raise ModelError(f"{directory} was not written: {'; '.join(report.problems)}")
        reports.append(report)

    config = describe(drafter.config, dtype, facts)
    place = write_checkpoint(directory, config, stored_tensors(drafter, dtype), check)
    return CheckReport(place, form, reports[0].checks)


def serving_commands(report: CheckReport, block_size: int, target: str | None) -> dict[str, str]:
    """How to serve the target with an exported drafter, by engine.

    vLLM counts the tokens that are drafted, SGLang the block with the token that it begins with.
    """
    name, place = quote(target or "TARGET"), str(report.directory)
    speculative = {
        "method": "dflash",
        "model": place,
        "num_speculative_tokens": block_size - 1,
    }
    commands = {"vllm": f"vllm serve {name} --speculative-config {quote(json.dumps(speculative))}"}
    if report.format == "native":
        commands["sglang"] = (
            f"python -m sglang.launch_server --model-path {name} --speculative-algorithm DFLASH "
            f"--speculative-draft-model-path {quote(place)} "
            f"--speculative-num-draft-tokens {block_size}"
        )
    return commands
