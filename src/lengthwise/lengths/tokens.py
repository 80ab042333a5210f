"""Token counts of text, by any tokenizer."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lengthwise.errors import ConfigError, DataError, MissingDependencyError

CountTokens = Callable[[Sequence[str]], list[int]]
"""Texts in, the number of tokens of each out, special tokens included."""


def token_counter(tokenizer: Any) -> CountTokens:
    """A function that counts the tokens of many texts at once.

    Truncation and padding that a tokenizer has switched on are switched off for the count: a
    truncated text would report the limit as its length.

    Args:
        tokenizer: path of a ``tokenizers`` JSON file or of a directory with ``tokenizer.json``; a
            ``tokenizers.Tokenizer``; a Hugging Face tokenizer; or a callable that takes one text
            and returns its token ids or their number.

    Raises:
        ConfigError: it is none of these.
        DataError: the file cannot be read as a tokenizer.
        MissingDependencyError: a file is given and ``tokenizers`` is not installed.
    """
    if isinstance(tokenizer, (str, os.PathLike)):
        return _count_with_tokenizers(_load(Path(tokenizer)))
    if hasattr(tokenizer, "encode_batch") and hasattr(tokenizer, "to_str"):
        return _count_with_tokenizers(type(tokenizer).from_str(tokenizer.to_str()))
    if callable(tokenizer):
        if hasattr(tokenizer, "convert_ids_to_tokens"):
            return _count_with_hf(tokenizer)
        return _count_with_callable(tokenizer)
    raise ConfigError(
        f"a tokenizer is a path of a tokenizer.json, a tokenizers.Tokenizer, a Hugging Face "
        f"tokenizer or a callable; got {type(tokenizer).__name__}"
    )


def tokenizer_hash(tokenizer: Any) -> str:
    """Short text that changes when a tokenizer does; of a callable only its name is known."""
    if isinstance(tokenizer, (str, os.PathLike)):
        content = _file(Path(tokenizer)).read_bytes()
    elif hasattr(tokenizer, "to_str"):
        content = str(tokenizer.to_str()).encode()
    else:
        kind = tokenizer if hasattr(tokenizer, "__qualname__") else type(tokenizer)
        name = getattr(tokenizer, "name_or_path", "")
        content = f"{kind.__module__}.{kind.__qualname__} {name}".encode()
    return hashlib.sha256(content).hexdigest()[:32]


def _file(path: Path) -> Path:
    return path / "tokenizer.json" if path.is_dir() else path


def _load(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise MissingDependencyError(
            "counting the tokens of text needs the tokenizers package: "
            "pip install 'lengthwise[text]'"
        ) from None
    file = _file(path)
    if not file.is_file():
        raise DataError(
            f"there is no tokenizer file {str(file)!r}; give the path of a tokenizer.json"
        )
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:  # noqa: BLE001 - tokenizers raises bare Exception
        raise DataError(f"{file} is not a tokenizers JSON file: {error}") from None


def _count_with_tokenizers(tokenizer: Any) -> CountTokens:
    tokenizer.no_truncation()
    tokenizer.no_padding()
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    return lambda texts: [len(encoding.ids) for encoding in encode(list(texts))]


def _count_with_hf(tokenizer: Any) -> CountTokens:
    def count(texts: Sequence[str]) -> list[int]:
        if not texts:
            return []
        encoded = tokenizer(list(texts), padding=False, truncation=False, verbose=False)
        return [len(ids) for ids in encoded["input_ids"]]

    return count


def _count_with_callable(function: Callable[[str], Any]) -> CountTokens:
    def count(text: str) -> int:
        result = function(text)
        if isinstance(result, int) and not isinstance(result, bool):
            return result
        ids = result["input_ids"] if hasattr(result, "keys") else getattr(result, "ids", result)
        if not hasattr(ids, "__len__") or isinstance(ids, str):
            raise ConfigError(
                f"the tokenizer must return token ids or their number, got "
                f"{type(result).__name__} for {text[:40]!r}"
            )
        return len(ids)

    return lambda texts: [count(text) for text in texts]
