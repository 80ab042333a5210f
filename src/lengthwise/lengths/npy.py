"""NumPy files: .npy (memory-mapped) and .npz, and arrays in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise.errors import ColumnError, DataError
from lengthwise.lengths.columns import LIST, NUMBER, OTHER, Field
from lengthwise.lengths.histogram_file import histogram_part, is_histogram
from lengthwise.lengths.rows import Part, Piece, Place, check_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from lengthwise.lengths.formats import ReadOptions

ROWS_PER_PIECE = 1 << 20


def fields(path: str) -> list[Field] | None:
    """The arrays of an .npz; None for an .npy, a histogram, or an .npz with a single array."""
    if path.endswith(".npy"):
        return None
    with _open_npz(path) as arrays:
        names = list(arrays.files)
        if is_histogram(names) or len(names) == 1:
            return None
        return [_field(name, arrays[name]) for name in names]


def parts(path: str, field: Field | None, options: ReadOptions) -> list[Part]:
    """The file as one part."""
    if path.endswith(".npz"):
        with _open_npz(path) as arrays:
            if is_histogram(arrays.files):
                return [histogram_part(path)]
            array = arrays[_array_name(arrays.files, field, path)]
    else:
        try:
            array = np.load(path, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError) as error:
            raise DataError(f"{path} cannot be read as an array of numbers: {error}") from None
    return [array_part(array, path, options)]


def array_part(array: npt.NDArray[Any], path: str | None, options: ReadOptions) -> Part:
    """An array as one part: a number per row, or a row of tokens per row.

    Raises:
        DataError: it holds no numbers, or has the wrong number of dimensions.
    """
    where = "the array" if path is None else path
    if array.dtype.kind not in "iuf" or array.ndim not in (1, 2):
        raise DataError(
            f"{where}: lengths are a one-dimensional array of numbers (or a two-dimensional one "
            f"of token ids, one sample a row), got {array.dtype} of shape {array.shape}"
        )

    def read(report: Callable[[int], None]) -> Iterator[Piece]:
        place = Place(path, stop_at_bad=options.stop_at_bad)
        for first in range(0, len(array), ROWS_PER_PIECE):
            rows = array[first : first + ROWS_PER_PIECE]
            values = np.full(len(rows), rows.shape[1]) if rows.ndim == 2 else np.array(rows)
            yield check_numbers(values, place, first, None)
            report(len(rows))

    return Part(path, len(array), "rows", read)


def _array_name(names: list[str], field: Field | None, path: str) -> str:
    if field is None:
        return names[0]
    if field.name not in names:
        raise ColumnError(f"{path}: there is no array {field.name!r}; it has {', '.join(names)}")
    return field.name


def _field(name: str, array: npt.NDArray[Any]) -> Field:
    kinds = {1: NUMBER, 2: LIST}
    kind = kinds.get(array.ndim, OTHER) if array.dtype.kind in "iuf" else OTHER
    return Field(name, kind, f"{array.dtype} of shape {array.shape}")


def _open_npz(path: str) -> Any:
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, OSError, EOFError) as error:
        raise DataError(f"{path} cannot be read as .npz: {error}") from None
