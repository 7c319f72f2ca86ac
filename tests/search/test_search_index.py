"""Declarations of search indexes, and what writes, builds, checks and other releases do with their rows."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from kvmodels import (
    Database,
    InvalidValueError,
    KvModel,
    ModelDefinitionError,
    NoUsableIndexError,
    OperationTooLargeError,
    PrimaryKey,
    SchemaMismatchError,
    Search,
    SearchIndex,
    UnknownLookupError,
    UnsupportedError,
)
from kvmodels.schema.compile.schema import schema_of
from kvmodels.schema.words import stemming, tokenizer
from kvmodels.schema.words.search import MAX_WORDS


class Page(KvModel, collection="pages"):
    id: PrimaryKey[int]
    org: str = "a"
    title: str | None = None
    body: str = ""
    tags: list[str] | None = None

    class Meta:
        indexes = (SearchIndex("title", "body", "tags", language="english", group="org", name="by_text"),)


def database(*models: type[KvModel]) -> Database:
    return Database("memory://", models=models or [Page])


def rows(db: Database, generation: int = 1) -> dict[Any, Any]:
    """The entries of the index by org, term and id, and its statistics by org and kind."""
    prefix = "pages_by_by_text" if generation == 1 else f"pages_by_by_text~{generation}"
    entries = {row.key[1:]: row.value for row in db.kv.list((prefix,))}
    counters = {row.key[5:]: row.value.value for row in db.kv.list(("__kvmodels__", "counter"))}
    return {**entries, **counters}


def test_an_entry_has_the_norm_and_a_frequency_for_each_field():
    with database() as db:
        db[Page].create(id=1, title="Stores", body="stored values, the values", tags=["value", "x"])
        db[Page].create(id=2, org="b", body="")
        assert rows(db) == {
            ("a", "store", 1): b"\x06\x01\x01\x00",
            ("a", "valu", 1): b"\x06\x00\x02\x01",
            ("a", "x", 1): b"\x06\x00\x00\x01",
            ("a", 0, "count"): 1,
            ("a", 0, "length"): 6,
        }


def test_an_edit_writes_only_the_terms_that_changed():
    with database() as db:
        body = " ".join(f"w{number}" for number in range(60))
        db[Page].create(id=1, body=body)
        before = {row.key: row.versionstamp for row in db.kv.list(("pages_by_by_text",))}
        counters = {row.key: row.versionstamp for row in db.kv.list(("__kvmodels__", "counter"))}
        db[Page].patch(1, body=body + " new")
        after = {row.key: row.versionstamp for row in db.kv.list(("pages_by_by_text",))}
        assert [key[2] for key, stamp in after.items() if before.get(key) != stamp] == ["new"]
        assert {row.key: row.versionstamp for row in db.kv.list(("__kvmodels__", "counter"))} == counters


def test_rows_follow_writes_of_every_form_and_removals():
    chance = Random(1)
    words = ["apple", "pear", "plum", "fig"]
    with database() as db:
        for number in range(60):
            key, body = chance.randrange(6), " ".join(chance.choices(words, k=chance.randrange(5)))
            match chance.randrange(6):
                case 0:
                    db[Page].filter(id=key).delete()
                case 1:
                    db[Page].filter(by_text__search=chance.choice(words), org="a").update(body=body)
                case 2:
                    db[Page].bulk_create([Page(id=key, body=body)], on_conflict="update")
                case 3:
                    with db.transaction() as tx:
                        tx[Page].filter(id=key).delete()
                        tx[Page].create(id=key, body=body, org=chance.choice("ab"))
                        found = [one.id for one in tx[Page].filter(by_text__search="plum", org__in=["a", "b"])]
                        assert (key in found) is ("plum" in body)
                case _:
                    db[Page].update_or_create(id=key, defaults={"body": body, "title": chance.choice([None, "Kiwi"])})
            assert db.check().ok, number
            for one in words:
                texts = {page.id for page in db[Page].all() if one in page.body}
                assert {page.id for page in db[Page].filter(by_text__search=one, org__in=["a", "b"])} == texts


def test_a_damaged_index_is_found_and_repaired():
    with database() as db:
        db[Page].create(id=1, body="apple pear")
        wanted = rows(db)
        kv = db.kv.unsafe()
        kv.delete(("pages_by_by_text", "a", "appl", 1))
        kv.set(("pages_by_by_text", "a", "pear", 1), b"\x00\x00\x00\x00")
        kv.set(("pages_by_by_text", "a", "plum", 1), b"\x01\x00\x01\x00")
        kv.delete(("__kvmodels__", "counter", "pages", "by_text", 1, "a", 0, "count"))
        report = db.check()
        kinds = sorted(one.kind for one in report.findings)
        assert kinds == ["counter", "dangling", "dangling", "missing"]
        db.check(repair=True)
        assert db.check().ok
        assert rows(db, 2) == wanted  # wrong statistics are counted again by a build


def test_an_index_is_built_over_stored_records(tmp_path: Path):
    class Before(KvModel, collection="pages"):
        id: PrimaryKey[int]
        org: str = "a"
        title: str | None = None
        body: str = ""
        tags: list[str] | None = None

    url = tmp_path / "pages.db"
    with Database(url, models=[Before]) as db:
        db[Before].bulk_create([Before(id=number, body=f"apple n{number}") for number in range(30)])
    with Database(url, models=[Page]) as db:
        db.build_indexes()
        assert db[Page].filter(by_text__search="apples", org="a").count() == 30
        assert [one.id for one in db[Page].filter(by_text__search="n7", org="a")] == [7]
        assert db.check().ok


class First(KvModel, collection="texts"):
    id: PrimaryKey[int]
    body: str

    class Meta:
        indexes: ClassVar = (SearchIndex("body", tokenizer=str.split, version=1, name="by_text"),)


class Second(KvModel, collection="texts"):
    id: PrimaryKey[int]
    body: str

    class Meta:
        indexes: ClassVar = (
            SearchIndex("body", tokenizer=lambda text: text.lower().split(), version=2, name="by_text"),
        )


def test_another_tokenizer_replaces_the_index_and_the_old_release_only_reads(tmp_path: Path):
    url = tmp_path / "texts.db"
    with Database(url, models=[First]) as old:
        old[First].create(id=1, body="Apple pear")
        with Database(url, models=[Second]) as new:
            assert [step.rule for step in new.plan().steps] == ["index_replaced"]
            with pytest.raises(SchemaMismatchError):
                new[Second].create(id=2, body="Plum")
            assert new[Second].get(1).body == "Apple pear"
            new.apply()
            new[Second].create(id=2, body="Plum APPLE")
            assert [one.id for one in new[Second].filter(by_text__search="apple")] == [1, 2]
            assert new.check().ok
        assert old[First].get(2).body == "Plum APPLE"
        with pytest.raises(SchemaMismatchError):
            old[First].create(id=3, body="x")


def test_a_library_with_other_stems_has_another_description(monkeypatch: pytest.MonkeyPatch):
    one = schema_of(_english())
    real = stemming.stemmer
    monkeypatch.setattr(stemming, "stemmer", lambda language: lambda word: real(language)(word).removesuffix("i"))
    other = schema_of(_english())
    assert one.indexes["by_text"].hash() != other.indexes["by_text"].hash()
    assert {each.stored_as for each in one.computed.values()}.isdisjoint(
        each.stored_as for each in other.computed.values()
    )


def _english() -> Any:
    class Text(KvModel, collection="texts"):
        id: PrimaryKey[int]
        body: str

        class Meta:
            indexes: ClassVar = (SearchIndex("body", language="english", name="by_text"),)

    return Text


def test_a_record_may_have_a_million_characters_in_a_field():
    with database() as db:
        db[Page].create(id=1, body="lorem ipsum dolor " * 55_000 + "needle")
        assert db[Page].filter(by_text__search='"dolor needle"', org="a").count() == 1
        assert rows(db)["a", "lorem", 1][2] == 255
        db[Page].create(id=2, body="x" * 1_000_000)
        assert db[Page].filter(by_text__search="x" * 70, org="a").count() == 1
        with pytest.raises(OperationTooLargeError) as caught:
            db[Page].create(id=3, body=" ".join(f"w{number}" for number in range(20_001)))
        assert "by_text" in str(caught.value)
        assert db[Page].get_or_none(3) is None


HOSTILE = [
    '"', "''", "(", ")", "()", "((a)", "a) OR (b", "-", "--", "- -", "*", "**", "a**", "*a", "a*b*", ":", "::",
    "title:", "title::a", ":a", "-:", '-"', '"" ""', '"a', 'a"', '"a"b"c', "OR", "OR OR OR", "AND", "NOT", "a AND b",
    "NOT a",
    "a & b", "a | b", "!a", "a <-> b", "a ~ b", "~", "^a^2", "a^", "{a}", "[a TO b]", "a\\", "\\", '\\"', "a/b", "/.*/",
    "?", "a?b", "%", "a%", "_", "a_b", "'; DROP TABLE pages; --", "1=1", "<script>alert(1)</script>", "&amp;", "\x00",
    "a\x00b", "\n\t\r", "\u202e", "\ufeff", "\ud800", "a\udfff", "🎈", "🎈 a", "é", "e\u0301", "ﬁ", "İ", "ß", "ǅ",
    "京", "東京", "東 京", "กข", "\u200b", "a\u200bb", "\u00ad", "١٢٣", "½", "²", "Ⅷ", "a" * 10_000, "a " * 5_000,
    '" ' * 3_000, "-" * 9_000, ":" * 9_000, "*" * 9_000, "OR " * 3_000, "(" * 9_000, "a:" * 4_000, "-a " * 3_000,
    "a OR " * 2_000, "東" * 5_000, "\ufdfa" * 2_000, "title:title:title:a", "a -a", '"a" -"a"', "-a OR -b", "body:-a",
    "body:*", 'body:"', " ", "",
]  # fmt: skip


def test_a_hundred_hostile_texts_are_no_error():
    assert len(HOSTILE) >= 100
    with database() as db:
        db[Page].bulk_create([Page(id=number, body=f"a b{number} title 東京") for number in range(5)])
        for text in HOSTILE:
            found = db[Page].filter(by_text__search=text, org="a")
            assert found.count() == len(found.to_list()), text
            ranked = db[Page].filter(org="a").search("by_text", text)
            assert {hit.record.id for hit in ranked} == {one.id for one in found}, text
            for query in (found, ranked):  # an entry of each record for each of at most 100 words, in a part of a list
                work = query.explain(analyze=True).analysis
                assert work is not None
                assert work.rows <= 5 * MAX_WORDS + 2, text
                assert work.records <= 2 * 5, text
                assert work.batches <= MAX_WORDS + 5, text


def test_a_search_without_the_group_names_it():
    with database() as db, pytest.raises(NoUsableIndexError) as caught:
        db[Page].filter(by_text__search="apple").to_list()
    assert "org" in str(caught.value)


def test_the_operand_is_a_text_or_a_search():
    with database() as db:
        db[Page].create(id=1, title="Apples", body="pears")
        searched = db[Page].filter(org="a", by_text__search=Search.all("apple", "pear") | Search.prefix("plu"))
        assert [one.id for one in searched] == [1]
        assert db[Page].filter(org="a", by_text__search=Search.all("apple", field="body")).count() == 0
        for wrong in (1, None, ["apple"], Search.all("apple", field="note")):
            with pytest.raises(InvalidValueError) as caught:
                db[Page].filter(by_text__search=wrong)
            assert caught.value.hint
        with pytest.raises(UnknownLookupError) as unknown:
            db[Page].filter(body__search="apple")
        assert "by_text" in str(unknown.value)


declare: Any = SearchIndex
"""The declaration for arguments of any type."""


@pytest.mark.parametrize(
    ("index", "part"),
    [
        (lambda: declare(), "fields"),
        (lambda: declare("body", "body"), "twice"),
        (lambda: declare("-body"), "direction"),
        (lambda: declare("body", group="body"), "twice"),
        (lambda: declare("body", language="klingon"), "english"),
        (lambda: declare("body", stop_words="the"), "stop_words"),
        (lambda: declare("body", stop_words=[1]), "stop_words"),
        (lambda: declare("body", weights={"title": 2}), "weights"),
        (lambda: declare("body", weights={"body": -1}), "weights"),
        (lambda: declare("body", weights={"body": float("nan")}), "weights"),
        (lambda: declare("body", weights=3), "weights"),
        (lambda: declare("body", rank=1), "rank"),
        (lambda: declare("body", version=1), "tokenizer"),
        (lambda: declare("body", tokenizer=str.split), "version"),
        (lambda: declare("body", tokenizer="split", version=1), "function"),
        (lambda: declare("body", tokenizer=str.split, version=1, language="english"), "language"),
        (lambda: declare("body", max_fan_out=0), "max_fan_out"),
        (lambda: declare("body", wieghts={}), "weights"),
    ],
)
def test_a_declaration_that_is_none_is_refused(index: Any, part: str):
    with pytest.raises(ModelDefinitionError) as caught:
        index()
    assert part in f"{caught.value} {caught.value.hint}"


@pytest.mark.parametrize(
    ("index", "part"),
    [
        (SearchIndex("size", name="x"), "type str"),
        (SearchIndex("boddy", name="x"), "body"),
        (SearchIndex("homes.city", name="x"), "type str"),
        (SearchIndex("body", name="body"), "name"),
        (SearchIndex("body", name="by text"), "identifier"),
        (SearchIndex("body", name="a__b"), "identifier"),
        (SearchIndex("body", group="blob", name="x"), "blob"),
    ],
)
def test_a_declaration_that_its_model_does_not_have_is_refused(index: SearchIndex, part: str):
    with pytest.raises(ModelDefinitionError) as caught:

        class Wrong(KvModel, collection="wrong"):
            id: PrimaryKey[int]
            body: str
            size: int
            blob: dict[str, str]

            class Meta:
                indexes: ClassVar = (index,)

    assert part in f"{caught.value} {caught.value.hint}"


def test_records_with_a_deadline_need_an_index_without_statistics():
    class Brief(KvModel, collection="briefs"):
        id: PrimaryKey[int]
        body: str

        class Meta:
            ttl = timedelta(hours=1)
            indexes: ClassVar = (SearchIndex("body", rank=False, name="by_text"),)

    with Database("memory://", models=[Brief]) as db:
        db[Brief].create(id=1, body="apple")
        assert db[Brief].filter(by_text__search="apple").count() == 1
        assert [*db.kv.list(("__kvmodels__", "counter"))] == []
        assert db.check().ok
    with pytest.raises(ModelDefinitionError) as caught:

        class Wrong(KvModel, collection="wrong"):
            id: PrimaryKey[int]
            body: str

            class Meta:
                ttl = timedelta(hours=1)
                indexes: ClassVar = (SearchIndex("body", name="by_text"),)

    assert "rank=False" in str(caught.value.hint)


def test_a_tokenizer_that_fails_names_the_field():
    class Text(KvModel, collection="texts"):
        id: PrimaryKey[int]
        body: str

        class Meta:
            indexes: ClassVar = (SearchIndex("body", tokenizer=lambda text: [1], version=1, name="by_text"),)  # type: ignore[list-item]

    with Database("memory://", models=[Text]) as db, pytest.raises(InvalidValueError) as caught:
        db[Text].create(id=1, body="x")
    assert "list of str" in str(caught.value.hint)


def test_a_language_without_the_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    class Missing:
        @property
        def LANGUAGES(self) -> Any:
            raise ModuleNotFoundError("No module named 'Stemmer'", name="Stemmer")

    monkeypatch.setattr(tokenizer, "stemming", Missing())
    with pytest.raises(UnsupportedError) as caught:
        SearchIndex("body", language="english")
    assert "kvmodels[search]" in str(caught.value.hint)
    assert SearchIndex("body").language is None


def test_a_field_of_a_nested_model_and_a_default_name():
    class Author(BaseModel):
        name: str | None = None

    class Book(KvModel, collection="books"):
        id: PrimaryKey[int]
        title: str
        author: Author | None = None

        class Meta:
            indexes: ClassVar = (SearchIndex("title", "author.name"),)

    with Database("memory://", models=[Book]) as db:
        db[Book].create(id=1, title="Emma", author=Author(name="Jane Austen"))
        db[Book].create(id=2, title="Anonymous")
        db[Book].create(id=3, title="x", author=Author())
        found = db[Book].filter(title_author_name_words__search='author.name:"jane austen" emma')
        assert [one.id for one in found] == [1]
        assert db.check().ok
