"""Ray is joined or started in one place, with errors that say what to do."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from lengthwise.cluster import connect
from lengthwise.errors import ClusterError, MissingDependencyError, is_failed_run

RUN = "from lengthwise.cli.app import main; main()"


def test_a_connection_that_is_there_is_used_and_kept(local_ray):
    with connect.connected("10.0.0.1:6379") as ray:
        assert ray is local_ray
    assert local_ray.is_initialized()


def test_without_ray_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'lengthwise\[ray\]'"):
        connect.require_ray()


def test_without_ray_the_command_line_names_the_extra(tmp_path):
    # In a process that cannot import it, as after a plain installation.
    (tmp_path / "ray.py").write_text("raise ImportError")
    (tmp_path / "a.jsonl").write_text('{"length": 3}\n')
    finished = subprocess.run(
        [sys.executable, "-c", RUN, "scan", "a.jsonl", "--engine", "ray"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert finished.returncode == 2
    assert finished.stderr == (
        "error: work on several machines needs Ray: pip install 'lengthwise[ray]'\n"
    )


class Refusing:
    """Ray's module where no cluster answers."""

    def __init__(self, error):
        self.error = error
        self.asked = []

    def is_initialized(self):
        return False

    def init(self, address, **options):
        self.asked.append((address, options))
        raise self.error


@pytest.mark.parametrize(
    ("address", "variable", "asked", "message"),
    [
        (None, None, "local", "Ray cannot be started on this machine: no"),
        (None, "head:6379", "head:6379", "no Ray cluster at 'head:6379' that can be joined: no. "),
        ("auto", None, "auto", "no Ray cluster on this machine that can be joined: no. Start"),
        ("there:1", "head:6379", "there:1", "no Ray cluster at 'there:1'"),
    ],
)
def test_where_no_cluster_answers_the_ways_out_are_named(
    address, variable, asked, message, monkeypatch
):
    # Without an address and a variable nothing is looked for: a Ray that somebody else left on
    # this machine is not joined.
    ray = Refusing(ConnectionError("no\nstack"))
    monkeypatch.setattr(connect, "require_ray", lambda: ray)
    monkeypatch.setattr(connect, "_knock", lambda _address: None)
    if variable is None:
        monkeypatch.delenv("RAY_ADDRESS", raising=False)
    else:
        monkeypatch.setenv("RAY_ADDRESS", variable)
    with pytest.raises(ClusterError, match=message) as found, connect.connected(address):
        pass
    assert ray.asked[0][0] == asked
    assert is_failed_run(found.value)


def test_an_address_where_nobody_listens_is_refused_at_once(monkeypatch):
    # Ray would try for minutes. Port 9 is of a service that no machine of ours runs.
    ray = Refusing(AssertionError("not asked"))
    monkeypatch.setattr(connect, "require_ray", lambda: ray)
    refused = pytest.raises(ClusterError, match=r"no Ray cluster at '127\.0\.0\.1:9'.*refused")
    with refused, connect.connected("127.0.0.1:9"):
        pass
    assert ray.asked == []


def test_ray_comes_with_its_extra_and_no_other():
    # It is larger than everything else together.
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    with_ray = [name for name, needed in extras.items() if any("ray[" in one for one in needed)]
    assert with_ray == ["ray"]
    assert not any(one.startswith("ray") for one in project["dependencies"])
    assert "ray" not in extras["all"][0].partition("[")[2].strip("]").split(",")
