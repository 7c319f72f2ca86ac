"""Poets, and works that refer to them only in the newer release; and what is wrong in the raw rows of their store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple

from kvmodels import CASCADE, SET_NULL, Field, ForeignKey, Indexed, KvModel, PrimaryKey
from kvmodels.catalog.catalogue import Header, IndexState, StoredIndex
from kvmodels.catalog.keyspace import HEADER_KEY
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import ReadRange, ReadResult
from kvmodels.engines.memory.engine import MemoryEngine

CODEC = MsgpackCodec()


class Poet(KvModel, collection="poets"):
    """One that works refer to."""

    id: PrimaryKey[str]
    name: str = ""


class OldPoem(KvModel, collection="poems"):
    """A poem of the older release, which knows no foreign keys."""

    id: PrimaryKey[str]
    poet: str
    title: str = ""


class Poem(KvModel, collection="poems"):
    """One that protects its poet."""

    id: PrimaryKey[str]
    poet: ForeignKey[str, Poet]
    title: str = ""


class OldVerse(KvModel, collection="verses"):
    """A verse of the older release."""

    id: PrimaryKey[str]
    poet: str


class IndexedVerse(KvModel, collection="verses"):
    """The same, with an index that has every verse."""

    id: PrimaryKey[str]
    poet: Indexed[str]


class Verse(KvModel, collection="verses"):
    """One that goes with its poet."""

    id: PrimaryKey[str]
    poet: Annotated[ForeignKey[str, Poet], CASCADE]


class OldEcho(KvModel, collection="echoes"):
    """An echo of the older release."""

    id: PrimaryKey[str]
    poet: str | None = Field(default=None)


class Echo(KvModel, collection="echoes"):
    """One that stays without its poet."""

    id: PrimaryKey[str]
    poet: Annotated[ForeignKey[str | None, Poet], SET_NULL] = Field(default=None)


OLDER: tuple[tuple[type[Any], ...], ...] = ((Poet, OldPoem, OldVerse, OldEcho), (Poet, OldPoem, IndexedVerse, OldEcho))
NEWER = (Poet, Poem, Verse, Echo)
WORKS = (Poem, Verse, Echo)
COLLECTIONS = ("poems", "verses", "echoes")


class _Rows(NamedTuple):
    """The rows of a store by kind."""

    records: dict[tuple[str, str], dict[str, Any]]
    entries: set[tuple[Any, ...]]
    listed: set[tuple[str, str]]
    kept: list[tuple[Any, ...]]


def _rows(engine: MemoryEngine) -> _Rows:
    rows = _Rows({}, set(), set(), [])
    found = engine.read((ReadRange(b"", b"\xff"),))
    assert isinstance(found, ReadResult)
    for row in found.ranges[0]:
        key = decode_key(row.key)
        if key[0] in ("poets", *COLLECTIONS):
            rows.records[str(key[0]), str(key[1])] = CODEC.decode_document(row.value, row.encoding)
        elif key[:2] == ("__kvmodels__", "violation"):
            rows.listed.add((str(key[2]), str(key[-1])))
        elif key[:2] == ("__kvmodels__", "ref"):
            rows.kept.append(key)
        elif key[0] != "__kvmodels__":
            rows.entries.add(key)
    return rows


def enforced_indexes(engine: MemoryEngine) -> dict[str, StoredIndex]:
    """The maintained index of the foreign key of each collection that has one."""
    found = engine.read((ReadRange(HEADER_KEY),))
    assert isinstance(found, ReadResult)
    ((row,),) = found.ranges
    collections = Header.from_value(CODEC.decode(row.value, row.encoding), ()).collections
    return {
        name: index
        for name in COLLECTIONS
        for index in (collections[name].indexes if name in collections else ())
        if index.state.maintained and index.reference is not None
    }


def late_reference_faults(engine: MemoryEngine) -> Iterator[str]:
    """Yield every entry without its target or record, and every record that is neither indexed nor listed."""
    rows = _rows(engine)
    for name, index in enforced_indexes(engine).items():
        prefix = index.prefix(name)
        found = {key for key in rows.entries if key[0] == prefix}
        for (owner, pk), document in rows.records.items():
            if owner != name:
                continue
            poet = document["poet"]
            entry = (prefix, b"" if poet is None else poet, pk)
            indexed, listed = entry in found, (name, pk) in rows.listed
            found.discard(entry)
            if indexed and poet is not None and ("poets", poet) not in rows.records:
                yield f"{name} {pk!r} is indexed and its poet {poet!r} is not there"
            if indexed and listed:
                yield f"{name} {pk!r} is indexed and listed"
            if not indexed and not listed and index.state is not IndexState.WRITE_ONLY:
                yield f"{name} {pk!r} is neither indexed nor listed"
            if listed and index.state is IndexState.READABLE:
                yield f"{name} {pk!r} is listed by an index that is readable"
        for entry in found:
            yield f"the entry {entry} is of no record"


def stray_guards(engine: MemoryEngine) -> Iterator[str]:
    """Yield every guard or anchor without its record; one may stay if its foreign key was dropped before the record."""
    rows = _rows(engine)
    for key in rows.kept:
        if (key[2], key[4]) not in rows.records:
            yield f"{key} is kept without its record"
