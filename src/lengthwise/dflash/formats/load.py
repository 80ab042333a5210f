"""Read a drafter from any directory that holds one: native, speculators, or of a training run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lengthwise.dflash.drafter import Drafter
from lengthwise.dflash.formats.files import CONFIG, locate, read_config, read_tensors
from lengthwise.dflash.formats.layout import dtype_name
from lengthwise.dflash.formats.native import read_native
from lengthwise.dflash.formats.speculators import TYPE_KEY, read_speculators
from lengthwise.dflash.formats.weights import fitting_tensors
from lengthwise.errors import ModelError

if TYPE_CHECKING:
    from pathlib import Path

    from transformers import PretrainedConfig

    from lengthwise.dflash.config import DrafterConfig
    from lengthwise.dflash.formats.transformer import TargetFacts


@dataclass(frozen=True)
class Checkpoint:
    """A drafter and what its directory says about it."""

    drafter: Drafter
    """In fp32 on the CPU, in training mode, every parameter trainable."""
    format: str
    """``native`` or ``speculators``."""
    dtype: str
    """What the tensors are stored in; of several, all names."""
    target: TargetFacts
    unused_tensors: tuple[str, ...]
    directory: Path

    @property
    def config(self) -> DrafterConfig:
        """The drafter's config."""
        return self.drafter.config


def load_native(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    target_config: PretrainedConfig | None = None,
) -> Drafter:
    """Read a drafter in the native format, to train it on or to decode with it.

    Args:
        name_or_path: its directory, or ``owner/name`` on the Hugging Face hub.
        revision: branch, tag or commit on the hub.
        target_config: the target's; where given, a drafter that does not fit it is refused.

    Returns:
        The drafter in fp32 on the CPU, whatever it is stored in.

    Raises:
        ModelError: no such drafter, a relative of DFlash, or one that does not fit the target.
        CheckpointError: files that are missing or damaged, or pickles.
    """
    return _load(name_or_path, revision, target_config, only="native").drafter


def load_speculators(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    target_config: PretrainedConfig | None = None,
) -> Drafter:
    """As :func:`load_native`, from the speculators format.

    The format does not say how many layers the target has; for directories that lengthwise did not
    write, ``target_config`` is needed.
    """
    return _load(name_or_path, revision, target_config, only="speculators").drafter


def load_checkpoint(
    name_or_path: str | Path,
    *,
    revision: str | None = None,
    target_config: PretrainedConfig | None = None,
) -> Checkpoint:
    """Read a drafter of either format, or of a training checkpoint, with what is known of it.

    Args and errors as in :func:`load_native`.
    """
    return _load(name_or_path, revision, target_config, only=None)


def _load(
    name_or_path: str | Path,
    revision: str | None,
    target_config: PretrainedConfig | None,
    *,
    only: str | None,
) -> Checkpoint:
    directory = _drafter_dir(locate(name_or_path, revision))
    raw = read_config(directory)
    where = str(directory / CONFIG)
    form = "speculators" if TYPE_KEY in raw else "native"
    if only is not None and form != only:
        raise ModelError(f"{where} is in the {form} format, not {only}; load_{form} reads it")
    if form == "native":
        config, target = read_native(raw, where)
    else:
        config, target = read_speculators(raw, where, num_layers(target_config))
    if target_config is not None:
        problems = misfits(config, target_config)
        if problems:
            raise ModelError(f"{where}: {'; '.join(problems)}")
    stored = read_tensors(directory)
    dtypes = sorted({dtype_name(tensor.dtype) for tensor in stored.values()})
    tensors, unused = fitting_tensors(stored, config, directory)
    drafter = Drafter(config)
    drafter.load_state_dict(tensors)
    return Checkpoint(drafter, form, ", ".join(dtypes), target, unused, directory)


def _drafter_dir(directory: Path) -> Path:
    """Where in it the drafter is; of a training checkpoint, once every file of it is as written."""
    if (directory / CONFIG).is_file():
        return directory
    # The training code reads drafters with this module, so it is imported here.
    from lengthwise.dflash.training.checkpoint import MANIFEST, PREFIX, read_checkpoint

    if (directory / MANIFEST).is_file():
        return read_checkpoint(directory).drafter_dir
    steps = sorted(path.name for path in directory.glob(f"{PREFIX}*"))
    if steps:
        raise ModelError(
            f"{directory} holds the checkpoints of a run; name one of them, such as "
            f"{directory / steps[-1]}"
        )
    return directory


def num_layers(target_config: PretrainedConfig | None) -> int | None:
    """Decoder layers of a target, where its config is at hand."""
    if target_config is None:
        return None
    return int(target_config.get_text_config(decoder=True).num_hidden_layers)


def misfits(config: DrafterConfig, target_config: PretrainedConfig) -> list[str]:
    """What speaks against this drafter for that target; empty where it fits."""
    text = target_config.get_text_config(decoder=True)
    pairs = {
        "hidden_size": (config.hidden_size, text.hidden_size),
        "num_target_layers": (config.num_target_layers, text.num_hidden_layers),
    }
    problems = [
        f"{name} is {ours:,}, but the target's is {theirs:,}: another target's drafter"
        for name, (ours, theirs) in pairs.items()
        if ours != theirs
    ]
    # More rows than the target's config says are padding of its embedding.
    if config.vocab_size < text.vocab_size:
        problems.append(
            f"vocab_size is {config.vocab_size:,}, but the target's is {text.vocab_size:,}"
        )
    if config.mask_token_id >= text.vocab_size:
        problems.append(
            f"mask_token_id is {config.mask_token_id:,}, but the target's config has ids up to "
            f"{text.vocab_size - 1:,} and engines embed no other"
        )
    return problems
