"""Block attention against four conditions asked of every query and key."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.dflash.attention import BlockAttention, attend_to_cache
from lengthwise.dflash.chunks import Chunk, Chunks, choose_chunks
from lengthwise.dflash.config import DrafterConfig
from lengthwise.dflash.flex import TILE, seen_tiles
from lengthwise.dflash.layers import KeyValues
from lengthwise.dflash.visibility import Visibility
from lengthwise.errors import ConfigError
from support.dflash_attention import anchors_at, dense_mask, lay_out, plain_attention

HEADS, KEY_HEADS, WIDTH = 4, 2, 16

# name -> documents of each row, width, anchors of each row, anchors not kept
LAYOUTS = {
    "padded rows": ([[9], [14]], 16, [[1, 4, 7], [2, 3, 12]], 0),
    "packed rows": ([[5, 8], [3, 4, 6]], 14, [[2, 7, 12], [1, 4, 9]], 0),
    "an anchor at every column": ([[10], [4, 6]], 10, [list(range(10))] * 2, 0),
    "anchors at the first column of a document": ([[6, 5]], 11, [[0, 6]], 0),
    "documents of one token": ([[1, 1, 1, 5]], 8, [[0, 1, 2, 5]], 0),
    "blocks that are not kept": ([[7], [7]], 9, [[3, 5], []], 2),
    "no kept block at all": ([[4]], 4, [[]], 1),
}


def config_of(block_size: int, window: int | None = None) -> DrafterConfig:
    kind = "full_attention" if window is None else "sliding_attention"
    return DrafterConfig(
        hidden_size=32,
        num_hidden_layers=1,
        num_attention_heads=HEADS,
        num_key_value_heads=KEY_HEADS,
        head_dim=WIDTH,
        intermediate_size=48,
        vocab_size=96,
        block_size=block_size,
        mask_token_id=95,
        target_layer_ids=(1,),
        num_target_layers=4,
        layer_types=(kind,),
        sliding_window=window,
    )


def random_states(
    rows: int, columns: int, tokens: int, dtype: torch.dtype = torch.float32, seed: int = 3
) -> tuple[torch.Tensor, KeyValues, KeyValues]:
    generator = torch.Generator().manual_seed(seed)

    def draw(heads: int, length: int) -> torch.Tensor:
        return torch.randn(rows, heads, length, WIDTH, generator=generator).to(dtype)

    context = KeyValues(draw(KEY_HEADS, columns), draw(KEY_HEADS, columns))
    blocks = KeyValues(draw(KEY_HEADS, tokens), draw(KEY_HEADS, tokens))
    return draw(HEADS, tokens), context, blocks


def compare(batch, anchors, block_size, window, **options) -> None:
    """Attention by the subject and by the oracle, on random states."""
    rows, columns = batch.document_ids.shape
    states = random_states(rows, columns, anchors.index.shape[1] * block_size)
    attention = BlockAttention(batch, anchors, config_of(block_size, window), **options)
    found = attention(*states, sliding=window is not None)
    expected = plain_attention(*states, dense_mask(batch, anchors, block_size, window))
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize("window", [None, 1, 3, 6, 40])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_attention_equals_the_four_conditions(layout: str, window: int | None) -> None:
    """The oracle asks: same document, before the anchor, in the window; or the own block."""
    documents, width, columns, missing = LAYOUTS[layout]
    compare(lay_out(documents, width), anchors_at(columns, missing), 4, window)


@pytest.mark.parametrize("max_scores", [1, 60, 150, 400, 1 << 24])
@pytest.mark.parametrize("window", [None, 5])
def test_the_size_of_chunks_changes_nothing(window: int | None, max_scores: int) -> None:
    """Chunks decide only where the sums are computed, so every size gives the oracle's."""
    documents, width, columns, missing = LAYOUTS["an anchor at every column"]
    batch, anchors = lay_out(documents, width), anchors_at(columns, missing)
    compare(batch, anchors, 4, window, backend="sdpa", max_scores=max_scores)


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_flex_attention_equals_the_four_conditions(layout: str, window: int | None) -> None:
    """The rule that the GPU compiles, evaluated plainly on the CPU."""
    documents, width, columns, missing = LAYOUTS[layout]
    batch, anchors = lay_out(documents, width), anchors_at(columns, missing)
    compare(batch, anchors, 4, window, backend="flex")


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
@pytest.mark.parametrize("window", [None, 3])
def test_flex_attention_has_the_gradients_of_sdpa(
    window: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One function, so one gradient; the check that forbids it on a CPU is for compiled code."""
    monkeypatch.setattr("torch.nn.attention.flex_attention._validate_device", lambda *_: None)
    documents, width, columns, missing = LAYOUTS["packed rows"]
    batch, anchors = lay_out(documents, width), anchors_at(columns, missing)
    gradients = {}
    for backend in ("sdpa", "flex"):
        queries, context, blocks = random_states(2, width, 12)
        inputs = [queries, *context, *blocks]
        for tensor in inputs:
            tensor.requires_grad_()
        attention = BlockAttention(batch, anchors, config_of(4, window), backend)
        out = attention(queries, context, blocks, sliding=window is not None)
        (out * torch.linspace(-1, 1, out.numel()).view_as(out)).sum().backward()
        gradients[backend] = [tensor.grad for tensor in inputs]
    for found, expected in zip(gradients["flex"], gradients["sdpa"], strict=True):
        assert expected.abs().max() > 0.01
        torch.testing.assert_close(found, expected, rtol=0, atol=2e-6)


@st.composite
def layouts(draw: st.DrawFn) -> tuple[list[list[int]], int, list[list[int]]]:
    lengths = st.lists(st.integers(1, 9), min_size=1, max_size=4)
    documents = draw(st.lists(lengths, min_size=1, max_size=3))
    width = max(map(sum, documents)) + draw(st.integers(0, 3))
    columns = [sorted(draw(st.sets(st.integers(0, sum(row) - 1), max_size=6))) for row in documents]
    return documents, width, columns


@settings(max_examples=60, deadline=None)
@given(
    layout=layouts(),
    block_size=st.integers(2, 5),
    window=st.none() | st.integers(1, 12),
    max_scores=st.sampled_from([1, 30, 300, 1 << 24]),
)
def test_any_layout_equals_the_four_conditions(layout, block_size, window, max_scores) -> None:
    """Rows, documents, anchors, block sizes and windows at random."""
    documents, width, columns = layout
    batch, anchors = lay_out(documents, width), anchors_at(columns, missing=1)
    compare(batch, anchors, block_size, window, backend="sdpa", max_scores=max_scores)


def test_anchors_in_any_order_get_the_same() -> None:
    """Ascending anchors make small chunks; they are no condition of being right."""
    batch = lay_out([[12]])
    compare(batch, anchors_at([[9, 2, 5, 0]]), 4, None, max_scores=100)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_every_type_of_weights_is_attended_in(dtype: torch.dtype) -> None:
    """Masks follow the keys' type; tolerances are those of its digits."""
    documents, width, columns, missing = LAYOUTS["packed rows"]
    batch, anchors = lay_out(documents, width), anchors_at(columns, missing)
    states = random_states(2, width, 12, dtype)
    found = BlockAttention(batch, anchors, config_of(4))(*states, sliding=False)
    expected = plain_attention(*states, dense_mask(batch, anchors, 4, None))
    assert found.dtype == dtype
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=8 * torch.finfo(dtype).eps)


