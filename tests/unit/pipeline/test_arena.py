"""The arena: what is written is read, by this process and others; and it never stays behind."""

from __future__ import annotations

import multiprocessing
import os
from pathlib import Path

import pytest
import torch

from lengthwise.errors import ConfigError, DataError
from lengthwise.pipeline.arena import Arena, ArenaShape
from lengthwise.pipeline.messages import Part
from lengthwise.pipeline.pages import PageAllocator

PAGE, WIDTH = 4, 6


def shape(num_pages=16, dtype=torch.float32):
    return ArenaShape(num_pages, PAGE, WIDTH, dtype)


@pytest.fixture
def arena():
    made = Arena(shape())
    yield made
    made.close()


def features(num_tokens, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_tokens, WIDTH, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_features_come_out_as_they_went_in(dtype):
    """Samples of less than a page, of just one, of several; in pages far apart and out of order."""
    made = Arena(shape(dtype=dtype))
    try:
        parts = [Part(1, 1, (3,)), Part(2, 4, (0,)), Part(3, 11, (9, 2, 15)), Part(4, 8, (8, 7))]
        for part in parts:
            made.write(part, features(part.num_tokens, dtype, part.sample_id))
        for part in parts:
            read = made.read(part)
            assert read.dtype == dtype
            assert torch.equal(read, features(part.num_tokens, dtype, part.sample_id))
            assert len(part.pages) == PageAllocator(16, PAGE).needed(part.num_tokens)
    finally:
        made.close()


def test_what_was_read_is_a_copy(arena):
    """Its pages are given to others at once."""
    part = Part(1, 5, (0, 1))
    arena.write(part, features(5))
    read = arena.read(part)
    arena.write(Part(2, 8, (0, 1)), features(8, seed=1))
    assert torch.equal(read, features(5))


def test_values_that_fit_are_widened_and_others_refused(arena):
    """bfloat16 in float32 is exact; float64 in float32 would not be."""
    arena.write(Part(1, 4, (0,)), features(4, torch.bfloat16))
    assert torch.equal(arena.read(Part(1, 4, (0,))), features(4, torch.bfloat16).float())
    with pytest.raises(DataError, match=r"sample 7: .*torch\.float64.*set target\.dtype"):
        arena.write(Part(7, 4, (1,)), features(4, torch.float64))


@pytest.mark.parametrize("rows", [33, 35])
def test_rows_that_are_not_the_tokens_are_refused_by_name(arena, rows):
    """34 tokens and 33 rows (B47); nothing is written."""
    part = Part(1234, 34, tuple(range(9)))
    before = arena.read(part)
    with pytest.raises(DataError, match=rf"sample 1234: .*\({rows}, {WIDTH}\) for 34 tokens"):
        arena.write(part, features(rows))
    assert torch.equal(arena.read(part), before)


def test_features_of_another_width_are_refused(arena):
    with pytest.raises(DataError, match="sample 5"):
        arena.write(Part(5, 4, (0,)), torch.zeros(4, WIDTH + 1))


def write_elsewhere(name, part):
    other = Arena(shape(), name)
    other.write(part, features(part.num_tokens, seed=9))
    other.close()


def test_another_process_writes_and_this_one_reads(arena):
    part = Part(1, 10, (5, 1, 14))
    process = multiprocessing.get_context("spawn").Process(
        target=write_elsewhere, args=(arena.name, part)
    )
    process.start()
    process.join(120)
    assert process.exitcode == 0
    assert torch.equal(arena.read(part), features(10, seed=9))


def test_it_is_gone_when_its_maker_closes_it_and_not_before():
    made = Arena(shape())
    file = Path("/dev/shm", made.name)
    attached = Arena(shape(), made.name)
    attached.close()
    assert file.exists()
    assert file.stat().st_size >= shape().num_bytes == 16 * PAGE * WIDTH * 4
    made.close()
    assert not file.exists()


def test_without_its_name_it_serves_those_who_have_it():
    """Then nothing is left to remove, even where all processes are killed at once."""
    made = Arena(shape())
    attached = Arena(shape(), made.name)
    made.hide()
    made.hide()
    assert not Path("/dev/shm", made.name).exists()
    part = Part(1, 5, (0, 1))
    attached.write(part, features(5))
    assert torch.equal(made.read(part), features(5))
    attached.close()
    made.close()


def test_more_than_there_is_is_refused_before_anything_is_taken(monkeypatch):
    """Writing to memory that is promised and not there would kill the process."""
    facts = os.statvfs("/dev/shm")
    too_many = facts.f_bavail * facts.f_frsize // (PAGE * WIDTH * 4) + 1
    made = []
    monkeypatch.setattr("lengthwise.pipeline.arena.SharedMemory", made.append)
    with pytest.raises(ConfigError, match=r"of shared memory, /dev/shm has .* GiB free: lower"):
        Arena(shape(num_pages=too_many))
    assert made == []
