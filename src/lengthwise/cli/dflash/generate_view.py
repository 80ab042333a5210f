"""Text as it is decoded, with what the drafter foresaw in green."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from lengthwise.cli.output import print_note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lengthwise.dflash.decoding import Generation

_GREEN, _RESET = "\x1b[32m", "\x1b[0m"
_UNFINISHED = "\ufffd"
"""What a tokenizer writes for a character of which some bytes are still to come."""


class TextStream:
    """Writes the text of one answer to standard output as its tokens come."""

    def __init__(self, tokenizer: Any) -> None:
        """Decode with ``tokenizer``; colours only where standard output is a terminal."""
        self._tokenizer = tokenizer
        self._colour = sys.stdout.isatty()
        self._tokens: list[int] = []
        self._written = ""
        self._runs = 0

    def feed(self, run: Sequence[int]) -> None:
        """One run: drafted tokens that were accepted, then one of the target's own."""
        # The first run is the target's alone: it comes from the prompt.
        foreseen = len(run) - 1 if self._runs else 0
        self._runs += 1
        self._write(run[:foreseen], foreseen=True)
        self._write(run[foreseen:], foreseen=False)
        sys.stdout.flush()

    def close(self) -> None:
        """Write what was held back, and end the line."""
        rest = self._text()[len(self._written) :]
        sys.stdout.write(rest + "\n")
        sys.stdout.flush()

    def _write(self, tokens: Sequence[int], *, foreseen: bool) -> None:
        if not tokens:
            return
        self._tokens += tokens
        text = self._text()
        # A tokenizer may rewrite the end of a text when more comes; then it is written at close.
        if text.endswith(_UNFINISHED) or not text.startswith(self._written):
            return
        fresh = text[len(self._written) :]
        self._written = text
        green = foreseen and self._colour and fresh
        sys.stdout.write(f"{_GREEN}{fresh}{_RESET}" if green else fresh)

    def _text(self) -> str:
        return str(self._tokenizer.decode(self._tokens, skip_special_tokens=True))


def about(found: Generation) -> None:
    """One line on standard error about one answer."""
    parts = [f"{len(found.token_ids):,} tokens", f"ended by {found.finish_reason}"]
    if found.tokens_per_verify is not None:
        parts.append(
            f"{found.tokens_per_verify:.2f} tokens per verification "
            f"({found.num_verifications:,} verifications)"
        )
    if found.num_reruns:
        parts.append(f"{found.num_reruns:,} re-runs of accepted tokens")
    if found.decode_tokens and found.decode_seconds > 0:
        parts.append(f"{found.decode_tokens / found.decode_seconds:,.1f} tokens/s")
    print_note(", ".join(parts))
