"""The pipeline on several machines, imitated by several daemons of Ray with a store each."""

from __future__ import annotations

import time

import pytest

from lengthwise.dflash.target import load_tokenizer
from lengthwise.dflash.training.config import parse_train_config
from lengthwise.errors import LengthwiseWarning
from lengthwise.pipeline.run import run_pipeline
from lengthwise.pipeline.setup import set_up_pipeline
from prove_drafter import TARGET
from support.dflash_runs import small_run_folder, write_rows
from support.pipeline_runs import Watching, quick_processes, run
from support.ray_cluster import running_cluster
from support.ray_runs import PATIENCE, RayWatching, actors, check_nothing_left_on_ray, run_on_ray
from tiny_target_task import exercises

pytestmark = pytest.mark.slow

APART = {"target_resources": {"targets": 1}, "drafter_resources": {"drafters": 1}}
"""Which machines have what decides where actors run."""


def nodes_of_actors():
    """Kind of an actor -> Ray's names of the machines on which such actors live."""
    import ray

    found = {}
    for one in ray._private.state.actors().values():
        if one["State"] == "ALIVE" and one["ActorClassName"] == "ChildActor":
            kind = one["Name"].split()[1]
            found.setdefault(kind, set()).add(one["Address"]["NodeID"])
    return found


def write_exercises(folder, count):
    """The tiny target's exercises with right answers, which it gives itself 95 times of 100."""
    tokenizer = load_tokenizer(TARGET)
    rows = []
    for one in exercises(count, seed=100):
        prompt = tokenizer.apply_chat_template(
            one.messages, add_generation_prompt=True, return_dict=False
        )
        answer = [*tokenizer.encode(one.answer, add_special_tokens=False), tokenizer.eos_token_id]
        ids = [*prompt, *answer]
        mask = [False] * len(prompt) + [True] * len(answer)
        rows.append({"input_ids": ids, "loss_mask": mask, "seq_len": len(ids)})
    folder.mkdir()
    write_rows(folder / "samples.parquet", rows)
    return folder


def tiny_config(samples, output, **pipeline):
    """A drafter of two layers for the tiny target, for a few dozens of small steps."""
    return parse_train_config(
        {
            "output_dir": str(output),
            "target": {"model": str(TARGET)},
            "drafter": {"mask_token_id": 2, "num_hidden_layers": 2, "block_size": 8},
            "data": {"train": [str(samples)], "num_held_out": 8},
            "epochs": 6,
            "batching": {"max_tokens": 4096},
            "step": {"anchors_per_step": 512, "max_anchors": 32, "max_anchors_per_batch": 256},
            "optimizer": {"learning_rate": 4e-3},
            "evaluation": {"num_prompts": 4, "max_new_tokens": 64, "every_steps": 1000},
            "pipeline": {"probe_rounds": 0, "timeout_seconds": PATIENCE, **pipeline},
        }
    )


def acceptance(seen):
    """Tokens per verification and outputs that differ, before the first step and at the end."""
    found = [(one.overall.tokens_per_verify, one.overall.num_mismatches) for _, one, _ in seen]
    assert len(found) == 2
    return found


def test_a_drafter_learns_on_two_machines_what_it_learns_on_one(tmp_path):
    """Real text and a target with a skill. Targets on one machine, ranks on the other: features go
    from store to store. Held-out prompts are accepted alike, and no output differs.
    """
    samples = write_exercises(tmp_path / "samples", 160)
    devices = {"target_devices": ["cpu"] * 2, "drafter_devices": ["cpu"] * 2}
    alone, seen, places = Watching(), RayWatching(), {}
    with quick_processes():
        run_pipeline(set_up_pipeline(tiny_config(samples, tmp_path / "a", **devices)), None, alone)
    with running_cluster({"drafters": 2}, {"targets": 2}):
        seen.after, seen.act = 2, lambda _seen: places.update(nodes_of_actors())
        config = tiny_config(samples, tmp_path / "b", engine="ray", ray=APART, **devices)
        run_pipeline(set_up_pipeline(config), None, seen)
        check_nothing_left_on_ray(seen)
    assert {kind: len(nodes) for kind, nodes in places.items()} == {"target": 1, "drafter": 1}
    assert places["target"] != places["drafter"]
    assert seen.losses == alone.losses
    before, after = acceptance(seen.evaluations)
    assert after == acceptance(alone.evaluations)[1]
    assert after[1] == 0
    assert after[0] > 1.15 > before[0]  # of 8 at most; it has learnt for some dozens of steps


def test_features_and_a_target_that_are_lost_with_their_machine_are_made_again(tmp_path):
    """Of two machines with targets one is taken away: what waited there for later steps is lost."""
    folder = small_run_folder(tmp_path)
    changes = {"epochs": 4, "evaluation": {"num_prompts": 0}, "workers": 2, "ranks": 2}
    with quick_processes():
        _, expected = run(folder, tmp_path / "whole", **changes)
    spread = {"ray": {**APART, "placement": "SPREAD"}}
    with running_cluster({"drafters": 2}, {"targets": 2}, {"targets": 2}) as (cluster, nodes):
        seen = RayWatching(3, lambda _seen: cluster.remove_node(nodes[2], allow_graceful=False))
        plain = seen.stepped

        def stepped(*arguments):
            plain(*arguments)
            # The loss is found out while the run goes on, however long that takes.
            if seen.flow and not seen.flow.num_reruns:
                time.sleep(0.3 * 1.5 ** len(seen.steps))

        seen.stepped = stepped
        with pytest.warns(
            LengthwiseWarning, match=r"target worker [01] .* was lost: it.*; another one"
        ):
            outcome, _ = run_on_ray(folder, tmp_path / "out", seen, **changes, pipeline=spread)
        assert not actors()
    assert not outcome.interrupted
    assert seen.losses == expected.losses
    assert seen.flow.num_reruns > 0