def visibility_of(documents, width, columns, missing=0, block_size=4) -> Visibility:
    batch, anchors = lay_out(documents, width), anchors_at(columns, missing)
    return Visibility.of(batch.document_ids, anchors.index, anchors.keep, block_size)


def test_a_chunk_takes_from_its_first_document_to_its_last_anchor() -> None:
    """Documents begin at 0 and 6; the later block sees columns 6 to 8 alone, so its slice is."""
    visibility = visibility_of([[6, 6]], 12, [[4, 9]])
    chunks = choose_chunks(visibility, max_scores=1, call_cost=0)
    assert [chunk.columns for chunk in chunks] == [slice(0, 4), slice(6, 9)]
    together = choose_chunks(visibility, max_scores=1000, call_cost=1 << 20)
    assert together == [Chunk(slice(0, 1), slice(0, 2), slice(0, 9))]


def test_no_chunk_grows_past_the_limit_where_it_can_be_avoided() -> None:
    """64 blocks of 8 in 512 columns; one block alone takes at most 8 * (512 + 8) pairs."""
    visibility = visibility_of([[512]] * 2, 512, [list(range(7, 512, 8))] * 2, block_size=8)
    for limit in (5_000, 50_000, 500_000):
        chunks = choose_chunks(visibility, limit, call_cost=1 << 18)
        pairs = [
            (c.rows.stop - c.rows.start) * queries * (queries + c.columns.stop - c.columns.start)
            for c in chunks
            for queries in [8 * (c.blocks.stop - c.blocks.start)]
        ]
        assert max(pairs) <= limit


def test_every_block_is_in_exactly_one_chunk() -> None:
    """13 blocks do not divide by any power of two, so the last chunk is a rest."""
    visibility = visibility_of([[20]] * 3, 20, [list(range(13))] * 3, missing=0)
    for limit in (1, 500, 5_000, 1 << 24):
        for call_cost in (0, 1 << 12, 1 << 18):
            seen = [
                (row, block)
                for c in choose_chunks(visibility, limit, call_cost)
                for row in range(3)[c.rows]
                for block in range(13)[c.blocks]
            ]
            assert sorted(seen) == [(row, block) for row in range(3) for block in range(13)]


