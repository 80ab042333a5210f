"""From a file to a directory of samples: shards, resuming, the card."""

import json

import pyarrow.parquet as pq
import pytest
import torch

import lengthwise as lw
from lengthwise.dflash.prepare import (
    Device,
    GenerationSettings,
    PrepareConfig,
    RowSettings,
    SampleSettings,
    ServerSettings,
    TemplateSettings,
    prepare,
)
from lengthwise.dflash.prepare import run as subject
from lengthwise.dflash.target import Target
from lengthwise.errors import ConfigError, DataError, TrainingError
from support import dflash_models
from support.dflash_chat import CHATML, char_tokenizer, encode, pieces, read_samples
from support.dflash_server import completion, serving


@pytest.fixture(autouse=True)
def _quiet_machine(monkeypatch):
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def config_of(**settings):
    generation = {"max_new_tokens": 6, **settings.pop("generation", {})}
    return PrepareConfig(target="./tiny", generation=GenerationSettings(**generation), **settings)


GREETINGS = [{"prompt": f"hello number {number}" + "!" * (number % 5)} for number in range(11)]


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return [str(path)]


def make(sources, output, config=None, **more):
    settings = {
        "target": Target(dflash_models.tiny_llama()),
        "tokenizer": char_tokenizer(CHATML),
        "shard_rows": 4,
        **more,
    }
    return prepare(sources, config or config_of(), output, **settings)


def contents(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}


def test_samples_are_prompts_and_the_targets_answers_in_the_order_of_rows(tmp_path):
    sources = write_rows(tmp_path / "in.jsonl", [{**row, "task": "t"} for row in GREETINGS])
    reports = []
    summary = make(sources, tmp_path / "out", progress=lambda *what: reports.append(what))
    samples = read_samples(tmp_path / "out")
    assert len(samples) == 11
    for number, sample in enumerate(samples):
        head = f"<|im_start|>user\n{GREETINGS[number]['prompt']}<|im_end|>\n<|im_start|>assistant\n"
        prompt = encode(head)
        answer = sample["input_ids"][len(prompt) :]
        assert sample["input_ids"][: len(prompt)] == prompt
        assert 1 <= len(answer) <= 6
        assert sample["loss_mask"] == [False] * len(prompt) + [True] * len(answer)
        assert (sample["seq_len"], sample["num_loss_tokens"]) == (
            len(sample["input_ids"]),
            len(answer),
        )
        assert (sample["source_file"], sample["source_row"]) == (sources[0], number + 1)
        assert (sample["turn"], sample["task"], sample["source"]) == (0, "t", None)
    generated = sum(sample["num_loss_tokens"] for sample in samples)
    assert reports[-1] == (11, 11, generated)
    assert summary.generated_tokens == generated
    names = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert names == ["README.md", "card.json", *(f"samples-0000{n}.parquet" for n in range(3))]


def test_the_columns_have_the_types_that_are_promised(tmp_path):
    make(write_rows(tmp_path / "in.jsonl", GREETINGS[:2]), tmp_path / "out")
    schema = pq.read_schema(tmp_path / "out" / "samples-00000.parquet")
    types = {field.name: str(field.type) for field in schema}
    assert types["seq_len"] == types["num_loss_tokens"] == "int32"
    assert types["input_ids"].startswith("list<")
    assert "int32" in types["input_ids"]
    assert "bool" in types["loss_mask"]


