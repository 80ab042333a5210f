"""``prepare``: from a source of conversations to a directory of training samples."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.core.histogram import LengthHistogram
from lengthwise.core.limits import require_int
from lengthwise.dflash.prepare import card as cards
from lengthwise.dflash.prepare.shards import Tally, finished_shards, shard_path, write_shard
from lengthwise.dflash.prepare.sources import Position, Source, open_source
from lengthwise.dflash.prepare.template import ChatTemplate, stop_ids_of
from lengthwise.dflash.prepare.work import Work, check_rows
from lengthwise.errors import ConfigError, DataError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from lengthwise.dflash.prepare.answers import Answerer
    from lengthwise.dflash.prepare.settings import PrepareConfig
    from lengthwise.dflash.target import Target

SHARD_ROWS = 1024
"""Rows of the source that one file covers: what a killed run has to do again at most."""
BATCH_TOKENS = 16_384
"""Tokens of a batch while the built-in target answers: rows x (prompt + max_new_tokens)."""


@dataclass(frozen=True, slots=True)
class Summary:
    """What a preparation did.

    Attributes:
        output: the directory.
        card: what ``card.json`` has.
        seconds: of this run.
        generated_tokens: by this run; tokens read where answers are kept.
        rows_before: rows that were finished before this run.
    """

    output: Path
    card: dict[str, Any]
    seconds: float
    generated_tokens: int
    rows_before: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for --json."""
        return {
            "output": str(self.output),
            **self.card,
            "seconds": self.seconds,
            "generated_tokens": self.generated_tokens,
            "rows_before": self.rows_before,
        }


@dataclass(frozen=True, slots=True)
class Device:
    """Where and in what portions the built-in target works; decides no token but by rounding.

    Attributes:
        name: such as "cpu" or "cuda:0".
        batch_tokens: rows x (longest prompt + max_new_tokens) of a batch, at most.
        max_batch_size: rows of a batch, at most; None leaves it to ``batch_tokens``.
        trust_remote_code: run code that comes with the checkpoint.
    """

    name: str = "cpu"
    batch_tokens: int = BATCH_TOKENS
    max_batch_size: int | None = None
    trust_remote_code: bool = False


class _Progress:
    """Adds up what is done and passes it on."""

    def __init__(self, report: Callable[[int, int | None, int], None] | None) -> None:
        self._report = report
        self.rows = 0
        self.tokens = 0
        self.total: int | None = None

    def add(self, rows: int, tokens: int) -> None:
        self.rows += rows
        self.tokens += tokens
        if self._report is not None:
            self._report(self.rows, self.total, self.tokens)


def prepare(
    sources: Sequence[str],
    config: PrepareConfig,
    output: str | Path,
    *,
    device: Device | None = None,
    shard_rows: int = SHARD_ROWS,
    target: Target | None = None,
    tokenizer: Any = None,
    progress: Callable[[int, int | None, int], None] | None = None,
) -> Summary:
    """Make training samples of conversations; continue where an earlier run was stopped.

    Args:
        sources: files, globs, directories, or one Hugging Face data set.
        config: every setting that decides what comes out.
        output: directory for ``samples-*.parquet``, ``card.json`` and ``README.md``. What an
            earlier run with the same settings finished there is kept.
        device: where the built-in target runs.
        shard_rows: rows of the source that one file covers.
        target: a loaded target, instead of loading ``config.target``.
        tokenizer: a loaded tokenizer, likewise.
        progress: called with (rows done, rows in all or None, tokens generated).

    Raises:
        ConfigError: settings that cannot work, or others than those of the earlier run.
        DataError: the source cannot be read, or a row breaks a rule.
        TrainingError: the server cannot be reached.
    """
    started = time.monotonic()
    require_int("shard_rows", shard_rows, least=1)
    directory = Path(output)
    source = open_source(sources, config.rows)
    tools = _Tools(config, device or Device(), target, tokenizer)
    settings = _settings(config, source, tools)
    shards = finished_shards(directory) if directory.is_dir() else []
    for shard in shards[:1]:
        _check_same(shard.settings, settings, directory)
    tally, place = Tally(), Position()
    for shard in shards:
        tally.add(shard.tally)
        place = shard.end
    before, counted = tally.rows, _Progress(progress)
    if not (directory / cards.CARD).is_file():
        counted.rows, counted.total = before, source.num_rows
        early = config.rows.on_bad == "error" and config.mode == "regenerate"
        if early:
            counted.total = before + check_rows((row for row, _ in source.rows(place)), config)
        directory.mkdir(parents=True, exist_ok=True)
        work = tools.work(counted.add)
        todo = source.rows(place)
        number = len(shards)
        while chunk := list(islice(todo, shard_rows)):
            samples = work.run([row for row, _ in chunk])
            path = shard_path(directory, number)
            write_shard(path, samples, work.tally, end=chunk[-1][1], settings=settings)
            tally.add(work.tally)
            number += 1
        if not tally.rows:
            raise DataError(f"{', '.join(sources)}: there are no rows")
        _write_card(directory, settings, tally)
    card = json.loads((directory / cards.CARD).read_text("utf-8"))
    return Summary(directory, card, time.monotonic() - started, counted.tokens, before)