def test_rows_of_a_bucket_go_together_and_calls_are_few_where_they_are_dear() -> None:
    """Twelve short padded rows: one call where calls cost, since merging wastes nothing."""
    visibility = visibility_of([[20]] * 12, 20, [[3, 9, 15]] * 12)
    assert len(choose_chunks(visibility, 1 << 24, call_cost=1 << 18)) == 1


def test_scores_computed_do_not_grow_with_blocks_times_blocks() -> None:
    """64 blocks of 8 at every 8th of 512 columns see (0 + 8 + ... + 504) * 8 = 129,024 pairs of
    context and 64 * 8 * 8 = 4,096 of their own; the chunks compute at most twice as many, where
    one dense call would compute 512 * (512 + 512) = 524,288."""
    visibility = visibility_of([[512]], 512, [list(range(0, 512, 8))], block_size=8)
    chunks = Chunks(visibility, torch.device("cpu")).chunks
    computed = sum(
        queries * (queries + c.columns.stop - c.columns.start)
        for c in chunks
        for queries in [8 * (c.blocks.stop - c.blocks.start)]
    )
    assert 129_024 + 4_096 <= computed < 2 * (129_024 + 4_096)


@pytest.mark.parametrize("window", [None, 60])
def test_tiles_hold_all_that_is_seen_and_whole_tiles_nothing_else(window: int | None) -> None:
    """Tiles of the oracle's dense mask: seen ones must be listed, whole ones wholly seen."""
    columns = [list(range(5, 400, 19)), [*range(0, 200, 23), *range(340, 390, 7)]]
    batch, anchors = lay_out([[400], [200, 190]], 400), anchors_at(columns)
    rule = Visibility.of(batch.document_ids, anchors.index, anchors.keep, 12)
    if window is not None:
        rule = Visibility(rule.first, rule.stop, 12, rule.num_columns, window)
    some, whole = seen_tiles(rule)
    dense = dense_mask(batch, anchors, 12, window)
    missing = [-n % TILE for n in dense.shape[1:]]
    padded = torch.nn.functional.pad(dense, (0, missing[1], 0, missing[0]))
    tiled = padded.unflatten(2, (-1, TILE)).unflatten(1, (-1, TILE)).transpose(2, 3)
    inside = torch.ones_like(dense)
    inside = torch.nn.functional.pad(inside, (0, missing[1], 0, missing[0]))
    inside = inside.unflatten(2, (-1, TILE)).unflatten(1, (-1, TILE)).transpose(2, 3)
    assert bool((some | ~tiled.flatten(3).any(-1)).all())
    assert bool((~whole | (tiled | ~inside).flatten(3).all(-1)).all())
    if window is None:
        assert bool(whole.any()), "no tile is whole, so the second claim was not tested"
        assert not bool(some.all()), "every tile is listed, so nothing is saved"


@pytest.mark.parametrize(
    ("past", "window"), [(0, None), (7, None), (0, 3), (2, 3), (9, 3), (9, 30)]
)
def test_attention_to_a_cache_is_that_of_a_single_block(past: int, window: int | None) -> None:
    """A block after ``past`` tokens is the block at column ``past`` of a longer text."""
    batch, anchors = lay_out([[past + 5]]), anchors_at([[past]])
    queries, context, block = random_states(1, past + 5, 4)
    expected = plain_attention(queries, context, block, dense_mask(batch, anchors, 4, window))
    cached = KeyValues(*(x[:, :, :past] for x in context))
    found = attend_to_cache(queries, cached, block, window=window)
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-6)


def test_positions_are_those_in_the_document() -> None:
    """Documents of 5 and 8: the anchor at column 7 is the third token of the second, position 2."""
    attention = BlockAttention(lay_out([[5, 8]]), anchors_at([[2, 7]]), config_of(4))
    assert attention.context_positions.tolist() == [[*range(5), *range(8)]]
    assert attention.block_positions.tolist() == [[2, 3, 4, 5, 2, 3, 4, 5]]


def test_a_cpu_takes_sdpa_by_itself() -> None:
    attention = BlockAttention(lay_out([[5]]), anchors_at([[2]]), config_of(4), "auto")
    assert attention.backend == "sdpa"


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ConfigError, match="backend must be one of auto, sdpa, flex, got 'fast'"):
        BlockAttention(lay_out([[5]]), anchors_at([[2]]), config_of(4), "fast")


@pytest.mark.parametrize("column", [-1, 6, 9])
def test_an_anchor_outside_of_every_document_is_refused(column: int) -> None:
    """Column 6 is padding, the others are no columns of the row at all."""
    with pytest.raises(ConfigError, match="anchors must be columns of a document"):
        BlockAttention(lay_out([[5]], 8), anchors_at([[column]]), config_of(4))


def test_anchors_of_another_number_of_rows_are_refused() -> None:
    with pytest.raises(ConfigError, match="one row for each of the batch's 2 rows"):
        BlockAttention(lay_out([[5], [5]]), anchors_at([[2]]), config_of(4))
