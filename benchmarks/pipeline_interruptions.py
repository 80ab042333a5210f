"""A short run interrupted at random points, again and again: is every loss that of a whole run?

    python benchmarks/pipeline_interruptions.py --interruptions 200 [--seed 0] [--minutes 60]

Counts are added to those of earlier calls; take another seed each time.

A run of two target workers and one drafter rank is begun, and after a random time it is
interrupted: by SIGINT or SIGTERM to the coordinator, by two of them at once, by SIGKILL to the
coordinator, to one worker, to all workers or to the rank. It is then begun again from what it
left, and interrupted again, until it ends; then the next run begins. After every interruption
no process and no shared memory may be left, and each loss that was written must equal, to the last
bit, the one of a run that was never interrupted. Every finished run must have made every step.

Processes come from a server that has imported everything, as in the tests (`tests/support`): what
is tried is the pipeline, not the import of torch.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import pages
import torch
from workloads import machine

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from lengthwise.dflash.training.setup import assemble, set_up, store_of
from lengthwise.errors import TrainingError
from support.dflash_runs import Silent, small_config, small_run_folder
from support.pipeline_runs import Watching, alive, run, start_apart

RESULT = Path(__file__).parent / "results" / "pipeline_interruptions.json"
QUIET = {"evaluation": {"num_prompts": 0}, "epochs": 4}
BOUND_SECONDS = 300
"""Within which a process that was interrupted must have ended, on a busy machine."""
KINDS = {
    "SIGINT": (("coordinator", signal.SIGINT),),
    "SIGTERM": (("coordinator", signal.SIGTERM),),
    "two signals": (("coordinator", signal.SIGINT), ("coordinator", signal.SIGTERM)),
    "SIGKILL of the coordinator": (("coordinator", signal.SIGKILL),),
    "SIGKILL of a worker": (("target worker 0", signal.SIGKILL),),
    "SIGKILL of all workers": (("target worker", signal.SIGKILL),),
    "SIGKILL of the rank": (("drafter rank", signal.SIGKILL),),
}


class Writing(Watching):
    """Writes down each loss, and at once which processes and memory there are."""

    def __init__(self, output):
        """Into files beside the run's."""
        super().__init__()
        self.losses_file = Path(output, "losses.jsonl")
        self.seen_file = Path(output, "seen.json")

    def look(self):
        """Write down what is seen."""
        super().look()
        new = self.seen_file.with_suffix(".new")
        new.write_text(json.dumps([self.pids, sorted(self.memory)]))
        new.rename(self.seen_file)

    def stepped(self, position, result, facts):
        """Write the loss down in one piece."""
        super().stepped(position, result, facts)
        with self.losses_file.open("a") as file:
            file.write(json.dumps([position.num_steps, result.sums.loss]) + "\n")


def coordinate(folder, output, every_steps):
    """One process's part of a run; its exit code says how it ended."""
    try:
        outcome, _ = run(folder, output, Writing(output), **QUIET,
                         checkpoint={"every_steps": every_steps})  # fmt: skip
    except KeyboardInterrupt:
        os._exit(3)
    except TrainingError:
        os._exit(1)
    os._exit(130 if outcome.interrupted else 0)


def expected_losses(folder, output):
    """Losses of the whole run in one process, by step."""
    config = small_config(folder, output, **QUIET)
    observer = Silent()
    assemble(set_up(config), store_of(config), observer).run()
    return {place.num_steps: result.sums.loss for place, result, _ in observer.steps}


def interrupt(process, kind, output):
    """Send the signals, as far as those they are for are there."""
    pids = {}
    if (output / "seen.json").exists():
        pids = json.loads((output / "seen.json").read_text())[0]
    for whom, number in KINDS[kind]:
        chosen = [pid for name, pid in pids.items() if name.startswith(whom)]
        for pid in [process.pid] if whom == "coordinator" else chosen:
            if alive(pid):
                os.kill(pid, number)


