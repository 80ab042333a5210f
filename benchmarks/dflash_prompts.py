"""Prompts that every machine has: made from the docstrings of Python's standard library."""

from __future__ import annotations

import ast
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from zlib import crc32

EXAMPLES = Path(__file__).parents[1] / "examples"
HELD_OUT_OF = 10
"""One file in so many is held out, by the hash of its name."""
LONGEST = 300
"""Characters of a docstring's first paragraph."""
KINDS = {
    "explain": "Explain briefly what this Python function does:\n\n{code}",
    "write": "Write a short Python function `{name}` for this: {text}",
    "name": "Suggest a clear name for a Python function that does this: {text}",
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """One request and its kind, of ``KINDS``."""

    kind: str
    text: str

    @property
    def messages(self):
        """As chat templates take it."""
        return [{"role": "user", "content": self.text}]


def collect():
    """Prompts to train on and prompts held out, no text twice, in an order that never changes.

    Files are held out, not functions, since a file's docstrings are like one another.
    """
    if str(EXAMPLES) not in sys.path:
        sys.path.insert(0, str(EXAMPLES))
    from stdlib_corpus import source_files, standard_library

    root = standard_library()
    parts = {False: {}, True: {}}
    for path in source_files(root):
        name = path.relative_to(root).as_posix()
        held_out = crc32(name.encode()) % HELD_OUT_OF == 0
        for prompt in _prompts_of(path):
            parts[held_out].setdefault(prompt.text, prompt)
    held_out = [prompt for text, prompt in parts[True].items() if text not in parts[False]]
    return _mixed(parts[False].values()), _mixed(held_out)


def _mixed(prompts):
    return sorted(prompts, key=lambda prompt: crc32(prompt.text.encode()))


def _prompts_of(path):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # old library code has escapes that parsers warn of
            tree = ast.parse(path.read_text(encoding="utf-8"))
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        text = " ".join((ast.get_docstring(node) or "").split("\n\n")[0].split())
        if 20 <= len(text) <= LONGEST:
            kind = sorted(KINDS)[crc32(text.encode()) // 7 % len(KINDS)]
            code = f'def {node.name}({ast.unparse(node.args)}):\n    """{text}"""'
            yield Prompt(kind, KINDS[kind].format(name=node.name, text=text, code=code))
