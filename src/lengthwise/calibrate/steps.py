"""Steps to measure, from a PyTorch module or from a Hugging Face config with random weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lengthwise.errors import ConfigError, MissingDependencyError, ModelError

if TYPE_CHECKING:
    import torch

Step = Callable[[int, int], Callable[[], object]]
"""``step(batch_size, longest)`` makes a batch of that shape and returns what runs one step on
it. Only the running is timed."""


def from_module(
    module: torch.nn.Module,
    make_inputs: Callable[[int, int], Any],
    *,
    backward: bool = True,
    loss: Callable[[Any], Any] | None = None,
) -> Step:
    """The step of any PyTorch module: forward, or forward and backward.

    Gradients are dropped after each step, as ``optimizer.zero_grad()`` does, so that every step
    allocates them anew. The optimiser's own step is not run: its time does not depend on the
    batch.

    Args:
        module: on its device, in its dtype, in the mode in which it is to run.
        make_inputs: ``make_inputs(batch_size, longest)``: a dict of keyword arguments, a tuple of
            arguments, or the one argument, all on the module's device.
        backward: also run backward from the loss; without it no gradient is recorded.
        loss: the scalar of an output; by default its ``loss``, or the mean of its first
            floating-point tensor.

    Returns:
        ``step(batch_size, longest)``.
    """
    import torch

    def step(batch_size: int, longest: int) -> Callable[[], object]:
        inputs = make_inputs(batch_size, longest)

        def run() -> None:
            if not backward:
                with torch.no_grad():
                    _call(module, inputs)
                return
            try:
                output = _call(module, inputs)
                (_loss_of(output) if loss is None else loss(output)).backward()
            finally:  # after a step that ran out of memory its gradients must not stay
                module.zero_grad(set_to_none=True)

        return run

    return step


def from_config(
    model_class: str,
    config: str | Path,
    *,
    device: str = "cpu",
    dtype: str = "float32",
    backward: bool = True,
) -> Step:
    """The step of a Hugging Face model with random weights; nothing is downloaded.

    Time and memory depend on shapes, not on values, so weights are not needed. A class without a
    head, such as ``Qwen3Model``, leaves the logits out. Batches are padded as real ones are (every
    sample but the first is a token short), so that attention takes the path of padded batches.

    Args:
        model_class: name of a class in ``transformers``, such as "Qwen3ForCausalLM".
        config: a ``config.json``, or a directory with one.
        device: as in PyTorch.
        dtype: name of a floating-point dtype, such as "bfloat16".
        backward: also run backward, in training mode; forward alone runs in evaluation mode.

    Raises:
        ModelError: no such class, or one that cannot be made from this config.
        ConfigError: no config there, or no such dtype.
        MissingDependencyError: transformers or PyTorch is not installed.
    """
    try:
        import torch
        import transformers
    except ImportError:
        raise MissingDependencyError(
            "models by name need transformers: pip install 'lengthwise[dflash]'"
        ) from None
    number = getattr(torch, dtype, None)
    if not isinstance(number, torch.dtype) or not number.is_floating_point:
        raise ConfigError(f"dtype must name a floating-point dtype such as bfloat16, got {dtype!r}")
    made = getattr(transformers, model_class, None)
    if not (inspect.isclass(made) and issubclass(made, transformers.PreTrainedModel)):
        raise ModelError(
            f"transformers {transformers.__version__} has no model class {model_class!r}; the "
            f"config's 'architectures' usually names one, such as Qwen3ForCausalLM"
        )
    before = torch.get_default_dtype()
    torch.set_default_dtype(number)
    try:
        with torch.device(device):
            model = made(_read_config(made, Path(config)))
    finally:
        torch.set_default_dtype(before)
    model.train(backward)
    return from_module(model, _token_inputs(model, device, backward=backward), backward=backward)


def _read_config(made: Any, path: Path) -> Any:
    if not (path / "config.json" if path.is_dir() else path).is_file():
        raise ConfigError(f"{path} is neither a config.json nor a directory with one")
    try:
        return made.config_class.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is no config of {made.__name__}: {error}") from None


def _token_inputs(model: Any, device: str, *, backward: bool) -> Callable[[int, int], Any]:
    import torch

    known = inspect.signature(model.forward).parameters
    vocabulary = model.config.get_text_config().vocab_size

    def make(batch_size: int, longest: int) -> dict[str, Any]:
        tokens = torch.randint(0, vocabulary, (batch_size, longest), device=device)
        mask = torch.ones_like(tokens)
        if longest > 1:
            mask[1:, -1] = 0
        inputs: dict[str, Any] = {"input_ids": tokens, "attention_mask": mask}
        if backward and "labels" in known:
            inputs["labels"] = tokens.masked_fill(mask == 0, -100)
        if "use_cache" in known:
            inputs["use_cache"] = False
        return inputs

    return make


def _call(module: torch.nn.Module, inputs: Any) -> Any:
    if isinstance(inputs, Mapping):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, tuple) else module(inputs)


def _loss_of(output: Any) -> Any:
    import torch

    own = getattr(output, "loss", None)
    if own is not None:
        return own
    if isinstance(output, torch.Tensor):
        parts = [output]
    else:
        parts = list(output.values() if isinstance(output, Mapping) else output)
    for part in parts:
        if isinstance(part, torch.Tensor) and part.is_floating_point():
            return part.float().mean()
    raise ModelError(
        f"a {type(output).__name__} holds no floating-point tensor to take a loss of; give "
        f"loss=... to from_module"
    )
