"""Authors and books with foreign keys between them, and what is wrong in the raw rows of their store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from kvmodels import CASCADE, SET_NULL, Field, ForeignKey, KvModel, PrimaryKey
from kvmodels.codecs.msgpack import MsgpackCodec
from kvmodels.core.keys import decode_key
from kvmodels.core.operations import ReadRange, ReadResult
from kvmodels.engines.memory.engine import MemoryEngine

CODEC = MsgpackCodec()


class Writer(KvModel, collection="writers"):
    """One that books refer to, and that may refer to the one who taught it."""

    id: PrimaryKey[str]
    name: str = ""
    teacher: ForeignKey[str | None, "Writer"] = Field(default=None)  # noqa: UP037


class Novel(KvModel, collection="novels"):
    """One that refers to its writer, and perhaps to an editor."""

    id: PrimaryKey[str]
    writer: ForeignKey[str, Writer]
    editor: ForeignKey[str | None, Writer] = Field(default=None)
    title: str = ""


class House(KvModel, collection="houses"):
    """One that goes with its writer."""

    id: PrimaryKey[str]
    writer: Annotated[ForeignKey[str, Writer], CASCADE]


class Room(KvModel, collection="rooms"):
    """One that goes with its house."""

    id: PrimaryKey[str]
    house: Annotated[ForeignKey[str, House], CASCADE]


class Lamp(KvModel, collection="lamps"):
    """One that stays without its house."""

    id: PrimaryKey[str]
    house: Annotated[ForeignKey[str | None, House], SET_NULL] = Field(default=None)


REFERENCES = (
    ("novels", "writer", "writers"),
    ("novels", "editor", "writers"),
    ("writers", "teacher", "writers"),
    ("houses", "writer", "writers"),
    ("rooms", "house", "houses"),
    ("lamps", "house", "houses"),
)
COLLECTIONS = {owner for owner, _, _ in REFERENCES}


def reference_faults(engine: MemoryEngine) -> Iterator[str]:
    """Yield every foreign key without a target, every wrong entry, and every guard or anchor without its record."""
    records: dict[tuple[str, str], dict[str, Any]] = {}
    entries: set[tuple[Any, ...]] = set()
    kept: list[tuple[Any, ...]] = []
    found = engine.read((ReadRange(b"", b"\xff"),))
    assert isinstance(found, ReadResult)
    for row in found.ranges[0]:
        key = decode_key(row.key)
        if key[0] in COLLECTIONS:
            records[str(key[0]), str(key[1])] = CODEC.decode_document(row.value, row.encoding)
        elif key[:2] == ("__kvmodels__", "ref"):
            kept.append(key)
        elif key[0] != "__kvmodels__":
            entries.add(key)
    expected: set[tuple[Any, ...]] = set()
    for collection, field, target in REFERENCES:
        for (owner, name), document in records.items():
            if owner != collection:
                continue
            value = document[field]
            expected.add((f"{collection}_by_{field}", b"" if value is None else value, name))
            if value is not None and (target, value) not in records:
                yield f"{collection} {name!r} refers to {target} {value!r} by {field}, which is not there"
    for wrong in entries ^ expected:
        yield f"the entry {wrong} is {'missing' if wrong in expected else 'of no record'}"
    for key in kept:
        if (key[2], key[4]) not in records:
            yield f"{key} is kept without its record"