def test_the_card_counts_everything(tmp_path):
    rows = [{"prompt": "hi"}, {"id": 1}, {"prompt": ""}, {"prompt": "h" * 200}]
    sources = write_rows(tmp_path / "in.jsonl", rows)
    summary = make(
        sources,
        tmp_path / "out",
        config_of(
            rows=RowSettings(on_bad="skip"),
            samples=SampleSettings(max_length=100),
            template=TemplateSettings(kwargs={"enable_thinking": False}),
            generation={"temperature": 0.5, "seed": 4},
        ),
    )
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert summary.card == card
    (sample,) = read_samples(tmp_path / "out")
    counts = card["counts"]
    assert counts["rows"] == 4
    assert counts["bad_rows"] == {"missing column": 1, "empty": 1}
    assert counts["dropped_answers"] == {"prompt too long": 1}
    assert (counts["answers"], counts["samples"]) == (1, 1)
    assert (counts["tokens"], counts["loss_tokens"]) == (
        sample["seq_len"],
        sample["num_loss_tokens"],
    )
    assert card["loss_share"] == sample["num_loss_tokens"] / sample["seq_len"]
    assert card["lengths"]["p50"] == sample["seq_len"]
    assert [(one["row"], one["rule"]) for one in card["problems"]] == [
        (2, "missing column"),
        (3, "empty"),
        (4, "prompt too long"),
    ]
    settings = card["settings"]
    assert settings["chat_template_kwargs"] == {"enable_thinking": False}
    assert (settings["temperature"], settings["seed"], settings["target"]) == (0.5, 4, "./tiny")
    assert settings["stop_token_ids"] == [94]
    text = (tmp_path / "out" / "README.md").read_text()
    for words in ("`enable_thinking=False`", "bad rows: empty | 1", "by sampling", "`./tiny`"):
        assert words in text


def test_given_answers_are_kept_and_the_card_says_so(tmp_path):
    rows = [{"prompt": "hi", "response": "yes"}, {"text": "once"}, {"prompt": "hi"}]
    sources = write_rows(tmp_path / "in.jsonl", rows)
    config = config_of(mode="keep-responses", rows=RowSettings(on_bad="skip"))
    summary = make(sources, tmp_path / "out", config, target=None)
    first, second = read_samples(tmp_path / "out")
    assert (first["input_ids"], first["loss_mask"]) == pieces(
        ("<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", False), ("yes<|im_end|>", True)
    )
    assert (second["input_ids"], second["loss_mask"]) == pieces(("once", True))
    assert summary.card["counts"]["bad_rows"] == {"no answer": 1}
    assert "not the target's own" in (tmp_path / "out" / "README.md").read_text()


def test_shards_change_nothing_but_where_samples_stand(tmp_path):
    sources = write_rows(tmp_path / "in.jsonl", GREETINGS)
    config = config_of(generation={"temperature": 1.0})
    make(sources, tmp_path / "a", config, shard_rows=1)
    make(sources, tmp_path / "b", config, shard_rows=100)
    assert read_samples(tmp_path / "a") == read_samples(tmp_path / "b")


@pytest.mark.parametrize("finished", [0, 1, 2, 3])
def test_a_stopped_run_goes_on_where_it_was_and_ends_the_same(tmp_path, finished):
    # Stopping after `finished` shards leaves those and, if killed while writing, a temporary.
    sources = write_rows(tmp_path / "in.jsonl", GREETINGS)
    config = config_of(generation={"temperature": 1.0, "seed": 9})
    make(sources, tmp_path / "whole", config)
    expected = contents(tmp_path / "whole")
    partly = tmp_path / "partly"
    partly.mkdir()
    for number in range(finished):
        name = f"samples-0000{number}.parquet"
        (partly / name).write_bytes(expected[name])
    (partly / ".samples-00009.parquet.tmp").write_bytes(b"half")
    summary = make(sources, partly, config)
    assert contents(partly) == expected
    assert summary.rows_before == min(11, 4 * finished)
    # A run on a finished directory does nothing and loads nothing.
    again = make(sources, partly, config, target=None, tokenizer=char_tokenizer(CHATML))
    assert (again.generated_tokens, again.rows_before, again.card) == (0, 11, summary.card)


class Interrupted(KeyboardInterrupt):
    pass


