"""Pages: every unwritten record on exactly one of them, cursors that are refused rather than misread."""

from __future__ import annotations

import random
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Any

import msgpack
import pytest

from kvmodels import (
    Database,
    Field,
    IndexChangedError,
    Indexed,
    InvalidArgumentError,
    InvalidCursorError,
    InvalidValueError,
    KvModel,
    PrimaryKey,
)
from tests.query.models import Mixed, Person, people
from tests.worlds import in_the_soak


@pytest.fixture
def db() -> Database:
    db = Database("memory://", models=[Person, Mixed])
    db[Person].bulk_create([Person(**fields) for fields in people(100)])
    return db


def walk(asked: Any, size: int, between: Any = None) -> list[Any]:
    items: list[Any] = []
    cursor = None
    while True:
        page = asked.page(size=size, after=cursor)
        assert len(page) <= size
        items += page.items
        cursor = page.next_cursor
        if cursor is None:
            assert not page.has_more
            return items
        assert page.has_more
        assert len(page) == size
        if between is not None:
            between()


QUERIES: list[Any] = [
    lambda q: q.all(),
    lambda q: q.order_by("-id"),
    lambda q: q.filter(color="red"),
    lambda q: q.filter(color="red").order_by("-age"),
    lambda q: q.order_by("age"),
    lambda q: q.filter(color__in=["red", "blue"]),
    lambda q: q.filter(email__in=[f"p{n:06}@x.org" for n in range(-1, 120, 2)]),
    lambda q: q.filter(id__in=range(-5, 200, 3)).reverse(),
    lambda q: q.filter(color="green", score__gte=5.0),
    lambda q: q.filter(tags=["1"]).allow_scan(),
    lambda q: q.exclude(color="red"),
    lambda q: q.exclude(color="red", age__lt=20).allow_scan().order_by("-age"),
]


@pytest.mark.parametrize("size", [1, 7, 33, 34, 1000, *in_the_soak(2, 20, 100, 101)])
@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_the_pages_together_are_the_list(db: Database, number: int, size: int):
    asked = QUERIES[number](db[Person])
    expected = asked.to_list()
    assert expected
    assert walk(asked, size) == expected


@pytest.mark.parametrize("number", range(len(QUERIES)))
def test_K13_paging_skips_and_repeats_nothing_beside_writers(db: Database, number: int):
    seed = 20_260 + number
    print("seed", seed)
    rng = random.Random(seed)
    asked = QUERIES[number](db[Person])
    before = asked.to_list()
    written: set[int] = set()
    fresh = iter(range(1_000, 9_000))

    def write() -> None:
        for _ in range(rng.randrange(4)):
            verb = rng.choice(["insert", "patch", "move", "remove"])
            number = rng.randrange(100)
            written.add(number)
            if verb == "insert":
                new = next(fresh) if rng.random() < 0.5 else -next(fresh)
                db[Person].create(id=new, email=f"p{new}", color=rng.choice(["red", "blue"]), age=rng.randrange(50))
            elif verb == "remove":
                db[Person].remove(number)
            elif db[Person].get_or_none(number) is not None:
                changes = {"score": 1.0} if verb == "patch" else {"color": "green", "age": rng.randrange(50)}
                db[Person].patch(number, **changes)

    seen = [person.id for person in walk(asked, 5, write)]
    untouched = [person.id for person in before if person.id not in written]
    assert written
    assert untouched
    assert [id for id in seen if 0 <= id < 100 and id not in written] == untouched
    assert db.check().ok


def test_iterating_skips_and_repeats_nothing_beside_writers(db: Database):
    seen = []
    for person in db[Person].order_by("age"):
        seen.append(person.id)
        if len(seen) == 50:
            for number in range(1_000, 1_400):
                db[Person].create(id=number, email=str(number), color="red", age=number % 50)
    assert [id for id in seen if id < 100] == [person.id for person in db[Person].order_by("age") if person.id < 100]
    assert len(set(seen)) == len(seen)


def test_a_deep_page_follows_the_page_before_even_when_its_last_record_is_gone(db: Database):
    first = db[Person].filter(color="red").page(size=5)
    db[Person].remove(first.items[-1].id)
    second = db[Person].filter(color="red").page(size=5, after=first.next_cursor)
    assert [person.id for person in second] == [15, 18, 21, 24, 27]


def changed_character(cursor: str, at: int) -> str:
    other = "A" if cursor[at] != "A" else "B"
    return cursor[:at] + other + cursor[at + 1 :]


def test_a_changed_cursor_is_refused_wherever_it_was_changed(db: Database):
    asked = db[Person].filter(color="red")
    cursor = asked.page(size=5).next_cursor
    assert cursor is not None
    assert cursor.isascii()
    assert not set(cursor) & set("+/= ")
    for at in range(len(cursor)):
        with pytest.raises(InvalidCursorError):
            asked.page(size=5, after=changed_character(cursor, at))
    for wrong in ("", cursor[:-1], cursor + "A", cursor * 2, "ü", "a b", " " + cursor, 7, b"abc"):
        with pytest.raises(InvalidCursorError) as refused:
            asked.page(size=5, after=wrong)  # type: ignore[arg-type]
        assert refused.value.hint
        assert refused.value.reason


