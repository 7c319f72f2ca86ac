"""Which index is chosen, what a plan says of itself, and how a query that no index serves is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest

from kvmodels import (
    Database,
    Index,
    Indexed,
    IndexNotReadyError,
    KvModel,
    NoUsableIndexError,
    PrimaryKey,
    Unique,
    UniqueConstraint,
)
from tests.query.models import Mixed, Person, people


@pytest.fixture
def db() -> Database:
    db = Database("memory://", models=[Person, Mixed])
    for fields in people(60):
        db[Person].create(**fields)
    return db


Ask = Callable[[Any], Any]


@pytest.mark.parametrize(
    ("ask", "index"),
    [
        (lambda q: q.all(), None),
        (lambda q: q.filter(id=3), None),
        (lambda q: q.filter(pk=3), None),
        (lambda q: q.filter(id__in=[3, 4]), None),
        (lambda q: q.filter(id__gt=3), None),
        (lambda q: q.filter(email="x", color="red"), "email"),
        (lambda q: q.filter(id=3, email="x"), None),
        (lambda q: q.filter(color="red"), "color"),
        (lambda q: q.filter(color="red", age=3), "color_age"),
        (lambda q: q.filter(color="red", age__gt=3), "color_age"),
        (lambda q: q.filter(color="red", score=2.0), "color"),
        (lambda q: q.filter(color="red", id__gt=3), "color"),
        (lambda q: q.filter(age=3), "age"),
        (lambda q: q.filter(age__isnull=True), "age"),
        (lambda q: q.filter(color__startswith="r"), "color"),
        (lambda q: q.filter(color__in=["red", "blue"], age=3), "color_age"),
        (lambda q: q.exclude(color="red"), "color"),
        (lambda q: q.order_by("age"), "age"),
        (lambda q: q.order_by("-age"), "age"),
        (lambda q: q.order_by("color", "-age"), "color_age"),
        (lambda q: q.order_by("-color", "age"), "color_age"),
        (lambda q: q.order_by("color", "age"), "color_age_up"),
        (lambda q: q.filter(color="red").order_by("age"), "color_age"),
        (lambda q: q.filter(color="red").order_by("-age", "id"), "color_age"),
        (lambda q: q.filter(color="red").order_by("age", "id"), "color_age_up"),
        (lambda q: q.filter(color="red").order_by("color", "-id"), "color"),
        (lambda q: q.filter(email="x").order_by("score"), "email"),
        (lambda q: q.order_by("pk"), None),
        (lambda q: q.order_by("id", "score"), None),
        (lambda q: q.filter(Person.color == "red", Person.age.between(3, 9)).order_by(Person.age.desc()), "color_age"),
        (lambda q: q.order_by(Person.age), "age"),
    ],
)
def test_the_chosen_index(db: Database, ask: Ask, index: str | None):
    plan = ask(db[Person]).explain()
    assert plan.index == index
    assert not plan.full_scan
    assert ask(db[Person]).to_list() is not None


@pytest.mark.parametrize(
    "ask",
    [
        lambda q: q.filter(color="red", color__ne="red"),
        lambda q: q.filter(color="red").filter(color="blue"),
        lambda q: q.filter(id__in=[]),
        lambda q: q.filter(tags__in=[]),
        lambda q: q.filter(score__gt=3.0, score__lt=2.0),
        lambda q: q.filter(email=None),
        lambda q: q.filter(email__isnull=True),
        lambda q: q.filter(age__gt=3, age=None),
        lambda q: q.filter(age__range=(5, 3)),
        lambda q: q.all()[3:3],
        lambda q: q.all()[5:][2:1],
    ],
)
def test_what_cannot_match_reads_nothing_and_needs_no_index(db: Database, ask: Ask):
    asked = ask(db[Person])
    plan = asked.explain()
    assert plan.ranges == ()
    assert plan.estimated_reads == 0
    assert "nothing is read" in str(plan)
    assert asked.to_list() == []
    assert asked.count() == 0
    assert not asked.exists()


def test_an_index_that_leaves_out_none_serves_only_queries_that_do_too():
    class Plane(KvModel, collection="planes"):
        id: PrimaryKey[int]
        icao: Annotated[str | None, Indexed(nulls="skip")] = None
        tail: Annotated[str | None, Unique(nulls="skip")] = None
        hangar: int = 0

        class Meta:
            indexes = (UniqueConstraint("hangar", "tail", name="parked", nulls="skip"),)

    db = Database("memory://", models=[Plane])
    planes = db[Plane]
    for number in range(6):
        planes.create(
            id=number, icao="ABC"[number % 3] if number % 2 else None, tail=str(number) if number % 2 else None
        )
    assert planes.filter(icao="A").explain().index == "icao"
    assert [plane.id for plane in planes.filter(icao__isnull=False)] == [3, 1, 5]
    assert [plane.id for plane in planes.filter(icao__ne=None).order_by("-icao")] == [5, 1, 3]
    assert planes.filter(hangar=0, tail__gte="1").explain().index == "parked"
    for ask in (planes.order_by("icao"), planes.filter(icao=None), planes.exclude(icao="A"), planes.filter(hangar=0)):
        with pytest.raises(NoUsableIndexError):
            ask.explain()
    assert planes.filter(icao=None).allow_scan().count() == 3


def test_the_text_of_a_plan_is_for_people(db: Database):
    plan = db[Person].filter(color="red", age__gte=18, score__lt=3.5).exclude(tags=["1"], age=20)[:10].explain()
    assert str(plan) == (
        "Person: 1 range of index color_age\n"
        "  reads only  color = 'red' and age >= 18\n"
        "  then tests  score < 3.5 and (tags != ['1'] or age != 20)\n"
        "  in order    -age, id\n"
        "  reads       an entry and a record for each row in the ranges"
    )
    assert plan.residual == ("score < 3.5", "(tags != ['1'] or age != 20)")
    assert plan.bound == ("color = 'red'", "age >= 18")
    assert plan.order == ("-age", "id")
    many = db[Person].filter(id__in=range(9)).explain()
    assert str(many).splitlines()[:2] == ["Person: 9 keys of the primary key", "  reads only  id in (0, 1, 2, 3, 4, …)"]
    scan = db[Person].filter(score__range=(1.0, 2.0), age__ne=None).allow_scan().order_by("color").explain()
    assert scan.full_scan
    assert str(scan).startswith(
        "Person: full scan of people through index color\n  then tests  1.0 <= score <= 2.0 and"
    )
    assert "email startswith 'a'" in str(db[Person].filter(email__startswith="a").explain())
    assert "email = 'aaaaa" in str(plan := db[Person].filter(email="a" * 500).explain())
    assert len(str(plan)) < 300


@pytest.mark.parametrize(
    ("ask", "reads"),
    [
        (lambda q: q.filter(id=3), 1),
        (lambda q: q.filter(email="x"), 2),
        (lambda q: q.filter(id__in=[1, 2, 3]), 3),
        (lambda q: q.filter(email__in=["a", "b"]), 4),
        (lambda q: q.filter(color="red")[:20], 40),
        (lambda q: q.filter(color="red")[10:20], 30),
        (lambda q: q.order_by("id")[:20], 20),
        (lambda q: q.filter(color="red"), None),
        (lambda q: q.filter(color="red", score=1.0)[:20], None),
    ],
)
def test_estimated_reads(db: Database, ask: Ask, reads: int | None):
    assert ask(db[Person]).explain().estimated_reads == reads


def test_the_hash_of_a_plan_depends_on_what_is_read_and_on_nothing_else(db: Database):
    people = db[Person]

    def hashed(asked: Any) -> str:
        return str(asked.explain().hash)

    same = hashed(people.filter(color="red"))
    assert same == "51f7e6d37f94031f"
    assert same == hashed(people.filter(Person.color == "red")) == hashed(people.filter(color__in=["red"]))
    assert same == hashed(people.filter(color="red").allow_scan())
    others = [
        people.filter(color="blue"),
        people.filter(color="red").reverse(),
        people.filter(color="red", score=1.0),
        people.filter(color="red", score=2.0),
        people.filter(color="red", tags=["a"]),
        people.filter(color="red", tags=["b"]),
        people.filter(color="red", tags__isnull=True),
        people.filter(color="red").exclude(score=1.0, tags=["a"]),
        people.filter(color="red").order_by("age"),
        people.all(),
        db[Mixed].filter(pk__in=[(1, "a")], a=1),
        db[Mixed].filter(a=1).exclude(pk__in=[(1, "a")]),
        db[Mixed].filter(a=1).exclude(pk__in=[(1, "b")]),
    ]
    hashes = [hashed(asked) for asked in others]
    assert len({same, *hashes}) == 1 + len(others)


def test_a_list_of_composite_keys_is_read_by_key():
    db = Database("memory://", models=[Mixed])
    rows = [
        db[Mixed].create(left=left, right=right, c=left, e=number)
        for number, (left, right) in enumerate((left, right) for left in range(3) for right in "ab")
    ]
    asked = db[Mixed].filter(pk__in=[(2, "b"), (0, "a"), (9, "z"), (0, "a")])
    assert asked.explain().points
    assert [row.pk for row in asked] == [(0, "a"), (2, "b")]
    assert [row.pk for row in asked.filter(c=2)] == [(2, "b")]
    assert [row.pk for row in asked.filter(pk__in=[(2, "b"), (1, "a")])] == [(2, "b")]
    assert [row.pk for row in db[Mixed].exclude(pk__in=[rows[0].pk]).allow_scan()] == [row.pk for row in rows[1:]]
    assert db[Mixed].filter(pk=(1, "a")).first() == rows[2]
    assert [row.pk for row in db[Mixed].exclude(pk=(1, "a")).allow_scan()] == [r.pk for r in rows if r.pk != (1, "a")]


def test_several_lists_multiply_to_ranges_up_to_a_bound(db: Database):
    ages, colors = list(range(400)), ["red", "green", "blue"]
    few = db[Person].filter(color__in=colors, age__in=ages[:50])
    assert len(few.explain().ranges) == 150
    many = db[Person].filter(color__in=colors, age__in=ages)
    plan = many.explain()
    assert plan.index == "color"
    assert plan.residual == ("age in (0, 1, 2, 3, 4, …)",)
    assert {row.id for row in many} == {row.id for row in few} == {p["id"] for p in people(60) if p["age"] is not None}


@pytest.mark.parametrize(
    ("ask", "filters", "order", "hint"),
    [
        (
            lambda q: q.filter(score=2.0),
            ("score",),
            (),
            ("Add Index(\"score\") to the indexes of Person.Meta, or call .allow_scan() to read all of 'people'."),
        ),
        (
            lambda q: q.filter(score__gte=2.0, tags=["a"]),
            ("score__gte", "tags"),
            (),
            ("Add Index(\"score\") to the indexes of Person.Meta, or call .allow_scan() to read all of 'people'."),
        ),
        (
            lambda q: q.filter(tags=["a"]),
            ("tags",),
            (),
            "No index answers such a comparison of 'tags': call .allow_scan() to read all of 'people'.",
        ),
        (
            lambda q: q.filter(score=2.0).order_by("-age"),
            ("score",),
            ("-age",),
            (
                'Add Index("score", "-age") to the indexes of Person.Meta, '
                "or call .allow_scan() to read all of 'people'."
            ),
        ),
        (
            lambda q: q.order_by("score").allow_scan(),
            (),
            ("score",),
            ('Add Index("score") to the indexes of Person.Meta, or call .sort_in_memory(limit=…) to sort the results.'),
        ),
        (
            lambda q: q.filter(score__gt=2.0).order_by("email"),
            ("score__gt",),
            ("email",),
            (
                "No index gives a range of 'score' in the order of 'email': order by 'score' first, "
                "or call .allow_scan() to read all of 'people', "
                'or add Index("score") to the indexes of Person.Meta and call .sort_in_memory(limit=…).'
            ),
        ),
        (
            lambda q: q.exclude(score=2.0, age=3),
            ("score__ne", "age__ne"),
            (),
            ("Add Index(\"score\") to the indexes of Person.Meta, or call .allow_scan() to read all of 'people'."),
        ),
    ],
)
def test_a_refusal_names_what_was_asked_and_the_line_to_add(
    db: Database, ask: Ask, filters: tuple[str, ...], order: tuple[str, ...], hint: str
):
    with pytest.raises(NoUsableIndexError) as refused:
        ask(db[Person]).to_list()
    error = refused.value
    assert (error.model, error.filters, error.order, error.hint) == ("Person", filters, order, hint)
    assert error.candidates == (
        "primary key",
        "email (unique)",
        "color",
        "age",
        "color_age on color, -age",
        "color_age_up on color, age",
    )
    assert "2.0" not in str(error)


def test_every_way_to_ask_is_refused_alike(db: Database):
    asked = db[Person].filter(score=2.0)
    for ask in (asked.to_list, asked.first, asked.last, asked.count, asked.exists, asked.page, asked.explain):
        with pytest.raises(NoUsableIndexError):
            ask()
    with pytest.raises(NoUsableIndexError):
        list(asked)
    with pytest.raises(NoUsableIndexError):
        _ = asked[0]
    assert asked.allow_scan().count() == 1


def test_an_index_that_is_not_built_is_named_with_its_state():
    class Old(KvModel, collection="books"):
        id: PrimaryKey[int]
        title: str
        year: int

    class New(KvModel, collection="books"):
        id: PrimaryKey[int]
        title: Unique[str]
        year: Indexed[int]

        class Meta:
            indexes = (Index("year", "title"),)

    with Database("memory://books-of-the-test", models=[Old]) as old:
        for number in range(4):
            old[Old].create(id=number, title="same" if number < 2 else str(number), year=2000 + number)
        with Database("memory://books-of-the-test", models=[New]) as new:
            books = new[New]
            with pytest.raises(IndexNotReadyError) as waiting:
                books.filter(year=2001).to_list()
            assert (waiting.value.model, waiting.value.index, waiting.value.state) == ("New", "year", "disabled")
            assert waiting.value.hint == (
                "Run db.apply(), or call .allow_scan() to read all records until then. If a newer release has "
                "dropped the index, run that release instead."
            )
            with pytest.raises(IndexNotReadyError) as waiting:
                books.order_by("year", "title").page()
            assert waiting.value.index == "year_title"
            assert books.filter(year=2001).allow_scan().count() == 1
            with pytest.raises(NoUsableIndexError):
                books.order_by("-title", "year").to_list()
            new.build_indexes()
            assert books.filter(year=2001).explain().index == "year"
            with pytest.raises(IndexNotReadyError) as waiting:
                books.filter(title="2").to_list()
            assert waiting.value.state == "pending"
            assert waiting.value.hint is not None
            assert "violations" in waiting.value.hint


def test_a_process_that_opened_before_an_index_was_built_uses_it_afterwards():
    class Old(KvModel, collection="songs"):
        id: PrimaryKey[int]
        year: int

    class New(KvModel, collection="songs"):
        id: PrimaryKey[int]
        year: Indexed[int]

    with Database("memory://songs-of-the-test", models=[Old]) as old:
        old[Old].create(id=1, year=2000)
        first = Database("memory://songs-of-the-test", models=[New])
        second = Database("memory://songs-of-the-test", models=[New])
        second.build_indexes()
        assert first[New].filter(year=2000).count() == 1
        first.close()
        second.close()
