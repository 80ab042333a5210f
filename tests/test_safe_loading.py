"""Nothing that is read from a file can run code: held by a walk over every source file's syntax."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "lengthwise"
ALLOWED = {
    ("pipeline/wire.py", "pickle.loads"): "messages of a run's own processes, over a socket pair",
    ("pipeline/child.py", "pickle.loads"): "what the process that started this one hands to it",
    (
        "pipeline/on_ray/actor.py",
        "pickle.loads",
    ): "what the run's own coordinator sends",
}
"""(file, call) -> why it is safe. Whoever adds a line says where the bytes come from."""
NEVER = {
    "pickle.load", "pickle.loads", "pickle.Unpickler", "cloudpickle.load", "cloudpickle.loads",
    "marshal.load", "marshal.loads", "shelve.open", "dill.load", "dill.loads", "joblib.load",
    "eval", "exec", "os.system", "yaml.load", "yaml.unsafe_load", "yaml.full_load",
}  # fmt: skip
SAFE_IF = {"torch.load": ("weights_only", True), "np.load": ("allow_pickle", False)}
"""Call -> the keyword that makes it safe, which must be written out."""
ALIASES = {"numpy.load": "np.load"}


def dotted(node):
    """A call's function as text, such as ``torch.load``; empty where it is no plain name."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def dangers(code):
    """Calls in some code that can run what is in the data that they read."""
    found = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and node.module in {"pickle", "marshal", "dill"}:
            found.append(f"from {node.module} import")  # would hide the calls from this test
        if not isinstance(node, ast.Call):
            continue
        name = ALIASES.get(dotted(node.func), dotted(node.func))
        given = {word.arg: word.value for word in node.keywords}
        if name in SAFE_IF:
            keyword, value = SAFE_IF[name]
            safe = isinstance(given.get(keyword), ast.Constant) and given[keyword].value is value
            if not safe:
                found.append(name)
        elif name in NEVER:
            found.append(name)
        if "trust_remote_code" in given and getattr(given["trust_remote_code"], "value", 0) is True:
            found.append("trust_remote_code=True")
    return found


def test_no_source_file_loads_what_could_run_code():
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 100
    found = {
        (path.relative_to(SOURCE).as_posix(), call)
        for path in files
        for call in dangers(path.read_text(encoding="utf-8"))
    }
    assert sorted(found - ALLOWED.keys()) == []


def test_the_allow_list_names_what_is_there():
    # A line that is no longer needed would let the next such call in unseen.
    for (file, call), reason in ALLOWED.items():
        assert call in dangers((SOURCE / file).read_text(encoding="utf-8"))
        assert len(reason) > 20


@pytest.mark.parametrize(
    "code",
    [
        "pickle.load(file)",
        "from pickle import loads",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "torch.load(path, weights_only=flag)",
        "np.load(path)",
        "numpy.load(path, allow_pickle=True)",
        "yaml.load(text, Loader=yaml.Loader)",
        "eval(text)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
    ],
)
def test_the_walk_finds_each_danger(code):
    # So that the first test can fail.
    assert dangers(code)


@pytest.mark.parametrize(
    "code",
    [
        "torch.load(path, weights_only=True)",
        "np.load(path, mmap_mode='r', allow_pickle=False)",
        "yaml.safe_load(text)",
        "model.eval()",
        "from_pretrained(name, trust_remote_code=trust)",
    ],
)
def test_the_walk_lets_pass_what_is_safe(code):
    assert dangers(code) == []
