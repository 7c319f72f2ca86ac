"""Values that cannot be stored, or not in an index, or not in a key: refused whole, with the place named."""

from __future__ import annotations

import math
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from pydantic import ValidationError

from kvmodels import (
    Database,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KeyTooLargeError,
    KvModel,
    Limits,
    OperationTooLargeError,
    PrimaryKey,
    PrimaryKeyChangedError,
    UniqueConstraint,
    ValueTooLargeError,
)
from tests.robustness.models import MODELS, Member, Seat, Stranger, ada, refused, stored_rows
from tests.worlds import MEMORY

SURROGATE = "\ud800"
LONG = "x" * 3_000


@pytest.fixture(params=MEMORY)
def db(request, url_of):
    with Database(url_of(request.param), models=MODELS, durability="relaxed") as opened:
        opened[Member].insert(ada())
        opened[Seat].create(hall="A", number=1)
        yield opened


def test_an_over_long_value_names_the_limit_and_whose_it_is(db):
    limits = db._engine.limits
    raised = refused(lambda: db[Member].patch(1, color=LONG), KeyTooLargeError, index="members.color")
    assert (raised.maximum, raised.limits) == (limits.max_key_bytes, limits.name)
    assert (limits.max_key_bytes, limits.name) in ((2_048, "EMBEDDED"), (511, "LMDB"))


NEW: dict[str, Any] = {"id": 2, "email": "bob@x.org", "color": "blue"}

BAD_FIELDS: dict[str, Any] = {
    "NaN in an index": ({"score": math.nan}, InvalidValueError, {"model": "Member", "field": "score"}),
    "a lone surrogate in a unique column": ({"email": SURROGATE}, InvalidValueError, {"field": "email"}),
    "a lone surrogate in an indexed column": ({"color": f"a{SURROGATE}"}, InvalidValueError, {"field": "color"}),
    "a lone surrogate in a plain field": ({"note": SURROGATE}, InvalidValueError, {"field": "note"}),
    "a lone surrogate inside a list": (
        {"tags": ["ok", SURROGATE]},
        InvalidValueError,
        {"model": "Member", "field": "tags", "path": "$.tags[1]"},
    ),
    "an over-long unique value": (
        {"email": LONG},
        KeyTooLargeError,
        {"index": "members.email", "limit": "max_key_bytes"},
    ),
    "an over-long indexed value": ({"color": LONG}, KeyTooLargeError, {"index": "members.color"}),
    "an over-long record": (
        {"note": "x" * (16 * 1024 * 1024)},
        ValueTooLargeError,
        {"limit": "max_value_bytes", "maximum": 16 * 1024 * 1024},
    ),
}


def first() -> Member:
    """A good object in front of the bad one."""
    return Member(id=2, email="c@x.org", color="red")


