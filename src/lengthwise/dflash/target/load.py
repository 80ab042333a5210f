"""Loading targets and tokenizers from a directory, a GGUF file or the Hugging Face hub."""

from __future__ import annotations

import importlib.util
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import SafetensorError

from lengthwise.dflash.target.model import Target
from lengthwise.errors import ConfigError, DataError, MissingDependencyError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable

    from transformers import PretrainedConfig, PreTrainedTokenizerBase

# What transformers and torch raise when a checkpoint is not there, not whole or not understood.
_UNREADABLE = (OSError, EOFError, ValueError, KeyError, RuntimeError, pickle.UnpicklingError)

_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "float64": torch.float64,
}


def load_target(
    name_or_path: str | Path,
    *,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "cpu",
    gguf_file: str | None = None,
    attn_implementation: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> Target:
    """Load a causal language model as a frozen target.

    Safetensors are taken where there are any; other weight files are read by torch's weights_only
    loader, which runs no code. Every weight must come from the files: a head that would be
    initialised at random is an error, not a warning. Two tokens then run through the decoder, to
    see that a later token changes nothing at an earlier one.

    Args:
        name_or_path: a directory with a Hugging Face checkpoint, or a name on the hub.
        dtype: "auto" (as the files say), "float32", "bfloat16", "float16" or "float64".
        device: where the model goes, such as "cpu" or "cuda:0".
        gguf_file: name of a GGUF file in the directory or repository, which is dequantised.
        attn_implementation: such as "sdpa" or "eager"; by default what transformers chooses.
        revision: branch, tag or commit on the hub.
        trust_remote_code: run modelling code that comes with the checkpoint.

    Raises:
        ConfigError: an unknown dtype.
        DataError: nothing can be loaded from there; the message tells the reason and the way out.
        MissingDependencyError: a package that this checkpoint needs, such as gguf.
        ModelError: it loads and is no causal language model, lacks a part or lacks weights.
    """
    source = _source(name_or_path, gguf_file, revision, trust_remote_code)
    where = torch.device(device)
    settings: dict[str, Any] = {"dtype": _dtype(dtype), "weights_only": True}
    if attn_implementation is not None:
        settings["attn_implementation"] = attn_implementation
    if where.type != "cpu" and importlib.util.find_spec("accelerate"):
        settings["device_map"] = {"": where}  # straight to the device, not by way of memory here
    auto = _auto_class(name_or_path, source)
    model, report = _attempt(
        "target",
        name_or_path,
        lambda: auto.from_pretrained(**source, **settings, output_loading_info=True),
    )
    _check_complete(name_or_path, report)
    target = Target(model.to(where))
    _check_causal(target)
    return target


def load_target_config(
    name_or_path: str | Path,
    *,
    dtype: str | torch.dtype = "auto",
    gguf_file: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> tuple[PretrainedConfig, torch.dtype]:
    """The configuration of a target's language model and the dtype it would be loaded in.

    Reads no weights: where the configuration names no dtype, "auto" counts as float32 here. The
    arguments and errors are those of :func:`load_target`.
    """
    import transformers

    source = _source(name_or_path, gguf_file, revision, trust_remote_code)
    config = _attempt(
        "target", name_or_path, lambda: transformers.AutoConfig.from_pretrained(**source)
    )
    text: PretrainedConfig = config.get_text_config(decoder=True)
    wanted = _dtype(dtype)
    for holder in (config, text) if wanted == "auto" else ():
        named = getattr(holder, "dtype", None) or getattr(holder, "torch_dtype", None)
        if named is not None:
            wanted = _dtype(str(named).removeprefix("torch."))
            break
    return text, wanted if isinstance(wanted, torch.dtype) else torch.float32


def load_tokenizer(
    name_or_path: str | Path,
    *,
    gguf_file: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a target; the arguments are those of :func:`load_target`.

    Raises:
        DataError: no tokenizer can be loaded from there.
        MissingDependencyError: a package that this tokenizer needs.
    """
    import transformers

    source = _source(name_or_path, gguf_file, revision, trust_remote_code)
    tokenizer: PreTrainedTokenizerBase = _attempt(
        "tokenizer", name_or_path, lambda: transformers.AutoTokenizer.from_pretrained(**source)
    )
    return tokenizer


def _source(
    name_or_path: str | Path, gguf_file: str | None, revision: str | None, trust: bool
) -> dict[str, Any]:
    """What every from_pretrained() gets. A path that is not there never becomes a hub name."""
    path = Path(name_or_path).expanduser()
    text = str(name_or_path)
    meant = isinstance(name_or_path, Path) or text.startswith((".", "/", "~"))
    if (meant or text.count("/") > 1) and not path.is_dir():
        raise DataError(
            f"{path}: no such directory; a target is a directory with a Hugging Face checkpoint or"
            " a name on the hub (for a GGUF file give its directory, and the file's name as"
            " gguf_file)"
        )
    if path.is_dir():
        text = str(path)
        if gguf_file is not None and not (path / gguf_file).is_file():
            raise DataError(f"{path / gguf_file}: no such file; gguf_file names a file in {path}")
    source: dict[str, Any] = {"pretrained_model_name_or_path": text, "trust_remote_code": trust}
    if revision is not None:
        source["revision"] = revision
    if gguf_file is not None:
        source["gguf_file"] = gguf_file
    return source


def _dtype(dtype: str | torch.dtype) -> str | torch.dtype:
    if isinstance(dtype, torch.dtype) or dtype == "auto":
        return dtype
    if dtype not in _DTYPES:
        raise ConfigError(f"dtype must be 'auto' or one of {sorted(_DTYPES)}; got {dtype!r}")
    return _DTYPES[dtype]


def _auto_class(name_or_path: str | Path, source: dict[str, Any]) -> Any:
    """The class that loads this checkpoint as a language model, with or without towers."""
    import transformers
    from transformers.models.auto import modeling_auto

    config = _attempt(
        "target", name_or_path, lambda: transformers.AutoConfig.from_pretrained(**source)
    )
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"{name_or_path}: a target must be a decoder-only causal language model; model_type"
            f" {config.model_type!r} is an encoder-decoder"
        )
    remote = getattr(config, "auto_map", None) or {}
    if config.model_type in modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return transformers.AutoModelForCausalLM
    if "AutoModelForCausalLM" in remote and source["trust_remote_code"]:
        return transformers.AutoModelForCausalLM
    if config.model_type in modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return transformers.AutoModelForImageTextToText
    raise ModelError(
        f"{name_or_path}: model_type {config.model_type!r} is no causal language model in this"
        f" transformers ({transformers.__version__}); a target predicts the next token of a text"
    )


def _attempt(what: str, name_or_path: str | Path, load: Callable[[], Any]) -> Any:
    """Run ``load``; what it may raise for reasons outside our code becomes an error of ours."""
    try:
        return load()
    except ImportError as error:
        raise MissingDependencyError(
            f"the {what} {str(name_or_path)!r} needs a package that is not installed:"
            f" {_first_line(error)} (GGUF files need `pip install gguf`)"
        ) from error
    except (*_UNREADABLE, SafetensorError) as error:
        raise DataError(
            f"could not load the {what} {str(name_or_path)!r}: {_first_line(error)}. It must be a"
            " directory with a Hugging Face checkpoint, or a name on the hub that can be reached"
            " (network, spelling, `hf auth login` for gated models) or is in the cache"
        ) from error


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")


def _check_complete(name_or_path: str | Path, report: Any) -> None:
    """Refuse weights that the files lack: transformers fills them at random and only warns."""
    found = report if isinstance(report, Mapping) else vars(report)
    for key, problem in (
        ("missing_keys", "are not in the files"),
        ("mismatched_keys", "have another shape in the files"),
    ):
        names = sorted(str(name) for name in found.get(key) or ())
        if names:
            shown = ", ".join(names[:5]) + (" ..." if len(names) > 5 else "")
            raise ModelError(
                f"{name_or_path}: {len(names)} weights of the target {problem} and would be random:"
                f" {shown}. The checkpoint is incomplete or belongs to another architecture"
            )


def _check_causal(target: Target) -> None:
    """Two rows that differ in their second token must agree at the first, in the deepest layer."""
    ids = torch.tensor([[0, 0], [0, 1]])
    first, second = target.features(ids, None, (target.num_layers - 1,))[:, 0].float()
    error = float((first - second).norm() / first.norm().clamp_min(1e-12))
    if not error < 0.05:  # kernels may round rows differently; a model that looks ahead is far off
        raise ModelError(
            f"{type(target.model).__name__}: a later token changed the hidden state of an earlier"
            f" one (by {error:.0%}), so it is no causal language model, or its weights are not"
            " finite"
        )
