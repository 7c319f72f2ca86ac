"""Checks as comparisons of etcd, and what became of them where a comparison has failed.

Rules of this module: a check that may meet a row with a deadline is first two comparisons, of the revision and of the
first byte of the value. Where they fail, the rows are looked at; what they show is compared by revisions alone, and a
check that holds is sent again with those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kvmodels.core.operations import VACANT, Check, Row, vacant_range
from kvmodels.engines.etcd.layout import WITH_DEADLINE, Keys
from kvmodels.engines.etcd.protocol.parts import Part, all_before, has_revision, has_value_below
from kvmodels.engines.etcd.store import Pin
from kvmodels.engines.shared.evaluation import from_versionstamp, visible


class Seen(NamedTuple):
    """Rows of one state on which a commit depends.

    Attributes:
        pin: the state.
        checked: for each check the rows under its key, or a live row below its prefix; expired ones too.
        stored: the rows of keys whose values are computed, by key, expired or not.
    """

    pin: Pin
    checked: Sequence[Sequence[Row]]
    stored: Mapping[bytes, Row]


def first_compares(keys: Keys, check: Check, pin: Pin) -> list[Part]:
    """Return comparisons that hold only if a check does."""
    key = keys.rows + check.key
    if check.versionstamp == VACANT:
        return [_vacant(keys, check, 1)]
    if check.versionstamp is None:
        return [has_revision(key, 0)]
    revision = has_revision(key, pin.revision_of(check.versionstamp))
    if check.physical:
        return [revision]
    return [revision, has_value_below(key, WITH_DEADLINE)]


def seen_compare(keys: Keys, check: Check, rows: Sequence[Row], pin: Pin) -> Part:
    """Return the comparison that holds while that is stored which was seen, and by which the check holds."""
    if check.versionstamp == VACANT:
        return _vacant(keys, check, pin.revision + 1)
    return has_revision(keys.rows + check.key, revision_of_row(rows[0], pin) if rows else 0)


def revision_of_row(row: Row, pin: Pin) -> int:
    """Return the revision of a stored row."""
    return from_versionstamp(row.versionstamp) - pin.base


def failed_checks(checks: Sequence[Check], seen: Seen) -> tuple[int, ...]:
    """Return the positions of the checks that do not hold in a state."""
    return tuple([at for at, check in enumerate(checks) if not _holds(check, seen.checked[at], seen.pin)])


def _holds(check: Check, rows: Sequence[Row], pin: Pin) -> bool:
    if check.versionstamp == VACANT:
        return all(visible(row, pin.now_ms) is None for row in rows)
    row = rows[0] if rows else None
    if not check.physical:
        row = visible(row, pin.now_ms)
    return (None if row is None else row.versionstamp) == check.versionstamp


def _vacant(keys: Keys, check: Check, below: int) -> Part:
    one = vacant_range(check.key)
    assert one.end is not None, "a prefix is a range"
    return all_before(keys.rows + one.start, keys.rows + one.end, below)