WRITES: dict[str, Any] = {
    "create": lambda db, bad: db[Member].create(**{**NEW, **bad}),
    "insert": lambda db, bad: db[Member].insert(Member(**{**NEW, **bad})),
    "save of a new object": lambda db, bad: db[Member].save(Member(**{**NEW, **bad})),
    "save of a loaded object": lambda db, bad: db[Member].save(db[Member].get(1).model_copy(update=bad)),
    "save by force": lambda db, bad: db[Member].save(Member(**{**NEW, **bad}), force=True),
    "patch": lambda db, bad: db[Member].patch(1, **bad),
    "mutate": lambda db, bad: db[Member].mutate(1, lambda found: found.model_copy(update=bad)),
    "get_or_create": lambda db, bad: db[Member].get_or_create(id=2, defaults={**NEW, **bad}),
    "bulk_create": lambda db, bad: db[Member].bulk_create([first(), Member(**{**NEW, "id": 3, **bad})]),
    "bulk_create in batches": lambda db, bad: db[Member].bulk_create(
        [first(), Member(**{**NEW, "id": 3, **bad})], batch_size=2, on_conflict="ignore"
    ),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("bad,error,attributes", BAD_FIELDS.values(), ids=BAD_FIELDS)
def test_a_value_that_cannot_be_stored_is_refused_and_nothing_is_written(db, write, bad, error, attributes):
    before = stored_rows(db)
    refused(lambda: write(db, bad), error, **attributes)
    assert stored_rows(db) == before
    assert db.check().ok


WRONG_TYPES: dict[str, Any] = {
    "text for a number": {"id": "one"},
    "None for a text": {"email": None},
    "a number for a text": {"color": 7},
    "a text for a list": {"tags": "abc"},
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("bad", WRONG_TYPES.values(), ids=WRONG_TYPES)
def test_a_value_of_the_wrong_type_is_pydantics_error_and_nothing_is_written(db, write, bad):
    before = stored_rows(db)
    if write is WRITES["get_or_create"] and "id" in bad:
        bad = {"score": "one"}  # the primary key is a lookup there
    with pytest.raises(ValidationError) as caught:
        write(db, bad)
    assert [error["loc"][0] for error in caught.value.errors()] == list(bad)
    assert stored_rows(db) == before
    assert db.check().ok


def test_an_over_long_value_says_which_record_it_was(db):
    raised = refused(lambda: db[Member].create(**NEW, note="x" * 2**24), ValueTooLargeError)
    assert raised.key == ("members", 2)


def test_an_over_long_primary_key_is_refused(db):
    raised = refused(lambda: db[Seat].create(hall=LONG, number=1), KeyTooLargeError, limit="max_key_bytes", index=None)
    assert raised.size > 3_000


def test_a_compound_index_over_the_limit_is_named_though_each_column_fits():
    class Page(KvModel, collection="pages"):
        id: PrimaryKey[int]
        site: str
        path: str

        class Meta:
            indexes = (UniqueConstraint("site", "path", name="address"),)

    with Database("memory://", models=[Page]) as db:
        db[Page].create(id=1, site="x" * 1_500, path="/")
        refused(
            lambda: db[Page].create(id=2, site="x" * 1_500, path="y" * 1_500), KeyTooLargeError, index="pages.address"
        )
        refused(lambda: db[Page].patch(1, path="y" * 1_500), KeyTooLargeError, index="pages.address")
        assert db[Page].count() == 1
        assert db.check().ok


def test_a_bulk_write_over_the_limit_is_refused_whole_and_never_split(tmp_path):
    with Database(tmp_path / "app.db", models=MODELS, limits=Limits.DENO) as db:
        many = [Member(id=i, email=f"{i}@x.org", color="red") for i in range(200)]
        refused(lambda: db[Member].bulk_create(many), OperationTooLargeError, limit="max_checks", maximum=100)
        assert db[Member].count() == 0
        db[Member].bulk_create(many, batch_size=20)
        assert db[Member].count() == 200
        assert db.check().ok


@pytest.mark.parametrize("key", ["1", 1.0, True, None, (1, 2), (), [1], math.nan, ..., b"1"], ids=repr)
@pytest.mark.parametrize(
    "verb",
    [
        lambda users, key: users.get(key),
        lambda users, key: users.get_or_none(key),
        lambda users, key: users.in_bulk([1, key]),
        lambda users, key: users.patch(key, note="x"),
        lambda users, key: users.mutate(key, lambda found: None),
        lambda users, key: users.remove(key),
    ],
    ids=["get", "get_or_none", "in_bulk", "patch", "mutate", "remove"],
)
def test_a_primary_key_of_the_wrong_shape_is_refused(db, verb, key):
    before = stored_rows(db)
    refused(lambda: verb(db[Member], key), InvalidValueError, model="Member")
    assert stored_rows(db) == before


@pytest.mark.parametrize("key", ["A", ("A",), ("A", 1, 2), ("A", "1"), (1, "A"), ("A", None), (SURROGATE, 1)], ids=repr)
def test_a_composite_primary_key_of_the_wrong_shape_is_refused(db, key):
    verbs: list[Any] = [db[Seat].get, db[Seat].remove, lambda bad: db[Seat].patch(bad, taken=True)]
    for verb in verbs:
        refused(partial(verb, key), InvalidValueError, model="Seat")
    assert db[Seat].get(("A", 1)).taken is False


def test_a_list_is_a_composite_key_as_much_as_a_tuple_is_or_it_is_refused_by_name(db):
    assert db[Seat].get(("A", 1)).number == 1
    raised = refused(lambda: db[Seat].get("A"), InvalidValueError)
    assert "hall" in str(raised)
    assert "number" in str(raised)


@pytest.mark.parametrize(
    "lifetime,error",
    [
        (True, InvalidValueError),
        ("10", InvalidValueError),
        (math.nan, InvalidArgumentError),
        (-1, InvalidArgumentError),
        (-0.001, InvalidArgumentError),
        (timedelta(seconds=-1), InvalidArgumentError),
        (math.inf, InvalidArgumentError),
        (10**30, InvalidArgumentError),
    ],
    ids=repr,
)
def test_a_lifetime_that_is_none_is_refused_by_every_verb_that_takes_one(db, lifetime, error):
    users, before = db[Member], stored_rows(db)
    loaded = users.get(1)
    for call in (
        lambda: users.create(**NEW, expire_in=lifetime),
        lambda: users.insert(Member(**NEW), expire_in=lifetime),
        lambda: users.save(loaded, expire_in=lifetime),
        lambda: users.patch(1, note="x", expire_in=lifetime),
        lambda: users.mutate(1, lambda found: None, expire_in=lifetime),
        lambda: users.bulk_create([Member(**NEW)], expire_in=lifetime),
    ):
        raised = refused(call, error)
        assert "expire_in" in str(raised)
    assert stored_rows(db) == before


@pytest.mark.parametrize("thing", [3, None, "ada", {"id": 1}, Stranger(id=1), Member], ids=repr)
def test_what_is_no_object_of_the_model_is_refused_by_every_verb_that_takes_one(db, thing):
    users, before = db[Member], stored_rows(db)
    for call in (
        lambda: users.insert(thing),
        lambda: users.save(thing),
        lambda: users.save(thing, force=True),
        lambda: users.refresh(thing),
        lambda: users.bulk_create([thing]),
        lambda: users.mutate(1, lambda found: thing if thing is not None else 3),
    ):
        raised = refused(call, InvalidValueError, model="Member")
        assert raised.type
    assert stored_rows(db) == before


def test_only_an_object_of_a_model_can_be_detached(db):
    refused(lambda: db[Member].detach(3), InvalidValueError, type="int")


def test_a_changed_primary_key_is_refused_by_every_verb_that_could_change_it(db):
    users, before = db[Member], stored_rows(db)
    loaded = users.get(1)
    loaded.id = 9

    def move(found):
        found.id = 9

    for call in (lambda: users.save(loaded), lambda: users.patch(1, id=9), lambda: users.mutate(1, move)):
        raised = refused(call, PrimaryKeyChangedError, model="Member", loaded_key=1, key=9)
        assert "rename" in str(raised.hint)
    assert stored_rows(db) == before


def answer(db: Database, lookups: dict[str, Any]) -> list[Member]:
    return db[Member].filter(**lookups).to_list()


def test_not_a_number_has_no_place_in_a_query_either(db):
    for lookups in ({"score": math.nan}, {"score__gt": math.nan}, {"score__in": [1.0, math.nan]}):
        refused(partial(answer, db, lookups), InvalidValueError, field="score")


def test_not_a_number_is_stored_in_a_field_that_no_index_uses():
    class Measurement(KvModel, collection="measurements"):
        id: PrimaryKey[int]
        value: float
        sensor: Indexed[str]

    with Database("memory://", models=[Measurement]) as db:
        db[Measurement].create(id=1, value=math.nan, sensor="a")
        assert math.isnan(db[Measurement].get(1).value)
        assert db.check().ok
