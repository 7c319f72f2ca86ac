"""Dumps write every record in one form, whatever columns its model has; what a load makes is left out."""

from __future__ import annotations

import io
import json
from typing import Annotated, Any

import pytest

from kvmodels import Database, DecodeError, Field, Index, Indexed, KvModel, MultiIndexed, PrimaryKey, Unique, upgrade


def words(title: str) -> list[str]:
    return title.split()


class Plain(KvModel, collection="plain"):
    id: PrimaryKey[int]
    title: Indexed[str]


class Book(KvModel, collection="books"):
    id: PrimaryKey[int]
    title: Annotated[str, Indexed(key=str.casefold)]
    code: Annotated[str, Unique(key=str.upper)] = Field(default="")
    tags: MultiIndexed[list[str]] = Field(default_factory=list)

    class Meta:
        indexes = (Index("title", key=words, version=1, name="words"),)


class Old(KvModel, collection="versions"):
    id: PrimaryKey[int]
    name: str


class Versioned(KvModel, collection="versions"):
    id: PrimaryKey[int]
    name: Annotated[str, Indexed(key=str.casefold)]

    class Meta:
        schema_version = 2

    @upgrade(to=2, touches=["name"])
    @staticmethod
    def _upgrade(document: dict[str, Any]) -> dict[str, Any]:
        return {**document, "name": document["name"] + "!"}


MODELS: list[type[KvModel]] = [Plain, Book, Versioned]


@pytest.fixture
def db():
    with Database("memory://form", models=[Old]) as old:
        old[Old].create(id=1, name="Ada")
        with Database("memory://form", models=MODELS) as opened:
            opened.apply()
            opened[Versioned].create(id=2, name="Bob")
            opened[Plain].create(id=1, title="Emma")
            opened[Book].create(id=1, title="Über Land", code="a", tags=["x"])
            yield opened


def lines(text: str, collection: str) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in text.splitlines()]
    return [line for line in found if line.get("key", [None])[0] == collection]


def dumped(db: Database, *, whole: bool = False, **options: Any) -> str:
    file = io.StringIO()
    (db.kv.dump if whole else db.dump)(file, **options)
    return file.getvalue()


def test_a_dump_of_models_has_the_fields_of_each_record_and_its_schema_version(db):
    text = dumped(db)
    assert lines(text, "plain") == [{"key": ["plain", 1], "document": {"id": 1, "title": "Emma"}}]
    assert lines(text, "books") == [
        {"key": ["books", 1], "document": {"id": 1, "title": "Über Land", "code": "a", "tags": ["x"]}}
    ]
    assert lines(text, "versions") == [
        {"key": ["versions", 1], "document": {"id": 1, "name": "Ada!"}, "library": {"v": 2}},
        {"key": ["versions", 2], "document": {"id": 2, "name": "Bob"}, "library": {"v": 2}},
    ]


def test_a_dump_of_a_whole_store_has_the_same_documents_and_the_computed_values_beside_them(db):
    (line,) = lines(dumped(db, whole=True), "books")
    assert line["document"] == {"id": 1, "title": "Über Land", "code": "a", "tags": ["x"]}
    assert line["library"]["c"]["title~casefold"] == "über land"


def test_a_record_in_the_format_of_deno_has_no_computed_values(db):
    (line,) = lines(dumped(db, format="deno").replace('{"type":"string","value":"books"}', '"books"'), "books")
    assert set(line["value"]["value"]) == {"id", "title", "code", "tags"}


@pytest.mark.parametrize("form", ["kvmodels", "deno"])
@pytest.mark.parametrize("whole", [True, False])
def test_all_kinds_of_columns_are_computed_by_a_load(db, form, whole):
    text = dumped(db, whole=whole, format=form)
    with Database("memory://", models=MODELS) as other:
        assert other.load(io.StringIO(text), format=form).written == 4
        assert [*other[Book].all(), *other[Versioned].all()] == [*db[Book].all(), *db[Versioned].all()]
        assert other[Book].get(code="A").id == 1
        assert [book.id for book in other[Book].filter(words__contains="Land")] == [1]
        assert other[Versioned].get(1).name == "Ada!"
        assert [entry.value for entry in other.kv.list(("books",))] == [entry.value for entry in db.kv.list(("books",))]
        assert other.check().ok


def test_a_dump_of_a_whole_store_is_copied_exactly(db):
    with Database("memory://", models=MODELS) as other:
        other.kv.load(io.StringIO(dumped(db, whole=True)))
        assert [(one.key, one.value) for one in other.kv.list(())] == [(one.key, one.value) for one in db.kv.list(())]
        assert other.check().ok


@pytest.mark.parametrize("whole", [True, False])
def test_records_in_the_form_of_older_dumps_are_read(db, whole):
    older: list[str] = []
    for text in dumped(db, whole=whole).splitlines(keepends=True):
        line = json.loads(text)
        if "document" in line and line["key"][0] in {"books", "versions"}:
            own = {**line.pop("library", {}), "c": {"title~casefold": "stale"}} if not whole else line.pop("library")
            line["document"] = {"$dict": [*map(list, line["document"].items()), ["$kv", own]]}
        older.append(json.dumps(line) + "\n")
    with Database("memory://", models=MODELS) as other:
        if whole:
            other.kv.load(io.StringIO("".join(older)))
        else:
            other.load(io.StringIO("".join(older)))
        assert [*other[Book].all(), *other[Versioned].all()] == [*db[Book].all(), *db[Versioned].all()]
        assert other.check().ok


def test_a_document_that_is_none_is_refused_with_its_line(db):
    text = dumped(db).replace('"document":{"id":1,"title":"Emma"}', '"document":7')
    with Database("memory://", models=MODELS) as other, pytest.raises(DecodeError, match="line"):
        other.load(io.StringIO(text))
