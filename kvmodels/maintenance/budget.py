"""The budget of one atomic operation: sizes are measured on encoded bytes before anything is sent.

Rules of this module: pure; an operation over a limit is refused whole, never split.

Source of the way of counting: Deno's ``ext/kv/lib.rs``, ``atomic_write``: the keys of checks and mutations, and for
a mutation with a value its key again and the value; the second sum counts the keys of such mutations once.
"""

from __future__ import annotations

from collections.abc import Iterable

from kvmodels.errors import KeyTooLargeError, LimitExceededError, OperationTooLargeError, ValueTooLargeError
from kvmodels.keys import decode_key
from kvmodels.limits import Limits
from kvmodels.operations import AtomicWrite, Delete, Set
from kvmodels.schema.live import LiveCollection

__all__ = ["check_budget"]

U64_BYTES = 8


def check_budget(write: AtomicWrite, limits: Limits, collections: Iterable[LiveCollection]) -> None:
    """Refuse an operation that the engine would not take.

    Args:
        collections: those whose records are written, to name the index of an over-long key.

    Raises:
        KeyTooLargeError, ValueTooLargeError, OperationTooLargeError: the limit, the size and the maximum.

    Complexity: O(checks + mutations).
    """
    checks, mutations = write
    if len(checks) > limits.max_checks:
        raise _too_large(OperationTooLargeError, "an operation has too many checks", "max_checks", len(checks), limits)
    if len(mutations) > limits.max_mutations:
        raise _too_large(
            OperationTooLargeError, "an operation has too many mutations", "max_mutations", len(mutations), limits
        )
    keys = sum(len(check.key) for check in checks)
    total = keys
    key_bytes = 0
    for mutation in mutations:
        size = len(mutation.key)
        if size > limits.max_key_bytes:
            raise _key_too_large(mutation.key, limits, collections)
        total += size
        if not isinstance(mutation, Delete):
            value = len(mutation.value) if isinstance(mutation, Set) else U64_BYTES
            if value > limits.max_value_bytes:
                error = _too_large(ValueTooLargeError, "a value is too large", "max_value_bytes", value, limits)
                error.key = decode_key(mutation.key)
                raise error
            total += size + value
            key_bytes += size
    if total > limits.max_operation_bytes:
        raise _too_large(
            OperationTooLargeError, "an operation has too many bytes", "max_operation_bytes", total, limits
        )
    if key_bytes > limits.max_operation_key_bytes:
        raise _too_large(
            OperationTooLargeError,
            "the keys of an operation have too many bytes",
            "max_operation_key_bytes",
            key_bytes,
            limits,
        )


def _too_large(
    error: type[LimitExceededError], message: str, limit: str, size: int, limits: Limits
) -> LimitExceededError:
    return error(message, limit=limit, size=size, maximum=getattr(limits, limit), limits=limits.name)


def _key_too_large(key: bytes, limits: Limits, collections: Iterable[LiveCollection]) -> LimitExceededError:
    names = {
        index.layout.prefix: f"{live.schema.collection}.{index.stored.name}"
        for live in collections
        for index in live.maintained
    }
    index = next((name for prefix, name in names.items() if key.startswith(prefix)), None)
    return KeyTooLargeError(
        "a key of this record is too large" if index is None else "a value is too long for its index",
        limit="max_key_bytes",
        size=len(key),
        maximum=limits.max_key_bytes,
        limits=limits.name,
        index=index,
    )
