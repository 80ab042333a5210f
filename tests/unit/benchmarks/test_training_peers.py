"""Training on other libraries' batches: packed rows see what padded ones see; the cut; pages."""

from __future__ import annotations

import numpy as np
import pages
import pytest
import torch
import training_peers
import training_peers_page as page
from tiny_transformer import TinyTransformer
from training_data import Corpus, Functions

from lengthwise.loader import PadCollator

TEXTS = [bytes(range(40, 40 + length)) for length in (1, 9, 4, 30, 17)]
CORPUS = Corpus(TEXTS, TEXTS[:2], 0)


def test_a_packed_row_gives_every_token_the_logits_of_its_own_padded_sample():
    """Attention stays inside a sample and positions begin anew, so packing changes nothing."""
    torch.manual_seed(0)
    model = TinyTransformer(width=8, num_layers=2, num_heads=2, longest=32)
    samples = [Functions(TEXTS)[index] for index in range(len(TEXTS))]
    padded = model(PadCollator()(samples)["input_ids"])
    row = torch.from_numpy(np.concatenate([sample["input_ids"] for sample in samples]))[None]
    packed = model(row, [len(text) for text in TEXTS])[0]
    expected = torch.cat([padded[place, : len(text)] for place, text in enumerate(TEXTS)])
    torch.testing.assert_close(packed, expected, rtol=1e-4, atol=1e-5)


def test_packed_and_padded_runs_over_the_same_batches_learn_the_same():
    """Losses are sums over tokens over their number, so padding has no part in them."""
    batches = [[0, 3], [4], [1, 2]]
    losses = []
    for packed in (False, True):
        run = training_peers.Run(CORPUS, batches, packed, seed=0)
        run.train_until(1)
        run.evaluate([PadCollator()([run.samples[1]])])
        record = run.found()
        losses.append(record["curve"][-1]["loss"])
        assert record["real_tokens"] == sum(map(len, TEXTS))
        assert record["num_steps"] == 3
        assert (record["padded_tokens"] == record["real_tokens"]) == packed
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_a_cut_ends_with_the_batch_that_reaches_the_tokens():
    """Batches of 10, 5 and 20 tokens: 15 are reached by the second, 16 by the third."""
    lengths = np.array([4, 6, 5, 20])
    batches = [[0, 1], [2], [3]]
    assert training_peers.cut(batches, lengths, 15) == batches[:2]
    assert training_peers.cut(batches, lengths, 16) == batches


def test_a_seed_that_is_done_is_not_trained_again(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(training_peers, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(training_peers, "one_seed", lambda *_: calls.append(1) or {"runs": {}})
    for _ in range(2):
        found = training_peers._kept(CORPUS, training_peers.QUICK, 0, keep=True)
        assert found == {"runs": {}}
    training_peers._kept(CORPUS, training_peers.QUICK, 1, keep=True)
    assert len(calls) == 2


def test_the_page_has_what_was_measured():
    found = pages.result(page.RESULT)
    text = page.PAGE.read_text(encoding="utf-8")
    for name, part in page.parts(found).items():
        assert f"<!-- {name} -->\n{part}\n<!-- /{name} -->" in text
