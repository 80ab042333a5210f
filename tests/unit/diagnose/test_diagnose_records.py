"""What comes in: damaged files, predictions, phases, and the plan made again."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.dflash.training.log import RunLog
from lengthwise.dflash.training.setup import assemble, set_up, store_of
from lengthwise.diagnose import diagnose, read_promise, read_records
from lengthwise.diagnose.phases import phases_of
from lengthwise.diagnose.plan import open_plan
from lengthwise.diagnose.records import RunRecords, lives
from lengthwise.errors import DataError
from support.dflash_runs import small_config, small_run_folder
from support.planted_runs import Planted, step_row, write_run


def write(folder, *lines, end="\n"):
    path = folder / "metrics.jsonl"
    path.write_bytes("\n".join(lines).encode() + end.encode())
    return path


def test_damaged_lines_cost_those_lines_alone(tmp_path):
    good = [json.dumps(step_row(step)) for step in (1, 2, 3)]
    path = write(tmp_path, good[0], '{"step": 2, "lo', good[1], "[1]", '{"step": 1.5}', good[2])
    path.write_bytes(path.read_bytes() + b'\xff\xfe{"bad\n{"step": 4, "loss": 2.')
    found = read_records(path)
    assert [row["step"] for row in found.steps] == [1, 2, 3]
    assert "4 lines are no records and are left out: 2, 4, 5, 7" in found.notes[0]
    assert "the last line is cut short" in found.notes[1]


@given(st.integers(0, 400))
def test_a_file_cut_anywhere_is_read_up_to_there(tmp_path_factory, size):
    rows = [json.dumps(step_row(step, weight=1 / (step + 2))) for step in range(8)]
    whole = ("\n".join(rows) + "\n").encode()
    cut = whole[: min(size, len(whole))]
    path = tmp_path_factory.mktemp("cut") / "metrics.jsonl"
    path.write_bytes(cut)
    # A record is whole once its closing brace is there, with or without the end of its line.
    expected = cut.count(b"}")
    if not expected:
        with pytest.raises(DataError, match="no record of an optimiser step"):
            read_records(path)
    else:
        assert len(read_records(path).steps) == expected


def test_steps_made_again_count_once_and_later(tmp_path):
    rows = [step_row(1, 5.0), step_row(2, 4.0), step_row(2, 3.0), step_row(3, 2.0)]
    found = read_records(write(tmp_path, *map(json.dumps, rows)))
    assert [row["loss"] for row in found.steps] == [5.0, 3.0, 2.0]


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(DataError, match="no records; name the output_dir"):
        diagnose(tmp_path)
    write(tmp_path, '{"step": 1, "flow_seconds": 2.0}')
    with pytest.raises(DataError, match="let the run take one"):
        diagnose(tmp_path)


def test_a_life_ends_where_any_counter_falls():
    rows = [{"step": 0, "a": a, "b": b} for a, b in [(1, 1), (2, 2), (3, 1), (3, 3), (1, 4)]]
    found = lives([*rows, {"step": 9, "a": 7}], ("a", "b"))
    assert [len(life) for life in found] == [2, 2, 1]


PROMISE = {
    "format": "lengthwise prediction",
    "version": 1,
    "tokens_per_second": 100.0,
    "low": 90.0,
    "high": 110.0,
    "target_busy": 0.9,
    "drafter_busy": 0.4,
}


def test_a_prediction_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "prediction.json"
    cost = {"fixed_seconds": 1e-3, "seconds_per_token": 1e-5, "seconds_per_token_squared": 0}
    values = {**PROMISE, "num_drafters": 0, "bottleneck": "targets", "target": {"cost": cost}}
    path.write_text(json.dumps(values))
    found = read_promise(path)
    assert (found.tokens_per_second, found.low, found.high) == (100, 90, 110)
    assert (found.busy("target"), found.busy("drafter")) == (0.9, 0.4)
    assert (found.num_drafters, found.bottleneck) == (0, "targets")
    assert found.target_cost.seconds_per_token == 1e-5
    assert read_promise(tmp_path / "other.json") is None


def test_a_cost_that_is_a_table_is_left_aside(tmp_path):
    path = tmp_path / "prediction.json"
    path.write_text(json.dumps({**PROMISE, "target": {"cost": {"kind": "table_time"}}}))
    assert read_promise(path).target_cost is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("not json", "not a prediction"),
        ({"format": "other"}, '"format" must be'),
        ({"version": 2}, "reads 1"),
        ({"tokens_per_second": None}, "must all be numbers"),
        ({"tokens_per_second": 0.0}, "above 0"),
        ({"target_busy": 1.2}, "a share from 0 to 1"),
        ({"target": {"cost": dict.fromkeys(("fixed_seconds", "seconds_per_token",
          "seconds_per_token_squared"), -1.0)}}, "target.cost"),
    ],
)  # fmt: skip
def test_a_prediction_that_is_damaged_is_left_out_with_the_reason(tmp_path, change, message):
    good = Planted()
    write_run(tmp_path, good)
    text = change if isinstance(change, str) else json.dumps({**PROMISE, **change})
    (tmp_path / "prediction.json").write_text(text)
    found = diagnose(tmp_path)
    assert found.comparison is None
    (note,) = [note for note in found.notes if "the prediction is left out" in note]
    assert message in note
    assert "prediction.json" in note


def flow(second, kind, *, learnt=1, ran=None):
    return {
        "step": second,
        "flow_seconds": float(second),
        "flow_bottleneck": kind,
        "flow_learnt_tokens": learnt,
        "flow_real_tokens": second if ran is None else ran,
    }


def phases(*flows, overall=None):
    found = phases_of(RunRecords.of([step_row(1), *flows]), overall)
    return [(phase.begin, phase.end, phase.kind) for phase in found]


def test_phases_follow_what_the_run_named():
    rows = [flow(second, None, learnt=0) for second in range(1, 11)]
    rows += [flow(second, None) for second in range(11, 21)]  # just begun: what comes next counts
    rows += [flow(second, "targets") for second in range(21, 51)]
    rows += [flow(51, "drafter")]  # too short to be a phase
    rows += [flow(second, "targets") for second in range(52, 70)]
    rows += [flow(second, "drafter") for second in range(70, 90)]
    rows += [flow(second, None, ran=89) for second in range(90, 100)]
    assert phases(*rows) == [
        (0.0, 10.0, "starting"),
        (10.0, 69.0, "targets"),
        (69.0, 89.0, "drafter"),
        (89.0, 99.0, "ending"),
    ]


def test_a_run_too_short_to_name_anything_has_its_overall_bottleneck():
    rows = [flow(1, None, learnt=0), *(flow(second, None) for second in range(2, 9))]
    assert phases(*rows, overall="reading") == [(0.0, 1.0, "starting"), (1.0, 8.0, "reading")]
    assert phases(*rows)[1][2] == "unknown"


def test_the_clock_of_phases_goes_on_over_a_resumption():
    rows = [flow(second, "targets") for second in range(1, 11)]
    rows += [flow(second, "drafter") for second in range(1, 11)]
    assert phases(*rows) == [(0.0, 10.0, "targets"), (10.0, 20.0, "drafter")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A real run of one process: its directory, and what each step really learnt from."""
    folder = small_run_folder(tmp_path_factory.mktemp("run"), count=60)
    config = small_config(
        folder, folder / "out", epochs=2, evaluation={"num_prompts": 2, "every_steps": 3}
    )
    setup = set_up(config)
    log = RunLog(config, setup.data.length_boundaries())
    loop = assemble(setup, store_of(config), log)
    taken, take = {}, loop._source.take

    def watch(step):
        samples = take(step)
        taken[loop.position.num_steps + 1] = [sample.sample_id for sample in samples]
        return samples

    loop._source.take = watch
    loop.run()
    log.close()
    return folder / "out", taken, setup


