"""Records of a dump that refer to each other in a circle: which they are, and whether one commit can hold them.

No record of a circle can be written before the others, because each needs its target. So a load writes a circle in one
commit, over several collections, and refuses before its first write a circle that no commit can hold. Writing them
without their foreign keys first was rejected: a reader, or a load that is repeated after a crash, would meet records
that were never stored like that.

Rules of this module: pure. Only records of collections whose foreign keys lead back to them are kept: two keys each.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Final, NamedTuple

from kvmodels.catalog.collection import LiveCollection
from kvmodels.catalog.references import OutgoingReference
from kvmodels.codecs.msgpack import ValueCodec
from kvmodels.core.operations import AtomicWrite, Delete, Guard, Mutation, ReadRange, Row, Set
from kvmodels.errors import OperationTooLargeError
from kvmodels.indexing.budget import U64_BYTES
from kvmodels.indexing.compiler import compile_in_full
from kvmodels.indexing.entries import NeedRows, RecordChange
from kvmodels.indexing.versions import NOTE_BYTES
from kvmodels.limits import Limits

BESIDE: Final = 2
"""Checks and mutations of an operation besides those of records: header, token."""

_TOO_LARGE: Final = (
    "A circle of records is stored in one commit. Load the dump of the whole store into an empty one with kv.load(), "
    "or use an engine with larger limits."
)


def circular_references(live: Mapping[str, LiveCollection], collection: str) -> list[OutgoingReference]:
    """Return the foreign keys of a collection whose targets may, over others, refer to the collection."""
    return [one for one in live[collection].references if collection in _reachable(live, one.collection)]


def _reachable(live: Mapping[str, LiveCollection], first: str) -> set[str]:
    found, waiting = {first}, [first]
    while waiting:
        one = live.get(waiting.pop())
        more = {reference.collection for reference in one.references} - found if one is not None else set[str]()
        found |= more
        waiting += more
    return found


class ReferenceGraph:
    """The foreign keys among records, by their keys."""

    def __init__(self) -> None:
        self._targets: dict[bytes, bytes | tuple[bytes, ...]] = {}

    def add(self, key: bytes, targets: tuple[bytes, ...]) -> None:
        """Add a record; of equal keys the last one counts."""
        self._targets[key] = targets[0] if len(targets) == 1 else targets

    def circles(self) -> dict[bytes, int]:
        """Return the records that are in a circle, each with the number of its circle; and forget all records.

        Source: Tarjan's algorithm for strongly connected components, with a stack in place of the recursion.
        """
        found: dict[bytes, int] = {}
        order: dict[bytes, int] = {}
        lowest: dict[bytes, int] = {}
        path: list[bytes] = []
        for root in self._targets:
            if root in order:
                continue
            walk = [(root, self._visit(root, order, lowest, path))]
            while walk:
                key, targets = walk[-1]
                target = next(targets, None)
                if target is None:
                    walk.pop()
                    if walk:
                        lowest[walk[-1][0]] = min(lowest[walk[-1][0]], lowest[key])
                    if lowest[key] == order[key]:
                        _close(key, order[key], path, lowest, found)
                elif target not in order:
                    walk.append((target, self._visit(target, order, lowest, path)))
                elif target in lowest:
                    lowest[key] = min(lowest[key], order[target])
        self._targets.clear()
        return found

    def _visit(
        self, key: bytes, order: dict[bytes, int], lowest: dict[bytes, int], path: list[bytes]
    ) -> Iterator[bytes]:
        order[key] = lowest[key] = len(order)
        path.append(key)
        targets = self._targets[key]
        named = (targets,) if isinstance(targets, bytes) else targets
        return (one for one in named if one in self._targets and one != key)


def _close(first: bytes, number: int, path: list[bytes], lowest: dict[bytes, int], found: dict[bytes, int]) -> None:
    """Take the records of a finished component from the path; a record by itself is no circle."""
    alone = path[-1] == first
    while True:
        key = path.pop()
        del lowest[key]
        if not alone:
            found[key] = number
        if key == first:
            return


class CircleSize(NamedTuple):
    """The size of the commit that stores a circle, or one record of it."""

    checks: int = 0
    mutations: int = 0
    operation_bytes: int = 0
    key_bytes: int = 0

    def plus(self, other: CircleSize) -> CircleSize:
        """Return the size of both together."""
        return CircleSize(*map(sum, zip(self, other, strict=True)))

    def require_fitting(self, limits: Limits, records: int) -> None:
        """Raises OperationTooLargeError: no commit can hold these records."""
        sizes = {
            "max_checks": self.checks + BESIDE,
            "max_mutations": self.mutations + BESIDE,
            "max_operation_bytes": self.operation_bytes,
            "max_operation_key_bytes": self.key_bytes,
        }
        for limit, size in sizes.items():
            if size > getattr(limits, limit):
                raise OperationTooLargeError(
                    "records of the dump refer to each other in a circle that one commit cannot hold",
                    limit=limit,
                    size=size,
                    maximum=getattr(limits, limit),
                    limits=limits.whose(limit),
                    index=None,
                    hint=f"The circle has {records} records. {_TOO_LARGE}",
                )


def size_in_commit(
    change: RecordChange, guard: Guard, codec: ValueCodec, limits: Limits, circle: Container[bytes]
) -> CircleSize:
    """Return what the insert of one record adds to the commit of its circle: entries, slots, counters, references."""
    checks, mutations = _compiled_alone(change, guard, codec, limits)
    size = CircleSize(len(checks) - 1, len(mutations), sum(len(one.key) for one in checks[1:]))
    for mutation in mutations:
        size = size.plus(_size_of(mutation))
    if change.live.history is not None:
        size = size.plus(CircleSize(0, 0, NOTE_BYTES))  # the time and the actor are known at the commit
    for reference in change.live.references:
        pk = reference.pk_in(change.new_document or {})
        if pk is None:
            continue
        mark, target = len(reference.guards + pk), reference.records + pk
        size = size.plus(CircleSize(0, 1, 2 * mark, mark))
        if target not in circle:
            size = size.plus(CircleSize(1, 0, len(target)))
    return size


def _compiled_alone(change: RecordChange, guard: Guard, codec: ValueCodec, limits: Limits) -> AtomicWrite:
    rows: dict[bytes, Row | None] = {}
    neighbours: dict[ReadRange, list[Row]] = {}
    while True:
        compiled = compile_in_full(
            [change],
            rows,
            header=guard,
            codec=codec,
            now_ms=0,
            max_key_bytes=limits.max_key_bytes,
            neighbours=neighbours,
        )
        if isinstance(compiled, AtomicWrite):
            return compiled
        assert isinstance(compiled, NeedRows), "every slot is free"
        rows.update(dict.fromkeys(compiled.keys))
        neighbours.update((one, []) for one in compiled.neighbours)


def _size_of(mutation: Mutation) -> CircleSize:
    """Return the bytes of one mutation, as ``check_budget`` counts them."""
    key = len(mutation.key)
    if isinstance(mutation, Delete):
        return CircleSize(0, 0, key)
    value = len(mutation.value) if isinstance(mutation, Set) else U64_BYTES
    return CircleSize(0, 0, 2 * key + value, key)
