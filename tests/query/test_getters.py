"""A record that is got without a flow in between is the one, or the error, that the flow gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kvmodels import Database, Indexed, KvModel, PrimaryKey, Unique
from kvmodels.core.keys import encode_key
from kvmodels.engines.sqlite.engine import SqliteEngine
from kvmodels.flows.effects import OneLookup
from kvmodels.flows.reading import lookup
from kvmodels.runtime import sync as drivers


class Guest(KvModel, collection="guests"):
    id: PrimaryKey[int]
    email: Unique[str]
    badge: Unique[int]
    nickname: Unique[str | None]
    room: int


class Booking(KvModel, collection="bookings"):
    room: PrimaryKey[int]
    day: PrimaryKey[str]
    code: Unique[str]


class Ticket(KvModel, collection="tickets"):
    id: PrimaryKey[str]
    number: Unique[int]


IDS = (1, 2, 127, 255, 256, 300, 65_535, 65_536, 2**40)
ENGINES = ["sqlite", "sqlite-memory", "memory", "lmdb"]


@pytest.fixture(params=ENGINES)
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    url = {
        "sqlite": str(tmp_path / "g.db"),
        "sqlite-memory": "sqlite://:memory:",
        "memory": "memory://",
        "lmdb": f"lmdb:///{tmp_path / 'g.lmdb'}",
    }[request.param]
    with Database(url, models=[Guest, Booking, Ticket]) as opened:
        for number in IDS:
            opened[Guest].create(id=number, email=f"{number}@x.org", badge=-number, nickname=f"n{number}", room=0)
            opened[Booking].create(room=number, day="monday", code=f"c{number}")
        opened[Ticket].create(id="kept", number=1, expire_in=1_000)
        opened[Ticket].create(id="é" * 40, number=2)
        yield opened


def outcome(get: Callable[[], Any]) -> object:
    """Return the result of a call: the object with its state, or the error."""
    try:
        found = get()
    except Exception as error:  # noqa: BLE001 - whatever it is, both have to raise it
        return type(error), str(error), getattr(error, "hint", None)
    return found, found.versionstamp, found.model_fields_set


def both(db: Database, model: type[KvModel], *arguments: Any, **lookups: Any) -> object:
    """The outcome of ``get``, which is that of the flow and of the query."""
    rows: Any = db[model]
    context, schema = rows._runner.context, rows._runner.schema
    by_flow = outcome(lambda: drivers.run(db._engine, lookup.get(context, schema, arguments, lookups)))
    for _ in range(3):  # as it is compiled, and as it is kept
        got = outcome(lambda: rows.get(*arguments, **lookups))
        assert got == by_flow
    with db.transaction() as tx:
        in_transaction = outcome(lambda: tx[model].get(*arguments, **lookups))
    assert in_transaction == by_flow
    return by_flow


KEYS = (*IDS, 3, -1, 0, True, "1", 1.0, 1.5, None, b"1", (), (1,), [1], object(), datetime(2020, 1, 1), 1 << 70)
TEXTS = ("1@x.org", "256@x.org", "", "é", "a\0b", "nobody", None, 1, b"1@x.org", True, ["1@x.org"], "\ud800")


def test_what_is_got_is_what_the_flow_gives(db: Database):
    for key in KEYS:
        both(db, Guest, key)
        both(db, Guest, badge=key)
        both(db, Guest, id=key)
        both(db, Guest, room=key)
    for text in TEXTS:
        both(db, Guest, text)
        both(db, Guest, email=text)
        both(db, Guest, nickname=text)
        both(db, Guest, Guest.email == text)
        both(db, Guest, email=text, badge=-1)
        both(db, Guest, 1, email=text)
        both(db, Guest, nothing=text)
        both(db, Booking, code=text)
    for number in IDS:
        both(db, Booking, (number, "monday"))
        both(db, Booking, (number, "tuesday"))
        both(db, Booking, number)
    both(db, Guest)
    both(db, Guest, 1, 2)
    both(db, Guest, Guest.id)
    for ticket in ("kept", "é" * 40, "none"):
        both(db, Ticket, ticket)
        both(db, Ticket, number=len(ticket))


def test_what_is_damaged_or_gone_is_told_as_the_flow_tells_it(db: Database):
    guests = db[Guest]
    assert guests.get(1) == guests.get(email="1@x.org")
    for key, value in ((1, {"id": 1}), (2, "no document"), (127, {"id": 127, "email": "other", "badge": 1, "room": 0})):
        db.kv.unsafe().set(("guests", key), value)
    db.kv.unsafe().delete(("guests", 255))
    guests.remove(256)
    for number in IDS:
        both(db, Guest, number)
        both(db, Guest, email=f"{number}@x.org")
        both(db, Guest, badge=-number)


@pytest.mark.fast_kinds
def test_a_guess_that_leads_elsewhere_is_told_as_the_flow_tells_it(db: Database):
    assert db[Guest].get(email="300@x.org").id == 300
    context, schema = db[Guest]._runner.context, db[Guest]._runner.schema
    asked = lookup.get(context, schema, (), {"email": "300@x.org"})
    assert isinstance(asked, OneLookup)
    likely: Any = asked.lookup.follow
    for number in IDS:
        likely.guess = (encode_key(("guests", 255)), 1_000, b"")
        assert db[Guest].get(email=f"{number}@x.org").id == number


class Housed(KvModel, collection="guests"):
    id: PrimaryKey[int]
    email: Unique[str]
    badge: Unique[int]
    nickname: Unique[str | None]
    room: Indexed[int]


@pytest.mark.parametrize("engine", ["sqlite", "lmdb"])
def test_what_is_kept_ends_with_its_header(engine: str, tmp_path: Path):
    url = str(tmp_path / "g.db") if engine == "sqlite" else f"lmdb:///{tmp_path / 'g.lmdb'}"
    with Database(url, models=[Guest]) as db:
        for number in (300, 301):
            db[Guest].create(id=number, email=f"{number}@x.org", badge=number, nickname=None, room=0)
        for _ in range(3):
            assert db[Guest].get(email="300@x.org") == db[Guest].get(300)
        with Database(url, models=[Housed]) as other:
            other.build_indexes()
            assert both(db, Guest, email="301@x.org") == both(db, Guest, 301)
            other.drop_index(Housed, "badge")
            other.drop_index(Housed, "email")
            other.kv.unsafe().delete(("users_by_email", "301@x.org"))
        both(db, Guest, email="301@x.org")
        both(db, Guest, badge=300)
        assert db[Guest].get(301).id == 301


@pytest.mark.fast_kinds
def test_a_record_that_is_plainly_there_takes_one_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with Database(str(tmp_path / "g.db"), models=[Guest]) as db:
        for number in (300, 301):
            db[Guest].create(id=number, email=f"{number}@x.org", badge=number, nickname=None, room=0)
        for _ in range(3):
            assert db[Guest].get(email="300@x.org") == db[Guest].get(300)

        def refuse(*_: Any, **__: Any) -> None:
            raise AssertionError("this way is longer")

        monkeypatch.setattr(drivers, "_run_through", refuse)
        monkeypatch.setattr(SqliteEngine, "read", refuse)
        assert db[Guest].get(email="301@x.org") == db[Guest].get(301)
        with pytest.raises(Guest.DoesNotExist):
            db[Guest].get(302)
