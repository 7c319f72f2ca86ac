"""The rules of optimistic concurrency control, one small function each.

- R1, complete read set: every slot whose content or absence influenced the operation is checked (``slot_check``).
- R2, the record is the lock: its versionstamp guards all entries derived from it (``record_check``).
- R3, the header is the schema lock: every write checks it (``header_check``), every read through an index carries
  it as guard (``HeaderView.guard``).
- R4, one compiler: builds, repair and touches go through ``compile_write`` like every user write.
- R5, self-fencing: every operation checks a key that it writes, so that a second delivery is refused
  (``record_check`` for an insert, ``token_check``, ``progress_check``). The row of a shared guard is set without a
  check; where deliveries can repeat, the token of its transaction fences it.

Counters are the one exception of R1: an addition does not depend on what is there, so it is never checked, and writers
of one group do not meet. That each record is added once and taken away once follows from R2: its versionstamp says
whether it is counted (``is_counted``), and every commit that counts a record sets it (``must_touch``).

Rules of this module: pure, and each function states one rule, so that a test can take one away and see the harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kvmodels.catalog.collection import LiveIndex
from kvmodels.core.operations import Check, Guard, Row, Set
from kvmodels.indexing.entries import EMPTY_VALUE, RecordChange

_new: Final = tuple[Any, ...].__new__
"""Builds a named tuple without the cost of its constructor: a write asks for several checks."""


def header_check(header: Guard) -> Check | None:
    """R3: the index states that this operation was compiled for must still hold."""
    return Check(header.key, header.versionstamp, physical=True)


def record_check(key: bytes, old: Row | None, now_ms: int) -> Check | None:
    """R2, and R5 for an insert: the record is what the entries to delete were computed from, or still absent.

    A record that was alive must be so at the commit: one that has expired since is absent and must not come back.
    """
    if old is None:
        return _new(Check, (key, None, True))
    alive = old.expire_at is not None and not is_expired(old, now_ms)
    return _new(Check, (key, old.versionstamp, not alive))


def slot_check(key: bytes, row: Row | None) -> Check | None:
    """R1: a slot that was read, free or not, must still be as it was."""
    return _new(Check, (key, row.versionstamp if row else None, True))


def listing_check(row: Row) -> Check | None:
    """R2 for a build: the record that it lists as a violation is still the one that the index cannot hold."""
    return Check(row.key, row.versionstamp, physical=True)


def token_check(key: bytes) -> Check | None:
    """R5 for engines that lose answers: a logical operation is applied at most once, whatever it writes."""
    return Check(key, None, physical=True)


def progress_check(key: bytes, versionstamp: bytes | None) -> Check | None:
    """R5 for a bulk write, a build or a migration: the row of its progress is as it was when a batch was chosen."""
    return Check(key, versionstamp, physical=True)


def is_new_reference(change: RecordChange, before: bytes | None, after: bytes, now_ms: int) -> bool:
    """Return whether a commit makes a record refer to another one that it did not refer to as it was read.

    A record that has expired is absent, unless it stays expired.
    """
    old = change.old
    if old is None or before != after:
        return True
    return is_expired(old, now_ms) and change.expire_at != old.expire_at


def is_unproven(change: RecordChange, *, under_construction: bool) -> bool:
    """Return whether the entry of a foreign key that stays as it is may be missing, so that it is a new reference too.

    While its index is under construction, a record may predate the fence or be listed as a violation. Repair writes
    entries because they may be missing.
    """
    return under_construction or change.rewrite


def is_listed_instead(*, changed: bool, under_construction: bool) -> bool:
    """Return whether a record is listed as a violation if the target of its foreign key is missing, and not refused.

    A key that the commit changes is always refused. So no listing appears after the scan of a build, and an empty list
    stays empty.
    """
    return under_construction and not changed


def neighbour_check(key: bytes, row: Row | None) -> Check | None:
    """R1 for a new interval: the row before it, or the floor of its group, is as it was seen."""
    return slot_check(key, row)


def neighbour_mark(row: Row) -> Row | None:
    """R1 for a new interval, the other half: the row before it is set again, so that its version changes.

    Whoever has seen the same gap free meets a conflict then, also if the row is one that has expired.
    """
    return row


def released_check(row: Row) -> Check | None:
    """R1 for a new interval over rows that its commit removes: each is the neighbour of the gap behind it."""
    return slot_check(row.key, row)


def target_check(row: Row, anchor: Row | None) -> Check | None:
    """R1 for a new reference: the record that it refers to is still there.

    Its anchor, if it has one, stands for it, because the record may change often.
    """
    found = row if anchor is None else anchor
    return Check(found.key, found.versionstamp, physical=True)


def reference_mark(guard_key: bytes) -> Set | None:
    """R1 for a new reference, the other half: a removal of the target that has not seen it is refused."""
    return Set(guard_key, *EMPTY_VALUE)


def guard_check(key: bytes, row: Row | None) -> Check | None:
    """R1 for a removal: no new reference was made since the guard was read, which is before the entries were."""
    return Check(key, row.versionstamp if row else None, physical=True)


def links_check(key: bytes, row: Row | None) -> Check:
    """R1 for a replacement of links: no foreign key to their owner was stored since the guard was read with them."""
    return Check(key, row.versionstamp if row else None, physical=True)


def kept_link_check(row: Row) -> Check:
    """R1 for a link that stays: a change of the links of its owner rests on it."""
    return Check(row.key, row.versionstamp)


def anchor_check(key: bytes) -> Check | None:
    """R1 for a cascade in batches: an anchor is set once, so its version changes only if the target was removed."""
    return Check(key, None, physical=True)


def kept_with_target(guard_key: bytes, anchor_key: bytes) -> tuple[bytes, ...]:
    """Return the keys that are removed with a record that may be referred to, and never without it."""
    return guard_key, anchor_key


def predates_fence(change: RecordChange, index: LiveIndex) -> bool:
    """Return whether the record was last written at or before the fence of a build, so that its entries may be missing.

    The builder skips every record that is newer than the fence: its writer knew the index.
    """
    return change.old is not None and index.fence is not None and change.old.versionstamp <= index.fence


def is_counted(change: RecordChange, index: LiveIndex, *, listed: bool) -> bool:
    """Return whether the record as read is in the counters of an aggregate index, so that it must be taken out of them.

    A record is counted exactly if its versionstamp is above the fence: its last writer, or the builder, added it in
    the very commit that set it. In an index that is READABLE every record is. Never counted is a record with a
    deadline, nor one that the index under construction lists as a violation.
    """
    old = change.old
    if old is None or listed or old.expire_at is not None:
        return False
    return index.fence is None or old.versionstamp > index.fence


def must_touch(index: LiveIndex) -> bool:
    """Return whether a build sets every record that it indexes, although the record stays as it is.

    Copies carry the versionstamp of their record, and counters are told by it; see ``is_counted``.
    """
    return index.definition.copies_record or index.definition.has_counters


def same_deadline(change: RecordChange) -> bool:
    """Return whether the entries of the record keep their deadline; a record and its entries share one."""
    return change.old is not None and change.old.expire_at == change.expire_at


def owns_nothing(change: RecordChange, now_ms: int) -> bool:
    """Return whether the record as read has no claim to any unique slot, so that the owner of each must be looked at.

    A record that has expired is absent, and its slots may have gone to others. A document that lies under the key of
    another record was put there by another program; the slots of its values belong to the record that it is of.
    """
    if change.old is None:
        return False
    return is_expired(change.old, now_ms) or (
        change.old_document is not None and not change.live.layout.names(change.old_document, change.key)
    )


def is_expired(row: Row, now_ms: int) -> bool:
    """Return whether a physical row is absent for everybody but the compiler."""
    return row.expire_at is not None and row.expire_at <= now_ms


def needs_moment(changes: Iterable[RecordChange]) -> bool:
    """Return whether any of these changes stores or removes a record of a collection with a history or blobs."""
    for change in changes:  # noqa: SIM110 - any() over a generator takes twice as long for one change
        if change[0].is_staged and change.only is None:
            return True
    return False
