"""``lengthwise dflash generate``: text from the target, sped up by a drafter."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lengthwise.cli import options as common
from lengthwise.cli.dflash import decoding_options as options
from lengthwise.cli.output import print_json
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.cli.dflash.decoding_options import Loaded
    from lengthwise.dflash.decoding.prompts import Prompt

Texts = Annotated[
    list[str] | None,
    typer.Option("--prompt", "-p", help="A prompt; may be given several times."),
]
Files = Annotated[
    list[str] | None,
    typer.Option(
        "--prompts",
        help="Prompts in JSONL, JSON, Parquet or text files: messages, prompt or text.",
        show_default=False,
    ),
]
MaxNewTokens = Annotated[
    int, typer.Option("--max-new-tokens", "-n", min=1, help="Tokens an answer may have.")
]
TopK = Annotated[
    int | None,
    typer.Option("--top-k", min=1, help="Draw from so many likeliest tokens.", show_default=False),
]
TopP = Annotated[
    float, typer.Option("--top-p", help="Draw from the likeliest tokens that reach this sum.")
]


def command(
    target: options.TargetName,
    drafter: options.DrafterName,
    prompt: Texts = None,
    prompts: Files = None,
    max_new_tokens: MaxNewTokens = 256,
    temperature: options.Temperature = 0.0,
    top_k: TopK = None,
    top_p: TopP = 1.0,
    seed: options.Seed = 0,
    stop_token_id: options.StopTokenIds = None,
    ignore_stop: options.IgnoreStop = False,
    plain: options.Plain = False,
    device: options.Device = "cpu",
    dtype: options.Dtype = "auto",
    revision: options.Revision = None,
    gguf_file: options.GgufFile = None,
    trust_remote_code: options.TrustCode = False,
    json: common.Json = False,
    quiet: common.Quiet = False,
) -> None:
    """Let the target write, several tokens a forward, with a drafter that changes no token.

    In a terminal the text comes as it is decided, and tokens that the drafter foresaw are green. A
    line on standard error says how many tokens one verification gave.
    """
    if not prompt and not prompts:
        raise ConfigError("there is no prompt; give --prompt TEXT or --prompts FILE")
    from lengthwise.dflash.decoding.sampling import Sampling

    sampling = Sampling(temperature, top_k, top_p)
    loaded = options.load(
        target,
        drafter,
        plain=plain,
        stop_token_ids=stop_token_id,
        ignore_stop=ignore_stop,
        device=device,
        dtype=dtype,
        revision=revision,
        gguf_file=gguf_file,
        trust_remote_code=trust_remote_code,
    )
    asked = [loaded.encoder.encode(text) for text in prompt or ()]
    if prompts:
        asked += loaded.encoder.read(prompts)
    settings = {
        "max_new_tokens": max_new_tokens,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k,
        "top_p": sampling.top_p,
    }
    found = [
        _generate(loaded, one, settings, seed + number, show=not json, quiet=quiet or json)
        for number, one in enumerate(asked)
    ]
    if json:
        print_json({"target": target, "drafter": drafter, "seed": seed, "generations": found})


def _generate(
    loaded: Loaded,
    prompt: Prompt,
    settings: dict[str, Any],
    seed: int,
    *,
    show: bool,
    quiet: bool,
) -> dict[str, Any]:
    from lengthwise.cli.dflash.generate_view import TextStream, about
    from lengthwise.dflash.decoding import speculate
    from lengthwise.dflash.decoding.generation import seeded

    stream = TextStream(loaded.tokenizer) if show else None
    generator = seeded(loaded.target, seed) if settings["temperature"] else None
    found = speculate(
        loaded.target,
        loaded.drafter,
        prompt.prompt_ids,
        stop_token_ids=loaded.stop_token_ids,
        generator=generator,
        on_tokens=None if stream is None else stream.feed,
        **settings,
    )
    if stream is not None:
        stream.close()
    if not quiet:
        about(found)
    text = loaded.tokenizer.decode(found.token_ids, skip_special_tokens=True)
    return {"prompt": prompt.text, "task": prompt.task, "text": text, **found.to_dict()}
