"""Queries as operands of ``in_``: the records that refer to the results of another query."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodels import (
    AsyncDatabase,
    Count,
    Database,
    InvalidArgumentError,
    InvalidValueError,
    OperationTooLargeError,
)
from kvmodels.flows.reading.semi_join import MOST_KEYS
from tests.drawing import of_check
from tests.query.engines import watched
from tests.references.models import MODELS, Author, Book, Cover
from tests.references.test_verbs import fill
from tests.references.test_with_related import AUTHORS, book_rows, stock


@settings(max_examples=of_check(20), deadline=None)
@given(rows=book_rows, wanted=st.sets(st.integers(1, AUTHORS)), size=st.integers(1, 5))
def test_results_equal_python(rows: list[tuple[int, int | None]], wanted: set[int], size: int):
    with Database("memory://", models=MODELS) as db:
        expected = [book for book, _, _ in stock(db, rows)]
        inner = db[Author].filter(pk__in=wanted)
        query = db[Book].filter(Book.author_id.in_(inner))
        found = [book for book in expected if book.author_id in wanted]
        in_order = query.order_by("pk")
        assert in_order.to_list() == list(in_order) == found
        assert db[Book].filter(author_id__in=inner).order_by("pk").to_list() == found
        assert in_order[1:3].to_list() == found[1:3]
        assert (query.count(), query.exists()) == (len(found), bool(found))
        assert query.aggregate(Count()) == {"count": len(found)}
        groups = query.sort_in_memory().group_by("author_id").aggregate(Count())
        assert {row["author_id"]: row["count"] for row in groups} == dict(Counter(book.author_id for book in found))
        assert db[Book].exclude(author_id__in=inner).allow_scan().order_by("pk").to_list() == [
            book for book in expected if book not in found
        ]
        assert db[Book].filter(Book.editor_id.not_in(inner)).allow_scan().order_by("pk").to_list() == [
            book for book in expected if book.editor_id not in wanted
        ]
        either = Book.author_id.in_(inner) | Book.editor_id.in_(inner)
        assert db[Book].filter(either).order_by("pk").to_list() == [
            book for book in expected if {book.author_id, book.editor_id} & wanted
        ]
        page = in_order.page(size=size)
        items = page.items
        while page.next_cursor is not None:
            later = in_order.page(size=size, after=page.next_cursor)
            assert in_order.page(size=size, before=later.previous_cursor).items == page.items
            page = later
            items += page.items
        assert items == found


def test_async_results_are_the_same():
    async def run() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            await db[Author].bulk_create([Author(id=1), Author(id=2)])
            book = await db[Book].create(id=1, author_id=1)
            await db[Book].create(id=2, author_id=2)
            query = db[Book].filter(Book.author_id.in_(db[Author].filter(pk=1)))
            assert await query.to_list() == [one async for one in query] == [book]
            assert await db[Book].filter(author_id__in=db[Author].filter(pk=3)).first() is None

    asyncio.run(run())


def test_with_slices_nesting_and_related_records(db: Database):
    fill(db)
    book, author = db[Book].get(1), db[Author].get(1)
    latest = db[Author].order_by("-pk")[:1]
    assert db[Book].filter(author_id__in=latest).to_list() == []
    assert db[Book].filter(editor_id__in=latest).to_list() == [book]
    nested = db[Cover].filter(Cover.book_id.in_(db[Book].filter(Book.author_id.in_(db[Author].filter(pk=1)))))
    assert nested.to_list() == list(db[Cover])
    query = db[Book].filter(Book.author_id.in_(db[Author])).with_related(Book.author_id)
    assert query.to_list() == list(query) == [(book, author)]
    assert db[Book].get(Book.author_id.in_(db[Author].filter(pk=1))) == book


def test_it_is_read_when_the_query_is_run_and_not_before(db: Database):
    fill(db)
    query = db[Book].filter(author_id__in=db[Author].filter(pk=7))
    assert query.to_list() == []
    db[Author].create(id=7)
    book = db[Book].create(id=7, author_id=7)
    assert query.to_list() == [book]


def test_a_transaction_reads_what_it_has_written(db: Database):
    fill(db)
    with db.transaction() as tx:
        tx[Author].create(id=9)
        book = tx[Book].create(id=9, author_id=9)
        assert tx[Book].filter(author_id__in=tx[Author].filter(pk=9)).to_list() == [book]
        assert tx[Book].filter(author_id__in=db[Author].filter(pk=9)).to_list() == [book]


def test_updates_and_deletions(db: Database):
    fill(db)
    db[Author].create(id=8)
    db[Book].create(id=8, author_id=8)
    chosen = db[Book].filter(author_id__in=db[Author].filter(pk=8))
    assert chosen.update(title="new").written == 1
    assert db[Book].get(8).title == "new"
    with pytest.raises(InvalidArgumentError):
        chosen.delete(resume_id="nightly")
    assert chosen.delete().written == 1
    assert [book.id for book in db[Book]] == [1]


def test_the_plan_has_a_line_of_its_own_and_counts_the_keys():
    with Database("memory://", models=MODELS) as db:
        stock(db, [(number % 4 + 1, None) for number in range(20)])
        query = db[Book].filter(author_id__in=db[Author].filter(pk__in=[1, 2]))
        plan = query.explain(analyze=True)
        assert plan.semi_joins == (
            "author_id in at most 1,000 keys, read first from Author: 2 keys of the primary key",
        )
        assert f"  semi-join   {plan.semi_joins[0]}" in str(plan).splitlines()
        assert plan.index == "author_id"
        assert len(plan.ranges) == 2
        same = db[Book].filter(author_id__in=[1, 2]).explain(analyze=True).analysis
        assert plan.analysis is not None
        assert same is not None
        assert plan.analysis.batches == same.batches + 1
        assert plan.analysis.reads == same.reads + 2


def test_the_number_of_keys_is_limited():
    with Database("memory://", models=MODELS) as db:
        db[Author].bulk_create([Author(id=number) for number in range(MOST_KEYS + 1)])
        book = db[Book].create(id=1, author_id=MOST_KEYS)
        query = db[Book].filter(author_id__in=db[Author])
        for call in (query.to_list, query.count, lambda: query.page(size=5), lambda: list(query)):
            with pytest.raises(OperationTooLargeError) as caught:
                call()
            assert caught.value.maximum == MOST_KEYS
        most = db[Author].filter(pk__gte=1)
        assert db[Book].filter(author_id__in=most).to_list() == [book]


@settings(max_examples=of_check(20), deadline=None)
@given(rows=book_rows, titles=st.sets(st.sampled_from("abc")))
def test_parents_of_children_equal_python(rows: list[tuple[int, int | None]], titles: set[str]):
    with Database("memory://", models=MODELS) as db:
        books = [book for book, _, _ in stock(db, rows)]
        for number, book in enumerate(books):
            book.title = "abc"[number % 3]
            db[Book].save(book)
        some = db[Book].filter(title__in=titles)
        for key in ("author_id", "editor_id"):
            wanted = {getattr(book, key) for book in books if book.title in titles}
            inner = some.values_list(key, flat=True)
            found = db[Author].filter(pk__in=inner)
            assert found.order_by("pk").to_list() == [one for one in db[Author] if one.id in wanted]
            assert found.count() == len(wanted - {None})
            others = db[Author].exclude(pk__in=inner).allow_scan()
            assert others.order_by("pk").to_list() == [one for one in db[Author] if one.id not in wanted]
        same = db[Book].filter(author_id__in=some.values_list(Book.editor_id, flat=True)).order_by("pk").to_list()
        assert same == [one for one in books if one.author_id in wanted]


def test_keys_of_children_are_read_when_the_query_runs():
    db, engine = watched(MODELS)
    db[Author].bulk_create([Author(id=n) for n in range(30)])
    db[Book].bulk_create([Book(id=n, author_id=n % 3, title="a") for n in range(600)])
    db[Book].filter(title="a").count()
    engine.meter.reset()
    query = db[Author].filter(pk__in=db[Book].values_list("author_id", flat=True))
    assert engine.meter.reads == 0
    assert [one.id for one in query] == [0, 1, 2]
    assert engine.meter.rows < 40  # it skips from key to key
    assert query.explain().semi_joins == ("id in at most 1,000 keys, read first from Book: 1 range of index author_id",)
    db[Author].bulk_create([Author(id=n) for n in range(1000, 1001 + MOST_KEYS)], batch_size=500)
    db[Book].bulk_create([Book(id=n, author_id=n, title="b") for n in range(1000, 1001 + MOST_KEYS)], batch_size=500)
    for several in (db[Book].filter(title="b"), db[Book].filter(author_id__gte=1000)):
        with pytest.raises(OperationTooLargeError) as caught:
            db[Author].filter(pk__in=several.values_list("author_id", flat=True)).to_list()
        assert caught.value.maximum == MOST_KEYS


def test_async_keys_of_children():
    async def run() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            await db[Author].bulk_create([Author(id=1), Author(id=2)])
            await db[Book].create(id=1, author_id=2)
            keys = db[Book].filter(pk=1).values_list(Book.author_id, flat=True)
            assert [one.id async for one in db[Author].filter(Author.id.in_(keys))] == [2]
            assert await db[Author].filter(pk__not_in=keys).allow_scan().count() == 1

    asyncio.run(run())


def test_other_operands_are_refused(db: Database):
    fill(db)
    authors: Any = db[Author].filter(pk=1)
    books: Any = db[Book]
    for refused in (
        lambda: books.filter(title__in=authors),
        lambda: books.filter(author_id__in=db[Book]),
        lambda: books.filter(author_id=authors),
        lambda: books.filter(pk__in=authors),
        lambda: db[Author].filter(pk__in=books),
        lambda: books.filter(title__in=books.values_list("author_id", flat=True)),
        lambda: db[Author].filter(pk__in=db[Cover].values_list("book_id", flat=True)),
    ):
        with pytest.raises(InvalidValueError):
            refused()
    with Database("memory://", models=MODELS) as other, pytest.raises(InvalidArgumentError):
        db[Book].filter(author_id__in=other[Author]).to_list()
