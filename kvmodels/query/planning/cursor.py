"""Page cursors: continuation tokens that are valid only for the same query over the same indexes.

A cursor contains the names and generations of the indexes, the hash of the plan (including operands), a position
between two results, and a checksum that detects changed characters. It is neither encrypted nor signed: it reveals the
key of one result, and gives no access that the query does not give.

Rules of this module: pure. A cursor is either refused or means exactly the position it was created for; it never
silently returns a wrong page.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Any, Final, NamedTuple, cast

import msgpack

from kvmodels._support.base64url import base64url_bytes
from kvmodels.catalog.collection import LiveCollection
from kvmodels.errors import IndexChangedError, InvalidCursorError, NoUsableIndexError
from kvmodels.query.planning.narrowing import chosen_again
from kvmodels.query.planning.planner import plan_query
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query

_FORMAT: Final = 2
_DIGEST_BYTES: Final = 8


class _Cursor(NamedTuple):
    indexes: list[list[Any]]
    plan_hash: str
    mark: bytes
    choice: Any = None


def cursor_after(plan: QueryPlan, mark: bytes) -> str:
    """Return the cursor for a position between two results; ``flows/execution/executor.py`` creates positions."""
    read = {scan.index or "": scan.generation for scan in plan.scans}
    indexes = [[name, number] for name, number in sorted(read.items())]
    chosen = [plan.choice] if plan.choice else []
    payload = msgpack.packb([_FORMAT, indexes, plan.hash, mark, *chosen])
    return urlsafe_b64encode(payload + _digest(payload)).decode().rstrip("=")


def resumed(query: Query, live: LiveCollection, cursor: str, permitted: Query | None = None) -> tuple[QueryPlan, bytes]:
    """Return the plan that a cursor was created with, and its position; ``permitted``: the query that may scan."""
    made = _decoded(cursor)
    for name, generation in made.indexes:
        if name and name not in query.schema.indexes:
            raise _invalid("it names an index that the model does not have")
        require_generation(live, name, generation)
    for asked in (query,) if permitted is None else (query, permitted):
        plan = _plan_again(asked, live, made)
        if plan is not None and plan.hash == made.plan_hash:
            return plan, made.mark
    raise _invalid("it was made by another query")


def _plan_again(query: Query, live: LiveCollection, made: _Cursor) -> QueryPlan | None:
    chosen = query if made.choice is None and not query.choice else chosen_again(query, made.choice)
    if chosen is None:
        return None
    try:
        # Only the indexes that were used: otherwise, an index that was built since might be chosen.
        return plan_query(chosen, live, through=frozenset(name for name, _ in made.indexes))
    except NoUsableIndexError:
        return None


def is_same_index(live: LiveCollection, plan: QueryPlan) -> bool:
    """Return whether the indexes of a plan are unchanged and readable.

    A transaction may read a unique index as one that is not; see ``flows/transaction/shared_values.py``.
    """
    return all(
        _has_generation(live, scan.index or "", scan.generation)
        and (scan.index is None or live.readable[scan.index].definition.unique is scan.unique)
        for scan in plan.scans
    )


def require_same_index(live: LiveCollection, plan: QueryPlan) -> None:
    """Raise IndexChangedError if an index being read was rebuilt or dropped between two batches."""
    for scan in plan.scans:
        require_generation(live, scan.index or "", scan.generation)


def _has_generation(live: LiveCollection, index: str, generation: int) -> bool:
    readable = live.readable.get(index)
    return not index or (readable is not None and readable.stored.generation == generation)


def require_generation(live: LiveCollection, index: str, generation: int) -> None:
    """Raise IndexChangedError unless an index, ``""`` for the records, is readable in this generation."""
    if not _has_generation(live, index, generation):
        raise IndexChangedError(
            "the index was rebuilt or dropped while it was being read", model=live.schema.name, index=index
        )


def _digest(payload: bytes) -> bytes:
    return sha256(payload).digest()[:_DIGEST_BYTES]


def _decoded(cursor: Any) -> _Cursor:
    # Cursors come from outside, so all their content is checked before use.
    if not isinstance(cursor, str):
        raise _invalid("it is not a text")
    try:
        data = base64url_bytes(cursor + "=" * (-len(cursor) % 4))
    except ValueError:
        raise _invalid("it is not base64") from None
    payload, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if not payload or _digest(payload) != digest:
        raise _invalid("it was changed or cut off")
    try:
        number, *parts = msgpack.unpackb(payload)
        made = _Cursor(*parts)
    except (ValueError, TypeError):
        raise _invalid("it is not a cursor of this release") from None
    known = number == _FORMAT and [type(part) for part in made[:3]] == [list, str, bytes]
    if not known or not all(_names_index(pair) for pair in made.indexes):
        raise _invalid("it is not a cursor of this release")
    return made


def _names_index(pair: list[Any]) -> bool:
    return isinstance(cast("object", pair), list) and [type(part) for part in pair] == [str, int]


def _invalid(reason: str) -> InvalidCursorError:
    return InvalidCursorError("the cursor does not belong to this query", reason=reason)