def test_an_interrupted_run_keeps_its_finished_shards(tmp_path):
    sources = write_rows(tmp_path / "in.jsonl", GREETINGS)

    def stop(done, _total, _tokens):
        if done == 6:
            raise Interrupted

    with pytest.raises(Interrupted):
        make(sources, tmp_path / "out", progress=stop)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["samples-00000.parquet"]
    make(sources, tmp_path / "whole")
    make(sources, tmp_path / "out")
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("changed", "name"),
    [
        ({"generation": {"max_new_tokens": 7}}, "max_new_tokens was 6 and is 7"),
        ({"generation": {"seed": 1}}, "seed was 0 and is 1"),
        ({"samples": SampleSettings(max_length=50)}, "max_length was 4096 and is 50"),
        ({"template": TemplateSettings(kwargs={"a": 1})}, "chat_template_kwargs was {}"),
        ({"template": TemplateSettings(plain=True)}, "form was 'chat template' and is 'plain'"),
        ({"template": TemplateSettings(chat_template="{{ 1 }}")}, "template_sha256 was"),
        ({"template": TemplateSettings(system_prompt="be")}, "system_prompt was None and is 'be'"),
        ({"mode": "keep-responses"}, "mode was 'regenerate' and is 'keep-responses'"),
        ({"rows": RowSettings(column="text")}, "column was None and is 'text'"),
    ],
)
def test_other_settings_are_refused_by_name(tmp_path, changed, name):
    sources = write_rows(tmp_path / "in.jsonl", GREETINGS[:2])
    make(sources, tmp_path / "out")
    with pytest.raises(ConfigError, match="made with other settings") as caught:
        make(sources, tmp_path / "out", config_of(**changed))
    assert name in str(caught.value)
    assert "choose another --output" in str(caught.value)


def test_another_source_is_refused(tmp_path):
    sources = write_rows(tmp_path / "in.jsonl", GREETINGS[:2])
    make(sources, tmp_path / "out")
    write_rows(tmp_path / "in.jsonl", GREETINGS[:3])
    with pytest.raises(ConfigError, match="source was"):
        make(sources, tmp_path / "out")


def test_what_decides_no_token_may_change_on_resume(tmp_path):
    sources = write_rows(tmp_path / "in.jsonl", GREETINGS)
    make(sources, tmp_path / "whole")
    partly = tmp_path / "partly"
    partly.mkdir()
    first = tmp_path / "whole" / "samples-00000.parquet"
    (partly / first.name).write_bytes(first.read_bytes())
    make(sources, partly, device=Device(batch_tokens=50, max_batch_size=1), shard_rows=2)
    assert read_samples(partly) == read_samples(tmp_path / "whole")


def test_a_damaged_or_missing_shard_is_named(tmp_path):
    sources = write_rows(tmp_path / "in.jsonl", GREETINGS)
    make(sources, tmp_path / "out")
    (tmp_path / "out" / "samples-00001.parquet").rename(tmp_path / "kept")
    with pytest.raises(DataError, match=r"samples-00001\.parquet is missing"):
        make(sources, tmp_path / "out")
    (tmp_path / "out" / "samples-00001.parquet").write_bytes(b"PAR1")
    with pytest.raises(DataError, match=r"samples-00001\.parquet is damaged"):
        make(sources, tmp_path / "out")


def test_a_bad_row_stops_the_run_before_anything_is_generated(tmp_path):
    sources = write_rows(tmp_path / "in.jsonl", [*GREETINGS, {"id": 1}])
    with pytest.raises(DataError, match=r"in\.jsonl, line 12 .*missing column.*--on-bad skip"):
        make(sources, tmp_path / "out", target=None)  # it is never loaded
    assert not (tmp_path / "out").exists()


def test_a_source_without_rows_is_refused(tmp_path):
    (tmp_path / "in.jsonl").write_text("")
    with pytest.raises(DataError, match="there are no rows"):
        make([str(tmp_path / "in.jsonl")], tmp_path / "out")


def test_everything_dropped_still_gives_a_card(tmp_path):
    sources = write_rows(tmp_path / "in.jsonl", [{"prompt": "h" * 200}])
    summary = make(sources, tmp_path / "out", config_of(samples=SampleSettings(max_length=50)))
    assert summary.card["lengths"] is None
    assert summary.card["loss_share"] is None
    assert read_samples(tmp_path / "out") == []


def test_prompts_leave_room_for_their_answer_in_the_targets_positions(tmp_path):
    # 512 positions less 500 new tokens: a prompt may have 12, and ChatML alone has more.
    sources = write_rows(tmp_path / "in.jsonl", GREETINGS[:1])
    summary = make(sources, tmp_path / "out", config_of(generation={"max_new_tokens": 500}))
    assert summary.card["counts"]["dropped_answers"] == {"prompt too long": 1}
    with pytest.raises(ConfigError, match="leaves no room for a prompt: the target has 512"):
        make(sources, tmp_path / "no", config_of(generation={"max_new_tokens": 512}))


