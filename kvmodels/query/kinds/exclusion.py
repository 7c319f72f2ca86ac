"""Access to an exclusion constraint: the interval before the operand, and those that start within it.

No two intervals of a group overlap, so of those that start at or before the operand only the last one can reach into
it. The end in the value of an entry decides whether that one does.

Rules of this module: pure. In a transaction its own records may overlap until the commit, so each of them is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

from kvmodels.codecs.columns.registry import column_codec_named
from kvmodels.core.keys import encode_part
from kvmodels.query.kinds.contract import KindAccess, between
from kvmodels.query.kinds.interval import stored_ends
from kvmodels.schema.definition.definition import Column, IndexDefinition
from kvmodels.schema.filters.predicate import Span, Spans
from kvmodels.schema.kinds.interval import Wanted, options_of
from kvmodels.schema.kinds.interval_spans import SCALES, Numbers

_AFTER_FLOOR: Final = encode_part(b"") + b"\xff"
"""Above the key part of the floor of a group, and below that of every start."""


class ExclusionAccess(KindAccess):
    """Access to an exclusion constraint."""

    def parts(self, definition: IndexDefinition) -> tuple[Column, ...]:
        """Return a column that stands for the start; conditions on the start itself are no lookups."""
        return (Column(f"start of {definition.name}", options_of(definition).start.codec),)

    def columns(self, definition: IndexDefinition, primary_key: tuple[Column, ...]) -> tuple[Column, ...] | None:
        """Return group, start and primary key: the intervals of a group are in the order of their starts."""
        return (*definition.columns, options_of(definition).start, *primary_key)

    def spans(self, definition: IndexDefinition, lookup: str, operand: Wanted) -> Spans:
        """Return the range whose last entry may reach into an interval, and that of the starts within it."""
        del lookup
        return cached_spans(options_of(definition).start.codec.name, operand.numbers)

    def held(self, definition: IndexDefinition) -> tuple[Column, ...]:
        """Return the columns of start and end."""
        return options_of(definition).columns

    def values(self, definition: IndexDefinition, parts: Sequence[Any], value: bytes) -> tuple[Any, ...]:
        """Return the stored start and end of a row; moments in UTC."""
        (start,) = parts
        return stored_ends(definition, start, value)


@lru_cache(maxsize=100)
def cached_spans(codec_name: str, wanted: Numbers | None) -> Spans:
    """Return the ranges of a query; cached, because it is planned several times: for records, their number, pages."""
    if wanted is None:
        return ()
    scale, codec = SCALES[codec_name], column_codec_named(codec_name)
    assert codec is not None, "every scale has a codec"
    low, high = wanted
    before = Span(_AFTER_FLOOR, codec.pack(scale.value(low)) + b"\xff", last=True)
    if low + 1 == high:
        return (before,)
    return (before, between(codec.pack(scale.value(low + 1)), codec.pack(scale.value(high - 1))))


ACCESS: Final = ExclusionAccess()
