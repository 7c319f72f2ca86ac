"""Mutants of the rules of exclusion constraints; see ``mutants.py``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kvmodels.core.operations import Set
from kvmodels.indexing import compiler, rules
from kvmodels.indexing.kinds import exclusion

Patch = pytest.MonkeyPatch


def neighbours_are_not_checked(patch: Patch) -> None:
    """A new interval does not check the row before it."""
    patch.setattr(rules, "neighbour_check", lambda key, row: None)


def neighbours_are_not_set_again(patch: Patch) -> None:
    """A new interval leaves the row before it as it is."""
    patch.setattr(rules, "neighbour_mark", lambda row: None)


def floors_are_not_written(patch: Patch) -> None:
    """The first interval of a group writes no floor."""
    patch.setattr(rules, "neighbour_mark", lambda row: row if row.versionstamp else None)


def neighbours_lose_their_deadline(patch: Patch) -> None:
    """A row that is set again never expires."""
    patch.setattr(rules, "neighbour_mark", lambda row: row._replace(expire_at=None))


def released_rows_are_not_checked(patch: Patch) -> None:
    """A row inside of a new interval that the commit removes is not checked."""
    patch.setattr(rules, "released_check", lambda row: None)


def kept_rows_are_taken_for_released(patch: Patch) -> None:
    """A record of the commit that keeps its interval does not count."""
    real = exclusion._Commit._seen

    def seen(self: Any, row: Any, wanted: Any, start: bytes) -> Any:
        return None if row.key in self._claims.kept else real(self, row, wanted, start)

    patch.setattr(exclusion._Commit, "_seen", seen)


def one_row_is_read(patch: Patch) -> None:
    """One row before a new interval is read, and taken for its neighbour, whatever the commit removes."""
    real = exclusion._Commit._seen

    def seen(self: Any, row: Any, wanted: Any, start: bytes) -> Any:
        return real(self, row, wanted, start) or exclusion._END

    patch.setattr(exclusion._Commit, "_seen", seen)


def releases_delete_what_they_have_seen(patch: Patch) -> None:
    """A release of an index under construction deletes only entries that were read."""
    real = exclusion._Commit._write

    def write(self: Any) -> None:
        releases = self._claims.releases
        for key in [key for key, (release, *_) in releases.items() if release.careful and key not in self._versions]:
            del releases[key]
        real(self)

    patch.setattr(exclusion._Commit, "_write", write)


def set_again_comes_last(patch: Patch) -> None:
    """A neighbour is set again, whatever the commit does to it."""

    def set_again(self: Any, row: Any) -> None:
        self.set(Set(row.key, row.value, row.encoding, row.expire_at))

    patch.setattr(compiler._Fold, "set_again", set_again)


def stale_rows_are_taken_for_others(patch: Patch) -> None:
    """A row of a record of the commit, which is newer than the record as read, refuses the commit."""
    patch.setattr(compiler._Fold, "is_changed", lambda self, key: False)


def shortened_intervals_are_not_claims(patch: Patch) -> None:
    """The old interval of an expired record counts as its own, although others may have taken it."""
    real = exclusion._Commit._count_releases

    def count(self: Any) -> None:
        claims = self._claims
        for key, releases in claims.releases.items():
            claims.releases[key] = [replace(release, careful=False) for release in releases]
        real(self)

    patch.setattr(exclusion._Commit, "_count_releases", count)