def check_nothing_left(output):
    """Wait a bounded time for all that was seen to be gone."""
    if not (output / "seen.json").exists():
        return
    pids, memory = json.loads((output / "seen.json").read_text())
    until = time.monotonic() + BOUND_SECONDS
    while any(map(alive, pids.values())) or any(Path(name).exists() for name in memory):
        if time.monotonic() > until:
            raise AssertionError(f"left: {pids}, {memory}")
        time.sleep(0.05)


def check_losses(output, expected):
    """Every loss written so far is the whole run's."""
    file = output / "losses.jsonl"
    lines = file.read_text().splitlines() if file.exists() else []
    written = [tuple(json.loads(line)) for line in lines]
    wrong = [(step, loss, expected[step]) for step, loss in written if loss != expected[step]]
    assert not wrong, f"losses differ: {wrong}"
    return written


def one_piece(folder, output, expected, draw):
    """Begin, interrupt after a random time, wait for the end: (kind, exit code, finished)."""
    before = len(check_losses(output, expected))
    (output / "seen.json").unlink(missing_ok=True)
    process = start_apart(coordinate, folder, output, draw.choice([1, 2, 3, 5]))
    kind = draw.choice(sorted(KINDS))
    # Some fall while models load, most between two steps or in the middle of one.
    after, pause = draw.randint(0, 5), draw.uniform(0, 0.5)
    until = time.monotonic() + BOUND_SECONDS
    while alive(process.pid) and len(check_losses(output, expected)) < before + after:
        assert time.monotonic() < until, "hung"
        time.sleep(0.02)
    time.sleep(pause)
    interrupt(process, kind, output)
    process.join(BOUND_SECONDS)
    assert process.exitcode is not None, f"hung after {kind}"
    check_nothing_left(output)
    check_losses(output, expected)
    return kind, process.exitcode, process.exitcode == 0


def measure(interruptions, seed, minutes):
    """Interrupt that many times, or as often as the time allows; yields the figures so far."""
    torch.set_num_threads(1)
    draw, kinds, codes = random.Random(seed), Counter(), Counter()
    made, finished, again = 0, 0, 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        folder = small_run_folder(Path(place))
        expected = expected_losses(folder, Path(place, "alone"))
        output = Path(place, "out")
        output.mkdir()
        while made < interruptions and time.monotonic() - began < 60 * minutes:
            kind, code, over = one_piece(folder, output, expected, draw)
            kinds[kind] += 1
            codes[str(code)] += 1
            made += 1
            print(f"{made}: {kind}: exit code {code}", flush=True)
            if over:
                written = check_losses(output, expected)
                assert dict(written) == expected, "steps are missing"
                again += len(written) - len(expected)
                finished += 1
                shutil.rmtree(output)
                output.mkdir()
            yield {
                "interruptions": made,
                "by_kind": dict(sorted(kinds.items())),
                "by_exit_code": dict(sorted(codes.items())),
                "finished_runs": finished,
                "steps_a_run": len(expected),
                "steps_made_again": again,
                "different_losses": 0,
                "hung": 0,
                "left_over": 0,
                "seconds": time.monotonic() - began,
                "seeds": [seed],
            }


def main():
    """Run, and write down what happened so far; a failure is a traceback and counts as none."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interruptions", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--minutes", type=float, default=120)
    options = parser.parse_args()
    about, before = machine(), earlier()
    for found in measure(options.interruptions, options.seed, options.minutes):
        text = json.dumps({"machine": about, "result": added(before, found)}, indent=2) + "\n"
        RESULT.write_text(text, encoding="utf-8")
    print(text)


def earlier():
    """The figures so far, of earlier calls with other seeds; None for none."""
    if not RESULT.exists():
        return None
    return pages.result(RESULT)


def added(before, found):
    """Counts of two measurements together."""
    if before is None:
        return found
    both = dict(found)
    for name, value in found.items():
        earlier_value = before.get(name)
        if isinstance(value, dict):
            both[name] = dict(sorted((Counter(earlier_value) + Counter(value)).items()))
        elif name != "steps_a_run":  # what was not counted once is not known in all
            both[name] = None if earlier_value is None else earlier_value + value
    return both


if __name__ == "__main__":
    main()
