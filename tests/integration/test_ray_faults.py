"""Scans on Ray outlive their workers and their drivers; real processes are killed."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import pytest

import lengthwise as lw
from support.slow_tokens import SlowTokens

pytestmark = pytest.mark.slow
PATIENCE_SECONDS = 120
"""Long on purpose: it only keeps a broken test from hanging for ever."""
TEXTS, FILES = 10, 12


def write_texts(folder):
    folder.mkdir()
    for number in range(FILES):
        lines = [" ".join(["word"] * (1 + (number * 7 + line) % 5)) for line in range(TEXTS)]
        (folder / f"{number:02d}.txt").write_text("\n".join(lines) + "\n")


def contents(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def wait_until(true):
    end = time.monotonic() + PATIENCE_SECONDS
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_a_killed_worker_changes_nothing(local_ray, tmp_path):
    """Its job is run again by another; the shards are those of a scan that nothing happened to."""
    write_texts(tmp_path / "in")
    pids = tmp_path / "pids"
    pids.mkdir()
    tokenizer = SlowTokens(pids, 0.1)
    killed = []

    def alive():
        return [pid for pid in (int(path.name) for path in pids.iterdir()) if pid not in killed]

    def kill_two():
        for _ in range(2):
            wait_until(alive)
            victim = alive()[0]
            assert b"ray::" in Path(f"/proc/{victim}/cmdline").read_bytes()  # a worker, not us
            os.kill(victim, signal.SIGKILL)
            killed.append(victim)

    killer = threading.Thread(target=kill_two)
    killer.start()
    options = {"tokenizer": tokenizer, "rows_per_shard": 1}
    lw.write_shards(tmp_path / "in", tmp_path / "ray", engine="ray", **options)
    killer.join()
    assert len(set(killed)) == 2
    quick = {**options, "tokenizer": SlowTokens(pids, 0)}
    lw.write_shards(tmp_path / "in", tmp_path / "local", **quick)
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")


DRIVER = """
    import sys
    import lengthwise as lw
    from support.slow_tokens import SlowTokens

    source, output, pids, at_most, address = sys.argv[1:]
    scan = lw.write_shards(
        source,
        output,
        engine="ray",
        ray_address=address,
        tokenizer=SlowTokens(pids, 0, int(at_most)),
        rows_per_shard=1,
    )
    print(scan.num_found, len(scan.shards.paths))
"""


def test_after_a_killed_driver_the_same_command_goes_on(local_ray, tmp_path):
    """What was finished is counted and kept; the bytes are those of a scan in one go."""
    write_texts(tmp_path / "in")
    (tmp_path / "pids").mkdir()
    address = local_ray.get_runtime_context().gcs_address
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(DRIVER))

    def start(at_most):
        arguments = [tmp_path / "in", tmp_path / "out", tmp_path / "pids", str(at_most), address]
        return subprocess.Popen(
            [sys.executable, script, *arguments], stdout=subprocess.PIPE, text=True
        )

    log = tmp_path / "out/unfinished.jsonl"
    # Of twelve files with ten texts each eight at most are finished; of two workers each leaves
    # one file half done.
    driver = start(8 * TEXTS)
    wait_until(lambda: log.is_file() and len(log.read_bytes().splitlines()) >= 4)
    driver.kill()
    driver.communicate(timeout=PATIENCE_SECONDS)
    finished = len(log.read_bytes().splitlines()) - 1
    assert 3 <= finished <= 8
    assert not (tmp_path / "out/manifest.json").exists()

    printed, _ = start(2 * FILES * TEXTS).communicate(timeout=PATIENCE_SECONDS)
    assert printed.split() == [str(finished), str(FILES)]
    lw.write_shards(
        tmp_path / "in",
        tmp_path / "local",
        tokenizer=SlowTokens(tmp_path / "pids", 0),
        rows_per_shard=1,
    )
    assert contents(tmp_path / "out") == contents(tmp_path / "local")
