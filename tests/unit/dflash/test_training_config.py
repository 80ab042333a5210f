"""A training config: every fault is named with field, value and what is allowed; it reads back."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import transformers
import yaml
from pydantic import BaseModel

from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.loss import LossConfig
from lengthwise.dflash.optimizer import OptimizerConfig
from lengthwise.dflash.schedule import ScheduleConfig
from lengthwise.dflash.training.config import TrainConfig, parse_train_config, read_train_config
from lengthwise.dflash.training.describe import describe, describe_defaults
from lengthwise.dflash.training.setup import drafter_config
from lengthwise.errors import ConfigError


def values(**changes):
    """The least that a config needs, and ``changes`` by their names with __ for the point."""
    config = {
        "output_dir": "out",
        "target": {"model": "some/target"},
        "drafter": {"mask_token_id": 7},
        "data": {"train": ["prepared"]},
    }
    for name, value in changes.items():
        *parents, field = name.split("__")
        inner = config
        for parent in parents:
            inner = inner.setdefault(parent, {})
        inner[field] = value
    return config


def problems(**changes):
    """The lines that a faulty config is refused with, without the first."""
    with pytest.raises(ConfigError) as raised:
        parse_train_config(values(**changes))
    first, *lines = str(raised.value).splitlines()
    word = "problem" if len(lines) == 1 else "problems"
    assert first == f"config: {len(lines)} {word}"
    return [line.removeprefix("  ") for line in lines]


def fields(kind=TrainConfig, prefix=""):
    """(dotted name, field) of everything that is no section."""
    found = []
    for name, field in kind.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            found += fields(inner, f"{prefix}{name}.")
        else:
            found.append((prefix + name, field))
    return found


WRONG = {
    "output_dir": ("3", "output_dir: must be a valid string; got 3"),
    "epochs": ("0", "epochs: must be greater than or equal to 1; got 0"),
    "max_steps": ("0", "max_steps: must be greater than or equal to 1; got 0"),
    "seed": ("1.5", "seed: must be a valid integer, got a number with a fractional part; got 1.5"),
    "precision": ("half", "precision: must be 'auto', 'bf16' or 'fp32'; got 'half'"),
    "compile": ("maybe", "compile: must be a valid boolean, unable to interpret input; got"),
    "gradient_checkpointing": ("[]", "gradient_checkpointing: must be a valid boolean; got []"),
    "attention": ("fast", "attention: must be 'auto', 'sdpa' or 'flex'; got 'fast'"),
    "target.model": ("[]", "target.model: must be a valid string; got []"),
    "target.dtype": (
        "int8",
        "target.dtype: must be 'auto', 'bfloat16', 'float16' or 'float32'; got 'int8'",
    ),
    "target.revision": ("1234567", "target.revision: must be a valid string; got 1234567"),
    "drafter.mask_token_id": ("-1", "mask_token_id: must be greater than or equal to 0; got -1"),
    "drafter.num_hidden_layers": ("0", "must be greater than or equal to 1; got 0"),
    "drafter.block_size": ("1", "drafter.block_size: must be greater than or equal to 2; got 1"),
    "drafter.num_taps": ("0", "drafter.num_taps: must be greater than or equal to 1; got 0"),
    "drafter.target_layer_ids": ("3", "drafter.target_layer_ids: must be a list; got 3"),
    "drafter.sliding_window": ("0", "sliding_window: must be greater than or equal to 1; got 0"),
    "data.train": ("prepared", "data.train: must be a list; got 'prepared'"),
    "data.num_held_out": ("-1", "data.num_held_out: must be greater than or equal to 0; got -1"),
    "batching.max_tokens": ("0", "batching.max_tokens: must be greater than or equal to 1; got 0"),
    "batching.strategy": (
        "packed",
        "must be 'pooled', 'windowed', 'bucketed', 'sorted' or 'random'; got 'packed'",
    ),
    "batching.oversize": ("cut", "batching.oversize: must be 'error' or 'drop'; got 'cut'"),
    "batching.boundaries": ("[0, x]", "batching.boundaries.1: must be a valid integer"),
    "remix.pool_batches": ("0", "remix.pool_batches: must be greater than or equal to 1; got 0"),
    "step.max_anchors": ("0", "step.max_anchors: must be greater than or equal to 1; got 0"),
    "step.rows": ("sorted", "step.rows: must be 'packed' or 'padded'; got 'sorted'"),
    "loss.weighting": ("none", "must be 'decay', 'dpace' or 'uniform'; got 'none'"),
    "loss.gamma": ("0", "loss.gamma: must be greater than 0; got 0"),
    "loss.alpha": ("0", "loss.alpha: must be greater than 0; got 0"),
    "optimizer.kind": ("sgd", "optimizer.kind: must be 'adamw' or 'muon'; got 'sgd'"),
    "optimizer.learning_rate": ("-1", "optimizer.learning_rate: must be greater than 0; got -1"),
    "optimizer.betas": ("[0.9, 1]", "optimizer.betas.1: must be less than 1; got 1"),
    "optimizer.weight_decay": ("-1", "weight_decay: must be greater than or equal to 0; got -1"),
    "optimizer.max_grad_norm": ("0", "optimizer.max_grad_norm: must be greater than 0; got 0"),
    "schedule.kind": ("linear", "schedule.kind: must be 'cosine', 'wsd' or 'constant'"),
    "schedule.warmup_ratio": ("4", "schedule.warmup_ratio: must be less than or equal to 1; got 4"),
    "schedule.warmup_steps": ("-1", "warmup_steps: must be greater than or equal to 0; got -1"),
    "evaluation.every_steps": ("0", "every_steps: must be greater than or equal to 1; got 0"),
    "evaluation.num_prompts": ("-1", "num_prompts: must be greater than or equal to 0; got -1"),
    "checkpoint.keep": ("0", "checkpoint.keep: must be greater than or equal to 1; got 0"),
    "logging.writers": ("[print]", "writers.0: must be 'tensorboard', 'wandb' or 'trackio'"),
    "pipeline.target_devices": ("cpu", "pipeline.target_devices: must be a list; got 'cpu'"),
    "pipeline.timeout_seconds": ("0", "timeout_seconds: must be greater than 0; got 0"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_value_is_refused_with_field_range_and_value(name):
    text, says = WRONG[name]
    (line,) = problems(**{name.replace(".", "__"): yaml.safe_load(text)})
    assert line.startswith(name)
    assert says in line


def test_all_faults_are_named_at_once():
    # Five of different kinds, in one message, each with its field.
    found = problems(
        epochs=0,
        drafter__mask_token_id=-3,
        optimizer__learning_rate=0,
        loss__weighting="x",
        step__anchor=4,
    )
    names = [line.partition(":")[0] for line in found]
    assert sorted(names) == [
        "drafter.mask_token_id", "epochs", "loss.weighting", "optimizer.learning_rate",
        "step.anchor",
    ]  # fmt: skip


def test_what_is_missing_is_named():
    with pytest.raises(ConfigError) as raised:
        parse_train_config({"target": {}})
    assert str(raised.value).splitlines() == [
        "config: 4 problems",
        "  output_dir: is missing; it has no default",
        "  target.model: is missing; it has no default",
        "  drafter: is missing; it has no default",
        "  data: is missing; it has no default",
    ]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        # The same name stands in another section.
        (
            {"learning_rate": 1},
            "learning_rate: there is no such field; did you mean optimizer.learning_rate?",
        ),
        (
            {"loss__kind": 1},
            "loss.kind: there is no such field; did you mean optimizer.kind or schedule.kind?",
        ),
        # One letter too few, in a field and in a section.
        (
            {"batching__max_token": 1},
            "batching.max_token: there is no such field; did you mean batching.max_tokens?",
        ),
        ({"optimiser": {}}, "optimiser: there is no such field; did you mean optimizer?"),
        # Nothing is like it.
        (
            {"quux": 1},
            "quux: there is no such field; `lengthwise dflash train --print-config` lists all",
        ),
        ({"optimizer": 3}, "optimizer: is a section, a mapping of fields; got 3"),
        ({"loss": None}, "loss: is a section, a mapping of fields; got None"),
    ],
)
def test_an_unknown_field_is_refused_with_the_one_that_was_meant(change, line):
    assert problems(**change) == [line]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
@pytest.mark.parametrize("name", ["optimizer__learning_rate", "loss__gamma", "optimizer__betas"])
def test_numbers_that_are_not_finite_are_refused(name, value):
    # YAML writes them .inf and .nan; a comparison alone lets infinity pass.
    assert len(problems(**{name: [0.9, value] if name.endswith("betas") else value})) == 1


def test_gradients_may_go_unclipped():
    assert parse_train_config(values(optimizer__max_grad_norm=math.inf))


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (
            {"step__max_anchors_per_batch": 100},
            "step.max_anchors_per_batch must be at least step.max_anchors (512), got 100",
        ),
        (
            {"step__anchors_per_step": 100},
            "step.anchors_per_step must be at least step.max_anchors (512), got 100",
        ),
        ({"drafter__mask_token_id": None}, "drafter.mask_token_id is missing: name a reserved"),
        (
            {"drafter__num_taps": 2, "drafter__target_layer_ids": [1, 2]},
            "drafter.num_taps and drafter.target_layer_ids say the same: give one of them",
        ),
        (
            {"drafter": {"init_from": "x", "block_size": 16, "num_hidden_layers": 5}},
            "drafter.init_from brings its own architecture: leave out drafter.block_size, drafter.",
        ),
        (
            {"pipeline__target_devices": ["cpu"]},
            "pipeline.target_devices and pipeline.drafter_devices belong together",
        ),
        (
            {"pipeline__drafter_devices": ["cpu"]},
            "pipeline.target_devices and pipeline.drafter_devices belong together",
        ),
        ({"batching__strategy": "bucketed"}, "batching: "),
        (
            {
                "batching__strategy": "bucketed",
                "batching__num_buckets": 4,
                "batching__boundaries": [0, 9],
            },
            "batching: ",
        ),
        (
            {"batching__strategy": "bucketed", "batching__boundaries": [9, 0]},
            "batching: ",
        ),
    ],
)
def test_fields_that_do_not_go_together_are_named(change, line):
    (found,) = problems(**change)
    assert found.startswith(line)


def test_all_disagreements_are_named_at_once():
    found = problems(
        step__max_anchors_per_batch=1,
        step__anchors_per_step=1,
        drafter__mask_token_id=None,
        pipeline__target_devices=["cpu"],
    )
    assert len(found) == 4


def test_a_drafter_to_continue_from_needs_nothing_else():
    config = parse_train_config(values(drafter={"init_from": "some/drafter"}))
    assert config.drafter.init_from == "some/drafter"


@pytest.mark.parametrize(
    ("override", "name", "expected"),
    [
        # YAML 1.1 reads 6e-4 as a word, since it has no point; so does the file itself.
        ("optimizer.learning_rate=6e-4", "optimizer.learning_rate", 6e-4),
        ("optimizer.learning_rate=6.0e-4", "optimizer.learning_rate", 6e-4),
        ("optimizer.betas=[9e-1, 0.99]", "optimizer.betas", (0.9, 0.99)),
        ("data.train=[a, b]", "data.train", ("a", "b")),
        ("drafter.target_layer_ids=[1, 3]", "drafter.target_layer_ids", (1, 3)),
        ("seed=5", "seed", 5),
        ("compile=true", "compile", True),
        ("drafter.sliding_window=null", "drafter.sliding_window", None),
        # A text may look like a number, or hold the sign that divides name and value.
        ("target.revision='1e5'", "target.revision", "1e5"),
        ("target.revision=1e5", "target.revision", "1e5"),
        ("output_dir=a=b", "output_dir", "a=b"),
        # A section that the file does not have, and one that stands there empty.
        ("schedule.kind=wsd", "schedule.kind", "wsd"),
        ("loss.weighting=uniform", "loss.weighting", "uniform"),
    ],
)
def test_an_override_counts_as_if_it_stood_in_the_file(override, name, expected, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(values()) + "loss:\n")
    if not override.startswith("loss"):
        path.write_text(yaml.safe_dump(values()))
    found = read_train_config(path, [override])
    for part in name.split("."):
        found = getattr(found, part)
    assert found == expected


def test_the_last_of_several_overrides_counts(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(values(epochs=2)))
    config = read_train_config(path, ["epochs=3", "step.rows=padded", "epochs=4"])
    assert (config.epochs, config.step.rows) == (4, "padded")


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("epochs", "an override reads section.field=value, got 'epochs'"),
        ("=3", "an override reads section.field=value, got '=3'"),
        ("step.=3", "an override reads section.field=value, got 'step.=3'"),
        ("epochs.number=3", "override 'epochs.number=3': epochs is no section"),
        ("data.train=[a", r"override 'data.train=\[a': the value is not valid YAML"),
        ("optim.learning_rate=1", "optim: there is no such field"),
        ("optimizer.rate=1", "optimizer.rate: there is no such field"),
    ],
)
def test_an_override_that_cannot_be_meant_is_refused(override, says, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(values(epochs=2)))
    with pytest.raises(ConfigError, match=says):
        read_train_config(path, [override])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"a: [", "not valid YAML"),
        (b"\xff\xfe\x00", "not valid YAML"),
        (b"", "a config is a mapping of fields, the file holds nothing"),
        (b"- a\n", "a config is a mapping of fields, the file holds list"),
        (b"epochs: 0\n", "run.yaml: 5 problems"),
    ],
)
def test_a_file_that_is_no_config_is_refused_by_its_name(content, says, tmp_path):
    path = tmp_path / "run.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=says) as raised:
        read_train_config(path)
    assert str(path) in str(raised.value)


CONFIGS = {
    "defaults": {},
    # None where the default is a number, and the other way round.
    "pooled": {"batching__strategy": "pooled", "batching__window_size": None},
    "buckets": {
        "batching__strategy": "bucketed",
        "batching__boundaries": [0, 100, 4097],
        "batching__num_buckets": None,
    },
    "continued": {"drafter": {"init_from": "some/drafter"}},
    "lists": {
        "data__train": ["a: b", "c, d"],
        "logging__writers": ["wandb", "tensorboard"],
        "drafter__target_layer_ids": [1, 4],
        "pipeline__target_devices": ["cuda:0", "cuda:1"],
        "pipeline__drafter_devices": ["cuda:2"],
    },
    # Texts that YAML would take for something else.
    "words": {"target__revision": "1234567", "output_dir": "null", "device": "no"},
    "numbers": {
        "optimizer__learning_rate": 1e-5,
        "optimizer__betas": [0.1, 0.123456789012345],
        "schedule__warmup_steps": 0,
        "optimizer__max_grad_norm": math.inf,
        "seed": -(2**40),
    },
}


@pytest.mark.parametrize("case", CONFIGS)
def test_a_described_config_reads_back_as_the_same(case, tmp_path):
    config = parse_train_config(values(**CONFIGS[case]))
    path = tmp_path / "described.yaml"
    path.write_text(describe(config))
    again = read_train_config(path)
    assert again == config
    assert describe(again) == describe(config)


def test_every_field_is_listed_with_its_reason_and_default():
    # Words may be broken over lines of comment, so the lines are joined again.
    text = describe_defaults()
    joined = " ".join(line.strip().removeprefix("# ") for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 100
    for name, field in fields():
        assert field.description, name
        assert " ".join(field.description.split()) in joined, name
        leaf = name.rpartition(".")[2]
        assert f"{leaf}:" in text
        if field.is_required():
            assert f"# {leaf}: (must be given)" in text


def test_the_listed_defaults_are_a_config_once_the_rest_is_given():
    listed = yaml.safe_load(describe_defaults())
    for name, given in values().items():
        listed[name] = {**(listed.get(name) or {}), **given} if isinstance(given, dict) else given
    assert parse_train_config(listed) == parse_train_config(values())


def test_allowed_ranges_and_choices_are_listed():
    text = " ".join(line.strip().removeprefix("# ") for line in describe_defaults().splitlines())
    assert "Allowed: at least 2, at most 256." in text  # drafter.block_size
    assert "Allowed: adamw, muon." in text
    assert "Allowed: above 0." in text  # optimizer.learning_rate
    assert "Allowed: above 0, at most 1." in text  # loss.alpha


def test_defaults_are_those_of_the_parts_they_go_to():
    """Two places state them: the config that people write, and the parts' own."""
    config = parse_train_config(values())
    optimizer, schedule, loss = OptimizerConfig(), ScheduleConfig(), LossConfig()
    for name in ("kind", "learning_rate", "betas", "weight_decay", "max_grad_norm"):
        assert getattr(config.optimizer, name) == getattr(optimizer, name)
    for name in ("kind", "warmup_steps", "final_ratio", "decay_ratio"):
        assert getattr(config.schedule, name) == getattr(schedule, name)
    for name in ("weighting", "gamma", "alpha"):
        assert getattr(config.loss, name) == getattr(loss, name)


