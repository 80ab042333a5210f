"""Just enough of Thrift's compact protocol to read a Parquet page header."""

from __future__ import annotations

from typing import Any

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)


def read_struct(data: bytes) -> tuple[dict[int, Any], int]:
    """Read a struct from the start of ``data``.

    Numbers, booleans and nested structs are kept under their field number; text and containers
    are skipped over.

    Returns:
        The fields, and the number of bytes they took.

    Raises:
        IndexError: the data ends inside the struct.
    """
    return _struct(data, 0)


def _struct(data: bytes, at: int) -> tuple[dict[int, Any], int]:
    fields: dict[int, Any] = {}
    number = 0
    while True:
        head = data[at]
        at += 1
        if head == 0:
            return fields, at
        if head >> 4:
            number += head >> 4
        else:
            number, at = _signed(data, at)
        value, at = _value(data, at, head & 15)
        if value is not None:
            fields[number] = value


def _value(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    if kind in (_TRUE, _FALSE):
        return kind == _TRUE, at
    if kind == _BYTE:
        return data[at], at + 1
    if kind in (_I16, _I32, _I64):
        return _signed(data, at)
    if kind == _DOUBLE:
        return None, at + 8
    if kind == _BINARY:
        size, at = _varint(data, at)
        return None, at + size
    if kind in (_LIST, _SET):
        return None, _skip_list(data, at)
    if kind == _STRUCT:
        return _struct(data, at)
    raise IndexError  # maps do not occur in page headers; read as a cut-off struct


def _skip_list(data: bytes, at: int) -> int:
    head = data[at]
    at += 1
    size, kind = head >> 4, head & 15
    if size == 15:
        size, at = _varint(data, at)
    for _ in range(size):
        if kind in (_TRUE, _FALSE):
            at += 1
        else:
            _skipped, at = _value(data, at, kind)
    return at


def _signed(data: bytes, at: int) -> tuple[int, int]:
    value, at = _varint(data, at)
    return (value >> 1) ^ -(value & 1), at


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
