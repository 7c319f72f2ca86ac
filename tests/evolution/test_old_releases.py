"""An old release gets typed errors after a newer one has added or dropped an index."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from kvmodels import (
    Indexed,
    IndexNotReadyError,
    KvModel,
    PrimaryKey,
    SchemaChangeRefusedError,
    SchemaMismatchError,
    Unique,
    UniqueViolationError,
)


class Listed(KvModel, collection="people"):
    id: PrimaryKey[int]
    city: Indexed[str]


class Unlisted(KvModel, collection="people"):
    """The newer release, which drops the index."""

    id: PrimaryKey[int]
    city: str


class Raised(Unlisted, collection="people"):
    """The same, with a schema version that keeps older releases from building the index again."""

    class Meta:
        schema_version: ClassVar = 2


def dropped_by(opened: Any, newer: type[KvModel]) -> tuple[Any, Any]:
    old = opened(Listed)
    old[Listed].create(id=1, city="rome")
    new = opened(newer)
    new.apply(allow=("drop_index",))
    return old, new


def test_a_query_through_an_index_that_a_newer_release_dropped_says_that_it_may_have_been_dropped(opened):
    old, _ = dropped_by(opened, Unlisted)
    with pytest.raises(IndexNotReadyError) as caught:
        old[Listed].filter(city="rome").to_list()
    assert "If a newer release has dropped the index, run that release instead." in str(caught.value.hint)


def test_an_old_release_that_lacks_a_new_index_is_told_first_to_run_the_newer_one(opened):
    old = opened(Unlisted)
    old[Unlisted].create(id=1, city="rome")
    opened(Listed).build_indexes()
    with pytest.raises(SchemaMismatchError) as caught:
        old[Unlisted].patch(1, city="oslo")
    assert str(caught.value.hint).startswith("If a newer release has added it, run that release.")


def test_a_release_that_drops_an_index_and_raises_the_version_is_not_locked_out_by_an_older_one(opened):
    old, new = dropped_by(opened, Raised)
    with pytest.raises(SchemaMismatchError):
        old.build_indexes()
    with pytest.raises(SchemaChangeRefusedError):
        old.apply()
    new[Raised].patch(1, city="oslo")
    assert new.plan().is_current


class Claimed(KvModel, collection="people"):
    """A newer release with an index that the older one has too."""

    id: PrimaryKey[int]
    city: Unique[str]

    class Meta:
        schema_version: ClassVar = 2


def test_an_old_release_does_not_drop_an_index_of_a_newer_one(opened):
    old = opened(Listed)
    new = opened(Claimed)
    new.apply()
    new[Claimed].create(id=1, city="rome")
    with pytest.raises(SchemaMismatchError) as caught:
        old.drop_index(Listed, "city")
    assert (caught.value.stored, caught.value.declared) == (2, 1)
    with pytest.raises(UniqueViolationError):
        new[Claimed].create(id=2, city="rome")


def test_a_check_names_an_index_that_is_declared_and_not_there(opened):
    _, new = dropped_by(opened, Unlisted)
    assert new.check().unchecked == ()
    again = opened(Listed)
    report = again.check()
    assert report.ok
    assert report.unchecked == ("people.city: it is not built; db.apply() builds it",)


class Towned(KvModel, collection="people"):
    """Has a field of the type of one that is not declared any more."""

    id: PrimaryKey[int]
    town: str = ""


class Numbered(KvModel, collection="people"):
    """Has a field of another type than the one that is not declared any more."""

    id: PrimaryKey[int]
    town: int = 0


def test_a_plan_asks_whether_a_field_was_renamed_where_one_of_its_type_went(opened):
    opened(Unlisted)[Unlisted].create(id=1, city="rome")
    details = {step.subject: step.detail for step in opened(Towned).plan().steps}
    assert details["town"] == "str; renamed from city? Then an upgrade has to move the values"
    assert {step.subject: step.detail for step in opened(Numbered).plan().steps}["town"] == "int"
