"""Optimisers: what they do to weights, what they keep, and that weights stay float32."""

from __future__ import annotations

import math

import pytest
import torch

from lengthwise.dflash.batch import pad_rows
from lengthwise.dflash.optimizer import OptimizerConfig, build_optimizer
from lengthwise.errors import ConfigError, MissingDependencyError, ModelError
from support.dflash_ranks import draft_sample, drafter_of, step_of, update_of

needs_muon = pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch < 2.9")


def with_gradients(drafter, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for parameter in drafter.parameters():
        parameter.grad = torch.randn(parameter.shape, generator=generator)
    return drafter


def test_adamw_steps_as_its_paper_says_and_decays_matrices_alone():
    """First step: moments equal g and g^2 once corrected, so a weight w becomes
    w (1 - lr decay) - lr g / (|g| + eps)."""
    config = OptimizerConfig(learning_rate=0.01, eps=0.1, weight_decay=0.5)
    drafter = with_gradients(drafter_of())
    before = [p.detach().clone() for p in drafter.parameters()]
    build_optimizer(drafter, config).step()
    for parameter, old in zip(drafter.parameters(), before, strict=True):
        kept = old * (1 - 0.01 * 0.5) if old.ndim == 2 else old
        grad = parameter.grad
        torch.testing.assert_close(parameter.detach(), kept - 0.01 * grad / (grad.abs() + 0.1))


@needs_muon
def test_muon_turns_matrices_by_orthogonal_steps_and_leaves_the_rest_to_adamw():
    """Newton-Schulz brings singular values to about 1 (0.6 to 1.3 for its coefficients), and the
    step is scaled to 0.2 sqrt(larger side) times the rate. Norm weights move as with AdamW."""
    config = OptimizerConfig("muon", learning_rate=0.01, eps=0.1)
    drafter, twin = with_gradients(drafter_of()), with_gradients(drafter_of())
    before = {name: p.detach().clone() for name, p in drafter.named_parameters()}
    build_optimizer(drafter, config).step()
    build_optimizer(twin, OptimizerConfig(learning_rate=0.01, eps=0.1)).step()
    others = dict(twin.named_parameters())
    for name, parameter in drafter.named_parameters():
        change = before[name] - parameter.detach()
        if parameter.ndim == 2:
            scale = 0.01 * 0.2 * math.sqrt(max(parameter.shape))
            values = torch.linalg.svdvals(change / scale)
            assert 0.3 < float(values.min()) <= float(values.max()) < 1.4
        else:
            assert torch.equal(parameter, others[name])


@pytest.mark.parametrize("kind", ["adamw", pytest.param("muon", marks=needs_muon)])
def test_a_restored_state_continues_as_if_nothing_had_been(kind, tmp_path):
    config = OptimizerConfig(kind, learning_rate=0.01)
    first = drafter_of()
    optimizer = build_optimizer(first, config)
    for seed in range(4):
        with_gradients(first, seed)
        optimizer.scale_learning_rate(0.5**seed)
        optimizer.step()
        if seed == 1:
            torch.save((first.state_dict(), optimizer.state_dict()), tmp_path / "state.pt")
    second = drafter_of()
    weights, state = torch.load(tmp_path / "state.pt", weights_only=True)
    second.load_state_dict(weights)
    other = build_optimizer(second, config)
    other.load_state_dict(state)
    for seed in (2, 3):
        with_gradients(second, seed)
        other.scale_learning_rate(0.5**seed)
        other.step()
    assert {group["lr"] for group in other.param_groups} == {0.01 / 8}
    for a, b in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b)


def test_zero_grad_forgets():
    drafter = with_gradients(drafter_of())
    build_optimizer(drafter, OptimizerConfig()).zero_grad()
    assert all(parameter.grad is None for parameter in drafter.parameters())


def test_the_state_of_another_kind_is_refused():
    optimizer = build_optimizer(drafter_of(), OptimizerConfig())
    with pytest.raises(ConfigError, match="optimisers muon, adamw, this run has adamw"):
        optimizer.load_state_dict({"muon": {}, "adamw": {}})


@pytest.mark.parametrize("kind", ["adamw", pytest.param("muon", marks=needs_muon)])
def test_bfloat16_autocast_leaves_weights_gradients_and_states_in_float32(kind):
    drafter = drafter_of()
    update = update_of(drafter, OptimizerConfig(kind))
    batch = pad_rows([draft_sample([True] * 12, 0)])
    with torch.autocast("cpu", torch.bfloat16):
        sums = step_of(drafter, batch)
    update.backward(sums, batch.sample_ids)
    assert {p.grad.dtype for p in drafter.parameters()} == {torch.float32}
    assert update.step().outcome == "stepped"
    states = [
        value
        for part in update.optimizer.parts.values()
        for state in part.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    ]
    assert len(states) >= len(list(drafter.parameters()))
    assert {value.dtype for value in [*states, *drafter.parameters()]} == {torch.float32}


def test_narrow_weights_are_refused_by_name_with_the_way_out():
    with pytest.raises(ModelError, match=r"weight is torch.bfloat16.*autocast"):
        build_optimizer(drafter_of().to(torch.bfloat16), OptimizerConfig())


def test_a_frozen_drafter_is_refused():
    with pytest.raises(ModelError, match="no trainable parameter"):
        build_optimizer(drafter_of().requires_grad_(False), OptimizerConfig())


def test_muon_without_torch_2_9_says_what_to_do(monkeypatch):
    monkeypatch.delattr(torch.optim, "Muon", raising=False)
    with pytest.raises(MissingDependencyError, match=r"torch >= 2\.9.*kind='adamw'"):
        build_optimizer(drafter_of(), OptimizerConfig("muon"))


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kind": "sgd"}, "kind of optimiser"),
        ({"learning_rate": 0}, "learning_rate"),
        ({"learning_rate": math.inf}, "learning_rate"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"eps": 0}, "eps"),
        ({"weight_decay": -1}, "weight_decay"),
        ({"momentum": 1.0}, "momentum"),
        ({"max_grad_norm": math.nan}, "max_grad_norm"),
    ],
)
def test_settings_out_of_range_are_refused_by_name(settings, named):
    with pytest.raises(ConfigError, match=named):
        OptimizerConfig(**settings)
