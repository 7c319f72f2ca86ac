"""The story whose bytes are the promise of format 1: every kind of row that the library writes, in a fixed order.

``python -m tests.golden.story FOLDER`` writes the golden files of the present code into a folder. The files of a
format that was released are never written again: a difference is a change of the format, which needs a new number.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from hashlib import sha256
from ipaddress import IPv4Address, IPv6Address
from itertools import count, groupby
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal
from uuid import UUID

from kvmodels import (
    ULID,
    Database,
    Field,
    Index,
    Indexed,
    KeyNumber,
    KeyRing,
    KvModel,
    PrimaryKey,
    RetryPolicy,
    Unique,
    UniqueConstraint,
)
from kvmodels.api.core import DatabaseCore
from kvmodels.catalog.keyspace import build_key, drop_key
from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.operations import AtomicWrite, Committed, Conflict, Delete, ReadRange, Set
from kvmodels.engines.contract import Engine
from kvmodels.engines.faults import FaultEngine
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.engines.sqlite.engine import SqliteEngine

START_MS = 1_700_000_000_000


class Grade(Enum):
    LOW = "low"
    HIGH = "high"


class Column(KvModel, collection="columns"):
    """Every type that can be a column, each in an index of its own, and a primary key of two fields."""

    place: PrimaryKey[str]
    number: PrimaryKey[int]
    boolean: Indexed[bool]
    integer: Indexed[int]
    key_number: Annotated[int, Indexed(), KeyNumber()]
    real: Indexed[float]
    text: Indexed[str]
    raw: Indexed[bytes]
    uuid: Indexed[UUID]
    ulid: Indexed[ULID]
    day: Indexed[date]
    moment: Indexed[datetime]
    clock: Indexed[time]
    span: Indexed[timedelta]
    amount: Indexed[Decimal]
    grade: Indexed[Grade]
    word: Indexed[Literal["yes", "no"]]
    ipv4: Indexed[IPv4Address]
    ipv6: Indexed[IPv6Address]
    maybe: Indexed[int | None]


class User(KvModel, collection="users"):
    """Every kind of index, in the first release of a program."""

    id: PrimaryKey[int]
    email: Unique[str]
    phone: Annotated[str | None, Unique(nulls="distinct")] = Field(default=None)
    badge: Annotated[str | None, Unique(nulls="skip")] = Field(default=None)
    desk: Annotated[str | None, Unique(nulls="equal")] = Field(default=None)
    login: Annotated[str, Unique(store="record")]
    color: Indexed[str]
    team: Annotated[str | None, Indexed(nulls="skip")] = Field(default=None)
    city: Annotated[str, Indexed(store="record")] = Field(default="")
    age: Annotated[int | None, Indexed(descending=True)] = Field(default=None)
    tags: list[str] = Field(default_factory=list)

    class Meta:
        indexes: ClassVar = (
            Index("color", "-age", name="oldest"),
            UniqueConstraint("city", "login", name="address"),
        )


class NewUser(User, collection="users"):
    """The second release: a new field in a new unique index, which two records violate, and a changed index."""

    nick: Annotated[str, Unique()] = Field(default="none")
    color: Annotated[str, Indexed(descending=True)]

    class Meta:
        indexes: ClassVar = User.Meta.indexes


class Stopped(BaseException):
    """The process was killed here."""


class TellingEngine(FaultEngine):
    """Says that answers may be lost, so that tokens are written, and stops after a chosen commit."""

    stop: Callable[[AtomicWrite], bool] = staticmethod(lambda _: False)

    def commit(self, write: AtomicWrite) -> Committed | Conflict:
        outcome = super().commit(write)
        if self.stop(write):
            raise Stopped
        return outcome


def sets(key: bytes, times: int = 1) -> Callable[[AtomicWrite], bool]:
    """Whether an operation is the n-th that sets a key."""
    seen = count(1)
    return lambda write: any(isinstance(m, Set) and m.key == key for m in write.mutations) and next(seen) == times


def column(place: str, number: int, **changes: Any) -> Column:
    values: dict[str, Any] = {
        "boolean": True,
        "integer": -(2**70),
        "key_number": 2**53 - 1,
        "real": -1.5,
        "text": "naïve\0😀",
        "raw": b"\x00\xff",
        "uuid": UUID(int=2**127 + 1),
        "ulid": ULID("01ARZ3NDEKTSV4RRFFQ69G5FAV"),
        "day": date(2024, 2, 29),
        "moment": datetime(2024, 2, 29, 12, 30, 15, 250_000, tzinfo=UTC),
        "clock": time(23, 59, 59, 999_999),
        "span": timedelta(days=-1, microseconds=1),
        "amount": Decimal("-123.4500"),
        "grade": Grade.HIGH,
        "word": "yes",
        "ipv4": IPv4Address("192.0.2.1"),
        "ipv6": IPv6Address("2001:db8::1"),
        "maybe": None,
    }
    return Column(place=place, number=number, **{**values, **changes})


def database(
    engine: Engine,
    *models: type[KvModel],
    tokens: str = "token",
    codec: str = "msgpack",
    keys: KeyRing | None = None,
) -> Database:
    """A database whose every decision is fixed; the random bytes of sealed values depend on ``tokens``."""
    numbers, seeds = count(1), count(1)
    core = DatabaseCore(
        models,
        retry=RetryPolicy(),
        readonly=False,
        must_be_current=False,
        new_token=lambda: f"{tokens}-{next(numbers)}",
        monotonic=lambda: 0.0,
        uniform=lambda: 0.0,
        codec=codec,
        keys=keys,
        random_bytes=lambda size: sha256(f"{tokens}-{next(seeds)}".encode()).digest()[:size],
    )
    return Database.from_engine(engine, core)


def stages(engine: TellingEngine) -> Iterator[str]:
    """The story, with a name wherever the store is looked at."""
    db = database(engine, Column, User)
    yield "1_empty"
    db[Column].insert(column("a", 1))
    db[Column].insert(column("b", -1, maybe=0, real=0.0, amount=Decimal("1E+3"), raw=b"", text="", boolean=False))
    db[User].create(id=1, email="ada@x.org", login="ada", color="red", city="Paris", age=36, tags=["a", "b"])
    db[User].create(id=2, email="bob@x.org", login="bob", color="red", phone="+1", badge="B", team="core", desk="D")
    db[User].create(id=3, email="eve@x.org", login="eve", color="blue", desk="G", expire_in=3_600)
    db[User].create(id=4, email="leo@x.org", login="leo", color="blue", badge="L", desk="E")
    db[User].patch(2, color="blue", city="Rome")
    db[User].remove(4)
    yield "2_records"
    new = database(engine, Column, NewUser, tokens="build")
    engine.stop = sets(build_key("users", "nick", 1), 2)
    try:
        new.build_indexes(NewUser)
    except Stopped:
        yield "3_half_a_build"
    engine.stop = lambda _: False
    new.build_indexes(NewUser)
    new[NewUser].create(id=5, email="zoe@x.org", login="zoe", color="green", nick="zoe", desk="F")
    yield "4_built_with_violations"
    engine.stop = sets(drop_key("users", "oldest", 1))
    try:
        new.drop_index(NewUser, "oldest")
    except Stopped:
        yield "5_half_a_drop"
    engine.stop = lambda _: False
    new.drop_index(NewUser, "oldest")
    new.build_indexes(NewUser)
    yield "6_rebuilt"


def shown_parts(key: bytes) -> str:
    """Return the parts of a key as Python 3.11 shows them: later ones print letters of Unicode 16 as they are."""
    return repr(decode_key(key)).replace("\u1c89", "\\u1c89").replace("\ua7dc", "\\ua7dc")


def rows_of(engine: Engine) -> list[dict[str, Any]]:
    """Everything that is stored, as text."""
    rows = engine.read([ReadRange(b"", b"\xff")], include_expired=True).ranges[0]  # type: ignore[union-attr]
    return [
        {
            "parts": shown_parts(row.key),
            "key": row.key.hex(),
            "encoding": row.encoding,
            "value": row.value.hex(),
            "versionstamp": row.versionstamp.hex(),
            "expire_at": row.expire_at,
        }
        for row in rows
    ]


def telling_engine(path: Path | None = None) -> TellingEngine:
    """A store with a clock that stands still, in memory or in a file."""
    if path is None:
        return TellingEngine(MemoryEngine(clock=lambda: START_MS))
    return TellingEngine(SqliteEngine(path, clock=lambda: START_MS))


def store_of(rows: Iterable[dict[str, Any]]) -> MemoryEngine:
    """A store of the present code with rows that an earlier one has written, with their versionstamps."""
    engine = MemoryEngine(clock=lambda: START_MS)
    filler = Set(encode_key(("filler",)), b"", 0)
    with engine.snapshot() as snapshot:
        last = snapshot.versionstamp
    in_order = sorted(rows, key=lambda row: row["versionstamp"])
    for stamp, commit in groupby(in_order, key=lambda row: row["versionstamp"]):
        while _counter(last) + 1 < _counter(bytes.fromhex(stamp)):
            last = _versionstamp(engine.commit(AtomicWrite(mutations=(filler, Delete(filler.key)))))
        mutations = tuple(
            Set(bytes.fromhex(row["key"]), bytes.fromhex(row["value"]), row["encoding"], row["expire_at"])
            for row in commit
        )
        last = _versionstamp(engine.commit(AtomicWrite(mutations=mutations)))
    return engine


def _versionstamp(outcome: Committed | Conflict) -> bytes:
    assert isinstance(outcome, Committed)
    return outcome.versionstamp


def _counter(versionstamp: bytes) -> int:
    """Return the number of a commit: the first eight bytes of its versionstamp."""
    return int.from_bytes(versionstamp[:8], "big")


Tell = Callable[[TellingEngine], Iterator[str]]
"""A story: what happens to a store, with a name wherever the store is looked at."""


def golden_rows(folder: Path, stage: str) -> list[dict[str, Any]]:
    """The rows of a stage as they were written once."""
    rows: list[dict[str, Any]] = json.loads((folder / f"{stage}.json").read_text(encoding="utf-8"))
    return rows


def told_again(
    stages: Tell, folder: Path, path: Path | None, promised: Callable[[Any], Any] | None = None
) -> list[str]:
    """Tell a story in memory or in a file, compare every stage with its golden file, and return their names.

    ``promised``: what of a row is the promise, if not all of it.
    """
    engine = telling_engine(path)
    seen = []
    for stage in stages(engine):
        seen.append(stage)
        expected, found = golden_rows(folder, stage), rows_of(engine)
        for row in (*expected, *found):
            if promised is not None:
                row["value"] = promised(row)
            if path is not None:
                # Opening a file again raises its counter, so the numbers differ and only their order is the same.
                row.pop("versionstamp")
        assert found == expected, stage
    engine.close()
    return seen


def write_files(folder: Path, stages: Tell) -> None:
    """Write the golden files of the present code."""
    folder.mkdir(parents=True, exist_ok=True)
    engine = telling_engine()
    for stage in stages(engine):
        text = json.dumps(rows_of(engine), indent=1, ensure_ascii=True)
        (folder / f"{stage}.json").write_text(text + "\n", encoding="utf-8")
    file = telling_engine(folder / "store.sqlite3")
    for _ in stages(file):
        pass
    file.close()


if __name__ == "__main__":
    write_files(Path(sys.argv[1]), stages)
