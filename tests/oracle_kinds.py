"""The rows of every special kind of index, by the documented layout: ends of keys, and values.

Nothing is shared with the library but the encoding of key parts: neither its cells, its classes of lengths, its buckets
nor its words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from fractions import Fraction
from math import floor
from struct import pack
from typing import Any

import numpy as np

from kvmodels.core.keys import encode_key
from tests.oracle_columns import column_part, python_form
from tests.oracle_specs import CollectionSpec, IndexSpec, values_at
from tests.oracle_words import rounded, word_rows

WITHOUT_END = 255
BITS = 26

FLOOR = b""
"""The key part of the row before the first interval of a group."""

Special = tuple[tuple[Any, ...], bytes]
"""The key parts behind the group, and the value."""


def special_parts(spec: CollectionSpec, index: IndexSpec, document: Mapping[str, Any]) -> list[Special]:
    """The entries that a document has in each group of an index of a special kind; KeyError: it lacks a field."""
    if index.special == "weekdays":
        bits = _value(document, index.of[0])
        return [((day,), b"") for day in range(7) if (bits or 0) & (1 << day)]
    if index.special == "geo":
        return _place(*(_value(document, f"{index.of[0]}.{name}") for name in ("lat", "lon")))
    if index.special == "trigram":
        texts = [text.casefold() for text in values_at(document, tuple(index.of[0].split("."))) if text is not None]
        return [((part,), b"") for part in sorted({text[n : n + 3] for text in texts for n in range(len(text) - 2)})]
    if index.special == "exclusion":
        start, end = (_value(document, name) for name in index.of)
        kind = spec.types[index.of[0]]
        return [] if start is None else [((column_part(kind, start),), encode_key((column_part(kind, end),)))]
    if index.special == "rank":
        name, descending = index.of[0].removeprefix("-"), index.of[0].startswith("-")
        value = _value(document, name)
        part = column_part(spec.types[name], value, descending=descending)
        return [] if value is None else [((part,), b"")]
    if index.special == "search":
        assert index.terms is not None
        (packed,) = spec.values(document, index.terms)
        return word_rows(packed, len(index.of))
    if index.special == "vector":
        data = _value(document, index.of[0])
        return [] if data is None else [((), _vector(index.form or "", data))]
    assert index.special == "interval"
    return _interval(spec, index.of, *(_value(document, name) for name in index.of))


def overlapping(rows: Sequence[tuple[tuple[Any, ...], bytes]], group: int) -> list[tuple[Any, ...]]:
    """The keys of rows of an exclusion constraint whose intervals begin before one of the same group has ended.

    ``group`` is the number of parts up to the group, which the start follows; the value of a row is its packed end.
    """
    found: list[tuple[Any, ...]] = []
    ends: dict[bytes, bytes] = {}
    for key, value in sorted(rows, key=lambda row: encode_key(row[0])):
        place, start = encode_key(key[:group]), encode_key((key[group],))
        end = b"\xff" if value == encode_key((FLOOR,)) else value
        if start < ends.get(place, b""):
            found.append(key)
        ends[place] = max(end, ends.get(place, b""))
    return found


def _value(document: Mapping[str, Any], name: str) -> Any:
    (value,) = values_at(document, tuple(name.split(".")))
    return value


def _place(lat: Any, lon: Any) -> list[Special]:
    if lat is None or lon is None:
        return []
    columns, rows = _digits(lon + 180.0, 360.0), _digits(lat + 90.0, 180.0)
    cell = int("".join(f"{column}{row}" for column, row in zip(columns, rows, strict=True)), 2)
    return [((cell.to_bytes(7, "big"),), pack(">dd", lat, lon))]


def _vector(form: str, data: bytes) -> bytes:
    """The stored form of a vector; the scale of int8 is the least float32 that 127 times is the greatest number."""
    numbers = np.frombuffer(data, "<f4")
    if form != "int8":
        return numbers.astype("<f2" if form == "float16" else "<f4").tobytes()
    largest = np.float64(np.abs(numbers).max())
    scale = np.float32(largest / 127)
    if np.float64(scale) * 127 < largest:
        scale = np.nextafter(scale, np.float32(np.inf))
    whole = np.rint(numbers.astype(np.float64) / np.float64(scale)) if scale else np.zeros(len(numbers))
    return scale.tobytes() + whole.astype(np.int8).tobytes()


def _digits(degrees: float, whole: float) -> str:
    """The binary digits of the column or the row of degrees; the last one includes its end."""
    return f"{min(int(degrees / whole * 2**BITS), 2**BITS - 1):0{BITS}b}"


def _interval(spec: CollectionSpec, names: tuple[str, ...], start: Any, end: Any) -> list[Special]:
    if start is None:
        return []
    kind = spec.types[names[0]]
    size = WITHOUT_END if end is None else _length(kind, start, end).bit_length()
    return [((size, column_part(kind, start)), encode_key((column_part(kind, end),)))]


def _length(kind: str, start: Any, end: Any) -> int:
    """The number of values from a start to an end: of days, of microseconds, of whole numbers."""
    length = python_form(kind, end) - python_form(kind, start)
    if isinstance(length, timedelta):
        return length.days if kind == "date" else length // timedelta(microseconds=1)
    return int(length)


def bucket_digits(spec: CollectionSpec, index: IndexSpec, document: Mapping[str, Any]) -> list[tuple[int, int]]:
    """The levels and digits of the counters that a document with a ranked whole number or duration adds to."""
    assert index.scale is not None
    name, descending = index.of[0].removeprefix("-"), index.of[0].startswith("-")
    low, high, levels = index.scale
    value = python_form(spec.types[name], _value(document, name))
    number, first, last = (_whole(one) for one in (value, low, high))
    share = Fraction(number - first, last - first + 1)
    bucket = min(max(floor(share * 16**levels), 0), 16**levels - 1)
    hexadecimal = f"{16**levels - 1 - bucket if descending else bucket:0{levels}x}"
    return [(level, int(hexadecimal[:level], 16)) for level in range(1, levels + 1)]


def statistics(spec: CollectionSpec, index: IndexSpec, document: Mapping[str, Any]) -> dict[str, int]:
    """The amounts that a document with terms adds to the number and the length of each of its groups."""
    assert index.terms is not None
    (packed,) = spec.values(document, index.terms)
    return {"count": 1, "length": rounded(packed[0])} if packed else {}


def _whole(value: Any) -> int:
    return value // timedelta(microseconds=1) if isinstance(value, timedelta) else value
