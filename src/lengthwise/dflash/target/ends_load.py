"""Embedding and head of a target without the rest of it."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors import safe_open
from torch import nn
from torch.overrides import TorchFunctionMode

from lengthwise.dflash.target.architecture import find_architecture
from lengthwise.dflash.target.ends import FrozenEnds
from lengthwise.dflash.target.load import load_target, load_target_config

if TYPE_CHECKING:
    from collections.abc import Iterable

    from transformers import PretrainedConfig

SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"


def load_ends(
    name_or_path: str | Path,
    *,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device = "cpu",
    gguf_file: str | None = None,
    revision: str | None = None,
    trust_remote_code: bool = False,
) -> FrozenEnds:
    """Embedding and head of a target: the same as ``load_target(...).ends``, in less memory.

    Of safetensors only their own tensors are read, where the files name them as the model does.
    Anything else (GGUF, quantised or converted checkpoints, a table and a head that are tied and
    differ) is left to :func:`load_target`, whose arguments and errors these are.
    """
    ends = None
    if gguf_file is None:
        ends = _from_safetensors(name_or_path, dtype, revision, trust_remote_code)
    if ends is None:
        target = load_target(
            name_or_path,
            dtype=dtype,
            gguf_file=gguf_file,
            revision=revision,
            trust_remote_code=trust_remote_code,
        )
        ends = target.ends
    # A copy even where it stands already: a tensor of a large file's mapping would keep all of it.
    return ends.copy_to(device)


class _UnfilledOnMeta(TorchFunctionMode):
    """Inside, tensors made without values take no memory, and those with values are as always.

    Weights of layers and tables are made so; buffers such as scales and frequencies are not.
    """

    def __torch_function__(
        self,
        func: Any,
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        if func is torch.empty:
            kwargs = {**kwargs, "device": "meta"}
        return func(*args, **kwargs)


def _from_safetensors(
    name_or_path: str | Path, dtype: str | torch.dtype, revision: str | None, trust: bool
) -> FrozenEnds | None:
    """None where the files do not simply hold the tensors under the model's own names."""
    config, wanted = _config(name_or_path, dtype, revision, trust)
    files = _files_by_tensor(name_or_path, revision)
    if config is None or not files:
        return None
    model = _skeleton(config, trust)
    if model is None:
        return None
    parts = find_architecture(model)
    names = {id(weight): name for name, weight in model.named_parameters()}
    new: dict[str, nn.Parameter] = {}
    for module in (parts.embeddings, parts.head):
        for key, weight in module.named_parameters(recurse=False):
            name = names[id(weight)]
            if name not in files:
                return None
            if name not in new:
                tensor = _tensor(files[name], name)
                if tensor.shape != weight.shape:
                    return None
                new[name] = nn.Parameter(tensor.to(wanted or tensor.dtype), requires_grad=False)
            setattr(module, key, new[name])
    ends = FrozenEnds(parts.embeddings, parts.head)
    if _told_apart(model, ends, files):
        return None
    everything = [*ends.parameters(), *ends.buffers()]
    return None if any(one.is_meta for one in everything) else ends


def _config(
    name_or_path: str | Path, dtype: str | torch.dtype, revision: str | None, trust: bool
) -> tuple[PretrainedConfig | None, torch.dtype | None]:
    """The whole configuration, and the dtype to load in; None for that of the files."""
    import transformers

    text, wanted = load_target_config(
        name_or_path, dtype=dtype, revision=revision, trust_remote_code=trust
    )
    config = transformers.AutoConfig.from_pretrained(
        str(name_or_path), revision=revision, trust_remote_code=trust
    )
    if getattr(config, "quantization_config", None) is not None:
        return None, None
    named = any(getattr(holder, "dtype", None) is not None for holder in (config, text))
    return config, wanted if dtype != "auto" or named else None


def _skeleton(config: PretrainedConfig, trust: bool) -> nn.Module | None:
    """The model of a configuration without its weights; None for kinds that need another class."""
    import transformers
    from transformers.models.auto import modeling_auto

    known = modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    if config.model_type not in known and not (trust and getattr(config, "auto_map", None)):
        return None
    with torch.random.fork_rng(devices=()), _UnfilledOnMeta():
        model: nn.Module = transformers.AutoModelForCausalLM.from_config(  # type: ignore[no-untyped-call]
            config, trust_remote_code=trust
        )
    model.tie_weights()  # type: ignore[operator]
    return model


def _files_by_tensor(name_or_path: str | Path, revision: str | None) -> dict[str, Path]:
    """Name of a tensor -> the safetensors file that holds it; empty if there are none."""
    index = _file(name_or_path, INDEX, revision)
    if index is not None:
        names = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        found = {file: _file(name_or_path, file, revision) for file in set(names.values())}
        return {name: path for name, file in names.items() if (path := found[file]) is not None}
    single = _file(name_or_path, SINGLE, revision)
    if single is None:
        return {}
    with safe_open(single, framework="pt") as tensors:
        return dict.fromkeys(tensors.keys(), single)


def _file(name_or_path: str | Path, name: str, revision: str | None) -> Path | None:
    """A file of the checkpoint: in its directory, or by way of the hub's cache."""
    folder = Path(name_or_path).expanduser()
    if folder.is_dir():
        return folder / name if (folder / name).is_file() else None
    from transformers.utils.hub import cached_file

    found = None
    with contextlib.suppress(OSError):  # loading the whole target meets the same, and tells it
        found = cached_file(
            str(name_or_path),
            name,
            revision=revision,
            _raise_exceptions_for_missing_entries=False,
            _raise_exceptions_for_connection_errors=False,
        )
    return None if found is None else Path(found)


def _tensor(file: Path, name: str) -> torch.Tensor:
    with safe_open(file, framework="pt") as tensors:
        found = tensors.get_tensor(name)
        assert isinstance(found, torch.Tensor)
        return found


def _told_apart(model: nn.Module, ends: FrozenEnds, files: dict[str, Path]) -> bool:
    """Whether files hold a head with other values than the table it is tied to."""
    if not ends.tied:
        return False
    modules = {name: module for name, module in model.named_modules() if module is ends.head}
    own = [f"{name}.weight" for name in modules if f"{name}.weight" in files]
    return not all(
        torch.equal(_tensor(files[name], name).to(ends.weight.dtype), ends.weight) for name in own
    )