def test_the_plan_made_again_names_what_each_step_learnt_from(trained):
    output, taken, setup = trained
    plan, problem = open_plan(output)
    assert problem is None
    assert len(taken) > 6
    for step, sample_ids in taken.items():
        found = plan.contents(step)
        lengths = [int(setup.data.dataset.lengths[sample]) for sample in sample_ids]
        assert (found.num_samples, found.num_tokens) == (len(sample_ids), sum(lengths))
        assert (found.shortest, found.longest) == (min(lengths), max(lengths))
        assert [one.num_tokens for one in found.samples] == sorted(lengths, reverse=True)[:10]
        epoch = setup.plan.epoch(found.epoch)
        came = {sample for batch in found.batches for sample in epoch.arrival(batch).tolist()}
        assert came >= set(sample_ids)
        for one in found.samples:
            # The row of the file, found without the data set.
            import pyarrow.parquet as pq

            assert pq.read_table(one.file)["seq_len"][one.row].as_py() == one.num_tokens
            assert one.sample_id in sample_ids


def test_samples_of_the_class_that_leapt_come_first(trained):
    output, taken, setup = trained
    plan, _ = open_plan(output)
    edges = setup.data.length_boundaries()
    step = max(taken, key=lambda one: len(taken[one]))
    shown = plan.contents(step, 0).samples
    inside = [edges[0] <= one.num_tokens < edges[1] for one in shown]
    assert inside == sorted(inside, reverse=True)
    assert any(inside)


