"""Parts of the engine on Ray that need no Ray: wishes, words, what goes together."""

from __future__ import annotations

import json
import sys

import pytest
import torch
from typer.testing import CliRunner

from lengthwise.cli.app import build_app
from lengthwise.dflash.training.config import parse_train_config
from lengthwise.dflash.training.progress import Position
from lengthwise.errors import ConfigError, DataError, MissingDependencyError
from lengthwise.pipeline.arena import ArenaShape
from lengthwise.pipeline.messages import Part
from lengthwise.pipeline.network import interface_towards
from lengthwise.pipeline.on_ray.child import ending_of
from lengthwise.pipeline.on_ray.features import ObjectChannel
from lengthwise.pipeline.on_ray.placement import bundles_of
from lengthwise.pipeline.on_ray.wish import Wish, read_wish, write_wish
from lengthwise.pipeline.once import Once
from lengthwise.pipeline.run import run_pipeline
from lengthwise.pipeline.setup import set_up_pipeline
from support.dflash_runs import Silent, small_run_folder
from support.pipeline_runs import pipeline_config


def section(**pipeline):
    values = {
        "output_dir": "out",
        "target": {"model": "some/model"},
        "drafter": {"mask_token_id": 1},
        "data": {"train": ["samples"]},
        "pipeline": pipeline,
    }
    return parse_train_config(values).pipeline


def test_devices_on_ray_are_kinds_by_list_or_by_number():
    """The same config as on one machine, or counts; which device it is, Ray decides."""
    named = section(engine="ray", target_devices=["cuda:0", "cuda:3"], drafter_devices=["cpu"])
    assert (named.targets, named.drafters) == (("cuda", "cuda"), ("cpu",))
    counted = section(engine="ray", num_targets=3, num_drafters=1, ray={"device": "cpu"})
    assert (counted.targets, counted.drafters) == (("cpu",) * 3, ("cpu",))
    assert counted.num_ahead == 6
    local = section(target_devices=["cuda:0"], drafter_devices=["cuda:1"])
    assert (local.targets, local.drafters) == (("cuda:0",), ("cuda:1",))


@pytest.mark.parametrize(
    ("pipeline", "says"),
    [
        ({"num_targets": 2}, "pipeline.num_targets is of pipeline.engine: ray"),
        ({"engine": "ray"}, "engine: ray needs pipeline.num_targets and pipeline.num_drafters"),
        ({"engine": "ray", "num_targets": 2}, "belong together"),
        (
            {"engine": "ray", "num_targets": 2, "target_devices": ["cpu"], "num_drafters": 1},
            "pipeline.target_devices and pipeline.num_targets say the same",
        ),
        (
            {"engine": "ray", "num_targets": 1, "num_drafters": 1, "ray": {"address": "ray://x"}},
            "runs inside its cluster",
        ),
        ({"engine": "slurm"}, "pipeline.engine: must be 'local' or 'ray'"),
        ({"ray": {"cpus": 0}}, "pipeline.ray.cpus: must be greater than 0"),
    ],
)
def test_what_does_not_go_together_is_refused_by_name(pipeline, says):
    with pytest.raises(ConfigError, match=says):
        section(**pipeline)


def test_each_process_asks_for_its_device_and_what_its_kind_needs():
    wanted = section(
        engine="ray", target_devices=["cuda", "cpu"], drafter_devices=["cuda"],
        ray={"cpus": 2, "target_resources": {"fast": 0.5}, "drafter_resources": {"large": 1}},
    )  # fmt: skip
    assert bundles_of(wanted) == [
        {"CPU": 2, "GPU": 1, "fast": 0.5},
        {"CPU": 2, "fast": 0.5},
        {"CPU": 2, "GPU": 1, "large": 1},
    ]


def test_without_ray_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    folder = small_run_folder(tmp_path)
    setup = set_up_pipeline(pipeline_config(folder, tmp_path / "out", pipeline={"engine": "ray"}))
    with pytest.raises(MissingDependencyError, match=r"pip install 'lengthwise\[ray\]'"):
        run_pipeline(setup, None, Silent())


