"""Models to follow, sinks in memory that fail like processes that are killed, and the comparison with the store."""

from __future__ import annotations

import threading
from random import Random
from typing import Any

from kvmodels import ChangeBatch, Database, KvModel, Position, PrimaryKey, SinkPositionError
from kvmodels.keys import Key, encode_key


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    text: str = ""


class Topic(KvModel, collection="topics"):
    name: PrimaryKey[str]
    text: str = ""


MODELS = (Note, Topic)


class KilledError(BaseException):
    """Ends a follower as SIGKILL does, at a point of its transaction."""


class ListSink:
    """A sink with transactions in memory.

    ``kill`` is called before, inside and behind the transaction of each batch. ``positions`` has each stored position.
    """

    def __init__(self, kill: Random | None = None) -> None:
        self.held: dict[Key, tuple[str, Any]] = {}
        self.positions: list[Position | None] = [None]
        self.batches: list[ChangeBatch] = []
        self._kill = kill
        self._mutex = threading.Lock()

    def load(self) -> Position | None:
        return self.positions[-1]

    def apply(self, batch: ChangeBatch) -> None:
        with self._mutex:
            self._strike()
            if self.positions[-1] != batch.since:
                raise SinkPositionError("the sink has another position", hint="Read it again.")
            held = self.changed(batch)
            self._strike()
            self.held = held
            self.positions.append(batch.position)
            self.batches.append(batch)
            self._strike()

    def changed(self, batch: ChangeBatch) -> dict[Key, tuple[str, Any]]:
        held = dict(self.held)
        for change in batch.changes:
            if change.record is None:
                held.pop(change.key, None)
            else:
                held[change.key] = change.versionstamp, change.record
        return held

    def keys(self, after: Key | None, limit: int) -> list[tuple[Key, str]]:
        start = b"" if after is None else encode_key(after)
        found = sorted((one for one in self.held if encode_key(one) > start), key=encode_key)
        return [(one, self.held[one][0]) for one in found[:limit]]

    def _strike(self) -> None:
        if self._kill is not None and self._kill.random() < 0.12:
            raise KilledError


class PositionFirst(ListSink):
    """A sink that is wrong: the position is stored before the data."""

    def apply(self, batch: ChangeBatch) -> None:
        held = self.changed(batch)
        self.positions.append(batch.position)
        self._strike()
        self.held = held


def stored(db: Database) -> dict[Key, tuple[str, Any]]:
    found: dict[Key, tuple[str, Any]] = {}
    for note in db[Note].all().allow_scan():
        found["notes", note.id] = str(note.versionstamp), note
    for topic in db[Topic].all().allow_scan():
        found["topics", topic.name] = str(topic.versionstamp), topic
    return found


def write(db: Database, random: Random) -> None:
    """Write or remove a record of one of the models."""
    key, text = random.randrange(40), f"text {random.randrange(1000)}"
    if random.random() < 0.3:
        db[Topic].save(Topic(name=str(key), text=text), force=True)
    elif random.random() < 0.6:
        db[Note].save(Note(id=key, text=text), force=True)
    else:
        db[Note].filter(id=key).delete()
