"""The hints of errors between releases lead to success when they are followed."""

from __future__ import annotations

from datetime import date
from typing import Any, ClassVar

import pytest

from kvmodels import Count, IndexNotReadyError, KvModel, PrimaryKey, SchemaMismatchError, Upgrade
from kvmodels.errors import DecodeError
from kvmodels.schema.declare.declarations import AggregateIndex, Index
from kvmodels.schema.declare.markers import Indexed


class Person(KvModel, abstract=True):
    id: PrimaryKey[int]
    name: str
    city: str = "x"
    age: int = 0


class Old(Person, collection="people"):
    class Meta:
        indexes: ClassVar = (
            Index("city", "name", name="place"),
            AggregateIndex("city", name="totals"),
        )


class New(Person, collection="people"):
    """Both indexes have other definitions under their old names."""

    class Meta:
        indexes: ClassVar = (
            Index("city", "-age", name="place"),
            AggregateIndex("city", sums=("age",), name="totals"),
        )


class Bare(Person, collection="people"):
    """None of the indexes is declared any more."""


def people(opened: Any) -> Any:
    old = opened(Old)
    old[Old].create(id=1, name="ada", city="rome")
    return old


def hint_of(error: Any) -> str:
    return str(error.value.hint)


def test_a_query_of_an_old_release_through_an_index_that_was_replaced_says_to_run_the_other_release(opened):
    old = people(opened)
    new = opened(New)
    with pytest.raises(IndexNotReadyError) as caught:
        new[New].filter(city="rome").order_by("-age").to_list()
    assert "Run db.apply()" in hint_of(caught), "of a newer release that advice is right"
    new.build_indexes()
    for ask in (
        lambda: old[Old].filter(city="rome").order_by("name").to_list(),
        lambda: list(old[Old].filter(city="rome").group_by("city").aggregate(Count())),
    ):
        with pytest.raises(IndexNotReadyError) as refused:
            ask()
        assert "build_indexes" not in hint_of(refused)
        assert "Another release has replaced this index" in hint_of(refused)
    with pytest.raises(SchemaMismatchError):
        old.build_indexes()
    assert [one.id for one in new[New].filter(city="rome").order_by("-age")] == [1]


def folded(document: dict[str, Any]) -> dict[str, Any]:
    return {**document, "city": document["city"].casefold(), "age": document["age"] + 1}


class Counted(Person, collection="people"):
    class Meta:
        indexes: ClassVar = (Index("city"), AggregateIndex("age", name="ages"))


class Upgraded(Person, collection="people"):
    """The indexes of ``Counted``, over values that an upgrade changes."""

    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = (Upgrade(2, folded, touches=("city", "age")),)
        indexes: ClassVar = (Index("city"), AggregateIndex("age", name="ages"))


class Fresh(Person, collection="people"):
    """An upgrade, and indexes that were not there before it."""

    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = (Upgrade(2, folded, touches=("city", "age")),)
        indexes: ClassVar = (Index("city"), Index("name"), AggregateIndex("age", name="ages"))


def test_an_index_that_is_new_beside_an_upgrade_waits_for_both_so_the_hint_is_the_step_that_does_both(opened):
    opened(Counted)[Counted].create(id=1, name="ada", city="ROME")
    new = opened(Fresh)
    with pytest.raises(IndexNotReadyError) as caught:
        new[Fresh].filter(name="ada").to_list()
    assert caught.value.state == "disabled"
    assert hint_of(caught).startswith("Run db.apply(), which rewrites the records")
    new.apply()
    assert new[Fresh].get(name="ada").city == "rome"


