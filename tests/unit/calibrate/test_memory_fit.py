"""The upper bound of measured peaks: never below one, and as low as it can be."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.calibrate import Measurement, fit_memory
from lengthwise.errors import ConfigError
from support.calibrations import SHAPES, generator


def peaks(values, shapes=SHAPES):
    return [
        Measurement(*shape, 1.0, int(value)) for shape, value in zip(shapes, values, strict=True)
    ]


def rows_of(shapes):
    return np.array([[1, n * m, n * m * m] for n, m in shapes], np.float64)


def lowest_bound(rows):
    """The best corner by trying all: three of the constraints rows @ x >= 1, x >= 0 are equations.

    A linear programme has its optimum at a corner, so this is the exact answer, slowly.
    """
    rows = rows / (scale := rows.max(axis=0))
    sides = np.concatenate((rows, np.eye(3)))
    right = np.concatenate((np.ones(len(rows)), np.zeros(3)))
    best = np.inf
    for chosen in itertools.combinations(range(len(sides)), 3):
        left = sides[list(chosen)]
        if abs(np.linalg.det(left)) < 1e-12:
            continue
        corner = np.linalg.solve(left, right[list(chosen)])
        if (corner >= -1e-9).all() and (rows @ corner >= 1 - 1e-9).all():
            best = min(best, float((rows @ corner).mean()))
    assert scale.all()
    return best


@pytest.mark.parametrize("truth", [(1e9, 4e4, 3.0), (1e9, 4e4, 0.0), (0.0, 4e4, 3.0)])
def test_exact_peaks_give_their_formula_back(truth):
    # A formula through all peaks is the lowest bound there is.
    fit = fit_memory(peaks(rows_of(SHAPES) @ truth))
    found = (fit.fixed_bytes, fit.bytes_per_token, fit.bytes_per_token_squared)
    assert found == pytest.approx(truth, rel=1e-5, abs=1e-3)
    assert fit.relative_slack < 1e-6


@given(st.integers(0, 10_000))
def test_no_peak_lies_above_the_bound_and_no_bound_is_lower(seed):
    # The allocator rounds and keeps blocks, so peaks scatter, here by up to 20 %.
    draw = generator(seed)
    real = rows_of(SHAPES) @ (1e8, 4e4, 3.0) * draw.uniform(1, 1.2, len(SHAPES))
    fit = fit_memory(peaks(real))
    size, longest = np.array(SHAPES).T
    bound = fit.peak_bytes(size, longest) / (1 + fit.margin)
    assert (bound >= np.floor(real) * (1 - 1e-12)).all()
    measured = np.array([item.peak_bytes for item in peaks(real)])
    assert float((bound / measured).mean()) == pytest.approx(
        lowest_bound(rows_of(SHAPES) / measured[:, None]), rel=1e-6
    )


def test_of_repeats_the_highest_peak_counts():
    # 1.5 times the memory in one repeat of the largest shape must lift the bound to it.
    real = rows_of(SHAPES) @ (1e9, 4e4, 3.0)
    largest = int(np.argmax(real))
    more = [*peaks(real), Measurement(*SHAPES[largest], 1.0, int(1.5 * real[largest]))]
    size, longest = np.array([SHAPES[largest]]).T
    assert fit_memory(more, margin=0).peak_bytes(size, longest)[0] >= int(1.5 * real[largest])


def test_the_margin_is_on_top_of_the_whole():
    # 10 % more of fixed and variable memory alike.
    real = rows_of(SHAPES) @ (1e9, 4e4, 3.0)
    size, longest = np.array(SHAPES).T
    bare = fit_memory(peaks(real), margin=0.0).peak_bytes(size, longest)
    assert fit_memory(peaks(real), margin=0.1).peak_bytes(size, longest) == pytest.approx(
        1.1 * bare
    )


def test_the_largest_batch_just_fits():
    # One more sample would exceed the limit; both by the fit's own prediction, margin included.
    fit = fit_memory(peaks(rows_of(SHAPES) @ (1e9, 4e4, 3.0)))
    limit = 20_000_000_000
    size = fit.largest_batch_size(2_048, limit)
    below, above = fit.peak_bytes(np.array([size, size + 1]), np.array([2_048, 2_048]))
    assert below <= limit < above
    assert fit.largest_batch_size(2_048, 1_000_000) == 0  # less than the weights


def test_peaks_that_nobody_counted_give_no_fit():
    # On a CPU each is None.
    assert fit_memory([Measurement(*shape, 1.0) for shape in SHAPES]) is None


def test_what_cannot_work_is_refused():
    # A negative margin would be below what was measured; equal peaks bound no batch.
    with pytest.raises(ConfigError, match="margin"):
        fit_memory(peaks(np.full(len(SHAPES), 10**9)), margin=-0.1)
    with pytest.raises(ConfigError, match="do not grow"):
        fit_memory(peaks(np.full(len(SHAPES), 10**9))).largest_batch_size(100, 10**10)
