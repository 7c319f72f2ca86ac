"""Unknown parts of the catalogue, which a newer release has stored, refuse writes and are kept."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from copy import deepcopy
from hashlib import sha256
from json import dumps
from typing import Annotated, Any

import pytest

from kvmodels import (
    CASCADE,
    AggregateIndex,
    Count,
    Database,
    Field,
    ForeignKey,
    Index,
    Indexed,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    Q,
    SchemaChangeRefusedError,
    SchemaMismatchError,
    Unique,
)
from kvmodels.catalog.catalogue import Header
from kvmodels.cli.model_source import model_source

HEADER = ("__kvmodels__", "header")


class Author(KvModel, collection="authors"):
    id: PrimaryKey[int]
    name: Unique[str]


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    author: Annotated[ForeignKey[int, Author], CASCADE]
    title: Unique[str]
    year: Indexed[int] = Field(default=0)
    tags: MultiIndexed[list[str]] = Field(default_factory=list[str])
    pages: int = 0
    edition: int = 1

    class Meta:
        indexes = (
            Index("year", include=("pages",), where=Q(pages__gt=0), name="long"),
            AggregateIndex("edition", sums=("pages",), name="totals"),
        )


class Shelf(KvModel, collection="shelves"):
    id: PrimaryKey[int]
    place: Indexed[str] = Field(default="")


MODELS = (Author, Book, Shelf)


class Note(KvModel, collection="notes"):
    """A class that the store does not list yet."""

    id: PrimaryKey[int]


@pytest.fixture
def url(url_of) -> str:
    """The store of these tests: the catalogue does not depend on the engine."""
    return url_of("memory")


@pytest.fixture
def db(opened) -> Database:
    db = opened(*MODELS)
    db[Author].create(id=1, name="Ada")
    db[Book].bulk_create([Book(id=n, author=1, title=f"t{n}", year=n, tags=["a"], pages=n) for n in (1, 2)])
    db[Shelf].create(id=1, place="hall")
    return db


def changed(db: Database, change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """Change the catalogue as a newer release would; return the value that is stored."""
    kv = db.kv.unsafe()
    value = deepcopy(kv.get(HEADER).value)
    change(value)
    kv.set(HEADER, value)
    return value


def index_of(value: Mapping[str, Any], name: str, collection: str = "books") -> dict[str, Any]:
    return next(index for index in value["collections"][collection]["indexes"] if index["name"] == name)


def of_index(name: str, item: str, stored: Any) -> Callable[[dict[str, Any]], object]:
    return lambda value: index_of(value, name).__setitem__(item, stored)


def of_signature(name: str, item: str, stored: Any) -> Callable[[dict[str, Any]], object]:
    return lambda value: index_of(value, name)["signature"].__setitem__(item, stored)


def of_column(name: str, at: int, stored: Any) -> Callable[[dict[str, Any]], object]:
    def change(value: dict[str, Any]) -> None:
        column = index_of(value, name)["signature"]["columns"][0]
        column[at : at + 1] = [stored]

    return change


def of_books(section: str, stored: Any) -> Callable[[dict[str, Any]], object]:
    return lambda value: value["collections"]["books"].__setitem__(section, stored)


OF_INDEXES: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "an item of the signature": ("year", of_signature("year", "kind", "geo")),
    "an item of the listing": ("year", of_index("year", "options", {"levels": 4})),
    "another hash": ("year", of_index("year", "hash", "0123456789abcdef")),
    "a state": ("year", of_index("year", "state", "paused")),
    "columns that are no list": ("year", of_signature("year", "columns", {"cell": "location"})),
    "unique": ("title", of_signature("title", "unique", "per_group")),
    "nulls": ("title", of_signature("title", "nulls", "last")),
    "store": ("year", of_signature("year", "store", "compressed")),
    "where": ("long", of_signature("long", "where", [["not", ["pages"]]])),
    "include": ("long", of_signature("long", "include", [{"field": "pages"}])),
    "sums": ("totals", of_signature("totals", "sums", [["pages", "float", "asc", False]])),
    "places": ("totals", of_signature("totals", "places", {"pages": 2})),
    "reference": ("author", of_signature("author", "reference", ["authors", "people"])),
    "on_delete": ("author", of_index("author", "on_delete", "set_default")),
    "a column codec": ("year", of_column("year", 1, "money")),
    "a direction": ("year", of_column("year", 2, "nearest")),
    "nullable": ("year", of_column("year", 3, "absent")),
    "a part of a column": ("tags", of_column("tags", 4, {"path": ["tags"], "many": True, "distinct": True})),
    "a place in the document": ("tags", of_column("tags", 4, {"path": ["$kv", "t", "tags"], "many": True})),
}

OF_COLLECTIONS: dict[str, Callable[[dict[str, Any]], object]] = {
    "a section": of_books("history", {"keep": 5}),
    "a column type of a field": lambda value: value["collections"]["books"]["columns"].update(pages="sealed"),
}

CHANGES = {name: change for name, (_, change) in OF_INDEXES.items()} | OF_COLLECTIONS


def written_in_a_transaction(db: Database) -> None:
    with db.transaction() as tx:
        tx[Book].patch(1, pages=9)


WRITES: dict[str, Callable[[Database], object]] = {
    "create": lambda db: db[Book].create(id=9, author=1, title="t9"),
    "bulk_create": lambda db: db[Book].bulk_create([Book(id=9, author=1, title="t9")]),
    "patch": lambda db: db[Book].patch(1, pages=9),
    "save": lambda db: db[Book].save(db[Book].get(1)),
    "remove": lambda db: db[Book].remove(1),
    "get_or_create": lambda db: db[Book].get_or_create(id=9, defaults={"author": 1, "title": "t9"}),
    "update_or_create": lambda db: db[Book].update_or_create(id=9, defaults={"author": 1, "title": "t9"}),
    "update of a query": lambda db: db[Book].all().update(pages=9),
    "delete of a query": lambda db: db[Book].all().delete(),
    "transaction": written_in_a_transaction,
    "cascade": lambda db: db[Author].remove(1),
    "build_indexes": lambda db: db.build_indexes(Book),
    "rebuild": lambda db: db.build_index(Book, "title"),
    "migrate": lambda db: db.migrate(Book),
    "repair": lambda db: db.check(Book, repair=True),
}


@pytest.mark.parametrize("name", CHANGES)
def test_every_write_is_refused_and_the_stored_description_is_kept(db, opened, name):
    stored = changed(db, CHANGES[name])
    rows = list(db.kv.unsafe().list(()))
    for reader in (db, opened(*MODELS)):
        for verb, write in WRITES.items():
            with pytest.raises(SchemaMismatchError) as caught:
                write(reader)
            assert caught.value.code == "KV801", verb
            assert "update kvmodels" in str(caught.value).lower(), verb
    assert list(db.kv.unsafe().list(())) == rows
    assert Header.from_value(stored, ()).to_value() == stored


@pytest.mark.parametrize("name", OF_INDEXES)
def test_a_description_with_the_hash_of_a_newer_release_is_refused(db, opened, name):
    def change(value: dict[str, Any]) -> None:
        OF_INDEXES[name][1](value)
        index = index_of(value, OF_INDEXES[name][0])
        text = dumps(index["signature"], sort_keys=True, separators=(",", ":"))
        index["hash"] = "f" * 16 if name == "another hash" else sha256(text.encode()).hexdigest()[:16]

    changed(db, change)
    for reader in (db, opened(*MODELS)):
        with pytest.raises(SchemaMismatchError, match="does not know"):
            reader[Book].patch(1, pages=9)


@pytest.mark.parametrize("name", CHANGES)
def test_reads_go_on_and_another_collection_is_written_without_losing_the_description(db, opened, name):
    stored = changed(db, CHANGES[name])
    again = opened(*MODELS, Note)
    assert (again[Book].get(1).title, again[Book].count(), len(again[Book].all().to_list())) == ("t1", 2, 2)
    again[Shelf].create(id=2, place="attic")
    again[Note].create(id=1)
    listed = db.kv.unsafe().get(HEADER).value["collections"]
    assert listed.pop("notes")
    assert listed == stored["collections"]


QUERIES: dict[str, Callable[[Database], object]] = {
    "year": lambda db: db[Book].filter(year=1).to_list(),
    "title": lambda db: db[Book].get(title="t1"),
    "long": lambda db: db[Book].filter(year=1, pages__gt=0).using_index("long").to_list(),
    "totals": lambda db: db[Book].group_by("edition").aggregate(Count()).to_list(),
    "author": lambda db: db[Book].filter(author=1).to_list(),
    "tags": lambda db: db[Book].filter(tags__contains="a").to_list(),
}


@pytest.mark.parametrize("name", OF_INDEXES)
def test_a_query_that_needs_the_index_is_refused_and_others_are_not(db, opened, name):
    index, change = OF_INDEXES[name]
    changed(db, change)
    for reader in (db, opened(*MODELS)):
        with pytest.raises(SchemaMismatchError):
            QUERIES[index](reader)
        for other in QUERIES.keys() - {index, "long", "totals"}:
            QUERIES[other](reader)


@pytest.mark.parametrize("name", OF_INDEXES)
def test_an_unknown_index_is_shown_as_unknown_and_can_be_dropped_by_its_name(db, name):
    index, change = OF_INDEXES[name]
    changed(db, change)
    (status,) = [one for one in db.indexes() if (one.collection, one.index.name) == ("books", index)]
    assert (status.index.kind, status.declared) == ("unknown", False)
    report = db.check()
    assert report.ok
    assert [reason for reason in report.unchecked if reason.startswith(f"books.{index}: its description is unknown")]
    (stats,) = [one for one in db.stats().collections if one.name == "books"]
    assert [one.name for one in stats.indexes if not one.known] == [index]
    assert f"# not declared here: unknown {index} " in model_source(db.collections(), db.indexes())
    db.dump(io.StringIO())
    db.kv.dump(io.StringIO())
    assert db.drop_index(Book, index)
    assert index not in {one.index.name for one in db.indexes() if one.generation and one.collection == "books"}
    assert db.stats().other.rows == 0


@pytest.mark.parametrize("name", OF_COLLECTIONS)
def test_an_unknown_section_is_shown_and_its_collection_is_not_changed(db, name):
    changed(db, OF_COLLECTIONS[name])
    (described,) = [one for one in db.collections() if one.name == "books"]
    assert described.unknown in (("history",), ("columns.pages",))
    report = db.check()
    assert report.ok
    assert [reason for reason in report.unchecked if described.unknown[0] in reason]
    (stats,) = [one for one in db.stats().collections if one.name == "books"]
    assert stats.unknown == described.unknown
    assert f"# unknown to this release of kvmodels: {described.unknown[0]!r}" in model_source(db.collections(), ())
    with pytest.raises(SchemaMismatchError):
        db.drop_index(Book, "year")


@pytest.mark.parametrize("name", CHANGES)
def test_a_plan_says_that_a_newer_release_has_written_the_catalogue(db, opened, name):
    changed(db, CHANGES[name])
    again = opened(*MODELS)
    (step,) = again.plan(Book).steps
    assert step.rule == "description_unknown"
    with pytest.raises(SchemaChangeRefusedError):
        again.apply(allow=("drop_index", "forget_field", "change_type"))


def test_keys_of_an_unknown_index_are_entries_of_it(db):
    changed(db, of_signature("year", "kind", "geo"))
    explained = db.explain_key(("books_by_year", 1, 1))
    assert (explained.kind, explained.index, explained.primary_key) == ("entry", "year", None)


def test_an_unknown_section_of_the_store_refuses_all_models(db, opened):
    changed(db, lambda value: value.__setitem__("keys", {"current": 3}))
    with pytest.raises(SchemaMismatchError, match="section"):
        opened(*MODELS)
    with pytest.raises(SchemaMismatchError, match="section"):
        db[Shelf].create(id=2)
    assert db.kv.get(("plain",)).value is None


def test_a_foreign_key_that_is_unknown_refuses_writes_of_its_target(db):
    changed(db, of_signature("author", "deferred", True))
    for write in (lambda: db[Author].remove(1), lambda: db[Author].create(id=2, name="Bob")):
        with pytest.raises(SchemaMismatchError):
            write()
    db[Shelf].remove(1)


def test_a_removal_that_would_change_records_of_a_collection_with_an_unknown_section_is_refused(db):
    changed(db, of_books("history", {}))
    db[Author].create(id=2, name="Bob")
    for remove in (lambda: db[Author].remove(1), lambda: db[Author].filter(id=1).delete(), lambda: moved(db)):
        with pytest.raises(SchemaMismatchError):
            remove()
    assert (db[Author].count(), db[Book].count()) == (2, 2)
    db[Author].remove(2)  # no record refers to it


def moved(db: Database) -> None:
    with db.transaction() as tx:
        tx[Author].remove(1)


@pytest.mark.parametrize("name", CHANGES)
def test_a_dump_of_such_a_store_is_written_and_not_loaded_by_this_release(db, name):
    changed(db, CHANGES[name])
    file = io.StringIO()
    db.kv.dump(file)
    file.seek(0)
    other = Database(models=())
    with pytest.raises(SchemaMismatchError):
        other.kv.load(file)
    assert list(other.kv.unsafe().list(())) == []


def test_records_are_not_loaded_into_or_from_a_collection_with_an_unknown_section(db, opened):
    plain, strange = io.StringIO(), io.StringIO()
    db.dump(plain)
    changed(db, of_books("history", {}))
    db.dump(strange)
    db.kv.dump(whole := io.StringIO())
    plain.seek(0)
    with pytest.raises(SchemaMismatchError):
        db.load(plain, Book, on_conflict="update")
    whole.seek(0)
    with pytest.raises(SchemaMismatchError):
        Database(models=MODELS).load(whole, Book)


def test_a_load_does_not_erase_an_unknown_section_of_the_store(db):
    file = io.StringIO()
    db.kv.dump(file)
    other = Database(models=MODELS)
    stored = changed(other, of_books("history", {}))
    file.seek(0)
    with pytest.raises(SchemaMismatchError):
        other.kv.load(file)
    assert other.kv.unsafe().get(HEADER).value == stored


def test_a_generation_of_a_newer_release_is_not_ended_by_a_build_of_this_one(db, opened):
    def begun(value: dict[str, Any]) -> None:
        index = deepcopy(index_of(value, "year"))
        index["signature"]["kind"] = "rank"
        value["collections"]["books"]["indexes"].append({**index, "generation": 2, "state": "write_only"})
        value["collections"]["books"]["generations"]["year"] = 2

    stored = changed(db, begun)
    for reader in (db, opened(*MODELS)):
        with pytest.raises(SchemaMismatchError):
            reader.build_indexes()
        with pytest.raises(SchemaChangeRefusedError):
            reader.apply()
        with pytest.raises(SchemaMismatchError):
            reader[Book].patch(1, year=7)
        assert [book.id for book in reader[Book].filter(year=1)] == [1]  # the first generation is complete
    assert db.kv.unsafe().get(HEADER).value == stored
