"""The wheel: what is in it, and that it works without the source tree beside it."""

from __future__ import annotations

import email
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The wheel as `make build` builds it, in a directory of its own."""
    target = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(target)]
    built = subprocess.run(
        [*command, str(PROJECT)], capture_output=True, text=True, check=False, cwd=target
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = target.glob("*.whl")
    return path


def metadata_of(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_holds_the_package_and_nothing_beside_it(wheel):
    # Whoever installs lengthwise must not get a top-level `tests` or `examples` as well.
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/", maxsplit=1)[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lengthwise"}
    assert not [name for name in names if "__pycache__" in name or name.endswith((".nbc", ".nbi"))]


def test_the_wheel_holds_every_file_of_the_package(wheel):
    # Templates, py.typed and the like are no Python files, and are easily left out.
    root = PROJECT / "src"
    kept = (
        path.relative_to(root).as_posix()
        for path in (root / "lengthwise").rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    )
    with zipfile.ZipFile(wheel) as archive:
        assert set(kept) <= set(archive.namelist())


def test_the_wheel_says_licence_python_and_dependencies(wheel):
    # The core must not drag in anything that belongs to an extra.
    metadata = metadata_of(wheel)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert set(metadata["Requires-Python"].split(",")) == {">=3.11", "<3.14"}
    required = {
        line.split(">")[0].strip()
        for line in metadata.get_all("Requires-Dist")
        if "extra ==" not in line
    }
    assert required == {"numpy", "numba", "typer", "rich", "tomli-w"}


def test_the_wheel_tells_type_checkers_that_it_is_typed(wheel):
    # Without this empty file (PEP 561) they take everything of the package for Any.
    with zipfile.ZipFile(wheel) as archive:
        assert "lengthwise/py.typed" in archive.namelist()
    assert "Typing :: Typed" in metadata_of(wheel).get_all("Classifier")


@pytest.mark.slow
def test_the_unpacked_wheel_imports_and_answers_on_the_command_line(wheel, tmp_path):
    # PYTHONPATH stands before the editable installation, so this runs what is in the wheel.
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    code = "import sys, lengthwise.cli.app as app; print(app.__file__); app.main()"
    answered = subprocess.run(
        [sys.executable, "-c", code, "--version"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site")},
    )
    assert answered.returncode == 0, answered.stderr
    where, version = answered.stdout.splitlines()
    assert Path(where).is_relative_to(tmp_path / "site")
    assert version == f"lengthwise {metadata_of(wheel)['Version']}"
