"""Trainers that divide losses themselves still weigh every token the same."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch.utils.data import DataLoader

from lengthwise.loader import PadCollator, TokenWeightedLoss
from support.loss_ranks import VOCABULARY, tiny_model

ROWS = [[(7 * i + k) % VOCABULARY for k in range(n)] for i, n in enumerate((11, 101, 4, 30, 2))]
"""Five batches of one, two an optimiser step: the last step has one batch alone."""


class Collected(torch.optim.SGD):
    """Keeps the gradients of every step; the weights stay, so that steps can be told apart."""

    def __init__(self, parameters):
        super().__init__(parameters, lr=0.0)
        self.seen = []

    def step(self, closure=None):
        loss = super().step(closure)
        self.seen.append([p.grad.clone() for group in self.param_groups for p in group["params"]])
        return loss


def batches():
    data = [{"input_ids": row, "labels": row} for row in ROWS]
    return DataLoader(data, batch_size=1, collate_fn=PadCollator())


def expected_gradients():
    """Of the mean over the tokens of each step's rows, one token at a time."""
    found = []
    for first in range(0, len(ROWS), 2):
        model = tiny_model()
        losses = [
            -torch.log_softmax(model(torch.tensor(row)), -1)[place, row[place + 1]]
            for row in ROWS[first : first + 2]
            for place in range(len(row) - 1)
        ]
        torch.stack(losses).mean().backward()
        found.append([parameter.grad for parameter in model.parameters()])
    return found


def assert_equal(found, expected):
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert torch.allclose(a, b, rtol=0, atol=1e-12)


@pytest.fixture
def accelerator():
    """Two batches an optimiser step; Accelerate keeps settings in the process, so forget them."""
    accelerate = pytest.importorskip("accelerate")
    yield accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)


@pytest.mark.slow
def test_accelerate_divides_by_the_accumulation_steps_and_that_is_undone(accelerator):
    # Also in the last step, which has one batch and is divided by two all the same.
    model = tiny_model()
    collected = Collected(model.parameters())
    model, optimizer, loader = accelerator.prepare(model, collected, batches())
    loss_function = TokenWeightedLoss(shift=True, count="after", trainer_divides_by=2)
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(loss_function(model(batch["input_ids"]), batch["labels"]))
            if accelerator.sync_gradients:
                loss_function.rescale_gradients(model.parameters())
            optimizer.step()
            optimizer.zero_grad()
    assert_equal(collected.seen, expected_gradients())


@pytest.mark.slow
def test_lightning_divides_by_the_accumulation_steps_and_that_is_undone():
    # The hook runs once an optimiser step, before clipping.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what Lightning and its dependencies warn of is theirs
        lightning = pytest.importorskip("lightning")

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = tiny_model()
                self.loss_function = TokenWeightedLoss(
                    shift=True, count="after", trainer_divides_by=2
                )
                self.collected = Collected(self.model.parameters())

            def training_step(self, batch, batch_idx):
                return self.loss_function(self.model(batch["input_ids"]), batch["labels"])

            def on_before_optimizer_step(self, optimizer):
                self.loss_function.rescale_gradients(self.model.parameters())

            def configure_optimizers(self):
                return self.collected

        module = Module()
        lightning.Trainer(
            max_epochs=1,
            accumulate_grad_batches=2,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        ).fit(module, batches())
    assert_equal(module.collected.seen, expected_gradients())
