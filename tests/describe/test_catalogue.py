"""``db.models``, ``db.collections()`` and ``db.indexes()``: what a store holds, declared by this program or not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kvmodels import AsyncDatabase, Database, Field, Index, Indexed, KvModel, PrimaryKey, SchemaProgress, Unique
from kvmodels.catalog.catalogue import IndexState
from tests.describe.models import MODELS, Author, Book
from tests.worlds import MEMORY_AND_A_FILE


class Person(KvModel, collection="people"):
    id: PrimaryKey[int]
    name: str
    city: str = ""


class NamedPerson(KvModel, collection="people"):
    """A later release, with two more indexes."""

    id: PrimaryKey[int]
    name: Unique[str]
    city: Indexed[str] = Field(default="")


@pytest.fixture(params=MEMORY_AND_A_FILE)
def url(request: pytest.FixtureRequest, url_of: Callable[[str], str]) -> str:
    return url_of(request.param)


def test_the_models_are_those_that_were_given():
    with Database("memory://", models=iter(MODELS)) as db:
        assert db.models == MODELS
    assert Database("memory://").models == ()


def test_a_program_without_classes_sees_collections_and_indexes(url: str):
    with Database(url, models=MODELS) as db:
        declared = {(one.collection, one.index.name) for one in db.indexes() if one.declared}
        with Database(url) as bare:
            books = {one.name: one for one in bare.collections()}["books"]
            found = bare.indexes()
    assert (books.model, books.schema_version, books.oldest_version) == (None, 1, 1)
    assert books.fields["published"] == "date | None"
    assert [column.name for column in books.primary_key] == ["id"]
    assert {(one.collection, one.index.name) for one in found} == declared
    assert {(one.state, one.generation, one.declared) for one in found} == {(IndexState.READABLE, 1, False)}
    assert str(found[-1]) == "shelves.label: readable, not declared by this program; index label (label)"


def test_a_declared_index_that_was_never_built_is_disabled():
    url = "memory://unbuilt"
    with Database(url, models=[Person]) as old:
        old[Person].create(id=1, name="a")
        with Database(url, models=[NamedPerson]) as new:
            assert [(one.index.name, one.state, one.generation, one.declared) for one in new.indexes()] == [
                ("name", IndexState.DISABLED, None, True),
                ("city", IndexState.DISABLED, None, True),
            ]
        assert old.indexes() == ()


def test_a_build_that_was_stopped_shows_its_progress():
    url = "memory://stopped"
    with Database(url, models=[Person]) as old:
        old[Person].bulk_create([Person(id=n, name=f"{n}") for n in range(1_500)])
        with Database(url, models=[NamedPerson]) as new:

            def stop(progress: SchemaProgress) -> None:
                raise InterruptedError(progress.scanned)

            with pytest.raises(InterruptedError) as stopped:
                new.build_indexes(progress=stop)
            processed = stopped.value.args[0]
            status = {one.index.name: one for one in new.indexes()}["name"]
    assert (status.state, status.processed, status.violations) == (IndexState.WRITE_ONLY, processed, 0)
    assert 0 < processed < 1_500
    assert f"write_only, {processed} records processed" in str(status)


def test_violations_are_counted():
    url = "memory://violated"
    with Database(url, models=[Person]) as old:
        old[Person].bulk_create([Person(id=n, name="same") for n in range(5)])
        with Database(url, models=[NamedPerson]) as new:
            new.build_indexes()
            status = {one.index.name: one for one in new.indexes()}
        with Database(url) as bare:
            seen = {one.index.name: one for one in bare.indexes()}
    assert (status["name"].state, status["name"].violations, status["name"].declared) == (IndexState.PENDING, 4, True)
    assert (seen["name"].state, seen["name"].violations, seen["name"].declared) == (IndexState.PENDING, 4, False)
    assert status["city"].violations == 0


def test_another_definition_is_another_generation():
    class Sorted(KvModel, collection="people"):
        id: PrimaryKey[int]
        name: Unique[str]
        city: str = ""

        class Meta:
            indexes = (Index("-city", name="city"),)

    url = "memory://generations"
    with Database(url, models=[NamedPerson]) as old:
        old[NamedPerson].create(id=1, name="a")
        new = Database(url, models=[Sorted])
    with new:
        before = [(one.generation, one.state.value, one.declared) for one in new.indexes() if one.index.name == "city"]
        new.apply()
        after = [(one.generation, one.state.value, one.declared) for one in new.indexes() if one.index.name == "city"]
    assert before == [(1, "readable", False), (None, "disabled", True)]
    assert after == [(2, "readable", True)]


async def test_the_asynchronous_database_describes_the_same():
    url = "memory://both"
    with Database(url, models=[Author, Book]) as db:
        async with AsyncDatabase(url, models=[Author, Book]) as other:
            assert other.models == db.models
            assert await other.collections() == db.collections()
            assert await other.indexes() == db.indexes()
