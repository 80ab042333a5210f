"""The learner: what a step's samples come to does not depend on how they are laid out."""

from __future__ import annotations

import pytest
import torch

from lengthwise.dflash.batch import Sample
from lengthwise.dflash.training import learner as learner_module
from lengthwise.dflash.training.learner import Learner
from lengthwise.dflash.training.setup import load_ends_of, make_drafter, target_facts
from support.dflash_runs import small_config, small_run_folder

LENGTHS = (40, 9, 33, 12, 38, 10, 36, 14)
"""All unlike, so that there is one order by length."""


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = small_run_folder(tmp_path_factory.mktemp("run"), count=1, useless=0)
    return small_config(folder, folder / "out")


def new_learner(config):
    ends = load_ends_of(config, torch.device("cpu"))
    drafter = make_drafter(config, target_facts(config)[0], ends.num_embeddings)
    return Learner(drafter, ends, config, total_steps=4)


def samples_for(learner):
    generator = torch.Generator().manual_seed(0)
    width = learner.drafter.config.feature_size
    return [
        Sample(
            number,
            torch.randint(90, (length,), generator=generator),
            torch.ones(length, dtype=torch.bool),
            torch.randn(length, width, generator=generator),
        )
        for number, length in enumerate(LENGTHS)
    ]


def test_micro_batches_hold_samples_of_like_length(config, monkeypatch):
    """24 anchors a micro-batch and 8 a sample: three at once. By length they are 9 to 12, 14 to 36
    and 38 and 40 tokens, so rows of multiples of 8 tokens waste least.
    """
    seen, plain = [], learner_module.pack_rows

    def pack(samples, *sizes, **more):
        seen.append([len(one) for one in samples])
        return plain(samples, *sizes, **more)

    monkeypatch.setattr(learner_module, "pack_rows", pack)
    learner = new_learner(config)
    learner.learn(samples_for(learner), epoch=0)
    assert seen == [[9, 10, 12], [14, 33, 36], [38, 40]]


def test_a_step_is_the_same_in_whatever_order_its_samples_come(config):
    """To the last bit, since they are laid out by length; anchors go by the samples' numbers."""
    weights = []
    for turn in (1, -1):
        learner = new_learner(config)
        result = learner.learn(samples_for(learner)[::turn], epoch=0)
        assert result.outcome == "stepped"
        weights.append(learner.drafter.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
