"""A model with every kind of index that Deno programs can keep, and its records in the form that they see."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from ipaddress import IPv4Address, IPv6Address
from random import Random
from typing import Annotated, Any
from uuid import UUID

from pydantic import BaseModel

from kvmodels import (
    ULID,
    Database,
    Field,
    Index,
    Indexed,
    KeyNumber,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Q,
    Unique,
    UniqueConstraint,
)
from kvmodels.errors import AlreadyExistsError, DoesNotExist, KvModelsError, UniqueViolationError
from kvmodels.schema.compile.polymorphic import collection_schema


class Plan(Enum):
    FREE = "free"
    PRO = "pro"


class Address(BaseModel):
    city: str | None
    codes: list[int] = []


class Member(KvModel, collection="members"):
    team: PrimaryKey[str]
    number: PrimaryKey[int]
    email: Annotated[str, Unique(key=str.casefold)]
    nick: Unique[str | None] = Field(default=None)
    badge: Annotated[int | None, Unique(nulls="skip")] = None
    desk: Annotated[str | None, Unique(nulls="equal"), Indexed(nulls="skip", name="desks")] = None
    plan: Annotated[Plan, Indexed(store="record")]
    score: Annotated[float, Indexed()]
    size: Annotated[int, KeyNumber(), Indexed()]
    big: Indexed[int]
    flag: Indexed[bool]
    token: Indexed[bytes]
    guid: Indexed[UUID]
    ulid: Indexed[ULID]
    born: Indexed[date]
    seen: Indexed[datetime | None]
    wakes: Indexed[time]
    span: Indexed[timedelta]
    price: Indexed[Decimal]
    v4: Indexed[IPv4Address]
    v6: Indexed[IPv6Address]
    host: Indexed[IPv4Address | IPv6Address]
    tags: MultiIndexed[list[str]] = Field(default=[])
    labels: Annotated[set[str], MultiIndexed(key=str.casefold)] = set()
    address: Address | None = None
    note: str | None = None
    extras: dict[str, list[int]] = {}

    class Meta:
        schema_version = 3
        indexes = (
            Index("plan", "-score", "born", include=("note", "size")),
            Index("-seen", name="seen_down"),
            Index("-email", name="email_down"),
            Index("plan", "score", name="rich", where=Q(plan=Plan.PRO) & Q(score__gte=0.0) | Q(note=None)),
            Index("address.city"),
            Index("address.codes", name="codes"),
            UniqueConstraint("team", "-price", "tags", name="priced"),
        )


COLUMNS = tuple(name for name in Member.model_fields if name not in ("team", "number"))

_CODES: dict[type[KvModelsError], str] = {
    AlreadyExistsError: "already_exists",
    UniqueViolationError: "unique_violation",
    DoesNotExist: "not_found",
}


def member(random: Random, team: str, number: int) -> Member:
    """A record of few different values, so that unique ones meet."""
    word = random.choice(("ada", "Bob", "ÇELIK", "Straße", "ЮЛИЯ", "x\0y", "日", "", "Zoë😀", "µ"))
    values: dict[str, Any] = {
        "email": f"{random.choice(('ada', 'ÇELIK', 'Straße', 'ЮЛИЯ', 'µ'))}{random.randrange(300)}@X.org",
        "nick": random.choice((None, f"{word}{random.randrange(99)}")),
        "badge": random.choice(
            (None, random.randrange(-300, 300), 2**53 + random.randrange(99), -(2**70) - random.randrange(99))
        ),
        "desk": None if random.random() < 0.02 else f"{word}{random.randrange(300)}",
        "plan": random.choice(tuple(Plan)),
        "score": random.choice((0.0, -0.0, 1.0, 1.5, -2.25, 1e300, float("inf"), float("-inf"), 2.0**60)),
        "size": random.choice((0, -5, 2**53 - 1, random.randrange(1000))),
        "big": random.choice((0, -1, 255, 256, -256, 2**64, -(2**64), 2**100, random.randrange(-(2**40), 2**40))),
        "flag": random.random() < 0.5,
        "token": random.choice((b"", b"\0", b"\xff\0", random.randbytes(3))),
        "guid": UUID(int=random.getrandbits(128)),
        "ulid": ULID(random.randbytes(16)),
        "born": date(random.randrange(1, 9999), 2, 28) if random.random() < 0.5 else date(2024, 2, 29),
        "seen": random.choice((None, datetime(2026, 1, 2, 3, 4, 5, random.choice((0, 6, 123_000)), UTC))),
        "wakes": time(random.randrange(24), 5, 6, random.choice((0, 7))),
        "span": timedelta(days=random.randrange(-9, 9), microseconds=random.randrange(9)),
        "price": Decimal(
            random.choice(("0", "-0.00", "1.50", "1.5", "-12.345", "1E+30", "7E-9"))
            if random.random() < 0.5
            else random.randrange(-999, 999)
        ),
        "v4": IPv4Address(random.getrandbits(32)),
        "v6": IPv6Address(random.choice((0, 1, 0xFFFF_0102_0304, random.getrandbits(128)))),
        "host": random.choice((IPv4Address(1), IPv6Address(1))),
        "tags": random.choices(("a", "b", "c", "é"), k=random.randrange(4)),
        "labels": set(random.choices(("Red", "RED", "blue", "ß", "SS"), k=random.randrange(4))),
        "address": random.choice(
            (None, Address(city=random.choice(("ada", "Ulm"))), Address(city=None, codes=[1, 2, random.randrange(5)]))
        ),
        "note": random.choice((None, word)),
        "extras": {word: [1, 2**60]},
    }
    return Member(team=team, number=number, **values)


def stored(record: Member) -> dict[str, Any]:
    """The fields of a record as its document holds them, in a form that JSON can hold."""
    document = collection_schema(Member).prepare(record).document
    return {name: _as_json(value) for name, value in document.items() if name != "$kv"}


def _as_json(value: Any) -> Any:
    if isinstance(value, float) or (isinstance(value, int) and not isinstance(value, bool)):
        small = isinstance(value, int) and abs(value) < 2**53
        return value if small else {"$": "number" if isinstance(value, float) else "bigint", "of": repr(value)}
    if isinstance(value, bytes):
        return {"$": "bytes", "of": list(value)}
    if isinstance(value, set):
        return {"$": "set", "of": sorted(value)}
    if isinstance(value, list):
        return [_as_json(item) for item in value]
    if isinstance(value, dict):
        return {name: _as_json(item) for name, item in value.items()}
    return value


def fill(db: Database, count: int) -> None:
    """Create the first records."""
    random = Random(22)
    while db[Member].count() < count:
        attempt(db, ["insert", member(random, random.choice("ab"), random.randrange(1, 30))])


def operations(count: int) -> list[list[Any]]:
    """Random writes; a record stands for the whole record, and changes for a patch."""
    random = Random(2026)
    made: list[list[Any]] = []
    for _ in range(count):
        team, number = random.choice("ab"), random.randrange(1, 30)
        record = member(random, team, number)
        kind = random.choice(("insert", "replace", "patch", "patch", "remove"))
        if kind == "remove":
            made.append([kind, (team, number)])
        elif kind == "patch":
            names = random.sample(COLUMNS, random.randrange(1, 5))
            made.append([kind, (team, number), {name: getattr(record, name) for name in names}, record])
        else:
            made.append([kind, record])
    return made


def as_script(operation: list[Any]) -> list[Any]:
    """An operation for the script of Deno."""
    kind, target, *rest = operation
    if isinstance(target, Member):
        return [kind, stored(target)]
    if rest:
        changes, record = rest
        document = stored(record)
        return [kind, list(target), {name: document[name] for name in changes}]
    return [kind, list(target)]


def attempt(db: Database, operation: list[Any]) -> str:
    """The result of an operation in Python: ``"ok"``, ``"absent"``, or the code that Deno programs get."""
    kind, target, *rest = operation
    members = db[Member]
    try:
        if kind == "insert":
            members.insert(target.model_copy(deep=True))
        elif kind == "replace":
            if members.get_or_none((target.team, target.number)) is None:
                return "not_found"
            members.save(target.model_copy(deep=True), force=True)
        elif kind == "patch":
            members.patch(target, **rest[0])
        else:
            return "ok" if members.remove(target) else "absent"
    except (AlreadyExistsError, UniqueViolationError, DoesNotExist) as error:
        return next(code for kind, code in _CODES.items() if isinstance(error, kind))
    return "ok"
