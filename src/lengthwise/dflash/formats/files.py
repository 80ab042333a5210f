"""A checkpoint's directory: ``config.json`` beside safetensors, read with care, written at once.

Only safetensors are read. A ``.bin`` or ``.pt`` file is a pickle, and a pickle runs what is in it,
so a directory that has nothing else is refused with the way out.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from lengthwise.errors import CheckpointError, ConfigError, MissingDependencyError, ModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import torch

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")


def locate(name_or_path: str | Path, revision: str | None = None) -> Path:
    """The directory of a checkpoint: a local one as it is, a name of the Hugging Face hub fetched.

    Args:
        name_or_path: a directory, or ``owner/name`` on the hub.
        revision: branch, tag or commit on the hub.

    Raises:
        ModelError: no such directory, and no name of the hub that can be fetched.
    """
    path = Path(name_or_path)
    if path.is_dir():
        return path
    name = str(name_or_path)
    if path.exists() or name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelError(
            f"{name} is no directory with a drafter; give the directory that holds {CONFIG}, or "
            f"owner/name of the Hugging Face hub"
        )
    return _fetch(name, revision)


def _fetch(name: str, revision: str | None) -> Path:
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise MissingDependencyError(
            f"{name} is no local directory, and fetching from the hub needs huggingface-hub: "
            f"pip install 'lengthwise[dflash]'"
        ) from None
    try:
        found = snapshot_download(
            name, revision=revision, allow_patterns=["*.json", "*.safetensors"]
        )
    except (OSError, ValueError) as error:  # what the hub raises: no such name, no network
        raise ModelError(
            f"{name} is no local directory, and the hub did not give it: {error}"
        ) from error
    return Path(found)


def read_config(directory: Path) -> dict[str, Any]:
    """The object in ``config.json``.

    Raises:
        CheckpointError: no such file, or it holds no JSON object.
    """
    path = directory / CONFIG
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(
            f"{directory} has no {CONFIG}, so it is no drafter's directory"
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise CheckpointError(f"{path} is not JSON: {error}") from None
    if not isinstance(values, dict):
        raise CheckpointError(f"{path} must hold a JSON object, not a {type(values).__name__}")
    return values


def read_tensors(directory: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the directory's safetensors, from one file or from shards with an index.

    Raises:
        CheckpointError: nothing but pickles, nothing at all, a damaged file, or one tensor in two
            shards.
    """
    found: dict[str, torch.Tensor] = {}
    for path in _weight_files(directory):
        for name, tensor in _tensors_of(path):
            if name in found:
                raise CheckpointError(f"{directory}: {name} stands in more than one file")
            found[name] = tensor
    return found


def _tensors_of(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            for name in file.keys():  # noqa: SIM118 (the handle is no mapping)
                yield name, file.get_tensor(name)
    except FileNotFoundError:
        raise CheckpointError(f"{path} is missing, but {INDEX} names it") from None
    except SafetensorError as error:
        raise CheckpointError(f"{path} is damaged: {error}") from None


def _weight_files(directory: Path) -> list[Path]:
    if (directory / WEIGHTS).is_file():
        return [directory / WEIGHTS]
    if (directory / INDEX).is_file():
        return _shards(directory)
    pickles = sorted({path.name for pattern in PICKLES for path in directory.glob(pattern)})
    if pickles:
        raise CheckpointError(
            f"{directory} holds its weights as {', '.join(pickles)} only. That is a pickle, which "
            f"runs code when it is read, so it is not read; where you trust it, convert it: "
            f"safetensors.torch.save_file(torch.load(FILE, weights_only=True), '{WEIGHTS}')"
        )
    raise CheckpointError(f"{directory} has no {WEIGHTS} and no {INDEX}")


def _shards(directory: Path) -> list[Path]:
    try:
        names = set(
            json.loads((directory / INDEX).read_text(encoding="utf-8"))["weight_map"].values()
        )
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, AttributeError, TypeError):
        raise CheckpointError(f"{directory / INDEX} is no index of safetensors") from None
    outside = sorted(str(name) for name in names if Path(str(name)).name != name)
    if outside:
        raise CheckpointError(f"{directory / INDEX} names files outside its directory: {outside}")
    return [directory / name for name in sorted(names)]


def write_checkpoint(
    directory: str | Path,
    config: Mapping[str, Any],
    tensors: Mapping[str, torch.Tensor],
    check: Callable[[Path], None] | None = None,
) -> Path:
    """Write a directory that is there whole or not at all: aside first, then renamed.

    Args:
        directory: must not exist yet, or be empty.
        config: for ``config.json``.
        tensors: for ``model.safetensors``; contiguous, on the CPU.
        check: called with the written directory before it gets its name; what it raises stops
            the writing.

    Raises:
        ConfigError: ``directory`` exists and is not empty.
    """
    directory = Path(directory).absolute()
    if directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise ConfigError(
            f"{directory} is there already and not empty; remove it or give another directory"
        )
    directory.parent.mkdir(parents=True, exist_ok=True)
    aside = directory.parent / f".{directory.name}.{os.getpid()}.part"
    try:
        aside.mkdir()
        save_file(dict(tensors), aside / WEIGHTS, metadata={"format": "pt"})
        text = json.dumps(config, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        (aside / CONFIG).write_text(text, encoding="utf-8")
        if check is not None:
            check(aside)
        if directory.exists():
            directory.rmdir()
        aside.rename(directory)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return directory
