"""Access to an index of intervals: for each class a range of starts, and the end in the value of each entry.

Rules of this module: pure. The end decides whether an interval is found, so no lookup is answered by ranges alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final

from kvmodels.codecs.columns.registry import column_codec_named
from kvmodels.codecs.columns.scalars import INT
from kvmodels.core.keys import decode_key, encode_part
from kvmodels.query.kinds.contract import KindAccess, between
from kvmodels.schema.definition.definition import Column, IndexDefinition
from kvmodels.schema.filters.predicate import Span, Spans
from kvmodels.schema.kinds.interval import Wanted, options_of
from kvmodels.schema.kinds.interval_spans import SCALES, UNBOUNDED, Numbers, starts_for

_HEADS: Final = tuple(encode_part(size) for size in range(UNBOUNDED + 1))
"""The key part of each class."""


class IntervalAccess(KindAccess):
    """Access to an index of intervals."""

    splits: ClassVar[bool] = True

    def parts(self, definition: IndexDefinition) -> tuple[Column, ...]:
        """Return the columns of class and start."""
        return (Column(f"class of {definition.name}", INT), options_of(definition).start)

    def spans(self, definition: IndexDefinition, lookup: str, operand: Wanted) -> Spans:
        """Return a range of starts for each class."""
        del lookup
        options = options_of(definition)
        return cached_spans(options.start.codec.name, operand.numbers, options.end.nullable)

    def held(self, definition: IndexDefinition) -> tuple[Column, ...]:
        """Return the columns of start and end."""
        return options_of(definition).columns

    def values(self, definition: IndexDefinition, parts: Sequence[Any], value: bytes) -> tuple[Any, ...]:
        """Return the stored start and end of a row; moments in UTC."""
        _, start = parts
        return stored_ends(definition, start, value)


@lru_cache(maxsize=100)
def cached_spans(codec_name: str, wanted: Numbers | None, has_unbounded: bool) -> Spans:
    """Return the ranges of a query; cached, because it is planned several times: for records, their number, pages."""
    scale, codec = SCALES[codec_name], column_codec_named(codec_name)
    assert codec is not None, "every scale has a codec"
    packed: dict[int, bytes] = {}
    found: list[Span] = []
    for size, first, last in starts_for(scale, wanted, has_unbounded=has_unbounded):
        for number in (first, last):
            if number not in packed:
                packed[number] = codec.pack(scale.value(number))
        head = _HEADS[size]
        found.append(between(head + packed[first], head + packed[last]))
    return tuple(found)


def stored_ends(definition: IndexDefinition, start: Any, value: bytes) -> tuple[Any, ...]:
    """Return the stored start and end of a row, given the key part of the start and the value; moments in UTC."""
    (end,) = decode_key(value)
    return tuple(
        _stored(column, part) for column, part in zip(options_of(definition).columns, (start, end), strict=True)
    )


def _stored(column: Column, part: Any) -> Any:
    value, to_stored = column.codec.unpack(part), column.codec.to_stored
    return value if to_stored is None else to_stored(value)


ACCESS: Final = IntervalAccess()