def test_where_no_config_is_left_the_newest_checkpoint_has_it(trained, tmp_path):
    output, *_ = trained
    (tmp_path / "metrics.jsonl").write_bytes((output / "metrics.jsonl").read_bytes())
    plan, problem = open_plan(tmp_path)
    assert plan is None
    assert "neither train_config.json nor a checkpoint" in problem
    (tmp_path / "checkpoints").symlink_to(output / "checkpoints")
    again, problem = open_plan(tmp_path)
    assert problem is None
    assert again.plan.fingerprint == open_plan(output)[0].plan.fingerprint


def test_a_plan_whose_data_is_gone_is_a_note(trained, tmp_path):
    output, *_ = trained
    values = json.loads((output / "train_config.json").read_text())
    values["data"]["train"] = [str(tmp_path / "gone.parquet")]
    (tmp_path / "train_config.json").write_text(json.dumps(values))
    plan, problem = open_plan(tmp_path)
    assert plan is None
    assert "gone.parquet" in problem


def test_a_real_run_of_one_process_is_accounted_for(trained):
    output, taken, setup = trained
    found = diagnose(output)
    account = found.account
    assert (found.kind, found.num_steps, account.num_steps) == ("alone", len(taken), len(taken))
    lengths = setup.data.dataset.lengths
    learnt = sum(int(lengths[sample]) for ids in taken.values() for sample in ids)
    assert account.learnt_tokens == learnt
    arrivals = [setup.plan.epoch(number).mix.arrivals for number in range(2)]
    assert account.padded_tokens == sum(int(one.padded_tokens.sum()) for one in arrivals)
    assert account.num_batches == sum(len(one) for one in arrivals)
    assert account.token_squares == sum(
        int(one.sizes[i]) * int(one.padded[i]) ** 2 for one in arrivals for i in range(len(one))
    )
    assert sum(one.seconds for one in found.time) == pytest.approx(account.seconds)
    assert "take turns" in found.bottleneck
    evaluations = {one.name: one.seconds for one in found.time}["evaluation"]
    assert 0 < evaluations < account.seconds


def test_logging_seldom_loses_no_second(trained, tmp_path):
    """Sums are of all steps, those without a record too."""
    output, *_ = trained
    rows = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    steps = [row for row in rows if "total_steps" in row]
    kept = [row for row in rows if "loss" not in row or row["step"] % 5 == 0 or row is steps[-1]]
    text = "\n".join(map(json.dumps, kept))
    (tmp_path / "metrics.jsonl").write_text(text + "\n")
    assert diagnose(tmp_path).account == diagnose(output, with_plan=False).account