def test_a_wish_is_news_once_and_an_old_one_is_none(tmp_path, monkeypatch):
    monkeypatch.setattr("lengthwise.pipeline.on_ray.wish.LOOK_SECONDS", 0.0)
    write_wish(tmp_path, 7)
    wish = Wish(str(tmp_path), 2)
    assert wish.news() is None  # it was asked of an earlier run
    write_wish(tmp_path, 2)
    assert wish.news() is None
    write_wish(tmp_path, 3)
    assert [wish.news(), wish.news()] == [3, None]
    assert [file.name for file in tmp_path.iterdir()] == ["targets.json"]


@pytest.mark.parametrize("text", ["", "3", "{}", '{"targets": "3"}', '{"targets": 0}', "{"])
def test_a_wish_that_says_nothing_of_use_is_none(tmp_path, text):
    (tmp_path / "targets.json").write_text(text)
    assert read_wish(tmp_path / "targets.json") is None


def scale(*arguments):
    return CliRunner().invoke(build_app(), ["dflash", "scale", *map(str, arguments)])


def test_the_command_writes_a_wish_for_runs_on_ray_alone(tmp_path):
    unknown = scale(tmp_path, "--targets", 3)
    assert unknown.exit_code == 2
    assert "is no run of `lengthwise dflash train`: train_config.json" in unknown.output
    config = tmp_path / "train_config.json"
    config.write_text(json.dumps({"pipeline": {"engine": "local"}}))
    refused = scale(tmp_path, "--targets", 3)
    assert refused.exit_code == 2
    assert "only a run with pipeline.engine: ray" in refused.output
    assert not (tmp_path / "targets.json").exists()
    config.write_text(json.dumps({"pipeline": {"engine": "ray"}}))
    assert scale(tmp_path, "--targets", 0).exit_code == 2
    assert scale(tmp_path, "--targets", 3).exit_code == 0
    assert read_wish(tmp_path / "targets.json") == 3


DETAIL = "Worker unexpectedly exits with a connection error code 2. End of file"
KILLED = f"""The actor died unexpectedly before finishing this task.
\tclass_name: ChildActor
\tip: 10.0.0.5
The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit \
detail: {DETAIL}. Some common causes \
include: (1) the process was killed by the OOM killer due to high memory usage."""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (KILLED, f"was lost: its process has died. {DETAIL}"),
        ("The actor died because its node has died. Node Id: 1", "was lost: its machine is gone"),
        ("The actor 1 is unavailable: RPC error", "was lost: it cannot be reached"),
        ("something\n\telse.", "was lost: something else"),
    ],
)
def test_how_an_actor_ended_is_said_in_few_words(text, words):
    assert ending_of(text) == words


def test_what_is_made_again_is_heard_once():
    """Steps two and three are made again after a restart; an evaluation and a checkpoint too."""
    seen = Silent()
    once = Once(seen)
    for number in (1, 2, 3, 2, 3, 4):
        place = Position(number, 0, number)
        once.stepped(place, None, None)
        once.saved(place, f"step-{number}")
        if number % 2:
            once.evaluated(place, None, None)
    assert [place.num_steps for place, _, _ in seen.steps] == [1, 2, 3, 4]
    assert seen.paths == ["step-1", "step-2", "step-3", "step-4"]
    assert [place.num_steps for place, _, _ in seen.evaluations] == [1, 3]


def test_features_leave_in_the_order_in_which_they_were_written():
    """A batch may be under way twice after a restart, on the same pages; each gets its own."""
    channel = ObjectChannel(lambda message: None)
    channel.shape = ArenaShape(8, 4, 6, torch.bfloat16)
    part = Part(3, 5, (0, 1))
    first, second = torch.randn(2, 5, 6).to(torch.bfloat16)
    channel.write(part, first)
    channel.write(part, second)
    for written in (first, second):
        taken = channel.take(part)
        assert taken.shape == (5, 12)
        assert torch.equal(torch.from_numpy(taken).view(torch.bfloat16), written)
    with pytest.raises(DataError, match="sample 3: the target gave features"):
        channel.write(part, first[:4])
    channel.write(part, first)
    channel.forget()
    with pytest.raises(IndexError):
        channel.take(part)


@pytest.mark.skipif(sys.platform != "linux", reason="interfaces are found on Linux")
def test_the_interface_is_the_one_that_leads_there():
    assert interface_towards("127.0.0.1") == "lo"
    assert interface_towards("no.such.host.invalid") is None
