"""Engines call a function with many items; the earliest failure is the one that is told."""

import threading

import pytest

from lengthwise.errors import DataError
from lengthwise.lengths.engine import Failed, Threads, until_failure
from lengthwise.lengths.jobs import FileParts, deal, smallest
from lengthwise.lengths.storage import FileIdentity


def results_of(order, failing):
    """Results of five items in a given order of ending; closing is noted."""
    try:
        for place in order:
            yield place, Failed(DataError(str(place))) if place in failing else place
    finally:
        results_of.closed = True


@pytest.mark.parametrize(
    ("order", "failing", "seen"),
    [
        ([0, 1, 2, 3, 4], {2}, [0, 1]),
        ([4, 2, 3, 0, 1], {2}, [4, 3, 0, 1]),  # 0 and 1 might have failed before 2
        ([4, 3, 2, 1, 0], {3, 1}, [4, 2, 0]),  # 1 is first, though 3 failed earlier
    ],
)
def test_the_earliest_failure_is_raised_once_all_before_it_are_done(order, failing, seen):
    # Whoever is fast, the same error; what was done meanwhile is handed out and can be kept.
    yielded = []
    results = (yielded.append(place) for place, _ in until_failure(results_of(order, failing)))
    with pytest.raises(DataError, match=f"^{min(failing)}$"):
        list(results)
    assert yielded == seen
    assert results_of.closed


def square(shared, item):
    return shared + item * item


@pytest.mark.parametrize("num_threads", [1, 3])
def test_threads_return_every_result_with_its_place(num_threads):
    found = dict(Threads(num_threads).run(square, 1000, range(50)))
    assert found == {place: 1000 + place * place for place in range(50)}
    assert list(Threads(num_threads).run(square, 0, [])) == []


def test_closing_ends_the_work():
    # Two threads may have begun two items and hold eight; none of the others is called.
    called, lock = [], threading.Lock()

    def note(_shared, item):
        with lock:
            called.append(item)

    results = Threads(2).run(note, None, range(1000))
    next(results)
    results.close()
    assert len(called) <= 2 * 4 + 4


def test_jobs_join_small_files_and_cut_large_ones():
    identity = FileIdentity(1, 1)
    files = [FileParts(name, identity, sizes, "rows", is_histogram=False) for name, sizes in
             [("a", (3, 4)), ("b", ()), ("c", (1,)), ("d", (9, 2, 2))]]  # fmt: skip
    jobs = deal(files, rows_per_shard=8)
    # 3 + 4 + 1 rows; then 9, which is enough alone; then the rest.
    found = [[(p.path, p.first, p.stop, p.first_row) for p in job.slices] for job in jobs]
    assert found == [[("a", 0, 2, 0), ("c", 0, 1, 0)], [("d", 0, 1, 0)], [("d", 1, 3, 9)]]
    assert [job.size for job in jobs] == [8, 9, 4]


def test_files_whose_rows_are_unknown_are_joined_by_their_bytes():
    identity = FileIdentity(1, 1)
    files = [FileParts(str(size), identity, (size,), "bytes", is_histogram=False)
             for size in (600, 100, 2_000, None, 10)]  # fmt: skip
    # 256 bytes count as a row, and a file as one more: 3 + 1 rows, 8 rows, unknown, 1 row.
    found = [[part.path for part in job.slices] for job in deal(files, rows_per_shard=5)]
    assert found == [["600", "100", "2000"], ["None"], ["10"]]


@pytest.mark.parametrize(
    ("longest", "dtype"), [(65_535, "uint16"), (65_536, "uint32"), (2**32, "int64")]
)
def test_lengths_travel_in_the_smallest_dtype_that_holds_them(longest, dtype):
    import numpy as np

    lengths = smallest(np.array([0, longest]))
    assert (lengths.dtype, lengths.tolist()) == (np.dtype(dtype), [0, longest])