@pytest.mark.parametrize(
    ("strategy", "more", "expected"),
    [
        ("windowed", {}, ("windowed", 8192, "balanced")),
        ("pooled", {}, ("pooled", None, "balanced")),
        ("random", {}, ("random", None, "balanced")),
        ("sorted", {}, ("sorted", None, "shuffled")),
        ("bucketed", {"batching__num_buckets": 3}, ("bucketed", None, "balanced")),
    ],
)
def test_the_targets_batches_are_what_the_planner_takes(strategy, more, expected):
    # Every strategy works with the other fields at their defaults, where it has what it needs.
    config = parse_train_config(values(batching__strategy=strategy, seed=3, **more))
    batching = config.batching_config()
    assert (batching.strategy, batching.window_size, batching.order) == expected
    assert batching.accumulation_steps == config.remix.mixed_batches
    assert (batching.limits.max_tokens, batching.seed) == (16_384, 3)


EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_example_configs_are_right(path):
    assert read_train_config(path)


def test_the_example_for_qwen3_8b_says_what_its_drafter_will_be():
    """Sizes from Qwen3-8B's published config; the counts in the comments are of that drafter."""
    config = read_train_config(EXAMPLES / "dflash_qwen3_8b.yaml")
    target = transformers.Qwen3Config(
        hidden_size=4096, num_hidden_layers=36, num_attention_heads=32, num_key_value_heads=8,
        head_dim=128, intermediate_size=12_288, vocab_size=151_936,
    )  # fmt: skip
    sizes = drafter_config(config, target)
    assert sizes.target_layer_ids == (1, 9, 17, 25, 33)
    with torch.device("meta"):
        num_weights = sum(weight.numel() for weight in Drafter(sizes).parameters())
    assert round(num_weights / 1e9, 2) == 1.05
    waiting = config.remix.pool_batches * config.batching.max_tokens * sizes.feature_size * 2
    assert waiting == 30 * 2**30
    target_cost = 2 * 8.2e9 * 2000
    drafter_cost = 512 * 16 * (6 * num_weights + 4 * 4096 * 151_936)
    assert (round(target_cost / 1e14, 2), round(drafter_cost / 1e14, 2)) == (0.33, 0.72)
    assert target_cost / drafter_cost == pytest.approx(3 / 5, rel=0.35)
