"""A document's features are its own: alone, padded, beside others, in any order."""

from __future__ import annotations

import pytest
import torch
from transformers import Lfm2Config, Lfm2ForCausalLM

from lengthwise.dflash.target import Target, samples_of
from lengthwise.errors import DataError, ModelError
from support.dflash_models import FAMILIES, RECURRENT, VOCAB, build, tiny_hybrid, tiny_llama

torch.set_num_threads(1)

LENGTHS = (7, 19, 1, 12)


def assert_same_states(states: torch.Tensor, expected: torch.Tensor) -> None:
    """Each token's state within 1e-5 of its size: fp32, summed in another order."""
    error = (states - expected).norm(dim=-1) / expected.norm(dim=-1)
    assert states.shape == expected.shape
    assert float(error.max()) < 1e-5


def documents(lengths=LENGTHS) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(0, VOCAB - 2, (n,), generator=generator) for n in lengths]


def padded(
    rows: list[torch.Tensor], columns: int, filler: int
) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.full((len(rows), columns), filler)
    mask = torch.zeros(len(rows), columns, dtype=torch.long)
    for i, row in enumerate(rows):
        ids[i, : len(row)] = row
        mask[i, : len(row)] = 1
    return ids, mask


@pytest.mark.parametrize("family", FAMILIES)
def test_a_documents_features_do_not_depend_on_its_batch(family):
    # B48. Recurrent layers are the ones at risk: a state that took in padding, or a neighbour.
    target = Target(FAMILIES[family]())
    layer_ids = range(target.num_layers)
    rows = documents()
    alone = [target.features(row[None], None, layer_ids)[0] for row in rows]
    for order in ([0, 1, 2, 3], [3, 1, 0, 2], [2, 0]):
        chosen = [rows[i] for i in order]
        for columns, filler in ((19, 0), (24, VOCAB - 1)):
            ids, mask = padded(chosen, columns, filler)
            features = target.features(ids, mask, layer_ids)
            for row, i in enumerate(order):
                assert_same_states(features[row, : len(rows[i])], alone[i])


@pytest.mark.parametrize("family", FAMILIES)
def test_what_stands_under_the_padding_changes_nothing(family):
    # The same shapes run the same kernels, so what differs by more than rounding is a leak. (A
    # mixture of experts sums tokens in groups, and the padding's share of a group may move.)
    target = Target(FAMILIES[family]())
    layer_ids = range(target.num_layers)
    ids, mask = padded(documents(), 24, 0)
    noise = torch.randint(0, VOCAB, ids.shape, generator=torch.Generator().manual_seed(3))
    other = torch.where(mask.bool(), ids, noise)
    one = target.features(ids, mask, layer_ids)[mask.bool()]
    two = target.features(other, mask, layer_ids)[mask.bool()]
    torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_a_neighbour_says_changes_nothing(family):
    target = Target(FAMILIES[family]())
    layer_ids = range(target.num_layers)
    ids, mask = padded(documents(), 24, 0)
    other = ids.clone()
    other[1:] = (ids[1:] + 1) % VOCAB
    one = target.features(ids, mask, layer_ids)[:, : LENGTHS[0]]
    two = target.features(other, mask, layer_ids)[:, : LENGTHS[0]]
    torch.testing.assert_close(one[0], two[0], atol=1e-6, rtol=1e-6)
    assert not torch.allclose(one[1], two[1], atol=1e-2)


@pytest.mark.parametrize("family", FAMILIES)
def test_recurrent_says_whether_a_layer_carries_a_state(family):
    assert Target(FAMILIES[family]()).recurrent is (family in RECURRENT)


def test_short_convolutions_count_as_state_though_transformers_does_not_say_so():
    # LFM2 keeps the last tokens' projections in a convolution's cache, which no crop restores;
    # its class has no mark of a stateful model, so only layer_types tells.
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    kinds = {"conv": True, "full_attention": False}
    for kind, expected in kinds.items():
        config = Lfm2Config(
            vocab_size=VOCAB,
            num_key_value_heads=2,
            intermediate_size=48,
            layer_types=[kind, "full_attention"],
            **sizes,
        )
        assert Target(build(Lfm2ForCausalLM, config)).recurrent is expected


def test_the_mask_reaches_the_decoder_so_that_padding_enters_no_state():
    # To the right of a document it could do no harm to a causal model; the decoder is told
    # nevertheless, since its own kernels may look at the mask in other ways.
    model = tiny_hybrid()
    target = Target(model)
    masks = []
    model.model.register_forward_pre_hook(
        lambda module, args, kwargs: masks.append(kwargs["attention_mask"]), with_kwargs=True
    )
    ids, mask = padded(documents(), 24, 0)
    target.features(ids, mask.bool(), (0,))
    target.features(ids, None, (0,))
    assert torch.equal(masks[0], mask)
    assert masks[1] is None


def test_rows_longer_than_a_chunk_of_the_recurrence_stay_apart_from_their_padding():
    # The gated-delta rule works in chunks of 64 columns; padding then ends inside another chunk.
    target = Target(tiny_hybrid())
    rows = documents((63, 64, 65, 130))
    ids, mask = padded(rows, 150, 5)
    features = target.features(ids, mask, (1, 3))
    for i, row in enumerate(rows):
        alone = target.features(row[None], None, (1, 3))[0]
        assert_same_states(features[i, : len(row)], alone)


