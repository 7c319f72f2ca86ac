"""The budget of one atomic operation: sizes are measured on encoded bytes before anything is sent.

Rules of this module: pure; an operation over a limit is refused whole, never split.

Source of the way of counting: Deno's ``ext/kv/lib.rs``, ``atomic_write``: the keys of checks and mutations, and for
a mutation with a value its key again and the value; the second sum counts the keys of such mutations once.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvmodels.errors import KeyTooLargeError, OperationTooLargeError, ValueTooLargeError
from kvmodels.keys import decode_key
from kvmodels.limits import Limits
from kvmodels.operations import Apply, Arithmetic, AtomicWrite, Delete, Set
from kvmodels.schema.live import LiveCollection

__all__ = ["check_budget"]

U64_BYTES = 8


def check_budget(write: AtomicWrite, limits: Limits, collections: Iterable[LiveCollection] = ()) -> None:
    """Refuse an operation that the engine would not take.

    Args:
        collections: those whose records are written, to name the index of an over-long key.

    Raises:
        KeyTooLargeError, ValueTooLargeError, OperationTooLargeError: the limit, the size, the maximum and whose it is.

    Complexity: O(checks + mutations).
    """
    _check_total("too many checks in one operation", "max_checks", len(write.checks), limits)
    _check_total("too many mutations in one operation", "max_mutations", len(write.mutations), limits)
    largest_key = limits.max_key_bytes
    operation_bytes = key_bytes = 0
    for check in write.checks:
        size = len(check.key)
        if size > largest_key:
            raise _key_too_large(check.key, limits, collections)
        operation_bytes += size
    for mutation in write.mutations:
        size = len(mutation.key)
        if size > largest_key:
            raise _key_too_large(mutation.key, limits, collections)
        operation_bytes += size
        if not isinstance(mutation, Delete):
            operation_bytes += size + _value_size(mutation, limits)
            key_bytes += size
    _check_total("the operation is too large", "max_operation_bytes", operation_bytes, limits)
    _check_total("the keys of the operation are too large", "max_operation_key_bytes", key_bytes, limits)


def _check_total(message: str, limit: str, size: int, limits: Limits) -> None:
    maximum: int = getattr(limits, limit)
    if size > maximum:
        raise OperationTooLargeError(message, limit=limit, size=size, maximum=maximum, limits=limits.whose(limit))


def _value_size(mutation: Set | Arithmetic | Apply, limits: Limits) -> int:
    if isinstance(mutation, Arithmetic):
        return U64_BYTES
    size = mutation.size if isinstance(mutation, Apply) else len(mutation.value)
    if size > limits.max_value_bytes:
        raise ValueTooLargeError(
            "a value is too large",
            limit="max_value_bytes",
            size=size,
            maximum=limits.max_value_bytes,
            limits=limits.whose("max_value_bytes"),
            key=decode_key(mutation.key),
        )
    return size


def _key_too_large(key: bytes, limits: Limits, collections: Iterable[LiveCollection]) -> KeyTooLargeError:
    names = {
        index.layout.prefix: f"{live.schema.collection}.{index.stored.name}"
        for live in collections
        for index in live.maintained
    }
    index = next((name for prefix, name in names.items() if key.startswith(prefix)), None)
    return KeyTooLargeError(
        "a key is too large" if index is None else "a value is too long for its index",
        limit="max_key_bytes",
        size=len(key),
        maximum=limits.max_key_bytes,
        limits=limits.whose("max_key_bytes"),
        key=decode_key(key),
        index=index,
    )
