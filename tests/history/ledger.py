"""The oracle of a store with a history that has releases of several schema versions and lifetimes of rows.

It keeps the stored documents after each step, as any release has written them, and which of them began a version: one
that differs in more than excluded fields, unless the step rewrote records (``apply`` and ``migrate``).
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

from kvmodels import Database, HistoryExpiredError, KvModel
from tests.history.machine import Known, Team, known
from tests.history.releases import shown

Place = tuple[str, int]
"""A collection and a primary key."""

Document = dict[str, Any]

REWRITES = ("deploy", "apply", "migrate")
"""Steps that rewrite records and end no version."""


class Entry(NamedTuple):
    """A version, or the absence of a record: its document or None, who began it, when, in ms, and by which step."""

    document: Document | None
    actor: str | None
    time: int
    step: str


class State(NamedTuple):
    """The documents after a step: the time of the step, and a versionstamp behind it."""

    time: int
    stamp: str
    documents: dict[Place, Document]


class Ledger:
    """The records that a store held after each step, and the answers that its history must give."""

    def __init__(self, start_ms: int) -> None:
        self.states: list[State] = []
        self.versions: dict[Place, list[Entry]] = {}
        self.last: dict[Place, Document] = {}
        self.keeps: list[tuple[int, int | None]] = [(start_ms, None)]

    def note(self, judge: Database, release: Any, step: str, actor: str | None, now_ms: int) -> None:
        """Add the state after a step of an actor."""
        found, rewrites = stored(judge), step in REWRITES
        if rewrites:
            self._rewritten(release, found)
        for place in {*found, *self.last}:
            before, after = self.last.get(place), found.get(place)
            if rewrites and before is not None and after is not None:
                self.versions[place][-1] = self.versions[place][-1]._replace(document=after)
            elif versioned(before) != versioned(after):
                self.versions.setdefault(place, []).append(Entry(after, actor, now_ms, step))
        keep = section(judge)["keep"]
        if keep != self.keeps[-1][1]:
            self.keeps.append((now_ms, keep))
        stamp = judge.kv.set(("probe",), now_ms).versionstamp
        assert stamp is not None
        self.states.append(State(now_ms, stamp, found))
        self.last = found

    def _rewritten(self, release: Any, found: dict[Place, Document]) -> None:
        """Require that a rewrite changed nothing that the newest release shows."""
        assert found.keys() == self.last.keys()
        for (name, key), document in found.items():
            kind = release if name == "cards" else Team
            assert shown(kind, key, document) == shown(kind, key, self.last[name, key])

    # --- what the history must answer -----------------------------------------------------------------------------

    def horizon(self, name: str, now_ms: int) -> int:
        """Return the earliest time about which every answer is exact."""
        lifetimes = self.keeps if name == "cards" else self.keeps[:1]
        ends = [since for since, _ in lifetimes[1:]] + [now_ms]
        gone = [min(now_ms - keep, end) for (_, keep), end in zip(lifetimes, ends, strict=True) if keep is not None]
        return max(gone, default=0)

    def is_kept(self, name: str, ended_ms: int, now_ms: int) -> bool:
        """Return whether the row of a version that ended at a time is shown."""
        keep = None
        if name == "cards":
            keep = next(keep for since, keep in reversed(self.keeps) if since <= ended_ms)
        return keep is None or ended_ms + keep > now_ms

    def shown_versions(self, place: Place, now_ms: int) -> list[tuple[Entry, Entry | None, Entry | None]]:
        """Return the versions that a history shows, oldest first, each with its end, and the version before it.

        That is an absence for an insert, and None if it is not kept.
        """
        name, entries, found = place[0], self.versions[place], []
        former: Entry | None = Entry(None, None, 0, "")
        for number, entry in enumerate(entries):
            end = entries[number + 1] if number + 1 < len(entries) else None
            kept = entry.document is None or end is None or self.is_kept(name, end.time, now_ms)
            if entry.document is not None and kept:
                found.append((entry, end, former))
            former = entry if kept else None
        return found

    # --- the comparison -------------------------------------------------------------------------------------------

    def compare(self, judge: Database, release: Any, now_ms: int, chance: random.Random) -> None:
        """Compare the histories, the past and the removed records that a store shows with the ledger."""
        kinds: dict[str, Any] = {"cards": release, "teams": Team}
        for place in self.versions:
            self._compare_history(judge, kinds[place[0]], place, now_ms)
        for state in chance.sample(self.states, min(len(self.states), 15)):
            for name, kind in kinds.items():
                self._compare_past(judge, kind, name, state, now_ms)
        for name, kind in kinds.items():
            trash = {one.key for one in judge[kind].trash()}
            assert trash == self._removed(name, now_ms), name

    def _removed(self, name: str, now_ms: int) -> set[int]:
        """Return the keys of the removed records that can be restored; renamed ones are none of them."""
        return {
            key
            for (of, key), entries in self.versions.items()
            if of == name
            and entries[-1].document is None
            and entries[-1].step != "rename"
            and self.is_kept(name, entries[-1].time, now_ms)
        }

    def _compare_history(self, judge: Database, kind: Any, place: Place, now_ms: int) -> None:
        revisions = list(judge[kind].history(place[1]))[::-1]
        expected = self.shown_versions(place, now_ms)
        assert [seen(one.record) for one in revisions] == [
            shown(kind, place[1], entry.document or {}) for entry, _, _ in expected
        ], place
        for revision, (entry, end, before) in zip(revisions, expected, strict=True):
            assert revision.actor == entry.actor, place
            assert revision.at == moment(entry.time), place
            assert (revision.ended is None) == (end is None), place
            if end is not None and revision.ended is not None:
                assert (revision.ended.actor, revision.ended.at) == (end.actor, moment(end.time)), place
                assert revision.ended.removed == (end.document is None), place
            assert revision.changes == changes(kind, place[1], entry, before), place
        for one, following in pairwise(revisions):
            assert one.ended is not None
            assert one.ended.versionstamp <= following.versionstamp, place

    def _is_kept_at(self, place: Place, time: int, now_ms: int) -> bool:
        """Return whether the version that was current at a time is shown, also before the horizon."""
        entries = self.versions.get(place, [])
        begun = [number for number, entry in enumerate(entries) if entry.time <= time]
        if not begun or entries[begun[-1]].document is None:
            return False
        end = entries[begun[-1] + 1 : begun[-1] + 2]
        return not end or self.is_kept(place[0], end[0].time, now_ms)

    def _compare_past(self, judge: Database, kind: Any, name: str, state: State, now_ms: int) -> None:
        expected = {key: shown(kind, key, one) for (of, key), one in state.documents.items() if of == name}
        when, past = moment(state.time), judge[kind].as_of(moment(state.time))
        keys = range(1, 8)
        certain = state.time >= self.horizon(name, now_ms)
        if certain:
            assert {one.pk: known(one) for one in past.filter().allow_scan()} == expected, (name, state.time)
            assert [seen(one) for one in past.get_many(keys)] == [expected.get(key) for key in keys], (name, state.time)
            assert [seen(past.get_or_none(key)) for key in keys] == [expected.get(key) for key in keys]
        else:
            assert answer(lambda: list(past.filter().allow_scan())) is HistoryExpiredError, (name, state.time)
            assert answer(lambda: past.get_or_none(1)) is HistoryExpiredError, (name, state.time)
        unbounded = name == "teams" or self.keeps == self.keeps[:1]
        for key in keys:
            for given, exact in ((when, certain), (state.stamp, unbounded)):
                revision = answer(partial(judge[kind].history(key).at, given))
                if revision is HistoryExpiredError:
                    assert not exact, (name, key, given)
                    assert not self._is_kept_at((name, key), state.time, now_ms), (name, key, given)
                else:
                    assert seen(None if revision is None else revision.record) == expected.get(key), (name, key, given)


def stored(judge: Database) -> dict[Place, Document]:
    """Return the stored documents of all records, without what the library adds."""
    found: dict[Place, Document] = {}
    for name in ("cards", "teams"):
        for entry in judge.kv.unsafe().list(prefix=(name,)):
            value: Any = entry.value
            found[name, int(str(entry.key[1]))] = {field: one for field, one in value.items() if field != "$kv"}
    return found


def section(judge: Database) -> dict[str, Any]:
    """Return the history of the cards as the header lists it."""
    header: Any = judge.kv.unsafe().get(("__kvmodels__", "header")).value
    found: dict[str, Any] = header["collections"]["cards"]["history"]
    return found


def versioned(document: Document | None) -> Document | None:
    """Return the part of a document whose change ends a version."""
    return None if document is None else {name: value for name, value in document.items() if name != "note"}


def seen(record: KvModel | None) -> Known | None:
    """Return the values of a record that was read, or None."""
    return None if record is None else known(record)


def changes(kind: Any, key: int, entry: Entry, before: Entry | None) -> dict[str, tuple[Any, Any]] | None:
    """Return the changes of a version; ``before`` is an absence for an insert, and None if it is not kept."""
    if before is None:
        return None
    after = shown(kind, key, entry.document or {})
    former = {} if before.document is None else shown(kind, key, before.document)
    return {
        name: (former.get(name), value) for name, value in after.items() if name not in former or former[name] != value
    }


def moment(time_ms: int) -> datetime:
    """Return milliseconds as a time."""
    return datetime.fromtimestamp(time_ms / 1_000, UTC)


def answer(read: Callable[[], Any]) -> Any:
    """Return the result of a read, or the class of the error if the past is not known."""
    try:
        return read()
    except HistoryExpiredError as error:
        return type(error)
