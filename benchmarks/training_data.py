"""What the training comparison trains on: functions of Python's standard library, as bytes."""

from __future__ import annotations

import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

import numpy as np
from tiny_transformer import BEGIN

EXAMPLES = Path(__file__).parents[1] / "examples"
LONGEST = 768
HELD_OUT_OF = 10
"""One file in so many is held out, by the hash of its name."""


@dataclass(frozen=True, slots=True)
class Corpus:
    """Functions as UTF-8, cut to their first 768 bytes.

    Files are held out, not functions: a function also stands inside the one around it.
    """

    training: list[bytes]
    held_out: list[bytes]
    num_unparsed: int
    """Files that are no Python, as the library's tests of encodings."""

    @property
    def lengths(self):
        """Bytes of each function to train on; int64."""
        return np.array([len(text) for text in self.training], np.int64)


def collect(num_held_out, every=1):
    """The corpus, from every so many-th file; of the files held out, so many functions."""
    if str(EXAMPLES) not in sys.path:
        sys.path.append(str(EXAMPLES))
    from stdlib_corpus import functions_of, source_files, standard_library

    root = standard_library()
    training, held_out, num_unparsed = [], [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of old code about its own escapes
        for path in list(source_files(root))[::every]:
            name = path.relative_to(root).as_posix()
            kept = training if crc32(name.encode()) % HELD_OUT_OF else held_out
            try:
                found = list(functions_of(path.read_text(encoding="utf-8")))
            except (SyntaxError, ValueError):
                num_unparsed += 1
                continue
            kept.extend(text.encode()[:LONGEST] for _, text in found)
    held_out.sort(key=crc32)
    return Corpus(training, held_out[:num_held_out], num_unparsed)


class Functions:
    """A data set of texts: the bytes are the labels, the input is one behind them."""

    def __init__(self, texts):
        """Keep the texts."""
        self.texts = texts

    def __len__(self):
        """How many texts."""
        return len(self.texts)

    def __getitem__(self, index):
        """One text's input and labels; int64, of equal length."""
        labels = np.frombuffer(self.texts[index], np.uint8).astype(np.int64)
        return {"input_ids": np.concatenate(([BEGIN], labels[:-1])), "labels": labels}
