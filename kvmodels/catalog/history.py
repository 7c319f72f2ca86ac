"""The history of a collection as the header lists it, and the horizon of its answers.

The section of a collection in the header, which a release without histories does not know, so that it only reads:

    state   "write_only" until every record was looked at, then "readable", "dropping" while rows are removed
    keep    how long rows are kept, in ms; None: for ever
    exclude names of fields that rows do not hold
    only    "removed" if only removals write rows
    since   the time in ms from which answers are exact; 0 in a collection that was listed without records
    begin   the versionstamp from which on every version has a row; None in a collection listed without records
    keeps   the lifetimes before the present one that may still matter, each with the time since when it held
    held    the time since when the present lifetime holds

Rules of this module: pure. A section with an item that is not listed above is that of a newer release, and unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, Literal, cast, get_args

from kvmodels._support.slotted_dataclass import dataclass
from kvmodels.schema.declare.history import History, Kept

HistoryState = Literal["write_only", "readable", "dropping"]

SECTION: Final = "history"
"""The name of the section."""

_ITEMS: Final = frozenset({"state", "keep", "exclude", "only", "since", "begin", "keeps", "held"})


@dataclass(frozen=True, slots=True)
class StoredHistory:
    """The history of one collection; see the items of its section."""

    state: HistoryState
    keep: int | None
    exclude: tuple[str, ...]
    only: Kept | None
    since: int = 0
    begin: str | None = None
    keeps: tuple[tuple[int | None, int], ...] = ()
    held: int = 0

    @property
    def readable(self) -> bool:
        """Whether every version since the horizon has a row."""
        return self.state == "readable"

    @property
    def keeps_updates(self) -> bool:
        """Whether versions that an update ended have rows."""
        return self.only is None

    def is_declared_by(self, history: History) -> bool:
        """Return whether a declaration has these options."""
        return (self.keep, self.exclude, self.only) == (history.keep_ms, history.exclude, history.only)

    def changed_to(self, history: History, now_ms: int) -> StoredHistory:
        """Return the history with the options of a declaration, which hold from now on."""
        changed = replace(self, keep=history.keep_ms, exclude=history.exclude, only=history.only)
        if history.only != self.only:  # which versions have rows changes, so answers begin anew
            return replace(changed, since=now_ms, keeps=(), held=now_ms)
        if history.keep_ms == self.keep:
            return changed
        former = tuple(one for one in (*self.keeps, (self.keep, self.held)))
        return replace(changed, keeps=former, held=now_ms)

    def horizon(self, now_ms: int) -> int:
        """Return the earliest time, in ms, about which every answer is exact.

        A row that ended under a lifetime is gone that much later, so it may be missing for times before its end.
        """
        horizon = self.since
        ends = [since for _, since in self.keeps[1:]] + [self.held] if self.keeps else []
        for (keep, _), end in zip(self.keeps, ends, strict=True):
            if keep is not None:
                horizon = max(horizon, min(now_ms - keep, end))
        return horizon if self.keep is None else max(horizon, now_ms - self.keep)

    def to_value(self) -> dict[str, Any]:
        """Return the section."""
        return {
            "state": self.state,
            "keep": self.keep,
            "exclude": list(self.exclude),
            "only": self.only,
            "since": self.since,
            "begin": self.begin,
            "keeps": [list(one) for one in self.keeps],
            "held": self.held,
        }


def history_in(section: object) -> StoredHistory | None:
    """Return the history that a section lists; None for one that this release does not know."""
    if not isinstance(section, Mapping):
        return None
    value = cast("Mapping[str, Any]", section)
    if _ITEMS.symmetric_difference(value) or value["state"] not in get_args(HistoryState):
        return None
    if value["only"] not in (None, "removed") or not _is_well_formed(value):
        return None
    return StoredHistory(
        value["state"],
        value["keep"],
        tuple(value["exclude"]),
        value["only"],
        value["since"],
        value["begin"],
        tuple((keep, since) for keep, since in value["keeps"]),
        value["held"],
    )


def _is_well_formed(value: Mapping[str, Any]) -> bool:
    """Return whether the items of a section have their types, whoever has written it."""
    lists = isinstance(value["exclude"], list) and isinstance(value["keeps"], list)
    excluded = cast("list[Any]", value["exclude"] if lists else [])
    keeps: list[Any] = [
        (value["keep"], value["since"]),
        (value["keep"], value["held"]),
        *(value["keeps"] if lists else ()),
    ]
    return (
        lists
        and all(isinstance(name, str) for name in excluded)
        and isinstance(value["begin"], str | None)
        and all(isinstance(one, list | tuple) and len(cast("list[Any]", one)) == len(keeps[0]) for one in keeps)
        and all(isinstance(keep, int | None) and isinstance(since, int) for keep, since in keeps)
    )


def first_history(history: History | None) -> StoredHistory | None:
    """Return the history of a collection that is listed without records."""
    if history is None:
        return None
    return StoredHistory("readable", history.keep_ms, history.exclude, history.only)
