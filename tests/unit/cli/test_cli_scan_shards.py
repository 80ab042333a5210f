"""``scan`` into shards and on Ray: what the command line adds to the functions behind it."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

import lengthwise as lw
from lengthwise.cli.app import app
from support.shard_sources import write_parquet


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture
def source(tmp_path):
    write_parquet(tmp_path / "in", [700, 1200, 1], nulls=[3])
    return tmp_path / "in"


OPTIONS = ("--on-bad", "skip", "--rows-per-shard", 1, "--output")


def test_a_directory_as_output_takes_shards(source, tmp_path):
    result = run("scan", source, *OPTIONS, tmp_path / "out", "--json")
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    shards = lw.open_shards(tmp_path / "out", verify=True)
    assert data["shards"] == {
        "directory": str(tmp_path / "out"),
        "num_shards": 3,
        "num_found": 0,
        "dtype": shards.dtype.name,
        "fingerprint": shards.fingerprint,
    }
    # Everything else is what a scan into memory says.
    del data["shards"]
    assert data == json.loads(run("scan", source, "--on-bad", "skip", "--json").stdout)
    assert result.stderr.splitlines()[-1] == f"lengths written to {tmp_path / 'out'}"


def test_the_same_command_says_how_much_was_there(source, tmp_path):
    run("scan", source, *OPTIONS, tmp_path / "out")
    (tmp_path / "out/lengths-00001.npy").unlink()
    result = run("scan", source, *OPTIONS, tmp_path / "out", "--json")
    assert "2 of 3 shards were there already" in result.stderr.splitlines()
    assert json.loads(result.stdout)["shards"]["num_found"] == 2


def found_in(data):
    """What was found, without where and how fast."""
    if isinstance(data, dict):
        others = ("files", "provenance")
        return {k: found_in(v) for k, v in data.items() if k not in others and "second" not in k}
    return [found_in(item) for item in data] if isinstance(data, list) else data


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("scan", []),
        ("optimize", ["--max-tokens", 100_000, "-k", 4]),
        ("compare", ["--max-tokens", 100_000, "-k", 4]),
    ],
)
def test_a_directory_of_shards_is_a_source_like_the_file_of_its_lengths(
    command, options, source, tmp_path
):
    run("scan", source, *OPTIONS, tmp_path / "out")
    np.save(tmp_path / "out.npy", lw.read_lengths(tmp_path / "out"))
    found = [
        found_in(json.loads(run(command, path, *options, "--json").stdout))
        for path in (tmp_path / "out", tmp_path / "out.npy")
    ]
    assert found[0] == found[1]


def test_a_changed_shard_ends_with_2_and_names_it(source, tmp_path):
    run("scan", source, *OPTIONS, tmp_path / "out")
    np.save(tmp_path / "out/lengths-00002.npy", np.array([1], np.uint16))
    result = run("scan", tmp_path / "out")
    assert result.exit_code == 2
    assert "lengths-00002.npy (its lengths are others)" in result.stderr


def test_ray_is_another_engine_of_the_same_command(local_ray, source, tmp_path):
    # Apart from the directory, every byte of standard output and of the shards is the same.
    printed = []
    for engine in ("local", "ray"):
        out = tmp_path / engine / "out"
        out.parent.mkdir()
        result = run("scan", source, *OPTIONS, out, "--json", "--engine", engine)
        assert result.exit_code == 0
        printed.append(result.stdout.replace(str(out), ""))
        printed.append({path.name: path.read_bytes() for path in out.iterdir()})
    assert printed[:2] == printed[2:]
    plain = run("scan", source, "--on-bad", "skip", "--json")
    assert (
        run("scan", source, "--on-bad", "skip", "--json", "--engine", "ray").stdout == plain.stdout
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ray-address", "auto"], "--ray-address belongs to --engine ray"),
        (["--rows-per-shard", 5], "--rows-per-shard belongs to shards: give --output a directory"),
        (["--rows-per-shard", 5, "-o", "x.npy"], "--rows-per-shard belongs to shards"),
        (["--output", "x.txt"], "lengths are saved as .npy or .parquet, not 'x.txt'"),
    ],
)
def test_options_that_do_not_belong_together_end_with_2(options, message, source):
    result = run("scan", source, *options)
    assert (result.exit_code, message in result.stderr) == (2, True)
