"""A lookup by a unique value guesses the key of the record; a wrong guess costs a second look and changes no answer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, DecodeError, KvModel, PrimaryKey, Unique
from kvmodels.core.keys import encode_key
from kvmodels.core.operations import PredictedFollow, ReadRange, Row
from kvmodels.flows.effects import OneLookup
from kvmodels.flows.reading import lookup

IDS = (1, 2, 127, 128, 200, 255, 256, 10_000, 10_001, 65_535, 65_536, 100_000, 2**31, 2**32, 2**53)


class Person(KvModel, collection="persons"):
    id: PrimaryKey[int]
    email: Unique[str]


class Place(KvModel, collection="places"):
    name: PrimaryKey[str]
    email: Unique[str]


@pytest.fixture(params=["memory", "sqlite", "lmdb"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return {"memory": "memory://", "sqlite": str(tmp_path / "g.db"), "lmdb": f"lmdb:///{tmp_path / 'g.lmdb'}"}[
        request.param
    ]


@pytest.fixture
def db(url: str) -> Iterator[Database]:
    with Database(url, models=[Person, Place]) as opened:
        for number in IDS:
            opened[Person].create(id=number, email=f"{number}@x.org")
        yield opened


def lead_to(monkeypatch: pytest.MonkeyPatch, key: bytes) -> None:
    """Have every guess, from the second lookup on, lead to one key."""
    monkeypatch.setattr(lookup, "_guess", lambda value, asked: (key, 1_000, b""))


def test_every_record_is_found_whatever_the_last_one_was_like(db: Database):
    for _ in range(2):
        for number in (*IDS, *reversed(IDS)):
            assert db[Person].get(email=f"{number}@x.org").id == number
    for name in ("a", "ab", "a\0b", "é", "x" * 40, "y" * 300, "b"):
        db[Place].create(name=name, email=f"{len(name)}{name}@x.org")
    for _ in range(2):
        for place in db[Place].all().to_list():
            assert db[Place].get(email=place.email) == place


def test_a_guess_that_leads_to_another_record_changes_no_answer(db: Database, monkeypatch: pytest.MonkeyPatch):
    lead_to(monkeypatch, encode_key(("persons", 255)))
    for number in (*IDS, *IDS):
        assert db[Person].get(email=f"{number}@x.org").id == number
        assert db[Person].get_or_none(email=f"no{number}@x.org") is None
        with db.transaction() as tx:
            assert tx[Person].get(email=f"{number}@x.org").id == number


def test_a_guess_that_leads_to_another_record_changes_no_answer_in_an_event_loop(url: str, monkeypatch):
    async def look() -> None:
        async with AsyncDatabase(url, models=[Person]) as db:
            for number in IDS:
                await db[Person].create(id=number, email=f"{number}@x.org")
            lead_to(monkeypatch, encode_key(("persons", 255)))
            for number in (*IDS, *IDS):
                assert (await db[Person].get(email=f"{number}@x.org")).id == number

    asyncio.run(look())


def test_a_guess_that_leads_to_a_damaged_record_is_not_what_is_reported(db: Database, monkeypatch: pytest.MonkeyPatch):
    lead_to(monkeypatch, encode_key(("persons", 255)))
    assert db[Person].get(email="1@x.org").id == 1
    db.kv.unsafe().set(("persons", 255), {"id": 255})
    assert db[Person].get(email="2@x.org").id == 2
    db.kv.unsafe().set(("persons", 255), "no document")
    assert db[Person].get(email="10000@x.org").id == 10_000
    with pytest.raises(DecodeError):
        db[Person].get(email="255@x.org")


@pytest.mark.fast_kinds
def test_an_answer_that_took_every_guess_for_the_owner_would_miss_records(
    db: Database, monkeypatch: pytest.MonkeyPatch
):
    lead_to(monkeypatch, encode_key(("persons", 255)))
    monkeypatch.setattr(lookup, "_is_another", lambda follow, ranges, row: False)
    runner: Any = db[Person]._runner
    row_at_key = db._engine.capabilities.immediate.row
    run = type(runner).run

    def believing(itself: Any, verb: str, asked: OneLookup[Any]) -> Any:
        found = asked.lookup
        row = row_at_key and row_at_key(asked.key, found.guard, found.follow)
        assert found.load is not None
        return found.load(row, asked.key) if row else run(itself, verb, asked)

    monkeypatch.setattr(type(runner), "run", believing)
    db[Person].get(email="255@x.org")
    missed = [number for number in (*IDS, *IDS) if db[Person].get_or_none(email=f"{number}@x.org") is None]
    assert missed


def test_what_a_slot_is_like_is_learned_from_its_owner():
    assert lookup._guess(b"\x91\xcd\x27\x10", b"p\x16\x27\x10") == (b"p\x16", 2, b"")
    assert lookup._guess(b"\x91\xa1a", b"p\x02a\x00") == (b"p\x02", 2, b"\0")
    assert lookup._guess(b"\x91\x00", b"p\x14") is None
    follow = PredictedFollow(lambda found: [ReadRange(b"k")], (b"", 0, b""))
    assert follow([[Row(b"s", b"v", 0, b"", None)]]) == [ReadRange(b"k")]


@pytest.mark.fast_kinds
def test_one_number_of_another_length_does_not_change_the_guess(tmp_path: Path):
    with Database(str(tmp_path / "g.db"), models=[Person]) as db:
        for number in (1, 2, 300, 400, 500):
            db[Person].create(id=number, email=f"{number}@x.org")

        def guess_after(*numbers: int) -> tuple[bytes, int, bytes]:
            for number in numbers:
                assert db[Person].get(email=f"{number}@x.org").id == number
            context, schema = db[Person]._runner.context, db[Person]._runner.schema
            asked = lookup.get(context, schema, (), {"email": "300@x.org"})
            assert isinstance(asked, OneLookup)
            assert isinstance(asked.lookup.follow, PredictedFollow)
            return asked.lookup.follow.guess

        usual = guess_after(300)
        for number in (300, 1, 400, 2, 500, 1, 300):
            assert guess_after(number) == usual, (
                "a guess that was right since the last miss makes one more miss the first"
            )
        assert not guesses_of(db, Person, email="1@x.org").others
        assert guess_after(300, 1, 2) == usual
        assert [*guesses_of(db, Person, email="1@x.org").others] == [len(b"\x91\2")]
        assert guess_after(300, 400) == usual


def guesses_of(db: Database, model: Any, **values: Any) -> PredictedFollow:
    context, schema = db[model]._runner.context, db[model]._runner.schema
    asked = lookup.get(context, schema, (), values)
    assert isinstance(asked, OneLookup)
    assert isinstance(asked.lookup.follow, PredictedFollow)
    return asked.lookup.follow


def misses_of(db: Database, numbers: Sequence[int]) -> int:
    """How many of these lookups had to ask for the slot."""
    likely, missed = guesses_of(db, Person, email="1@x.org"), 0
    follow = likely.follow

    def counting(ranges: list[list[Row]]) -> Sequence[ReadRange]:
        nonlocal missed
        missed += 1
        return follow(ranges)

    likely.follow = counting
    for number in numbers:
        assert db[Person].get(email=f"{number}@x.org").id == number
    likely.follow = follow
    return missed


@pytest.mark.fast_kinds
def test_numbers_of_several_lengths_are_guessed_once_they_are_known(db: Database):
    numbers = [number for number in IDS if number not in (1, 2, 127, 2**32)]
    order = random.Random(1)
    misses_of(db, [order.choice(numbers) for _ in range(200)] + [65_536] * 2)
    likely = guesses_of(db, Person, email="1@x.org")
    assert likely.guess[1] > 0
    assert 2 <= len(likely.others) <= 4
    assert misses_of(db, [order.choice([200, 255, 256, 10_000, 65_535, 65_536, 100_000]) for _ in range(100)]) == 0
    # Numbers of three bytes and of four are stored in as many, so one of them is guessed wrong, and the other stays.
    assert misses_of(db, [65_536, 2**31, 65_536, 100_000, 2**31, 100_000]) == 2


@pytest.mark.fast_kinds
def test_a_guess_that_comes_true_again_takes_the_place_of_another_one_for_its_length(db: Database):
    misses_of(db, [256] * 3)
    likely = guesses_of(db, Person, email="1@x.org")
    usual = likely.guess
    likely.others, likely.guess = {4: (b"nowhere", 0, b"")}, (usual[0], usual[1], usual[2])
    assert misses_of(db, [256, 300 + 9_700, 10_001, 65_535]) == 2
    assert (likely.guess, likely.others) == (usual, {})


@pytest.mark.fast_kinds
def test_keys_of_many_lengths_are_guessed_by_the_last_one_that_was_learned(db: Database):
    names = ["x" * length for length in range(33, 60)]
    for name in ("short", *names):
        db[Place].create(name=name, email=f"{name}@x.org")
    for name in ("short", *names, *names):
        assert db[Place].get(email=f"{name}@x.org").name == name
        assert len(guesses_of(db, Place, email="short@x.org").others) <= 6


def test_who_remembers_a_guess_sees_another_object_when_more_is_learned():
    likely = PredictedFollow(lambda _: (), (b"p", 0, b""))
    seen: list[tuple[object, int]] = []
    for value, key in ((b"\x91\xcd\1\2", b"p\x16\1\2"), (b"\x91\xce\0\1\2\3", b"p\x17\1\2\3")) * 2:
        lookup._learn(likely, value, key)
        assert likely.predicted_key(value) == key
        seen.append((likely.guess, len(likely.others)))
    assert [others for _, others in seen] == [0, 1, 1, 1]
    assert seen[0][0] == seen[1][0]
    assert seen[0][0] is not seen[1][0]
