"""Page cursors: where a page ended, in a text that only the same query over the same index accepts.

A cursor names the index, its generation, the hash of the plan (operands included) and the key of the last result,
and ends in a digest, so that a changed character is noticed. It is not encrypted and not signed: it shows the key of
one result to whoever holds it, and it gives no access that the query does not give.

Rules of this module: pure. A cursor is refused or means exactly the position it was made for; it never gives a wrong
page in silence.
"""

from __future__ import annotations

from base64 import b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgpack

from kvmodels.errors import IndexChangedError, InvalidCursorError, NoUsableIndexError
from kvmodels.query.planner import plan_query
from kvmodels.query.plans import QueryPlan
from kvmodels.query.query import Query
from kvmodels.schema.live import LiveCollection

__all__ = ["cursor_after", "is_same_index", "require_same_index", "resumed"]

_FORMAT: Final = 1
_DIGEST_BYTES: Final = 8


class _Cursor(NamedTuple):
    index_name: str
    generation: int
    plan_hash: str
    suffix: bytes


def cursor_after(plan: QueryPlan, key: bytes) -> str:
    """The cursor of the position behind the result that was found at ``key``."""
    payload = msgpack.packb([_FORMAT, plan.index or "", plan.generation, plan.hash, key.removeprefix(plan.prefix)])
    return urlsafe_b64encode(payload + _digest(payload)).decode().rstrip("=")


def resumed(query: Query, live: LiveCollection, cursor: str) -> tuple[QueryPlan, bytes]:
    """The plan that a cursor was made with, and the key after which to read on.

    Raises:
        InvalidCursorError: not a cursor, a changed one, or one of another query.
        IndexChangedError: the index was rebuilt or dropped since.
    """
    made = _decoded(cursor)
    if made.index_name and made.index_name not in query.schema.indexes:
        raise _invalid("it names an index that the model does not have")
    _require_generation(live, made.index_name, made.generation)
    try:
        plan = plan_query(query, live, through=frozenset((made.index_name,)))
    except NoUsableIndexError:
        raise _invalid("it was made by another query") from None
    key = plan.prefix + made.suffix
    if plan.hash != made.plan_hash:
        raise _invalid("it was made by another query")
    return plan, key


def is_same_index(live: LiveCollection, plan: QueryPlan) -> bool:
    """Whether the index of a plan is still the same one, and readable."""
    return _has_generation(live, plan.index or "", plan.generation)


def require_same_index(live: LiveCollection, plan: QueryPlan) -> None:
    """Between two batches: the index that is being read must still be the same one, and readable.

    Raises:
        IndexChangedError: it was rebuilt or dropped.
    """
    _require_generation(live, plan.index or "", plan.generation)


def _has_generation(live: LiveCollection, index: str, generation: int) -> bool:
    readable = live.readable.get(index)
    return not index or (readable is not None and readable.stored.generation == generation)


def _require_generation(live: LiveCollection, index: str, generation: int) -> None:
    if not _has_generation(live, index, generation):
        raise IndexChangedError(
            "the index was rebuilt or dropped while it was being read", model=live.schema.name, index=index
        )


def _digest(payload: bytes) -> bytes:
    return sha256(payload).digest()[:_DIGEST_BYTES]


def _decoded(cursor: Any) -> _Cursor:
    # Cursors come back from outside, so everything about them is checked before it is used.
    if not isinstance(cursor, str):
        raise _invalid("it is not a text")
    try:
        data = b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
    except (Base64Error, ValueError):
        raise _invalid("it is not base64") from None
    payload, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if not payload or _digest(payload) != digest:
        raise _invalid("it was changed or cut off")
    try:
        number, *parts = msgpack.unpackb(payload)
        made = _Cursor(*parts)
    except (ValueError, TypeError):
        raise _invalid("it is not a cursor of this release") from None
    if number != _FORMAT or [type(part) for part in made] != [str, int, str, bytes]:
        raise _invalid("it is not a cursor of this release")
    return made


def _invalid(reason: str) -> InvalidCursorError:
    return InvalidCursorError("the cursor does not belong to this query", reason=reason)
