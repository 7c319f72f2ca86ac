"""An index keeps its name while its field is renamed, nested, or becomes a list: plan() and apply() agree.

Nothing is committed before every step is known to be possible, and a store that an older version of the library left
between two releases is repaired.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel

from kvmodels import (
    AggregateIndex,
    AsyncDatabase,
    Database,
    Index,
    Indexed,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    SchemaChangeRefusedError,
    SchemaMismatchError,
    Unique,
    UniqueConstraint,
    Upgrade,
)
from kvmodels.flows.context import Context, reload_header
from kvmodels.flows.effects import Flow
from kvmodels.flows.evolution.header import commit_header, raise_schema_version
from tests.oracle import audit, read_store, spec_of


class Address(BaseModel):
    city: str


class NumberedAddress(BaseModel):
    city: int


def release(columns: dict[str, Any], *upgrades: Upgrade, indexes: Sequence[Any] = ()) -> Any:
    """A release of the collection ``places``, whose version is that of its last upgrade."""
    version = upgrades[-1].to if upgrades else 1
    meta = type("Meta", (), {"schema_version": version, "upgrades": upgrades, "indexes": tuple(indexes)})
    annotations = {"id": PrimaryKey[int], **columns, "Meta": ClassVar}
    body = {"__annotations__": annotations, "__module__": __name__, "Meta": meta}
    return type(f"Release{version}", (KvModel,), body, collection="places")


def to_town(document: dict[str, Any]) -> dict[str, Any]:
    return {**{name: value for name, value in document.items() if name != "city"}, "town": document["city"]}


def to_nested(document: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in document.items() if name != "city"}
    return {**rest, "address": {"city": document["city"]}}


def to_flat(document: dict[str, Any]) -> dict[str, Any]:
    return {"id": document["id"], "city": document["address"]["city"]}


def to_list(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "city": [document["city"]]}


def to_single(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "city": document["city"][0]}


RENAMED = Upgrade(2, to_town, touches=("city", "town"))
NESTED = Upgrade(2, to_nested, touches=("city", "address"))
FLAT = Upgrade(3, to_flat, touches=("city", "address"))
LISTED = Upgrade(2, to_list, touches=("city",))
SINGLE = Upgrade(3, to_single, touches=("city",))

TEXT = release({"city": Indexed[str]})
LISTS = release({"city": MultiIndexed[list[str]]}, LISTED)
TEXT_AGAIN = release({"city": Indexed[str]}, LISTED, SINGLE)
FLAT_FIELD = release({"city": str}, indexes=[Index("city", name="place")])
NESTED_FIELD = release({"address": Address}, NESTED, indexes=[Index("address.city", name="place")])
FLAT_AGAIN = release({"city": str}, NESTED, FLAT, indexes=[Index("city", name="place")])


def find_town(db: Any, model: Any) -> list[int]:
    return [one.id for one in db[model].filter(town="rome")]


def find_city(db: Any, model: Any) -> list[int]:
    return [one.id for one in db[model].filter(city="rome")]


def find_listed(db: Any, model: Any) -> list[int]:
    return [one.id for one in db[model].filter(city__contains="rome")]


# The releases in order, the fields of a record of the first one, and a query through the index of the last one.
CASES: dict[str, tuple[list[Any], dict[str, Any], Callable[[Any, Any], list[Any]]]] = {
    "Indexed(name=) over a renamed field": (
        [
            release({"city": Annotated[str, Indexed(name="place")]}),
            release({"town": Annotated[str, Indexed(name="place")]}, RENAMED),
        ],
        {"city": "rome"},
        find_town,
    ),
    "UniqueConstraint over a renamed field": (
        [
            release({"city": str}, indexes=[UniqueConstraint("city", name="place")]),
            release({"town": str}, RENAMED, indexes=[UniqueConstraint("town", name="place")]),
        ],
        {"city": "rome"},
        find_town,
    ),
    "AggregateIndex over a renamed field": (
        [
            release({"city": str}, indexes=[AggregateIndex("city", name="totals")]),
            release({"town": str}, RENAMED, indexes=[AggregateIndex("town", name="totals")]),
        ],
        {"city": "rome"},
        lambda db, model: [db[model].filter(town="rome").count()],
    ),
    "a sum over a renamed field": (
        [
            release({"city": int, "n": int}, indexes=[AggregateIndex("n", sums=("city",), name="totals")]),
            release({"town": int, "n": int}, RENAMED, indexes=[AggregateIndex("n", sums=("town",), name="totals")]),
        ],
        {"city": 5, "n": 1},
        lambda db, model: [db[model].filter(n=1).count()],
    ),
    "a covering field and a condition that are renamed": (
        [
            release({"city": str, "n": int}, indexes=[Index("n", include=("city",), name="place")]),
            release({"town": str, "n": int}, RENAMED, indexes=[Index("n", include=("town",), name="place")]),
        ],
        {"city": "rome", "n": 1},
        lambda db, model: [one.id for one in db[model].filter(n=1)],
    ),
    "a text that becomes a list": ([TEXT, LISTS], {"city": "rome"}, find_listed),
    "a list that becomes a text": (
        [LISTS, TEXT_AGAIN],
        {"city": ["rome"]},
        find_city,
    ),
    "a text that becomes a list and a text again": (
        [TEXT, LISTS, TEXT_AGAIN],
        {"city": "rome"},
        find_city,
    ),
    "a flat field that becomes nested": (
        [FLAT_FIELD, NESTED_FIELD],
        {"city": "rome"},
        lambda db, model: [one.id for one in db[model].filter(address__city="rome")],
    ),
    "a nested field that becomes flat again": (
        [FLAT_FIELD, NESTED_FIELD, FLAT_AGAIN],
        {"city": "rome"},
        find_city,
    ),
}


def require_exact(db: Any, model: Any) -> None:
    assert db.plan().is_current
    assert db.check().ok
    assert audit(read_store(db.kv), [spec_of(model)]) == []


def stored_header(db: Any) -> Any:
    return db.kv.get(("__kvmodels__", "header"))


@pytest.mark.parametrize("name", CASES)
def test_an_index_keeps_its_name_while_an_upgrade_reshapes_its_field(opened, name):
    releases, fields, find = CASES[name]
    opened(releases[0])[releases[0]].create(id=1, **fields)
    older = None
    for model in releases[1:]:
        db = opened(model)
        plan = db.plan()
        assert not plan.refused
        assert [step.rule for step in plan.steps if step.rule.startswith("index")] == ["index_replaced"]
        assert db.apply().complete
        require_exact(db, model)
        if older is not None:
            with pytest.raises(SchemaMismatchError):
                older[0][older[1]].remove(1)
        older = db, model
    assert older is not None
    db, model = older
    assert find(db, model) == [1]
    db[model].remove(1)
    require_exact(db, model)


@pytest.mark.parametrize("name", CASES)
def test_apply_repairs_a_store_whose_version_was_raised_before_the_index_was_found_unkept(opened, name):
    """The header commit of the former ``apply()``, which then raised, so that neither release could write."""
    (first, second, *_), fields, find = CASES[name]
    old = opened(first)
    old[first].create(id=1, **fields)
    schema = opened(second)._core.schemas["places"]

    def former_commit(context: Context) -> Flow[bool]:
        view = yield from reload_header(context)
        stored = view.header.collections["places"]
        listed = stored.raised_to(schema).listing(schema)
        return (yield from commit_header(context, view, view.header.with_collection(listed)))

    assert old._run("commit", former_commit(old._core.context))
    db = opened(second)
    for handle, model in ((old, first), (db, second)):
        with pytest.raises(SchemaMismatchError) as caught:
            handle[model].remove(1)
    assert "db.apply()" in str(caught.value.hint)
    assert [step.rule for step in db.plan().steps] == ["index_replaced", "records_outdated"]
    assert db.apply().complete
    if len(CASES[name][0]) == 2:
        assert find(db, second) == [1]
    require_exact(db, second)
    db[second].remove(1)
    require_exact(db, second)


async def test_an_async_apply_replaces_an_index_over_a_renamed_field():
    (first, second), fields, _ = CASES["UniqueConstraint over a renamed field"]
    url = "memory://renamed-by-an-async-apply"
    with Database(url, models=[first]) as old:
        old[first].create(id=1, **fields)
        async with AsyncDatabase(url, models=[second]) as db:
            assert (await db.apply()).complete
            assert (await db[second].get(town="rome")).id == 1
            assert (await db.check()).ok


def test_a_field_that_is_renamed_without_an_upgrade_is_replaced_too(opened):
    """The records have the default of the new field then, as the plan says of the field."""
    first = release({"city": Annotated[str, Indexed(name="place")]})
    body = {
        "__annotations__": {"id": PrimaryKey[int], "town": Annotated[str, Indexed(name="place")]},
        "__module__": __name__,
        "town": "none",
    }
    second = type("Second", (KvModel,), body, collection="places")
    opened(first)[first].create(id=1, city="rome")
    db = opened(second)
    assert [step.rule for step in db.plan().steps] == ["field_added", "field_removed", "index_replaced"]
    assert db.apply().complete
    assert [one.id for one in db[second].filter(town="none")] == [1]
    require_exact(db, second)


def test_a_version_that_takes_up_a_former_definition_resumes_after_its_first_commit(opened):
    opened(TEXT)[TEXT].create(id=1, city="rome")
    lists = opened(LISTS)
    lists.apply()
    db = opened(TEXT_AGAIN)
    assert db._run("raise", raise_schema_version(db._core.context, db._core.schemas["places"])) is None
    again = opened(TEXT_AGAIN)
    assert [step.rule for step in again.plan().steps] == ["field_converted", "index_replaced", "records_outdated"]
    assert again.apply().complete
    assert [one.id for one in again[TEXT_AGAIN].filter(city="rome")] == [1]
    require_exact(again, TEXT_AGAIN)
    assert [step.rule for step in opened(TEXT).plan().refused] == ["schema_version_lower"]


def test_another_type_inside_of_a_nested_model_is_refused_although_the_type_of_the_field_is_allowed(opened):
    texts = release({"address": Address}, indexes=[Index("address.city", name="place")])
    numbers = release({"address": NumberedAddress}, indexes=[Index("address.city", name="place")])
    opened(texts)[texts].create(id=1, address=Address(city="rome"))
    db = opened(numbers)
    before = stored_header(db)
    assert [step.rule for step in db.plan().refused] == ["field_retyped", "column_retyped"]
    with pytest.raises(SchemaChangeRefusedError) as caught:
        db.apply(allow=("change_type",))
    assert caught.value.steps == ("places.place: column_retyped",)
    assert stored_header(db) == before


class Plain(KvModel, collection="plain"):
    id: PrimaryKey[int]
    n: int


class PlainIndexed(KvModel, collection="plain"):
    id: PrimaryKey[int]
    n: Unique[int]


def test_a_build_of_several_collections_begins_none_while_one_cannot_be_written(opened):
    bare = release({"city": str})
    old = opened(TEXT, Plain)
    old[TEXT].create(id=1, city="rome")
    old[Plain].create(id=1, n=1)
    db = opened(PlainIndexed, bare)
    before = stored_header(db)
    with pytest.raises(SchemaMismatchError) as caught:
        db.build_indexes()
    assert caught.value.collection == "places"
    assert stored_header(db) == before


class Visit(KvModel, collection="visits"):
    id: PrimaryKey[int]
    city: str

    class Meta:
        indexes: ClassVar = (Index("city", name="found"),)


class VisitWithMore(KvModel, collection="visits"):
    """An older release with an index that was not built yet."""

    id: PrimaryKey[int]
    city: Indexed[str]

    class Meta:
        indexes: ClassVar = (Index("city", name="found"),)


class RatedVisit(KvModel, collection="visits"):
    """A newer release, whose index needs a field that the older ones do not have."""

    id: PrimaryKey[int]
    city: Indexed[str]
    stars: int = 0

    class Meta:
        indexes: ClassVar = (Index("city", "stars", name="found"),)


def test_an_older_release_does_not_end_the_build_of_a_newer_one(opened):
    opened(Visit)[Visit].create(id=1, city="rome")
    older, newer = opened(VisitWithMore), opened(RatedVisit)

    def stop(progress: Any) -> None:
        if progress.index == "found":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        newer.build_indexes(progress=stop)
    begun = stored_header(newer)
    assert [step.rule for step in older.plan().refused] == ["index_superseded"]
    with pytest.raises(SchemaChangeRefusedError):
        older.apply()
    with pytest.raises(SchemaMismatchError) as caught:
        older.build_indexes()
    assert "run that release" in str(caught.value.hint)
    assert stored_header(newer) == begun
    assert newer.apply().complete
    require_exact(newer, RatedVisit)
