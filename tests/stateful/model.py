"""The expected repository as a dict: records with a version and a deadline, and the owners of unique values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

FIELDS = ("id", "code", "group", "rank", "note", "spot", "since", "until", "look", "serial", "shelf")


@dataclass
class Held:
    """One record; ``version`` is a number that no other state of any record has."""

    fields: dict[str, Any]
    deadline: int | None
    version: int


@dataclass
class Things:
    """All records that were not removed; those past their deadline are absent for everybody."""

    now: int
    records: dict[int, Held] = field(default_factory=dict)
    serial_is_unique: bool = False
    _version: int = 0

    def live(self, key: int) -> Held | None:
        """The record, unless it is absent or expired."""
        held = self.records.get(key)
        return None if held is None or (held.deadline is not None and held.deadline <= self.now) else held

    def all(self) -> dict[int, Held]:
        """Every live record by key, in their order."""
        return {key: held for key in sorted(self.records) if (held := self.live(key)) is not None}

    def put(self, fields: dict[str, Any], deadline: int | None) -> Held:
        """Store a record in a new version."""
        self._version += 1
        held = Held(dict(fields), deadline, self._version)
        self.records[fields["id"]] = held
        return held

    def deadline(self, seconds: float | None) -> int | None:
        """The absolute deadline of a lifetime that begins now."""
        return None if seconds is None else self.now + round(seconds * 1000)

    def owner(self, name: str, value: Any, besides: int) -> int | None:
        """Another live record with this unique value."""
        if value is None:
            return None
        return next((key for key, held in self.all().items() if key != besides and held.fields[name] == value), None)

    def conflicts(self, fields: dict[str, Any]) -> set[str]:
        """The unique indexes that hold a value of these fields for another record."""
        names = ["code", *(["serial"] if self.serial_is_unique else [])]
        return {name for name in names if self.owner(name, fields[name], fields["id"]) is not None}

    def duplicates(self, name: str) -> bool:
        """Whether two live records have one value."""
        values = [held.fields[name] for held in self.all().values() if held.fields[name] is not None]
        return len(values) != len(set(values))
