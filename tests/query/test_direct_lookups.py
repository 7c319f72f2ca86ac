"""A record that is named by a unique value is found without a plan, and as the planned query would find it."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodels import (
    AlreadyExistsError,
    Database,
    DoesNotExist,
    Field,
    Index,
    KvModel,
    MultiIndexed,
    MultipleObjectsReturned,
    PrimaryKey,
    Q,
    QueryError,
    Unique,
    UniqueConstraint,
    UniqueViolationError,
    UnknownFieldError,
)
from kvmodels.flows.effects import OneLookup
from kvmodels.flows.reading.lookup import find_one, get_or_none
from kvmodels.query.query import Query
from kvmodels.runtime.event_loop import arun
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.declare.expressions import Comparison
from tests.drawing import of_check
from tests.passing_engine import Meter
from tests.query.engines import watched


class Thing(KvModel, collection="things"):
    """Unique indexes of every kind over few values."""

    left: PrimaryKey[int]
    right: PrimaryKey[str]
    name: Annotated[str | None, Unique(key=str.casefold)] = None
    falling: int | None = None
    a: int | None = None
    b: str | None = None
    c: int | None = None
    tags: Annotated[list[str], MultiIndexed()] = Field(default_factory=list)

    class Meta:
        indexes = (
            UniqueConstraint("-falling", name="falling"),
            UniqueConstraint("a", "b", name="distinct"),
            UniqueConstraint("b", "c", name="skipping", nulls="skip"),
            UniqueConstraint("c", "left", name="equal", nulls="equal"),
            UniqueConstraint("a", "c", "right", name="copied", store="record"),
            UniqueConstraint("a", name="part", where=Q(c__gt=5)),
            Index("a", name="plain"),
        )


NUMBERS = st.one_of(st.none(), st.integers(0, 3))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "A", "a\0", "ß", "SS"]))
FIELDS: dict[str, st.SearchStrategy[Any]] = {
    "left": st.integers(0, 3),
    "right": st.sampled_from(["", "a", "a\0"]),
    "name": TEXTS,
    "falling": NUMBERS,
    "a": NUMBERS,
    "b": TEXTS,
    "c": NUMBERS,
}
NAMED = [
    ("left", "right"),
    ("name",),
    ("falling",),
    ("a", "b"),
    ("c", "b"),
    ("left", "c"),
    ("right", "c", "a"),
    ("a",),
    ("a", "b", "c"),
]


@pytest.mark.fast_kinds
@given(
    st.lists(st.builds(dict, **FIELDS), max_size=12),
    st.sampled_from(NAMED).flatmap(lambda fields: st.builds(dict, **{field: FIELDS[field] for field in fields})),
)
def test_what_is_found_directly_is_what_the_planned_query_finds(rows: list[dict[str, Any]], lookups: dict[str, Any]):
    db, _ = watched([Thing])
    for row in rows:
        try:
            db[Thing].save(Thing(**row))
        except (AlreadyExistsError, UniqueViolationError):
            continue
    runner = db[Thing].all()._runner
    query = Query(schema_of(Thing)).filtered((), lookups).scanning()
    direct = get_or_none(runner.context, schema_of(Thing), (), lookups)
    if isinstance(direct, OneLookup):
        found = runner.run("get_or_none", direct)
        assert found == runner.run("get_or_none", find_one(runner.context, query))
        if found is not None:
            assert db[Thing].get(**lookups).versionstamp == found.versionstamp
    else:
        unique = any(set(lookups) == set(fields) for fields in NAMED[:-2])
        assert not unique or None in lookups.values(), "a plain unique value is looked up without a plan"


@pytest.mark.parametrize(
    ("lookups", "rows", "followed"),
    [
        ({"name": "ADA"}, 1, 1),
        ({"falling": 3}, 1, 1),
        ({"b": "x", "a": 1}, 1, 1),
        ({"a": 1, "c": 2, "right": "r"}, 1, 0),
        ({"left": 1, "right": "r"}, 1, 0),
    ],
)
def test_a_direct_lookup_is_one_read(lookups: dict[str, Any], rows: int, followed: int):
    db, engine = watched([Thing])
    made = db[Thing].create(left=1, right="r", name="Ada", falling=3, a=1, b="x", c=2)
    engine.meter.reset()
    assert db[Thing].get(**lookups) == made
    assert engine.meter == Meter(reads=1, rows=rows, followed=followed, bytes=engine.meter.bytes)
    db[Thing].remove(made)
    with pytest.raises(DoesNotExist):
        db[Thing].get(**lookups)


@settings(max_examples=of_check(60))
@given(
    st.lists(st.builds(dict, **FIELDS), max_size=12),
    st.sampled_from(NAMED).flatmap(lambda fields: st.builds(dict, **{field: FIELDS[field] for field in fields})),
)
def test_values_as_expressions_and_those_that_need_not_be_there_are_found_as_by_the_plan(
    rows: list[dict[str, Any]], lookups: dict[str, Any]
):
    db, _ = watched([Thing])
    for row in rows:
        try:
            db[Thing].save(Thing(**row))
        except (AlreadyExistsError, UniqueViolationError):
            continue
    runner = db[Thing].all()._runner
    expressions = [Comparison(field, "exact", value, Thing) for field, value in lookups.items()]
    asked = [
        lambda: db[Thing].get_or_none(**lookups),
        lambda: db[Thing].get_or_none(*expressions),
        lambda: db[Thing].get_or_none(*expressions[1:], **dict([*lookups.items()][:1])),
        lambda: at_once(runner.context, db, lookups),
    ]
    try:
        expected = runner.run("get_or_none", find_one(runner.context, Query(schema_of(Thing)).filtered((), lookups)))
    except (QueryError, MultipleObjectsReturned) as error:
        for ask in asked:
            with pytest.raises(type(error)):
                ask()
    else:
        assert [ask() for ask in asked] == [expected] * len(asked)


def at_once(context: Any, db: Database, lookups: dict[str, Any]) -> Any:
    """The same lookup by the asynchronous driver, which has nothing to wait for in memory."""
    with pytest.raises(StopIteration) as done:
        arun(db._engine, get_or_none(context, schema_of(Thing), (), lookups)).send(None)
    return done.value.value


@pytest.mark.fast_kinds
@pytest.mark.parametrize(
    ("ask", "rows"),
    [
        (lambda things, Whole: things.get(Whole.falling == 3), 2),
        (lambda things, Whole: things.get(Whole.a == 1, b="x"), 2),
        (lambda things, _: things.get_or_none(falling=3), 2),
        (lambda things, Whole: things.get_or_none(Whole.falling == 4), 0),
        (lambda things, _: things.get_or_none((1, "r")), 1),
        (lambda things, _: things.get_or_none((1, "s")), 0),
        (lambda things, _: things.filter(falling=3).first(), 2),
        (lambda things, _: things.filter(falling=4).first(), 0),
        (lambda things, _: things.filter(falling=3).exists(), 0),
        (lambda things, Whole: things.filter(Whole.falling == 3).count(), 0),
    ],
)
def test_whatever_asks_for_a_unique_value_is_one_read(ask: Any, rows: int):
    class Whole(KvModel, collection="things"):
        """The same without an index with a condition, which has the planner look at operands."""

        left: PrimaryKey[int]
        right: PrimaryKey[str]
        falling: int | None = None
        a: int | None = None
        b: str | None = None

        class Meta:
            indexes = (UniqueConstraint("-falling", name="falling"), UniqueConstraint("a", "b", name="distinct"))

    db, engine = watched([Whole])
    things: Any = db[Whole]
    things.create(left=1, right="r", falling=3, a=1, b="x")
    engine.meter.reset()
    ask(things, Whole)
    assert (engine.meter.reads, engine.meter.rows + engine.meter.followed) == (1, rows)


def test_a_lookup_by_the_expression_of_another_model_is_refused():
    class Other(KvModel, collection="others"):
        left: PrimaryKey[int]
        falling: Unique[int]

    db, _ = watched([Thing])
    for ask in (db[Thing].get, db[Thing].get_or_none):
        with pytest.raises(UnknownFieldError):
            ask(Other.falling == 3)


def test_a_direct_lookup_is_guarded_against_a_dropped_index():
    db, engine = watched([Thing])
    made = db[Thing].create(left=1, right="r", falling=3)
    assert db[Thing].get(falling=3) == made
    elsewhere: Database = watched([Thing], engine=engine.inner)[0]

    def change() -> None:
        elsewhere.drop_index(Thing, "falling")
        elsewhere.build_indexes()

    engine.before_read = change
    engine.meter.reset()
    assert db[Thing].get(falling=3) == made
    assert engine.meter.guards_failed >= 1