def test_only_a_shard_of_rows_is_in_memory(tmp_path, monkeypatch):
    # A generator stands for the source: when a shard is worked on, no row beyond it was read.
    sources = write_rows(tmp_path / "in.jsonl", GREETINGS)
    read, ahead = [0], []
    rows, run = subject.Source.rows, subject.Work.run

    def counted(self, start):
        for row in rows(self, start):
            read[0] += 1
            yield row

    def watched(self, chunk):
        ahead.append((read[0], len(chunk)))
        return run(self, chunk)

    monkeypatch.setattr(subject.Source, "rows", counted)
    monkeypatch.setattr(subject.Work, "run", watched)
    make(sources, tmp_path / "out", config_of(rows=RowSettings(on_bad="skip")))
    assert ahead == [(4, 4), (8, 4), (11, 3)]


def test_the_scan_command_and_read_lengths_take_the_directory(tmp_path):
    make(write_rows(tmp_path / "in.jsonl", GREETINGS), tmp_path / "out")
    lengths = lw.read_lengths(str(tmp_path / "out"), column="seq_len")
    assert lengths.tolist() == [sample["seq_len"] for sample in read_samples(tmp_path / "out")]


def served_config(served, **settings):
    server = {"url": served.url, "model": "m", "retries": 0, "backoff_seconds": 0.0}
    return config_of(server=ServerSettings(**{**server, **settings}))


def test_a_server_answers_instead_and_its_failures_are_named_in_the_card(tmp_path):
    sources = write_rows(tmp_path / "in.jsonl", GREETINGS[:5])

    def reply(_number, body):
        row = "number 3" in "".join(map(chr, (one + 31 for one in body["prompt"] if 0 < one < 94)))
        return (500, {}) if row else (200, completion("yes"))

    with serving(reply) as served:
        summary = make(sources, tmp_path / "out", served_config(served), target=None)
    assert [sample["source_row"] for sample in read_samples(tmp_path / "out")] == [1, 2, 3, 5]
    counts = summary.card["counts"]
    assert counts["dropped_answers"] == {"server error 500": 1}
    assert counts["retokenized"] == counts["answers"] == 4
    assert [(one["row"], one["rule"]) for one in summary.card["problems"]] == [
        (4, "server error 500")
    ]
    assert summary.card["settings"]["server_model"] == "m"


def test_a_server_that_goes_away_loses_nothing(tmp_path):
    sources = write_rows(tmp_path / "in.jsonl", GREETINGS)
    with serving(lambda *_: (200, completion("yes"))) as served:
        make(sources, tmp_path / "whole", served_config(served), target=None)
    with (
        serving(lambda number, _: (200, completion("yes")) if number < 4 else (-1, b"")) as served,
        pytest.raises(TrainingError, match="What was finished before is kept"),
    ):
        make(sources, tmp_path / "out", served_config(served), target=None)
    with serving(lambda *_: (200, completion("yes"))) as served:
        summary = make(sources, tmp_path / "out", served_config(served), target=None)
    assert len(served.requests) == 7
    assert summary.rows_before == 4
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (lambda: PrepareConfig(target=""), "target must be"),
        (lambda: PrepareConfig(target="t", mode="x"), "mode must be one of regenerate"),
        (lambda: GenerationSettings(temperature=-1.0), "temperature must be from 0"),
        (lambda: GenerationSettings(top_p=0.0), "top_p must be above 0"),
        (lambda: GenerationSettings(max_new_tokens=0), "max_new_tokens must be from 1"),
        (lambda: GenerationSettings(unfinished="x"), "unfinished must be one of"),
        (lambda: SampleSettings(max_length=1), "max_length must be from 2"),
        (lambda: SampleSettings(too_long="x"), "too_long must be one of"),
        (lambda: RowSettings(format="x"), "format must be one of"),
        (lambda: RowSettings(on_bad="x"), "on_bad must be one of"),
        (lambda: TemplateSettings(plain=True, system_prompt="x"), "plain means"),
        (
            lambda: PrepareConfig(
                target="t", mode="keep-responses", server=ServerSettings("http://x", "m")
            ),
            "keep-responses generates nothing",
        ),
        (
            lambda: PrepareConfig(
                target="t",
                server=ServerSettings("http://x", "m", api="chat"),
                template=TemplateSettings(plain=True),
            ),
            "the server's own template",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(build, words):
    with pytest.raises(ConfigError, match=words):
        build()
