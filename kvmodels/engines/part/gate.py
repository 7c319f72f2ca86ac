"""The row of a part of a store, whose versionstamp every commit of the part checks.

Rules of this module: pure; the engines of a part carry out the reads. A commit that checks the header of the part needs
no check of the row, because the commit that ends a part writes both. A check that the header is absent does not count:
the header is also absent after the end of a part.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.core.operations import AtomicWrite, Check, Conflict, Guard, ReadRange, ReadResult, Removal, Row
from kvmodels.engines.part.keys import NO_ANNOUNCEMENTS, Announcements, PartKeys
from kvmodels.limits import Limits, Traits


@dataclass(frozen=True, slots=True)
class PartPlace:
    """The place of a part, and the decisions of its owner.

    Attributes:
        prefix: the packed parts at the beginning of every key of the part.
        header_key: the key of the header, as the part sees it.
        row_key: the stored key of the row.
        admit: takes the row, or None if there is none. It raises if the part must not be used, and returns whether it
            exists.
        ended: returns whether the part has ended, as far as this process knows; then ``admit`` raises.
        header: the row of the header, as the part sees it, that ``create`` would write; its versionstamp is that of no
            row. Reads of a part that does not exist see it. None like ``create``.
        create: writes the row and the header of a part that does not exist. None if ``admit`` raises for such a part.
        acreate: the same without blocking the running event loop; for engines with an asynchronous form.
        announcements: which keys of the part the store announces outside of it.
    """

    prefix: bytes
    header_key: bytes
    row_key: bytes
    admit: Callable[[Row | None], bool]
    ended: Callable[[], bool] = lambda: False
    header: Row | None = None
    create: Callable[[], object] | None = None
    acreate: Callable[[], Awaitable[object]] | None = None
    announcements: Announcements = NO_ANNOUNCEMENTS


class Gate:
    """The row of a part as it was last read; shared by all calls of the part.

    Attributes:
        check: the check of the row; None before it was read.
    """

    def __init__(self, place: PartPlace) -> None:
        self.place = place
        self.range: Final = ReadRange(place.row_key)
        self.header_range: Final = ReadRange(place.prefix + place.header_key)
        self.check: Check | None = None
        self._created: bytes | None = None
        """The versionstamp of the stored header, if it has the content of ``PartPlace.header``."""

    def see(self, rows: list[Row]) -> bool:
        """Take note of the row; return whether the part exists. Raises what ``PartPlace.admit`` raises."""
        row = rows[0] if rows else None
        if not self.place.admit(row):
            return False
        if row is not None and (self.check is None or self.check.versionstamp != row.versionstamp):
            # Physical, like checks of the header, because SQLite need not judge such a check again: it has no deadline.
            self.check = Check(self.place.row_key, row.versionstamp, physical=True)
        if self.place.ended():  # in another thread, after the row was admitted
            self.close()
            self.place.admit(row)
        return True

    def close(self) -> None:
        """Have every further call read the row first, which is refused after the end of the part."""
        self.check = None

    def header_seen(self, found: ReadResult, keys: PartKeys) -> ReadResult:
        """Return the answer to a read of the header and the row, as the part sees it."""
        exists = self.see(found.ranges.pop())
        header = self.place.header
        if not exists and header is not None:
            return ReadResult([[header]], [], found.versionstamp)
        return keys.result(found)

    def promises(self, write: AtomicWrite) -> bool:
        """Return whether an operation checks the header that a read of a part that did not exist has returned."""
        header = self.place.header
        return header is not None and (header.key, header.versionstamp) in [check[:2] for check in write[0]]

    def created_seen(self, rows: list[Row]) -> None:
        """Take note of the stored header of a part that this process has read before it existed."""
        header = self.place.header
        for row in rows:
            if header is not None and (row.value, row.encoding) == (header.value, header.encoding):
                self._created = row.versionstamp

    def kept(self, write: AtomicWrite) -> AtomicWrite | None:
        """Return an operation that checks the stored header in place of the promised one; None if it is not known."""
        header, created = self.place.header, self._created
        if header is None or created is None:
            return None
        promised = header.key, header.versionstamp
        checks = [check._replace(versionstamp=created) if check[:2] == promised else check for check in write[0]]
        return write._replace(checks=tuple(checks))

    @staticmethod
    def fits(ranges: Sequence[ReadRange], limits: Limits) -> bool:
        """Return whether a read may also ask for the row, beside a guard, within the limits of the store."""
        most = limits.max_read_entries
        rows = sum([1 if one.end is None else one.limit or most for one in ranges])
        return len(ranges) + 2 <= limits.max_ranges and rows + 2 <= most

    def first_seen(self, found: ReadResult, keys: PartKeys, ranges: Sequence[ReadRange]) -> ReadResult:
        """Return the answer to the first read, which has also read the row. Raises as ``see``."""
        exists = self.see(found.ranges.pop())
        result, header = keys.result(found), self.place.header
        if exists or header is None:
            return result
        asked = [one.end is None and one.start == header.key for one in ranges]
        shown = [[header] if is_header else rows for is_header, rows in zip(asked, result.ranges, strict=True)]
        return result._replace(ranges=shown)

    def guard(self, guard: Guard | None, keys: PartKeys) -> Guard | None:
        """Return a guard with its stored key; the header of a part that does not exist must be absent."""
        header = self.place.header
        if guard is not None and header is not None and guard.versionstamp == header.versionstamp:
            return Guard(keys.prefix + guard.key, None)
        return keys.guard(guard)

    def is_header(self, ranges: Sequence[ReadRange]) -> bool:
        """Return whether a read is one of the header alone, which is read together with the row."""
        return len(ranges) == 1 and ranges[0][0] == self.place.header_key

    def is_checked_by(self, removal: Removal) -> bool:
        """Return whether a removal checks a version of the header."""
        return removal.check.key == self.place.header_key and removal.check.versionstamp is not None

    def checks_header(self, write: AtomicWrite) -> bool:
        """Return whether an operation checks a version of the header."""
        header_key = self.place.header_key
        for check in write[0]:
            if check[0] == header_key:
                return check[1] is not None
        return False


def without_last(conflict: Conflict, checks: int) -> Conflict | None:
    """Return a conflict of the first ``checks`` checks of an operation; None if only a later one has failed."""
    failed = tuple(position for position in conflict.failed_checks if position < checks)
    return Conflict(failed) if failed or not conflict.failed_checks else None


def part_limits(limits: Limits, prefix: int) -> Limits:
    """Return the limits that are left for the keys of a part, and for its operations with the check of its row."""
    keys = 2 * prefix  # half of the key bytes at most are prefixes
    mutations = max(1, min(limits.max_mutations, limits.max_operation_key_bytes // keys))
    checks = limits.max_checks - 1
    return replace(
        limits,
        max_key_bytes=limits.max_key_bytes - prefix,
        max_read_key_bytes=limits.max_read_key_bytes - prefix,
        max_checks=checks,
        max_mutations=mutations,
        max_operation_key_bytes=limits.max_operation_key_bytes - prefix * mutations,
        max_operation_bytes=limits.max_operation_bytes - 2 * prefix * mutations - prefix * (checks + 1),
    )


def part_traits(traits: Traits) -> Traits:
    """Return how the engine of a part behaves: rows are copies, and the store alone can be backed up."""
    return replace(traits, keeps_rows=False, backup=False)