@pytest.mark.parametrize(
    "parts",
    [
        "text",
        [],
        [1],
        [2, "color", 1, "0" * 16, b"x"],
        [1, "color", "1", "0" * 16, b"x"],
        [1, None, 1, "0" * 16, b"x"],
        [1, "color", 1, "0" * 16, "x"],
        [1, "color", 1, "0" * 16, b"x", 3],
        [1, "nothing", 1, "0" * 16, b"x"],
        [1, "color", 1, "0" * 16, b"x"],
        [1, "email", 1, "0" * 16, b"x"],
        [1, "", 0, "0" * 16, b"x"],
    ],
)
def test_a_forged_cursor_is_refused(db: Database, parts: Any):
    payload = msgpack.packb(parts)
    forged = urlsafe_b64encode(payload + sha256(payload).digest()[:8]).decode().rstrip("=")
    with pytest.raises(InvalidCursorError):
        db[Person].filter(color="red").page(size=5, after=forged)


def forged(cursor: str, mark: Any) -> str:
    data = urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    payload = msgpack.packb([*msgpack.unpackb(data[:-8])[:-1], mark])
    return urlsafe_b64encode(payload + sha256(payload).digest()[:8]).decode().rstrip("=")


def test_a_forged_position_reads_nothing_outside_the_query(db: Database):
    asked = db[Person].filter(color="red")
    cursor = asked.page(size=5).next_cursor
    assert cursor is not None
    for key in (b"", b"\x00", b"\x02blue\x00", b"\xff" * 9):
        for behind in (True, False):
            wrong = forged(cursor, msgpack.packb([0, key, behind]))
            for query in (asked, asked.filter(color="red")):
                assert {person.color for person in query.page(size=50, after=wrong)} <= {"red"}


@pytest.mark.parametrize(
    "mark", [b"", b"\xc1", [], [0, b""], [1, b"", True], [-1, b"", True], [0, "", True], [0, b"", 1], [0, b"", True, 1]]
)
@pytest.mark.parametrize("which", ["after", "before"])
def test_a_forged_mark_is_refused(db: Database, mark: Any, which: str):
    asked = db[Person].filter(color="red")
    cursor = asked.page(size=5).next_cursor
    assert cursor is not None
    wrong = forged(cursor, mark if isinstance(mark, bytes) else msgpack.packb(mark))
    with pytest.raises(InvalidCursorError):
        asked.page(size=5, **{which: wrong})


def test_a_cursor_of_another_query_is_refused(db: Database):
    people = db[Person]
    cursor = people.filter(color="red").page(size=5).next_cursor
    for other in (
        people.filter(color="blue"),
        people.filter(color="red").reverse(),
        people.filter(color="red", score__gte=1.0),
        people.filter(color="red").order_by("-age"),
        people.all(),
        people.filter(age=3),
        db[Mixed].all(),
        db[Mixed].filter(a=1),
    ):
        with pytest.raises(InvalidCursorError):
            other.page(size=5, after=cursor)
    other_size = people.filter(Person.color == "red").page(size=2, after=cursor)
    assert [person.id for person in other_size] == [15, 18]


def test_a_rebuilt_index_ends_its_cursors_and_a_new_index_does_not():
    class Song(KvModel, collection="songs"):
        id: PrimaryKey[int]
        year: Indexed[int]

    class Wider(KvModel, collection="songs"):
        id: PrimaryKey[int]
        year: Indexed[int]
        name: Indexed[str] = Field(default="")

    with Database("memory://songs-of-the-pages", models=[Song]) as db:
        for number in range(20):
            db[Song].create(id=number, year=2000)
        asked = db[Song].filter(year=2000)
        cursor = asked.page(size=5).next_cursor
        iterator = iter(asked)
        next(iterator)
        with Database("memory://songs-of-the-pages", models=[Wider]) as wider:
            wider.build_indexes()
            assert [song.id for song in wider[Wider].filter(year=2000).page(size=5, after=cursor)] == [5, 6, 7, 8, 9]
            wider.drop_index(Wider, "name")
        assert [song.id for song in asked.page(size=5, after=cursor)] == [5, 6, 7, 8, 9]
        db.drop_index(Song, "year")
        with pytest.raises(IndexChangedError):
            asked.page(size=5, after=cursor)
        db.build_indexes()
        with pytest.raises(IndexChangedError) as changed:
            asked.page(size=5, after=cursor)
        assert (changed.value.model, changed.value.index) == ("Song", "year")
        assert asked.page(size=5).next_cursor not in (None, cursor)


def test_what_a_page_refuses(db: Database):
    with pytest.raises(InvalidArgumentError):
        db[Person].all()[:10].page()
    with pytest.raises(InvalidArgumentError):
        db[Person].page(size=0)
    for wrong in ("5", 2.0, True, None):
        with pytest.raises(InvalidValueError):
            db[Person].page(size=wrong)  # type: ignore[arg-type]


def test_a_page_of_nothing_is_empty_and_the_last():
    with Database("memory://", models=[Person]) as db:
        page = db[Person].page()
        assert (page.items, page.next_cursor, page.has_more, len(page), list(page)) == ([], None, False, 0, [])
