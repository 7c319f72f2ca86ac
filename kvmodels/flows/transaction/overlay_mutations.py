"""Raw writes of one transaction to one key, folded to a single mutation, and what they make of a stored row.

Rules of this module: pure. Folding keeps a sum a sum, which needs no check and meets no other writer, as long as
nothing before it in the transaction says what the key holds.
"""

from __future__ import annotations

from kvmodels.core.operations import Apply, Arithmetic, Delete, Mutation, Row, Set, combine, combined_operands


def folded(before: Mutation | None, after: Mutation) -> Mutation:
    """One mutation that does what two of the same key do one after the other.

    Raises:
        InvalidValueError: a sum, min or max that cannot be applied to what the transaction has stored.

    Examples:
        >>> folded(Arithmetic("sum", b"k", 2), Arithmetic("sum", b"k", 3)).operand
        5
        >>> folded(Set(b"k", b"old", 3), Delete(b"k"))
        Delete(key=b'k')
    """
    if before is None or isinstance(after, Set | Delete):
        return after
    if isinstance(before, Set | Delete):
        return Set(after.key, *combine(after, applied(before, None, b"")))
    if isinstance(before, Arithmetic) and isinstance(after, Arithmetic) and before.kind == after.kind:
        return after._replace(operand=combined_operands(after.kind, before.operand, after.operand))
    return _composed(before, after)


def _composed(first: Arithmetic | Apply, second: Arithmetic | Apply) -> Apply:
    def both(stored: tuple[bytes, int] | None) -> tuple[bytes, int]:
        row = None if stored is None else _row(first.key, stored)
        return combine(second, _row(first.key, combine(first, row)))

    return Apply(first.key, both, max(_size(first), _size(second)))


def applied(mutation: Mutation, stored: Row | None, versionstamp: bytes) -> Row | None:
    """The row of a key after a mutation.

    Args:
        stored: the row before, None when there is none that is alive.
        versionstamp: what the new row carries.

    Raises:
        InvalidValueError: a sum, min or max of what is no unsigned 64-bit integer.
    """
    if isinstance(mutation, Delete):
        return None
    if isinstance(mutation, Set):
        return Row(mutation.key, mutation.value, mutation.encoding, versionstamp, mutation.expire_at)
    return _row(mutation.key, combine(mutation, stored), versionstamp)


def _row(key: bytes, stored: tuple[bytes, int], versionstamp: bytes = b"") -> Row:
    return Row(key, *stored, versionstamp, None)


def _size(mutation: Arithmetic | Apply) -> int:
    return mutation.size if isinstance(mutation, Apply) else 8