@pytest.mark.parametrize(
    ("mask", "row"),
    [
        ([[1, 1, 1], [0, 1, 1]], 1),  # padding on the left
        ([[1, 0, 1], [1, 1, 1]], 0),  # a hole
        ([[1, 1, 1], [0, 0, 0]], 1),  # no token at all
        ([[1, 2, 0], [1, 1, 1]], 0),  # document ids in place of ones
    ],
)
def test_any_mask_but_right_padding_is_refused(mask, row):
    with pytest.raises(DataError, match=f"row {row} must be ones"):
        Target(tiny_llama()).features(torch.ones(2, 3).long(), torch.tensor(mask), (0,))


def test_shapes_that_do_not_fit_are_refused():
    target = Target(tiny_llama())
    with pytest.raises(DataError, match=r"shape of input_ids, \(2, 3\); got \(2, 4\)"):
        target.features(torch.ones(2, 3).long(), torch.ones(2, 4).long(), (0,))
    for shape in ((3,), (0, 3), (3, 0)):
        with pytest.raises(DataError, match="rows, columns"):
            target.features(torch.ones(shape).long(), None, (0,))


def longrope(limit: int) -> dict:
    factors = {"short_factor": [1.0] * 4, "long_factor": [4.0, 3.0, 2.0, 1.5]}
    return {
        "rope_type": "longrope",
        "rope_theta": 1e4,
        "original_max_position_embeddings": limit,
        **factors,
    }


def test_longrope_gives_a_short_row_the_same_states_beside_a_long_one():
    # transformers picks the frequencies by the longest row of a batch, so that in a batch of
    # mixed lengths the plain forward pass gives a short row other states than alone.
    model = tiny_llama(rope_parameters=longrope(16))
    target = Target(model)
    rows = documents((7, 30, 12))
    ids, mask = padded(rows, 30, 0)
    alone = [target.features(row[None], None, (0, 2))[0] for row in rows]
    features = target.features(ids, mask, (2, 0))
    assert not features[~mask.bool()].any()
    for i, row in enumerate(rows):
        swapped = alone[i].reshape(-1, 2, 32).flip(1).reshape(-1, 64)
        assert_same_states(features[i, : len(row)], swapped)
    with torch.no_grad():
        plain = model(input_ids=ids, attention_mask=mask, output_hidden_states=True)
    naive = plain.hidden_states[3][0, :7]
    assert not torch.allclose(naive, alone[0][:, 32:], atol=1e-2)


def test_padding_beyond_the_limit_of_longrope_does_not_count_as_length():
    target = Target(tiny_llama(rope_parameters=longrope(16)))
    row = documents((9,))
    ids, mask = padded(row, 20, 0)
    alone = target.features(row[0][None], None, (1,))[0]
    assert_same_states(target.features(ids, mask, (1,))[0, :9], alone)


def test_dynamic_scaling_is_refused_where_states_depend_on_what_ran_before():
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}
    target = Target(tiny_llama(rope_parameters=rope, max_position_embeddings=16))
    assert target.features(torch.ones(1, 16).long(), None, (0,)).shape == (1, 16, 32)
    with pytest.raises(ModelError, match=r"longer than 16 .*depend on what ran before"):
        target.features(torch.ones(1, 17).long(), None, (0,))


def test_samples_keep_their_ids_tokens_and_features_together():
    target = Target(tiny_hybrid())
    rows = documents()
    masks = [[i % 2 for i in range(len(row))] for row in rows]
    inputs = [rows[0], rows[1].numpy(), rows[2].tolist(), rows[3].int()]  # all that lists come as
    samples = samples_of(target, inputs, masks, [40, 10, 30, 20], (0, 2))
    assert [s.sample_id for s in samples] == [40, 10, 30, 20]
    for sample, row, mask in zip(samples, rows, masks, strict=True):
        assert torch.equal(sample.input_ids, row)
        assert sample.loss_mask.tolist() == [bool(m) for m in mask]
        alone = target.features(row[None], None, (0, 2))[0]
        assert_same_states(sample.features, alone)
        # The padded batch is not kept alive by a view of it.
        assert sample.features.untyped_storage().nbytes() == len(row) * 64 * 4


@pytest.mark.parametrize(
    ("ids", "mask", "message"),
    [
        ([], [], "sample 9: input_ids must be a list of at least one token"),
        ([1, 2], [1], "sample 9: loss_mask must be as long as input_ids, 2 tokens"),
        ([1, VOCAB], [1, 1], rf"sample 9: input_ids: token ids must lie in \[0, {VOCAB}\)"),
    ],
)
def test_a_bad_document_is_named_by_its_sample_id(ids, mask, message):
    with pytest.raises(DataError, match=message):
        samples_of(Target(tiny_llama()), [[1], ids], [[1], mask], [8, 9], (0,))


def test_lists_of_unequal_length_are_refused():
    with pytest.raises(DataError, match="got 1, 1 and 2"):
        samples_of(Target(tiny_llama()), [[1]], [[1]], [8, 9], (0,))
    with pytest.raises(DataError, match="got 0, 0 and 0"):
        samples_of(Target(tiny_llama()), [], [], [], (0,))
