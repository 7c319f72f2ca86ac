"""The query sets as people use them: immutable, lazy, the same in both worlds; what they refuse."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    Database,
    InvalidArgumentError,
    InvalidValueError,
    UnknownFieldError,
    UnknownLookupError,
    col,
)
from tests.query.engines import watched
from tests.query.models import Mixed, Person, people


@pytest.fixture
def db() -> Database:
    db = Database("memory://", models=[Person, Mixed])
    db[Person].bulk_create([Person(**fields) for fields in people(30)])
    return db


def test_a_query_set_is_immutable_and_lazy():
    db, engine = watched([Person])
    db[Person].bulk_create([Person(**fields) for fields in people(30)])
    base = db[Person].filter(color="red")
    engine.meter.reset()
    narrower = base.filter(score__gte=3.0).exclude(age=None).order_by("-age").reverse().allow_scan()[2:5]
    assert base is not base.all()
    assert repr(narrower) == "<QuerySet[Person] filtered by color, score, age ordered by age [2:5]>"
    assert repr(base.reverse()[1:]) == "<QuerySet[Person] filtered by color reversed [1:]>"
    assert repr(db[Person].all()) == "<QuerySet[Person]>"
    assert engine.meter.reads == 0
    assert len(base.to_list()) == 10
    assert base.to_list() == base.all().to_list()


def test_a_query_set_may_be_read_more_than_once_and_sees_what_was_written_since(db: Database):
    reds = db[Person].filter(color="red")
    assert reds.count() == 10
    db[Person].create(id=100, email="new", color="red")
    assert len(list(reds)) == len(list(reds)) == reds.count() == 11


def test_a_query_set_has_no_truth_value(db: Database):
    with pytest.raises(InvalidValueError) as refused:
        bool(db[Person].filter(color="red"))
    assert refused.value.hint == "Ask exists() or count()."


def test_first_last_and_positions(db: Database):
    reds = db[Person].filter(color="red")
    assert [reds.first().id, reds.last().id, reds[0].id, reds[9].id] == [0, 27, 0, 27]  # type: ignore[union-attr]
    assert reds[2:4].first().id == 6  # type: ignore[union-attr]
    assert db[Person].filter(color="none").first() is None
    assert db[Person].filter(color="none").last() is None
    with pytest.raises(Person.DoesNotExist):
        _ = reds[10]
    with pytest.raises(LookupError):
        _ = reds[2:4][2]
    with pytest.raises(InvalidArgumentError):
        reds[2:4].last()


def test_order_by_replaces_the_order_and_reverse_turns_it(db: Database):
    ages = [person.age for person in db[Person].order_by("age").reverse()]
    assert ages == [person.age for person in db[Person].order_by("-age")]
    assert db[Person].order_by("-age").order_by("id").first().id == 0  # type: ignore[union-attr]
    assert db[Person].order_by("-age").reverse().reverse().to_list() == db[Person].order_by("-age").to_list()
    assert [person.id for person in db[Person].all().reverse()[:2]] == [29, 28]
    assert [person.id for person in db[Person].order_by("-pk")[:2]] == [29, 28]
    assert [person.id for person in db[Person].order_by(Person.id.desc())[:2]] == [29, 28]


@pytest.mark.parametrize("wrong", [slice(-1, None), slice(None, -1), slice(0, 5, 2), -1])
def test_what_cannot_be_sliced(db: Database, wrong: Any):
    with pytest.raises(InvalidArgumentError):
        _ = db[Person].all()[wrong]


@pytest.mark.parametrize("wrong", [slice("a", None), slice(None, 2.0), "a", 1.5, None, True])
def test_what_is_no_slice(db: Database, wrong: Any):
    with pytest.raises(InvalidValueError):
        _ = db[Person].all()[wrong]


def test_a_slice_cannot_be_changed_but_sliced_again(db: Database):
    part = db[Person].order_by("id")[5:15]
    for change in (
        lambda: part.filter(id=1),
        lambda: part.exclude(id=1),
        lambda: part.order_by("id"),
        lambda: part.reverse(),
        lambda: part.page(),
    ):
        with pytest.raises(InvalidArgumentError) as refused:
            change()
        assert refused.value.hint
    assert [person.id for person in part[2:4]] == [7, 8]
    assert [person.id for person in part[8:100]] == [13, 14]
    assert part[20:].to_list() == []
    assert part.all().allow_scan().count() == 10


def test_get_finds_one_and_says_what_it_looked_for(db: Database):
    assert db[Person].get(email="p000003@x.org").id == 3
    with pytest.raises(Person.DoesNotExist) as missing:
        db[Person].get(email="secret@x.org", color="red")
    assert (missing.value.model, missing.value.lookup) == ("Person", ("email", "color"))
    assert "secret" not in str(missing.value)
    with pytest.raises(Person.MultipleObjectsReturned) as several:
        db[Person].get(color="red")
    assert several.value.lookup == ("color",)
    with pytest.raises(Person.DoesNotExist) as absent:
        db[Person].get(12345)
    assert absent.value.lookup == 12345


@pytest.mark.parametrize(
    ("lookups", "error", "field", "suggestion"),
    [
        ({"colour": "red"}, UnknownFieldError, "colour", "color"),
        ({"colour__gt": "red"}, UnknownFieldError, "colour", "color"),
        ({"emial__startwith": "red"}, UnknownFieldError, "emial", "email"),
        ({"zzz": 1}, UnknownFieldError, "zzz", None),
        ({"__exact": 1}, UnknownFieldError, "", None),
        ({"color__": "red"}, UnknownLookupError, "color", None),
        ({"color__startwith": "red"}, UnknownLookupError, "color", "startswith"),
        ({"color__name__gt": "red"}, UnknownFieldError, "color__name", None),
        ({"age__contains": "red"}, UnknownLookupError, "age", None),
        ({"age__startswith": 1}, UnknownLookupError, "age", None),
        ({"tags__gt": ["a"]}, UnknownLookupError, "tags", None),
        ({"pk__startswith": 1}, UnknownLookupError, "id", None),
    ],
)
def test_unknown_fields_and_lookups_are_refused_with_a_suggestion(
    db: Database, lookups: dict[str, Any], error: type[Any], field: str, suggestion: str | None
):
    for method in (db[Person].filter, db[Person].exclude):
        with pytest.raises(error) as refused:
            method(**lookups)
        assert (refused.value.model, refused.value.field) == ("Person", field)
        if suggestion is not None:
            assert refused.value.suggestion == suggestion
        assert refused.value.hint


@pytest.mark.parametrize(
    ("lookups", "field"),
    [
        ({"age": "5"}, "age"),
        ({"age": True}, "age"),
        ({"age__gt": None}, "age"),
        ({"age__gte": 5.5}, "age"),
        ({"age__in": 5}, "age"),
        ({"age__in": [1, "a"]}, "age"),
        ({"age__range": (1, None)}, "age"),
        ({"age__range": (1, 2, 3)}, "age"),
        ({"age__range": (1, 2, "[[")}, "age"),
        ({"age__range": 5}, "age"),
        ({"age__isnull": 1}, "age"),
        ({"age__isnull": None}, "age"),
        ({"color": 5}, "color"),
        ({"color": b"red"}, "color"),
        ({"color__in": "red"}, "color"),
        ({"color__in": {"red": 1}}, "color"),
        ({"color__startswith": 5}, "color"),
        ({"color__startswith": None}, "color"),
        ({"color": "\ud800"}, "color"),
        ({"color__startswith": "\ud800"}, "color"),
        ({"score": float("nan")}, "score"),
        ({"score__gt": "1"}, "score"),
        ({"score": 2**60 + 1}, "score"),
        ({"pk": "1"}, "id"),
        ({"pk__in": [None, "1"]}, "id"),
    ],
)
def test_operands_of_a_wrong_type_are_refused_before_anything_is_read(
    db: Database, lookups: dict[str, Any], field: str
):
    for method in (db[Person].filter, db[Person].exclude):
        with pytest.raises(InvalidValueError) as refused:
            method(**lookups)
        assert (refused.value.model, refused.value.field) == ("Person", field)


def test_composite_keys_are_tuples_of_all_their_values(db: Database):
    for wrong in (1, (1,), (1, "a", 2), [1, "a"], (1, None), ("a", 1), "1a"):
        with pytest.raises(InvalidValueError):
            db[Mixed].filter(pk=wrong)
        with pytest.raises(InvalidValueError):
            db[Mixed].filter(pk__in=[wrong])
        with pytest.raises(InvalidValueError):
            db[Mixed].get(wrong)
    with pytest.raises(UnknownLookupError) as refused:
        db[Mixed].filter(pk__gt=(1, "a"))
    assert refused.value.field == "pk"


def test_what_is_no_expression_and_no_order(db: Database):
    unexpressed: list[Any] = [True, 5, "age", Person.age, Person.age.desc(), None]
    for wrong in unexpressed:
        with pytest.raises(InvalidValueError):
            db[Person].filter(wrong)
    unordered: list[Any] = [True, 5, None, ["age"], Person.age == 3]
    for wrong in unordered:
        with pytest.raises(InvalidValueError):
            db[Person].order_by(wrong)
    for unknown in ("zzz", "--age", "", "-", "age__gt", " age"):
        with pytest.raises(UnknownFieldError):
            db[Person].order_by(unknown)
    with pytest.raises(UnknownLookupError):
        db[Person].order_by("tags")
    with pytest.raises(UnknownFieldError) as other:
        db[Person].filter(col(Mixed.a) == 1)
    assert other.value.field == "Mixed.a"
    with pytest.raises(UnknownFieldError):
        db[Person].order_by(col(Mixed.a).desc())


def test_expressions_of_a_parent_are_about_its_children_too():
    class Child(Person, collection="children"):
        pass

    db = Database("memory://", models=[Child])
    db[Child].create(id=1, email="a", color="red")
    assert db[Child].filter(Person.color == "red").count() == 1
    assert db[Child].order_by(Person.age.desc()).count() == 1


def test_exclude_without_arguments_changes_nothing(db: Database):
    assert db[Person].exclude().count() == db[Person].filter().count() == 30


def test_exclude_is_plain_negation_of_all_its_conditions_together(db: Database):
    people = db[Person].allow_scan()
    assert people.exclude(age__gt=10).count() == sum(1 for p in db[Person] if not (p.age is not None and p.age > 10))
    both = people.exclude(color="red", age__gt=10).count()
    assert both == sum(1 for p in db[Person] if not (p.color == "red" and p.age is not None and p.age > 10))
    assert people.exclude(color="red").exclude(age__gt=10).count() < both
    assert people.filter(age__ne=3).count() == people.exclude(age=3).count() == 29
    assert db[Person].exclude(id__lt=20).explain().bound == ("id >= 20",)


def test_none_is_found_by_equality_and_never_by_a_comparison(db: Database):
    nobody = {person.id for person in db[Person] if person.age is None}
    assert {person.id for person in db[Person].filter(age=None)} == nobody
    assert {person.id for person in db[Person].filter(age__in=[None])} == nobody
    assert not nobody & {person.id for person in db[Person].filter(age__gte=-(10**30))}
    assert not nobody & {person.id for person in db[Person].filter(age__lt=10**30)}
    assert [person.age for person in db[Person].order_by("age")][: len(nobody)] == [None] * len(nobody)


# --- the asynchronous twin ----------------------------------------------------------------------------------------


async def test_the_asynchronous_twin_gives_the_same_answers(db: Database):
    async with AsyncDatabase("memory://", models=[Person]) as other:
        await other[Person].bulk_create([Person(**fields) for fields in people(30)])
        ours, theirs = db[Person].filter(color="red"), other[Person].filter(color="red")
        assert await theirs.to_list() == ours.to_list() == [person async for person in theirs]
        assert await theirs.first() == ours.first()
        assert await theirs.last() == ours.last()
        assert await theirs.count() == ours.count()
        assert await theirs.exists() is ours.exists()
        assert await theirs[3] == ours[3]
        assert await theirs[2:4].to_list() == ours[2:4].to_list()
        assert str(await theirs.explain()) == str(ours.explain())
        assert await theirs.page(size=4) == ours.page(size=4)
        cursor = ours.page(size=4).next_cursor
        assert await theirs.page(size=4, after=cursor) == ours.page(size=4, after=cursor)
        assert (await theirs.order_by("-age").exclude(age=None).reverse().allow_scan().all().first()) is not None
        with pytest.raises(InvalidValueError):
            bool(theirs)
        assert repr(theirs) == "<AsyncQuerySet[Person] filtered by color>"
        with pytest.raises(Person.DoesNotExist):
            await theirs[10]


async def test_many_tasks_may_share_a_query_set():
    async with AsyncDatabase("memory://", models=[Person]) as db:
        await db[Person].bulk_create([Person(**fields) for fields in people(300)])
        reds = db[Person].filter(color="red")
        counts = await asyncio.gather(*(reds.to_list() for _ in range(20)))
        assert {len(found) for found in counts} == {100}
