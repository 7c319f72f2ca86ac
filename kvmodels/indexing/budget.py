"""The budget of one atomic operation: sizes are measured on encoded bytes before anything is sent.

Rules of this module: pure; an operation over a limit is refused whole, never split.

Source of the way of counting: Deno's ``ext/kv/lib.rs``, ``atomic_write``: the keys of checks and mutations, and for
a mutation with a value its key again and the value; the second sum counts the keys of such mutations once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.core.keys import decode_key, encode_part
from kvmodels.core.operations import Apply, Arithmetic, AtomicWrite, Delete, Set
from kvmodels.errors import KeyTooLargeError, OperationTooLargeError, ValueTooLargeError
from kvmodels.indexing.entries import many_valued
from kvmodels.limits import Limits

U64_BYTES = 8
_OF_ETCD: Final = (
    "Write fewer records in one operation, in bulk writes by a smaller batch_size=; or start all members with a "
    "greater --max-txn-ops, and give max_txn_ops=."
)
_OF_DENOKV: Final = (
    "Write fewer records in one operation, in bulk writes by a smaller batch_size=. denokv takes 10 checks, so a "
    "record can have up to seven unique values there; Deno Deploy and kvmodels serve take 100."
)
_HINTS: Final = {
    (Limits.ETCD.name, "max_checks"): _OF_ETCD,
    (Limits.ETCD.name, "max_mutations"): _OF_ETCD,
    (Limits.DENOKV_SERVER.name, "max_checks"): _OF_DENOKV,
}
"""By engine and limit; other errors have the hint of their class."""

_MANY_CHECKS: Final = "too many checks in one operation"
_MANY_MUTATIONS: Final = "too many mutations in one operation"
_TOO_LARGE: Final = "the operation is too large"
_KEYS_TOO_LARGE: Final = "the keys of the operation are too large"


def check_budget(write: AtomicWrite, limits: Limits, collections: Iterable[LiveCollection] = ()) -> None:
    """Refuse an operation that the engine would not take; ``collections`` serve to name the index of a large key."""
    checks, mutations = write
    if len(checks) > limits.max_checks:
        raise _too_large(_MANY_CHECKS, "max_checks", len(checks), limits, _most(write, collections))
    if len(mutations) > limits.max_mutations:
        raise _too_large(_MANY_MUTATIONS, "max_mutations", len(mutations), limits, _most(write, collections))
    largest_key, largest_value = limits.max_key_bytes, limits.max_value_bytes
    operation_bytes = key_bytes = 0
    for check in checks:
        size = len(check.key)
        if size > largest_key:
            raise _key_too_large(check.key, limits, collections)
        operation_bytes += size
    for mutation in mutations:
        size = len(mutation.key)
        if size > largest_key:
            raise _key_too_large(mutation.key, limits, collections)
        if isinstance(mutation, Set):  # first, because most are
            value_size = len(mutation.value)
        elif isinstance(mutation, Delete):
            operation_bytes += size
            continue
        else:
            value_size = U64_BYTES if isinstance(mutation, Arithmetic) else mutation.size
        if value_size > largest_value:
            raise _value_too_large(mutation, value_size, limits, collections)
        operation_bytes += size + size + value_size
        key_bytes += size
    if operation_bytes > limits.max_operation_bytes:
        raise _too_large(_TOO_LARGE, "max_operation_bytes", operation_bytes, limits, _most(write, collections))
    if key_bytes > limits.max_operation_key_bytes:
        raise _too_large(_KEYS_TOO_LARGE, "max_operation_key_bytes", key_bytes, limits, _most(write, collections))


def _too_large(
    message: str, limit: str, size: int, limits: Limits, index: tuple[LiveCollection, LiveIndex] | None
) -> OperationTooLargeError:
    whose = limits.whose(limit)
    return OperationTooLargeError(
        message,
        limit=limit,
        size=size,
        maximum=getattr(limits, limit),
        limits=whose,
        index=None if index is None else _name(*index),
        field=None if index is None else many_valued(index[1]),
        hint=_HINTS.get((whose, limit)),
    )


def _index_of(key: bytes, collections: Iterable[LiveCollection]) -> tuple[LiveCollection, LiveIndex] | None:
    """Return the index that a key is an entry or counter of, with its collection."""
    for live in collections:
        for index in live.maintained:
            if key.startswith(index.layout.prefix):
                return live, index
    return None


def _name(live: LiveCollection, index: LiveIndex) -> str:
    return f"{live.schema.collection}.{index.stored.name}"


def _most(write: AtomicWrite, collections: Iterable[LiveCollection]) -> tuple[LiveCollection, LiveIndex] | None:
    """Return the index to which more than half of the keys belong that an operation writes; None if there is none."""
    known = list({id(live): live for live in collections}.values())
    found = [one for mutation in write.mutations if (one := _index_of(mutation.key, known)) is not None]
    if not found:
        return None
    name, count = Counter(_name(*one) for one in found).most_common(1)[0]
    return next(one for one in found if _name(*one) == name) if 2 * count > len(write.mutations) else None


def _value_too_large(
    mutation: Set | Arithmetic | Apply, size: int, limits: Limits, collections: Iterable[LiveCollection]
) -> ValueTooLargeError:
    found = _index_of(mutation.key, collections)
    return ValueTooLargeError(
        "a value is too large",
        limit="max_value_bytes",
        size=size,
        maximum=limits.max_value_bytes,
        limits=limits.whose("max_value_bytes"),
        key=decode_key(mutation.key),
        index=None if found is None else _name(*found),
    )


def _key_too_large(key: bytes, limits: Limits, collections: Iterable[LiveCollection]) -> KeyTooLargeError:
    known = list(collections)
    found = _index_of(key, known)
    return KeyTooLargeError(
        "a key is too large" if found is None else "a value is too long for its index",
        limit="max_key_bytes",
        size=len(key),
        maximum=limits.max_key_bytes,
        limits=limits.whose("max_key_bytes"),
        key=decode_key(key),
        index=None if found is None else _name(*found),
        field=_longest_field(key, known, found),
    )


def _longest_field(
    key: bytes, collections: Iterable[LiveCollection], found: tuple[LiveCollection, LiveIndex] | None
) -> str | None:
    """Return the field whose value takes more than half of a key of a record or an index; None if there is none."""
    if found is not None:
        live, index = found
        prefix, fields = index.layout.prefix, (*index.definition.columns, *live.schema.primary_key)
    else:
        owner = next((live for live in collections if key.startswith(live.layout.prefix)), None)
        if owner is None:
            return None
        prefix, fields = owner.layout.prefix, owner.schema.primary_key
    for column, part in zip(fields, decode_key(key[len(prefix) :]), strict=False):
        if 2 * len(encode_part(part)) > len(key):
            return column.field
    return None
