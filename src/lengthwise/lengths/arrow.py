"""Arrow: arrays and tables in memory, and IPC / Feather files and streams, memory-mapped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lengthwise.errors import DataError, MissingDependencyError
from lengthwise.lengths.columns import LIST, NUMBER, OTHER, TEXT, Field, check_column, choose_column
from lengthwise.lengths.rows import Part, Piece, Place, check_numbers
from lengthwise.lengths.storage import identity_of, is_url, open_random
from lengthwise.lengths.values import TEXTS_PER_CALL, ValueLengths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from lengthwise.lengths.formats import ReadOptions

_FILE_MAGIC = b"ARROW1"
_FEATHER_1_MAGIC = b"FEA1"


def require_pyarrow() -> Any:
    """The pyarrow module.

    Raises:
        MissingDependencyError: it is not installed.
    """
    try:
        import pyarrow as pa
    except ImportError:
        raise MissingDependencyError(
            "Parquet, Arrow and Hugging Face data need pyarrow: pip install 'lengthwise[parquet]'"
        ) from None
    return pa


def schema_fields(schema: Any) -> list[Field]:
    """The columns of an Arrow schema."""
    return [Field(field.name, kind_of_type(field.type), str(field.type)) for field in schema]


def kind_of_type(kind: Any) -> str:
    """NUMBER, LIST, TEXT or OTHER for an Arrow type."""
    types = require_pyarrow().types
    kind = _storage(kind)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_decimal(kind):
        return NUMBER
    if types.is_string(kind) or types.is_large_string(kind) or str(kind) == "string_view":
        return TEXT
    if _is_list(kind):
        return OTHER if types.is_struct(kind.value_type) else LIST
    return OTHER


def _storage(kind: Any) -> Any:
    """The type behind extension types and dictionary encoding."""
    while True:
        if hasattr(kind, "storage_type"):
            kind = kind.storage_type
        elif require_pyarrow().types.is_dictionary(kind):
            kind = kind.value_type
        else:
            return kind


def _is_list(kind: Any) -> bool:
    types = require_pyarrow().types
    plain = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return plain or str(kind).startswith(("list_view", "large_list_view"))


def structure(array: Any) -> Any:
    """An Arrow array of numbers as it is; of a list array, the length of each list.

    A null list is null: its span in the offsets may be non-empty, so offsets are not subtracted.
    Slices, chunks and every list type are handled by the kernel; no value is looked at.

    Args:
        array: Array or ChunkedArray of a NUMBER or LIST type, with n rows.

    Returns:
        Array or ChunkedArray of numbers with n rows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if hasattr(array.type, "storage_type"):
        chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
        array = pa.chunked_array([chunk.storage for chunk in chunks], array.type.storage_type)
    if pa.types.is_dictionary(array.type):
        array = pc.cast(array, array.type.value_type)
    if pa.types.is_decimal(array.type):
        return pc.cast(array, pa.float64())
    return pc.list_value_length(array) if _is_list(array.type) else array


def array_pieces(array: Any, place: Place, first_row: int, options: ReadOptions) -> Iterator[Piece]:
    """Lengths of an Arrow Array or ChunkedArray of any kind that has them."""
    if kind_of_type(array.type) == TEXT:
        yield from _text_pieces(array, place, first_row, options)
        return
    numbers = structure(array)
    for chunk in getattr(numbers, "chunks", [numbers]):
        yield numbers_piece(chunk, place, first_row)
        first_row += len(chunk)


def numbers_piece(numbers: Any, place: Place, first_row: int) -> Piece:
    """Lengths of an Arrow Array of numbers."""
    if numbers.null_count == 0:
        return check_numbers(numbers.to_numpy(zero_copy_only=False), place, first_row, None)
    valid = numbers.is_valid().to_numpy(zero_copy_only=False)
    values = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    return check_numbers(values, place, first_row, valid)


def _text_pieces(array: Any, place: Place, first_row: int, options: ReadOptions) -> Iterator[Piece]:
    for start in range(0, len(array), TEXTS_PER_CALL):
        lengths = ValueLengths(TEXT, place, options.count_tokens)
        texts = array.slice(start, TEXTS_PER_CALL).to_pylist()
        for row, text in enumerate(texts, first_row + start):
            lengths.add(text, row)
        yield lengths.piece()


def open_memory(source: Any, wanted: str | None, options: ReadOptions) -> tuple[Part, str | None]:
    """A pyarrow Array, ChunkedArray, RecordBatch or Table as one part, and the column used.

    Raises:
        ColumnError: no column of lengths, or several.
        DataError: an array that holds no lengths.
    """
    tokenized = options.count_tokens is not None
    name = None
    if hasattr(source, "schema"):
        fields = schema_fields(source.schema)
        field = choose_column(fields, wanted, has_tokenizer=tokenized, where="the table")
        name = field.name
        array = source.column(source.schema.get_field_index(name))
    else:
        array = source
        field = Field("the array", kind_of_type(array.type), str(array.type))
        check_column([field], field.name, has_tokenizer=tokenized, where="pyarrow")

    def read(report: Callable[[int], None]) -> Iterator[Piece]:
        place = Place(stop_at_bad=options.stop_at_bad)
        for piece in array_pieces(array, place, 0, options):
            yield piece
            report(len(piece.lengths))

    return Part(None, len(array), "rows", read), name


def fields(path: str) -> list[Field]:
    """The columns of an IPC file or stream."""
    reader, source = _open(path, None)
    with source, reader:
        return schema_fields(reader.schema)


def parts(path: str, field: Field | None, options: ReadOptions) -> list[Part]:
    """The file as one part, read batch by batch from a memory map."""
    assert field is not None
    tokenized = options.count_tokens is not None
    field = check_column(fields(path), field.name, has_tokenizer=tokenized, where=path)
    size = identity_of(path).size or 0

    def read(report: Callable[[int], None]) -> Iterator[Piece]:
        place = Place(path, stop_at_bad=options.stop_at_bad)
        reader, source = _open(path, field.name)
        with source, reader:
            row, seen = 0, 0
            for batch in _batches(reader):
                for piece in array_pieces(batch.column(0), place, row, options):
                    yield piece
                    row += len(piece.lengths)
                position = min(source.tell(), size)
                report(position - seen)
                seen = position

    return [Part(path, size, "bytes", read)]


def _batches(reader: Any) -> Iterator[Any]:
    if hasattr(reader, "num_record_batches"):
        yield from (reader.get_batch(index) for index in range(reader.num_record_batches))
    else:
        yield from reader


def _open(path: str, column: str | None) -> tuple[Any, Any]:
    """The reader of a file or stream, restricted to one column, and its memory map."""
    pa = require_pyarrow()
    source = open_random(path) if is_url(path) else pa.memory_map(path, "r")
    try:
        magic = bytes(source.read(len(_FILE_MAGIC)))
        source.seek(0)
        if magic.startswith(_FEATHER_1_MAGIC):
            raise DataError(f"{path} is a Feather V1 file; rewrite it as Feather V2 or Parquet")
        open_reader = pa.ipc.open_file if magic == _FILE_MAGIC else pa.ipc.open_stream
        if column is None:
            return open_reader(source), source
        place = open_reader(source).schema.get_field_index(column)
        source.seek(0)
        return open_reader(source, options=pa.ipc.IpcReadOptions(included_fields=[place])), source
    except pa.ArrowInvalid as error:
        raise DataError(f"{path} is no Arrow file or stream: {error}") from None
