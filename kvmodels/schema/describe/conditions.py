"""The condition of a partial index as an expression of Python, from the spans that the catalogue stores.

A model that declares an index with this text as ``where=`` has the stored definition of the index.

Rules of this module: the text is exact. ``...`` stands for spans that no lookup has. It is an expression whatever the
catalogue holds: a name that Python would read as another one, or as none, is printed as a string.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import timedelta
from keyword import iskeyword
from typing import Any, Final, NamedTuple
from unicodedata import normalize

from kvmodels.codecs.columns.base import PACKED_NONE
from kvmodels.core.keys import decode_key
from kvmodels.errors import DecodeError
from kvmodels.schema.definition.definition import Column, PartialCondition, SpanTest
from kvmodels.schema.filters.predicate import complement

UNKNOWN_SPAN: Final = "..."
"""In the place of an operand, for spans without an expression."""

_END: Final = b"\xff"
_STR_TAG: Final = b"\x02"


class _Edge(NamedTuple):
    """The end of a span: a value, and whether it is after all keys with this value."""

    value: Any
    after: bool


def condition_text(where: PartialCondition) -> str:
    """Return the condition of a partial index as an expression, equal for a declared and for a stored index.

    Examples:
        >>> from kvmodels.codecs.columns.registry import column_codec
        >>> plan = Column("plan", column_codec(str))
        >>> pro = plan.codec.pack("pro")
        >>> condition_text(PartialCondition(((SpanTest(plan, ((pro, pro + _END),)),),)))
        "Q(plan='pro')"
    """
    alternatives = [" & ".join(_test_text(test) for test in tests) for tests in where.alternatives]
    if len(alternatives) == 1:
        return alternatives[0]
    return " | ".join(f"({text})" if " & " in text else text for text in alternatives)


def _test_text(test: SpanTest) -> str:
    column, name = test.column, test.column.field.replace(".", "__")
    points = _points(column, test.spans)
    if points is not None:
        return _of_values(column, name, points, negated=False)
    points = _points(column, [(gap.start, gap.end) for gap in complement(test.spans)])
    if points is not None:
        return _of_values(column, name, points, negated=True)
    spans = [_span_text(column, name, start, end) for start, end in test.spans]
    return spans[0] if len(spans) == 1 else f"({' | '.join(spans)})"


def _points(column: Column, spans: Sequence[tuple[bytes, bytes]]) -> list[Any] | None:
    """Return the values of spans that contain one value each; None for other spans."""
    values: list[Any] = []
    for start, end in spans:
        if start == b"" and column.nullable:
            start = PACKED_NONE  # nothing sorts before None, and a condition begins its spans there
        edge = _edge(column, start)
        if edge is None or edge.after or end != start + _END:
            return None
        values.append(edge.value)
    return values


def _of_values(column: Column, name: str, values: Sequence[Any], *, negated: bool) -> str:
    if list(values) == [None]:
        return _lookup_text((f"{name}__isnull", repr(not negated)))
    texts = [_value_text(column, value) for value in values]
    if len(texts) == 1:
        return _lookup_text((f"{name}__ne" if negated else name, texts[0]))
    return _lookup_text((f"{name}__{'not_in' if negated else 'in'}", f"[{', '.join(texts)}]"))


def _span_text(column: Column, name: str, start: bytes, end: bytes) -> str:
    prefix = _prefix_in(column, start, end)
    if prefix is not None:
        return _lookup_text((f"{name}__startswith", repr(prefix)))
    both = _lookup_text(*_bounds(column, name, start, end))
    # None sorts before every value.
    return f"({_lookup_text((f'{name}__isnull', 'True'))} | {both})" if column.nullable and start == b"" else both


def _lookup_text(*lookups: tuple[str, str]) -> str:
    """Return ``Q(…)`` for the names of lookups and the texts of their operands."""
    if all(is_source_name(name) for name, _ in lookups):
        return f"Q({', '.join(f'{name}={text}' for name, text in lookups)})"
    return f"Q(**{{{', '.join(f'{name!r}: {text}' for name, text in lookups)}}})"


def is_source_name(name: str) -> bool:
    """Return whether Python reads a name in source as this name.

    It is an identifier, no keyword, and in the normal form of identifiers: Python reads a full-width ``open`` as
    ``open``, and leaves ``größe`` as it is.
    """
    return name.isidentifier() and not iskeyword(name) and normalize("NFKC", name) == name


def _bounds(column: Column, name: str, start: bytes, end: bytes) -> Iterator[tuple[str, str]]:
    low, high = _edge(column, start), _edge(column, end)
    if (start and low is None) or (end != _END and (high is None or high.value is None)):
        yield name, UNKNOWN_SPAN
        return
    if low is not None and low.value is not None:
        yield f"{name}__{'gt' if low.after else 'gte'}", _value_text(column, low.value)
    if high is not None and high.value is not None:
        yield f"{name}__{'lte' if high.after else 'lt'}", _value_text(column, high.value)
    elif low is not None and low.value is None:
        yield f"{name}__isnull", "False"


def _edge(column: Column, edge: bytes) -> _Edge | None:
    for packed, after in ((edge, False), (edge[:-1], True)):
        try:
            (part,) = decode_key(packed)
            return _Edge(column.codec.unpack(part), after)
        except (DecodeError, ValueError, TypeError):
            continue
    return None


def _prefix_in(column: Column, start: bytes, end: bytes) -> str | None:
    """Return the text with which every value of a span begins; None for another span."""
    if column.codec.pack_prefix is None or not start.startswith(_STR_TAG):
        return None
    prefix = start[1:].decode(errors="replace")
    if not prefix or column.codec.pack_prefix(prefix) != start:
        return None
    return prefix if end == start[:-1] + bytes((start[-1] + 1,)) else None


def _value_text(column: Column, value: Any) -> str:
    """Return an operand; lookups accept the stored text of types such as UUID and date, and the value of an Enum."""
    if isinstance(value, float) and not math.isfinite(value):
        return f"float({str(value)!r})"
    if value is None or column.codec.to_stored is None or isinstance(value, timedelta):
        return repr(value)
    return repr(column.codec.to_stored(value))
