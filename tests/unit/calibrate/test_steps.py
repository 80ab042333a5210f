"""Steps of PyTorch modules and of Hugging Face configs: what runs, and what is left behind."""

import inspect
import json

import pytest
import torch

from lengthwise.calibrate import from_config, from_module
from lengthwise.errors import ConfigError, ModelError

SIZES = {
    "vocab_size": 50,
    "hidden_size": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "intermediate_size": 24,
    "num_hidden_layers": 1,
    "max_position_embeddings": 64,
}


class Recorder(torch.nn.Module):
    """A linear layer that notes what it was called with, and what its gradients were."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.shapes = []
        self.grad_enabled = []
        self.grads = []
        self.layer.weight.register_post_accumulate_grad_hook(
            lambda weight: self.grads.append(weight.grad.clone())
        )

    def forward(self, x, scale=1.0):
        self.shapes.append(tuple(x.shape))
        self.grad_enabled.append(torch.is_grad_enabled())
        return self.layer(x) * scale


@pytest.mark.parametrize(
    "wrap",
    [lambda x: x, lambda x: (x, 2.0), lambda x: {"x": x, "scale": 2.0}],
    ids=["one argument", "arguments", "keywords"],
)
def test_a_step_runs_forward_and_backward_on_the_asked_shape(wrap):
    # One call of the module for each run, of batch size x longest, with a gradient that is gone
    # again afterwards, as after zero_grad.
    module = Recorder()
    step = from_module(module, lambda n, m: wrap(torch.randn(n, m, 4)))
    run = step(3, 5)
    assert module.shapes == []
    run()
    run()
    assert module.shapes == [(3, 5, 4), (3, 5, 4)]
    assert len(module.grads) == 2
    assert all(float(grad.abs().sum()) > 0 for grad in module.grads)
    assert module.layer.weight.grad is None


def test_a_forward_step_records_no_gradient():
    # Recorded, the activations would stay and the memory would be that of training.
    module = Recorder()
    from_module(module, lambda n, m: torch.randn(n, m, 4), backward=False)(2, 7)()
    assert module.grad_enabled == [False]
    assert module.grads == []


def test_gradients_of_a_failed_step_do_not_stay():
    # As when memory runs out in the middle of backward.
    module = Recorder()

    def fail(_grad):
        raise torch.OutOfMemoryError("out of memory")

    module.layer.weight.register_post_accumulate_grad_hook(fail)
    run = from_module(module, lambda n, m: torch.randn(n, m, 4))(2, 7)
    with pytest.raises(torch.OutOfMemoryError):
        run()
    assert all(weight.grad is None for weight in module.parameters())


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (lambda x: x, 1.0),
        (lambda x: (torch.tensor([1, 2]), x), 1.0),
        (lambda x: {"ids": torch.tensor([1]), "states": x}, 1.0),
    ],
    ids=["a tensor", "a tuple", "a mapping"],
)
def test_the_loss_is_the_mean_of_the_first_floating_tensor(output, expected):
    # Backward of a mean of w * 1 over ones gives the weight a gradient of exactly 1.
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.ones(()))
    module.forward = lambda x: output(module.weight * x)
    seen = []
    module.weight.register_post_accumulate_grad_hook(lambda w: seen.append(float(w.grad)))
    from_module(module, torch.ones)(2, 3)()
    assert seen == [expected]


def test_a_loss_of_your_own_is_taken():
    # The sum of 2 x 3 ones instead of their mean: a gradient of 6.
    module = torch.nn.Module()
    module.weight = torch.nn.Parameter(torch.ones(()))
    module.forward = lambda x: module.weight * x
    seen = []
    module.weight.register_post_accumulate_grad_hook(lambda w: seen.append(float(w.grad)))
    from_module(module, torch.ones, loss=torch.sum)(2, 3)()
    assert seen == [6.0]


def test_an_output_without_a_floating_tensor_is_an_error():
    # Nothing to run backward from; the message names the way out.
    module = torch.nn.Module()
    module.forward = lambda x: (x.long(),)
    with pytest.raises(ModelError, match="give loss="):
        from_module(module, torch.ones)(2, 3)()


@pytest.fixture
def config(tmp_path):
    values = {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], **SIZES}
    (tmp_path / "config.json").write_text(json.dumps(values), encoding="utf-8")
    return tmp_path


def calls_of(model_class, config, monkeypatch, **settings):
    """What the made model was called with, and in which state, when one step of 3 x 7 runs."""
    import transformers

    seen = []
    cls = getattr(transformers, model_class)
    forward = cls.forward

    def spy(self, **inputs):
        first = next(self.parameters())
        seen.append((inputs, self.training, first.dtype, torch.is_grad_enabled()))
        return forward(self, **inputs)

    spy.__signature__ = inspect.signature(forward)
    monkeypatch.setattr(cls, "forward", spy)
    from_config(model_class, config, **settings)(3, 7)()
    return seen


@pytest.mark.parametrize("where", ["", "config.json"])
def test_a_model_by_name_trains_on_padded_token_ids(where, config, monkeypatch):
    # Every sample but the first is a token short, as in a padded batch; padding is no label.
    ((inputs, training, dtype, grad),) = calls_of("Qwen3ForCausalLM", config / where, monkeypatch)
    assert inputs["input_ids"].shape == (3, 7)
    assert int(inputs["input_ids"].max()) < SIZES["vocab_size"]
    assert inputs["attention_mask"].sum(dim=1).tolist() == [7, 6, 6]
    assert ((inputs["labels"] == -100) == (inputs["attention_mask"] == 0)).all()
    assert inputs["use_cache"] is False
    assert (training, dtype, grad) == (True, torch.float32, True)
    assert torch.get_default_dtype() == torch.float32


def test_forward_alone_runs_in_evaluation_mode_without_labels(config, monkeypatch):
    # As a target does; in the dtype asked for, which is then not left as the default.
    ((inputs, training, dtype, grad),) = calls_of(
        "Qwen3Model", config, monkeypatch, backward=False, dtype="bfloat16"
    )
    assert "labels" not in inputs
    assert (training, dtype, grad) == (False, torch.bfloat16, False)
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    ("model_class", "settings", "error", "words"),
    [
        ("Qwen3Nothing", {}, ModelError, "no model class 'Qwen3Nothing'"),
        ("Qwen3Config", {}, ModelError, "no model class"),
        ("Qwen3Model", {"dtype": "int8"}, ConfigError, "floating-point dtype"),
        ("Qwen3Model", {"dtype": "nn"}, ConfigError, "floating-point dtype"),
    ],
)
def test_models_that_cannot_be_made_are_refused(model_class, settings, error, words, config):
    # A class that is not there or no model, and a dtype that weights cannot have.
    with pytest.raises(error, match=words):
        from_config(model_class, config, **settings)


def test_a_missing_config_is_refused_and_nothing_is_looked_up_elsewhere(tmp_path):
    # A name that is no path would otherwise be taken for one of a model hub.
    with pytest.raises(ConfigError, match=r"neither a config\.json nor a directory"):
        from_config("Qwen3Model", tmp_path / "Qwen" / "Qwen3-8B")
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match="no config of Qwen3Model"):
        from_config("Qwen3Model", tmp_path)