def test_a_query_through_an_index_whose_values_an_upgrade_changes_says_who_can_make_it_readable(opened):
    opened(Counted)[Counted].create(id=1, name="ada", city="ROME")
    new = opened(Upgraded)

    def refusals(db: Any, model: Any) -> set[tuple[str | None, ...]]:
        found: set[tuple[str | None, ...]] = set()
        for ask in (
            lambda: db[model].filter(city="rome").to_list(),
            lambda: list(db[model].group_by("age").aggregate(Count())),
        ):
            with pytest.raises(IndexNotReadyError) as caught:
                ask()
            found.add((caught.value.index, caught.value.state, hint_of(caught).partition(",")[0].partition(":")[0]))
        return found

    assert refusals(new, Upgraded) == {
        ("city", "outdated", "Run db.apply()"),
        ("ages", "outdated", "Run db.apply()"),
    }
    assert new.apply().complete
    assert new[Upgraded].filter(city="rome").count() == 1
    behind = "A newer release has changed the records of the index"
    assert refusals(opened(Counted), Counted) == {("city", "superseded", behind), ("ages", "superseded", behind)}


def test_an_open_that_requires_indexes_says_the_same_of_a_replaced_one(opened):
    people(opened)
    opened(New).build_indexes()
    with pytest.raises(SchemaMismatchError) as caught:
        opened(Old, require_current=True)
    assert "Another release has replaced this index" in hint_of(caught)


def test_a_write_beside_an_index_that_is_not_declared_any_more_says_how_to_drop_it(opened):
    people(opened)
    bare = opened(Bare)
    with pytest.raises(SchemaMismatchError) as caught:
        bare[Bare].create(id=2, name="bob")
    assert caught.value.index in ("place", "totals")
    assert f'db.drop_index(Bare, "{caught.value.index}")' in hint_of(caught)
    assert "all processes" in hint_of(caught)
    for name in ("place", "totals"):
        assert bare.drop_index(Bare, name) is True
    assert bare[Bare].create(id=2, name="bob").id == 2
    assert bare.check().findings == ()


class Dated(KvModel, collection="events"):
    id: PrimaryKey[int]
    day: Indexed[str]


class Redated(KvModel, collection="events"):
    """Another type of an indexed field."""

    id: PrimaryKey[int]
    day: Indexed[date]


def test_a_changed_type_of_an_indexed_field_says_to_store_it_elsewhere(opened):
    opened(Dated)[Dated].create(id=1, day="2020-01-01")
    with pytest.raises(SchemaMismatchError) as caught:
        opened(Redated)[Redated].get(1)
    assert (caught.value.index, caught.value.stored, caught.value.declared) == ("day", {"day": "str"}, {"day": "date"})
    assert "upgrade" in hint_of(caught)
    assert "new field" in hint_of(caught)
    assert "new collection" in hint_of(caught)


def first(name: str) -> str:
    return name[0]


def length(name: str) -> int:
    return len(name)


class ByText(Person, collection="people"):
    class Meta:
        indexes: ClassVar = (Index("name", key=first, version=1, name="made"),)


class ByNumber(Person, collection="people"):
    class Meta:
        indexes: ClassVar = (Index("name", key=length, version=1, name="made"),)


class ByNumberOfVersion2(Person, collection="people"):
    class Meta:
        indexes: ClassVar = (Index("name", key=length, version=2, name="made"),)


def test_a_changed_type_of_a_computed_column_says_to_raise_its_version(opened):
    opened(ByText)[ByText].create(id=1, name="ada")
    with pytest.raises(SchemaMismatchError) as caught:
        opened(ByNumber)[ByNumber].get(1)
    assert "version=" in hint_of(caught)
    db = opened(ByNumberOfVersion2)
    db.build_indexes()
    assert db[ByNumberOfVersion2].get(made=3).id == 1


class Owned(Person, collection="people"):
    owner: str

    class Meta:
        indexes: ClassVar = Old.Meta.indexes


class OwnedByDefault(Person, collection="people"):
    owner: str = "nobody"

    class Meta:
        indexes: ClassVar = Old.Meta.indexes


def test_a_required_field_that_stored_records_lack_says_to_give_it_a_default(opened):
    people(opened)
    strict = opened(Owned)[Owned]
    for read in (lambda: strict.get(1), lambda: list(strict.allow_scan().values("owner"))):
        with pytest.raises(DecodeError) as caught:
            read()
        assert (caught.value.field, caught.value.reason) == ("owner", "missing")
        assert "give the field a plain default" in hint_of(caught)
        assert "write an upgrade that fills it" in hint_of(caught)
    assert opened(OwnedByDefault)[OwnedByDefault].get(1).owner == "nobody"