class _Tools:
    """The tokenizer, its template and whatever answers; the target is loaded when it has to be."""

    def __init__(
        self, config: PrepareConfig, device: Device, target: Target | None, tokenizer: Any
    ) -> None:
        from lengthwise.dflash.target import load_tokenizer

        self._config = config
        self._device = device
        self._target = target
        self._from: dict[str, Any] = {
            "revision": config.revision,
            "gguf_file": config.gguf_file,
            "trust_remote_code": device.trust_remote_code,
        }
        if tokenizer is None:
            tokenizer = load_tokenizer(config.target, **self._from)
        generation = None if target is None else target.model.generation_config
        if target is None:
            generation = _generation_config(config)
        self.template = ChatTemplate(tokenizer, config.template, stop_ids_of(tokenizer, generation))

    def work(self, report: Callable[[int, int], None]) -> Work:
        """What turns rows into samples."""
        config, longest = self._config, self._config.samples.max_length - 1
        answerer: Answerer | None = None
        if config.server is not None:
            from lengthwise.dflash.prepare.server import ServerAnswers

            answerer = ServerAnswers(
                config.server,
                config.generation,
                config.template,
                self.template.tokenizer,
                self.template.stop_ids,
            )
        elif config.mode == "regenerate":
            target = self._load()
            positions = getattr(target.config, "max_position_embeddings", None)
            if positions is not None:
                longest = min(longest, positions - config.generation.max_new_tokens)
                _check_room(longest, positions, config)
            answerer = self._answers(target)
        return Work(config, self.template, answerer, longest, report)

    def _load(self) -> Target:
        from lengthwise.dflash.target import load_target

        if self._target is not None:
            return self._target
        config, device = self._config, self._device
        return load_target(config.target, dtype=config.dtype, device=device.name, **self._from)

    def _answers(self, target: Target) -> Answerer:
        from lengthwise.dflash.prepare.generate import TargetAnswers

        return TargetAnswers(
            target,
            self._config.generation,
            self.template.stop_ids,
            batch_tokens=self._device.batch_tokens,
            max_batch_size=self._device.max_batch_size,
        )


def _check_room(longest: int, positions: int, config: PrepareConfig) -> None:
    if longest < 1:
        raise ConfigError(
            f"max_new_tokens ({config.generation.max_new_tokens:,}) leaves no room for a prompt: "
            f"the target has {positions:,} positions; lower --max-new-tokens"
        )


def _generation_config(config: PrepareConfig) -> Any:
    """The checkpoint's generation settings, for the tokens that end an answer; None without."""
    from transformers import GenerationConfig

    try:
        return GenerationConfig.from_pretrained(config.target, revision=config.revision or "main")
    except (OSError, ValueError):  # many checkpoints have none; the tokenizer's token is enough
        return None


def _settings(config: PrepareConfig, source: Source, tools: _Tools) -> dict[str, Any]:
    """Everything that decides what comes out, as JSON gives it back."""
    found = {
        "source": list(source.identity),
        **config.decisive(),
        **cards.describe_template(tools.template),
    }
    try:
        plain: dict[str, Any] = json.loads(json.dumps(found))
    except TypeError as error:
        raise ConfigError(f"settings must be plain values that JSON can hold: {error}") from None
    return plain


def _check_same(before: dict[str, Any], now: dict[str, Any], directory: Path) -> None:
    different = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if not different:
        return
    told = "; ".join(f"{n} was {before.get(n)!r} and is {now.get(n)!r}" for n in different)
    raise ConfigError(
        f"{directory} holds samples made with other settings: {told}. Run it with the same "
        f"settings to continue, or choose another --output"
    )


def _write_card(directory: Path, settings: dict[str, Any], tally: Tally) -> None:
    from lengthwise.lengths.api import scan_lengths

    files = [str(shard.path) for shard in finished_shards(directory)]
    lengths: LengthHistogram | None = None
    if tally.samples:
        lengths = LengthHistogram.from_lengths(scan_lengths(files, column="seq_len").lengths)
    card = cards.make_card(settings, tally, lengths, len(files))
    text = json.dumps(card, indent=2, ensure_ascii=False) + "\n"
    cards.write_atomically(directory / cards.README, cards.card_text(card))
    cards.write_atomically(directory / cards.CARD, text)  # last: it says that all is there
