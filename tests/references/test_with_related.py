"""Results of queries together with the targets of their foreign keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvmodels import AsyncDatabase, DanglingReferenceError, Database, InvalidArgumentError
from kvmodels.flows.effects import Flow
from kvmodels.flows.reading import queries
from kvmodels.flows.reading import related as with_related
from kvmodels.flows.transaction.transaction import serve
from kvmodels.runtime.sync import run
from tests.drawing import of_check
from tests.references.models import MODELS, Author, Book, Category, Cover, Tagging
from tests.references.test_verbs import fill

AUTHORS = 4

book_rows = st.lists(st.tuples(st.integers(1, AUTHORS), st.none() | st.integers(1, AUTHORS)), max_size=12)


def stock(db: Database, rows: list[tuple[int, int | None]]) -> list[tuple[Book, Author, Author | None]]:
    """Store authors and books, and return what Python makes of them, in the order of the books."""
    authors = {number: db[Author].create(id=number, name=f"name {number}") for number in range(1, AUTHORS + 1)}
    expected = []
    for number, (author, editor) in enumerate(rows):
        book = db[Book].create(id=number, author_id=author, editor_id=editor, title=f"title {number % 3}")
        expected.append((book, authors[author], None if editor is None else authors[editor]))
    return expected


def interrupted(db: Database, flow: Flow[Any], change: Callable[[], None]) -> Any:
    """Run a flow; another writer changes the store right after its first read, before targets are read."""
    changes = [change]

    def answer(request: Any) -> Flow[Any]:
        found = yield request
        if changes:
            changes.pop()()
        return found

    return run(db._engine, serve(flow, answer))


@settings(max_examples=of_check(60), deadline=None)
@given(rows=book_rows, size=st.integers(1, 5), start=st.integers(0, 4), stop=st.integers(0, 8))
def test_results_equal_python(rows: list[tuple[int, int | None]], size: int, start: int, stop: int):
    with Database("memory://", models=MODELS) as db:
        expected = stock(db, rows)
        pairs = [(book, author) for book, author, _ in expected]
        query = db[Book].with_related(Book.author_id)
        assert list(query) == query.to_list() == list(query.iterator(batch_size=2)) == pairs
        assert list(db[Book].with_related(Book.author_id, Book.editor_id)) == expected
        assert query[start:stop].to_list() == list(query[start:stop]) == pairs[start:stop]
        assert query.first() == (pairs[0] if pairs else None)
        assert query.last() == (pairs[-1] if pairs else None)
        assert query.order_by("-pk").to_list() == pairs[::-1]
        titled = [pair for pair in pairs if pair[0].title == "title 1"]
        assert query.filter(title="title 1").to_list() == titled
        assert db[Book].filter(title="title 1").with_related(Book.author_id).reverse().to_list() == titled[::-1]
        assert query.order_by("title").to_list() == sorted(pairs, key=lambda pair: (pair[0].title, pair[0].id))
        assert (query.count(), query.exists()) == (len(pairs), bool(pairs))
        pages, cursor = [query.page(size=size)], None
        while (cursor := pages[-1].next_cursor) is not None:
            pages.append(query.page(size=size, after=cursor))
        assert [pair for page in pages for pair in page] == pairs
        for earlier, later in pairwise(pages):
            assert query.page(size=size, before=later.previous_cursor).items == earlier.items


def test_async_results_are_the_same():
    async def run() -> None:
        async with AsyncDatabase("memory://", models=MODELS) as db:
            author = await db[Author].create(id=1)
            book = await db[Book].create(id=1, author_id=author)
            query = db[Book].with_related(Book.author_id, Book.editor_id)
            assert [row async for row in query] == await query.to_list() == [(book, author, None)]
            assert (await query.page(size=5)).items == [(book, author, None)]
            assert await query.first() == await query[0] == (book, author, None)

    asyncio.run(run())


def test_other_kinds_of_references(db: Database):
    fill(db)
    book = db[Book].get(1)
    assert db[Cover].with_related(Cover.book_id).to_list() == [(cover, book) for cover in db[Cover]]
    assert db[Category].with_related(Category.parent).to_list() == [
        (one, None if one.parent is None else db[Category].get(one.parent)) for one in db[Category]
    ]
    assert db[Tagging].with_related(Tagging.book_id, Tagging.category_id).to_list() == [
        (one, db[Book].get(one.book_id), db[Category].get(one.category_id)) for one in db[Tagging]
    ]


def test_one_read_for_the_targets_of_a_batch():
    with Database("memory://", models=MODELS) as db:
        stock(db, [(number % 3 + 1, 4) for number in range(50)])
        plain = db[Book].filter(title="title 1")[:20]
        without = plain.explain(analyze=True).analysis
        related = plain.with_related(Book.author_id, Book.editor_id).explain(analyze=True)
        assert without is not None
        assert related.analysis is not None
        assert related.analysis.batches == without.batches + 1
        assert (related.analysis.rows, related.analysis.records) == (without.rows, without.records + len({2, 4}))
        assert related.related == ("author_id", "editor_id")
        assert "the targets of author_id, editor_id, in one more read for each batch" in str(related)
        every = db[Book].with_related(Book.author_id).to_list()
        assert len({id(author) for _, author in every}) == 3


def test_a_transaction_reads_what_it_has_written(db: Database):
    fill(db)
    with db.transaction() as tx:
        author = tx[Author].create(id=9)
        book = tx[Book].create(id=9, author_id=9)
        assert tx[Book].filter(author_id=9).with_related(Book.author_id).to_list() == [(book, author)]
        tx[Author].patch(9, name="Ada")
        assert [one.name for _, one in tx[Book].filter(author_id=9).with_related(Book.author_id)] == ["Ada"]


def test_a_record_that_changes_between_the_two_reads_is_read_again():
    with Database("memory://", models=MODELS) as db:
        authors = [db[Author].create(id=number) for number in (1, 2)]
        db[Book].create(id=1, author_id=1)
        last = db[Book].create(id=2, author_id=2)

        def repointed() -> None:
            db[Book].patch(1, author_id=2)
            db[Author].remove(1)

        query = db[Book].with_related(Book.author_id)
        found = interrupted(db, with_related.fetch(db._core.context, query._query), repointed)
        assert found == [(Book(id=1, author_id=2), authors[1]), (last, authors[1])]

        def removed() -> None:
            with db.transaction() as tx:
                tx[Book].remove(1)
                tx[Author].remove(3)

        db[Author].create(id=3)
        db[Book].patch(1, author_id=3)
        found = interrupted(db, with_related.fetch(db._core.context, query._query.end()), removed)
        assert found == [(last, authors[1])]


def test_a_record_that_matches_no_more_is_left_out():
    with Database("memory://", models=MODELS) as db:
        db[Author].bulk_create([Author(id=1), Author(id=2)])
        db[Book].create(id=1, author_id=1)

        def change() -> None:
            db[Book].patch(1, author_id=2)
            db[Author].remove(1)

        query = db[Book].filter(author_id=1).with_related(Book.author_id)
        assert interrupted(db, queries.page(db._core.context, query._query, 5), change).objects == []


def test_a_reference_that_dangles_all_the_same():
    with Database("memory://", models=MODELS) as db:
        fill(db)
        book, author = db[Book].get(1), db[Author].get(1)
        db.kv.unsafe().delete(("authors", 2))
        assert db[Book].with_related(Book.author_id, Book.editor_id).first() == (book, author, None)
        db.kv.unsafe().delete(("authors", 1))
        for call in (
            lambda: db[Book].with_related(Book.author_id).to_list(),
            lambda: db[Book].with_related(Book.author_id).page(size=1),
            lambda: list(db[Book].with_related(Book.editor_id, Book.author_id)),
        ):
            with pytest.raises(DanglingReferenceError) as caught:
                call()
            assert (caught.value.model, caught.value.key, caught.value.field) == ("Book", 1, "author_id")


def test_calls_that_cannot_be_answered_are_refused_at_once(db: Database):
    wrong: Any = Book.title
    other: Any = Cover.book_id
    query: Any = db[Book].with_related(Book.author_id)
    values: Any = db[Book].values("title")
    many: Any = db[Book]
    for call in (
        lambda: db[Book].with_related(wrong),
        lambda: db[Book].with_related(other),
        lambda: many.with_related(),
        lambda: many.with_related(*[Book.author_id] * 5),
        lambda: query.with_related(Book.editor_id),
        lambda: values.with_related(Book.author_id),
        lambda: query.values("title"),
        lambda: query.values_list("title", flat=True),
    ):
        with pytest.raises(InvalidArgumentError):
            call()
    with Database("memory://", models=[Book]) as alone, pytest.raises(InvalidArgumentError):
        alone[Book].with_related(Book.author_id).to_list()
