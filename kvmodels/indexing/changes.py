"""What goes into the write compiler and what comes out of it, as values.

Rules of this module: data only.
"""

from __future__ import annotations

from typing import NamedTuple

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.catalog.collection import LiveCollection, LiveIndex
from kvmodels.core.operations import AtomicWrite, Row
from kvmodels.schema.definition.definition import Document


class Misfit(NamedTuple):
    """Why an index cannot hold a record.

    Attributes:
        kind: of the violation, as ``entries.misfit`` and a build give it.
        reason: for ``key_function``, the name of the type of what the function raised; for ``duplicate``, the name of
            another index, whose slot the record may not take; for a record that cannot be read or encoded, the field
            and the cause.
    """

    kind: str
    reason: str | None = None

    def to_value(self) -> dict[str, str]:
        """The value of a violation row."""
        return {"kind": self.kind} if self.reason is None else {"kind": self.kind, "reason": self.reason}


class RecordChange(NamedTuple):
    """One record of a commit: as it was read, and as it shall be.

    Attributes:
        live: its collection under the header of the snapshot that ``old`` was read in.
        pk: packed primary key.
        old: the physical row as read, expired or not; None when there is none.
        old_document: the decoded document of ``old``.
        new_document: the document to store, or None to remove the record.
        value, encoding: the bytes of ``new_document``.
        expire_at: deadline in ms since the epoch that the record and all its entries get, or None.
        rewrite: write every entry, also those that should be there already; for repair.
        only: leave the record alone and write its entries in this index; for a build, whose record does not change.
        tolerant: record a duplicate in an index under construction instead of refusing it; for a build.
        unmade: why the columns that the document does not store could not be made; for a build.
    """

    live: LiveCollection
    pk: bytes
    old: Row | None
    old_document: Document | None
    new_document: Document | None
    value: bytes = b""
    encoding: int = 0
    expire_at: int | None = None
    rewrite: bool = False
    only: LiveIndex | None = None
    tolerant: bool = False
    unmade: Misfit | None = None

    @property
    def key(self) -> bytes:
        """The key of the record."""
        return self.live.layout.key(self.pk)


class Compiled(NamedTuple):
    """One atomic operation that leaves every index exact."""

    write: AtomicWrite


class NeedRows(NamedTuple):
    """Keys whose physical rows the compiler must see, in one snapshot with the records."""

    keys: frozenset[bytes]


@dataclass(frozen=True, slots=True)
class Violation:
    """A unique slot that this commit may not claim: another record holds it, or two of its records want it."""

    change: RecordChange
    index: LiveIndex
    slot: bytes
    owner: bytes
