"""An index of trigrams is declared, written, built, checked, repaired and copied like every other index."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from pydantic import BaseModel

from kvmodels import (
    Database,
    Indexed,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    NoUsableIndexError,
    OperationTooLargeError,
    PrimaryKey,
    Q,
    TrigramIndex,
    describe,
)
from kvmodels.catalog.signatures import definition_of
from kvmodels.cli.model_source import model_source
from kvmodels.ext.admin.pages.offers import offers_of, search_names
from kvmodels.query.text_lookups import parse_lookups
from kvmodels.schema.compile.schema import schema_of
from kvmodels.testing.factories import KvFactory
from tests.admin.shop import browsed


def book_model(*declared: Any) -> Any:
    class Book(KvModel, collection="books"):
        id: PrimaryKey[int]
        title: str | None
        org: str | None = "acme"
        lent: bool = False
        pages: int = 0
        tags: list[str] = []

        class Meta:
            indexes: ClassVar = declared

    return Book


def entries(db: Database, index: str) -> list[tuple[Any, ...]]:
    found = list(db.kv.list(prefix=(f"books_by_{index}",)))
    assert all(entry.value == b"" for entry in found)
    return [entry.key[1:] for entry in found]


def test_a_change_writes_only_the_trigrams_that_are_gained_or_lost():
    model = book_model(TrigramIndex("title"))
    with Database("memory://", models=[model]) as db:
        db[model].create(id=1, title="Banana")
        before = {entry.key: entry.versionstamp for entry in db.kv.list(prefix=("books_by_title_trigrams",))}
        db[model].patch(1, title="bananas")
        after = {entry.key: entry.versionstamp for entry in db.kv.list(prefix=("books_by_title_trigrams",))}
        assert set(after) - set(before) == {("books_by_title_trigrams", "nas", 1)}
        assert {key: after[key] for key in before} == before
        db[model].patch(1, title=None)
        assert entries(db, "title_trigrams") == []


def test_the_condition_and_the_group_decide_which_records_have_entries():
    model = book_model(TrigramIndex("title", group="org", where=Q(lent=False), name="here"))
    with Database("memory://", models=[model]) as db:
        books = db[model]
        books.create(id=1, title="abc", org=None)
        books.create(id=2, title="abc", lent=True)
        books.create(id=3, title="abc", org="zoo")
        assert entries(db, "here") == [(b"", "abc", 1), ("zoo", "abc", 3)]
        assert [one.id for one in books.filter(title__icontains="ABC", org=None, lent=False)] == [1]
        with pytest.raises(NoUsableIndexError, match="'here' needs one value, or a list, of 'org'"):
            books.filter(title__icontains="abc", lent=False).to_list()
        with pytest.raises(NoUsableIndexError, match="'here' has only records with"):
            books.filter(title__icontains="abc", org="zoo").to_list()


class Shelf(BaseModel):
    label: str | None = None


def test_nested_folded_and_several_texts():
    class Item(KvModel, collection="books"):
        id: PrimaryKey[int]
        shelf: Shelf | None = None
        code: Annotated[str, Indexed(key=str.upper)] = ""
        tags: frozenset[str] = frozenset()

        class Meta:
            indexes = (TrigramIndex("shelf.label"), TrigramIndex("code"), TrigramIndex("tags"))

    with Database("memory://", models=[Item]) as db:
        items = db[Item]
        items.create(id=1, shelf=Shelf(label="North"), code="ab-1", tags=frozenset({"Alpha", "beta"}))
        items.create(id=2, code="AB-2", tags=frozenset({"alp", "habet"}))
        assert entries(db, "shelf_label_trigrams") == [("nor", 1), ("ort", 1), ("rth", 1)]

        def found(**lookups: Any) -> list[int]:
            query = items.filter(**lookups)
            assert query.explain().index is not None
            return [one.id for one in query]

        assert found(shelf__label__endswith="rth") == [1]
        assert found(code__contains="b-1") == found(code__contains="B-1") == [1]
        assert found(tags__any__icontains="ALP") == [1, 2]
        assert found(tags__any__contains="bet") == [1, 2]
        assert found(tags__any__iexact="ALP") == [2]


def test_a_build_over_records_beside_a_text_that_is_too_long(tmp_path: Path):
    plain, indexed = book_model(), book_model(TrigramIndex("title", max_fan_out=10, name="parts"))
    path = tmp_path / "books.db"
    with Database(path, models=[plain]) as db:
        db[plain].bulk_create([plain(id=n, title=f"title {n}") for n in range(30)])
        db[plain].create(id=99, title="twelve characters")
    with Database(path, models=[indexed]) as db:
        (report,) = db.build_indexes(indexed)
        assert [(violation.kind, violation.key) for violation in report.violations] == [("too_many", 99)]
        db[indexed].patch(99, title="short")
        assert all(report.state == "readable" for report in db.build_indexes(indexed))
        assert [one.id for one in db[indexed].filter(title__icontains="LE 2")] == [2, *range(20, 30)]
        assert db.check().ok


def test_a_text_with_more_trigrams_than_the_limit_is_refused_before_anything_is_written():
    model = book_model(TrigramIndex("title", max_fan_out=5, name="parts"))
    with Database("memory://", models=[model]) as db:
        with pytest.raises(OperationTooLargeError) as caught:
            db[model].create(id=1, title="12345678")
        assert (caught.value.limit, caught.value.size, caught.value.maximum) == ("max_fan_out", 6, 5)
        assert db[model].get_or_none(1) is None
        db[model].create(id=1, title="1234567")
        with pytest.raises(OperationTooLargeError), db.transaction() as tx:
            tx[model].patch(1, title="12345678")
        assert db[model].get(1).title == "1234567"


@pytest.mark.servers
def test_a_million_characters_in_one_field():
    text = "".join(f"{n:x}" for n in range(200_000))
    assert len(text) > 900_000
    small, large = book_model(TrigramIndex("title")), book_model(TrigramIndex("title", max_fan_out=5_000))
    with Database("memory://", models=[small]) as db, pytest.raises(OperationTooLargeError) as caught:
        db[small].create(id=1, title=text)
    assert caught.value.size == 16**3
    with Database("memory://", models=[large]) as db:
        db[large].create(id=1, title=text + "!")
        assert [one.id for one in db[large].filter(title__icontains="30d3e30D3F")] == [1]
        assert [one.id for one in db[large].filter(title__icontains=text[5:].upper() + "!")] == [1]
        assert db[large].filter(title__icontains=text[5:] + "?").count() == 0


def test_a_lone_surrogate_is_refused_in_texts_and_in_parts():
    model = book_model(TrigramIndex("title"))
    with Database("memory://", models=[model]) as db:
        with pytest.raises(InvalidValueError):
            db[model].create(id=1, title="abc\ud800")
        with pytest.raises(InvalidValueError):
            db[model].filter(title__icontains="abc\ud800").to_list()


def test_damage_is_found_and_mended():
    model = book_model(TrigramIndex("title", name="parts"))
    with Database("memory://", models=[model]) as db:
        db[model].create(id=1, title="abcd")
        db.kv.unsafe().delete(("books_by_parts", "bcd", 1))
        db.kv.unsafe().set(("books_by_parts", "xyz", 1), b"")
        assert db[model].filter(title__icontains="xyz").count() == 0
        assert sorted(one.kind for one in db.check().findings) == ["dangling", "missing"]
        assert db.check(repair=True).ok
        assert entries(db, "parts") == [("abc", 1), ("bcd", 1)]


def test_a_copy_has_the_entries_and_a_factory_makes_records():
    model = book_model(TrigramIndex("title"), TrigramIndex("tags", group="org", name="tagged"))
    file = io.BytesIO()
    with Database("memory://", models=[model]) as db:
        factory = KvFactory.of(model)
        factory.seed_random(5)
        factory.create_batch(db, 20)
        db.kv.dump(file)
        dumped = entries(db, "title_trigrams")
        assert dumped
    file.seek(0)
    with Database("memory://", models=[model]) as db:
        db.kv.load(file)
        assert entries(db, "title_trigrams") == dumped
        assert db.check().ok
        ((books),) = db.stats().collections
        assert {one.name: one.entries.rows for one in books.indexes}["title_trigrams"] == len(dumped)


def test_it_is_described_printed_and_its_keys_are_explained():
    model = book_model(TrigramIndex("title", group="org", max_fan_out=50, name="parts"))
    with Database("memory://", models=[model]) as db:
        db[model].create(id=1, title="abc")
        (described,) = describe(model).indexes
        assert (described.kind, described.fields, described.name) == ("trigram", ("title",), "parts")
        assert "TrigramIndex('title', group=('org',), name='parts')" in model_source(db.collections(), db.indexes())
        explained = db.explain_key(("books_by_parts", "acme", "abc", 1))
        assert explained.columns == {"org": "acme", "trigram of title": "abc"}
        assert (explained.kind, explained.primary_key) == ("entry", 1)


@pytest.mark.parametrize("columns", [[["a", "int", "asc", False]], [["a", "str", "asc", False]] * 2, []])
def test_a_stored_description_with_other_columns_is_unknown(columns: list[list[Any]]):
    signature = schema_of(book_model(TrigramIndex("title"))).indexes["title_trigrams"].signature()
    assert not isinstance(definition_of("parts", signature, "protect"), tuple)
    assert definition_of("parts", {**signature, "options": {"columns": columns}}, "protect") == ("options",)


def test_the_admin_offers_its_lookups_and_searches_parts():
    model = book_model(TrigramIndex("title"), TrigramIndex("tags"), TrigramIndex("title", group="org", name="of_org"))
    offers = offers_of(model, describe(model), ["title_trigrams"])
    assert {name for name in offers.served if "title" in name} == {
        "title__contains", "title__endswith", "title__icontains", "title__iexact",
    }  # fmt: skip
    assert "title__icontains" not in offers.scanned
    assert search_names(model, describe(model))[-2:] == ["title__icontains", "tags__any__icontains"]


def test_the_search_box_of_the_admin_and_query_strings_find_parts():
    model = book_model(TrigramIndex("title"))
    with Database("memory://", models=[model]) as db:
        db[model].create(id=71, title="Redis")
        asked = parse_lookups(model, [("title__icontains", "EDI")], allow=["title"])
        assert [one.id for one in db[model].filter(asked.where)] == [71]
        with browsed(db) as client:
            assert "<h2>title__icontains</h2>" in client.get("/admin/records/books?search=edis").text
            too_short = client.get("/admin/records/books?search=ed")
            assert (too_short.status_code, "<h2>" in too_short.text) == (200, False)
            assert "71" in client.get("/admin/records/books?title__icontains=EDIS").text


def wrong(option: str) -> dict[str, Any]:
    """An option with a value that it does not take."""
    return {option: 7}


@pytest.mark.parametrize(
    ("declare", "match"),
    [
        (lambda: TrigramIndex(), "names of one or more fields"),
        (lambda: TrigramIndex("title", "org"), "one field"),
        (lambda: TrigramIndex("-title"), "no direction"),
        (lambda: TrigramIndex("title", group="title"), "twice"),
        (lambda: TrigramIndex("title", max_fan_out=0), "value that it does not take"),
        (lambda: TrigramIndex("title", **wrong("unique")), "does not exist"),
        (lambda: book_model(TrigramIndex("pages")), "not a text"),
        (lambda: book_model(TrigramIndex("titel")), "does not exist"),
        (lambda: book_model(TrigramIndex("title", group="tags")), "several values"),
        (lambda: book_model(TrigramIndex("title", **wrong("where"))), "not an expression"),
    ],
)
def test_a_declaration_that_cannot_be_is_refused(declare: Any, match: str):
    with pytest.raises(ModelDefinitionError, match=match):
        declare()


def test_refusals_say_which_index_to_add():
    bare, indexed = book_model(), book_model(TrigramIndex("title"))
    with Database("memory://", models=[bare]) as db:
        with pytest.raises(NoUsableIndexError, match=r'Add TrigramIndex\("title"\) to the indexes of Book.Meta'):
            db[bare].filter(title__icontains="abc").to_list()
        with pytest.raises(NoUsableIndexError, match=r'Add TrigramIndex\("tags"\)'):
            db[bare].filter(tags__any__endswith="abc").to_list()
    with Database("memory://", models=[indexed]) as db:
        with pytest.raises(NoUsableIndexError, match="three characters or more: give a longer one") as caught:
            db[indexed].filter(title__icontains="ab").to_list()
        assert caught.value.filters == ("title__icontains",)
        with pytest.raises(NoUsableIndexError, match="allow_scan"):
            db[indexed].exclude(title__icontains="abc").to_list()
        with pytest.raises(NoUsableIndexError, match="sort_in_memory") as caught:
            db[indexed].filter(title__icontains="abcd").order_by("-pages").to_list()
        assert caught.value.filters == ("title__icontains",)
