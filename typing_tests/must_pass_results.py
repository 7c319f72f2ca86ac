"""What repositories and queries give, with names that everybody imports from the package; every line must be accepted."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import date
from typing import Any, TypeVar, assert_type
from uuid import UUID, uuid4

from kvmodels import (
    AsyncDatabase,
    AsyncKv,
    AsyncQuerySet,
    AsyncRankedQuery,
    AsyncRepository,
    BulkItem,
    Count,
    Database,
    Expression,
    Field,
    FieldRef,
    Hit,
    Indexed,
    Kv,
    KvModel,
    MultiFieldRef,
    MultiIndexed,
    Page,
    PrimaryKey,
    Q,
    QueryPlan,
    QuerySet,
    RankedQuery,
    Repository,
    Search,
    SearchHit,
    Sum,
    Unique,
)

M = TypeVar("M", bound=KvModel)


class Book(KvModel, collection="books"):
    id: PrimaryKey[UUID] = Field(default_factory=uuid4)
    name: Unique[str]
    subtitle: Unique[str | None] = Field(default=None)
    year: Indexed[int]
    read: Indexed[date | None] = Field(default=None)
    tags: MultiIndexed[list[str]] = Field(default_factory=list)
    marks: MultiIndexed[set[int] | None] = Field(default=None)
    pages: int = 0


class Signed(Book, collection="signed"):
    by: Indexed[str]


# --- a field is a value of an object, and a reference on the class; those of a parent too

signed = Signed(name="x", year=1, by="ada")
assert_type(signed.id, UUID)
assert_type(signed.name, str)
assert_type(signed.subtitle, str | None)
assert_type(signed.year, int)
assert_type(signed.read, date | None)
assert_type(signed.tags, list[str])
assert_type(signed.marks, set[int] | None)
assert_type(signed.by, str)
assert_type(Signed.id, FieldRef[UUID])
assert_type(Signed.name, FieldRef[str])
assert_type(Signed.subtitle, FieldRef[str | None])
assert_type(Signed.year, FieldRef[int])
assert_type(Signed.read, FieldRef[date | None])
assert_type(Signed.tags, MultiFieldRef[str])
assert_type(Signed.marks, MultiFieldRef[int])
assert_type(Signed.by, FieldRef[str])


# --- functions about any model, and about one

def newest(records: QuerySet[M], order: Expression) -> M | None:
    return records.filter(order).first()


def since(year: int) -> Expression:
    return (Book.year >= year) & ~Q(read=None)


def copied(records: Repository[M], make: Callable[[M], M]) -> list[M]:
    return [make(record) for record in records]


def grow(book: Book) -> None:
    book.pages += 1


def renamed(book: Book) -> Book:
    return book.model_copy(update={"name": "y"})


def results(db: Database, books: Repository[Book], kv: Kv) -> None:
    assert_type(db[Book], Repository[Book])
    assert_type(db.repository(Signed), Repository[Signed])
    assert_type(db.kv, Kv)
    assert_type(newest(books, since(3)), Book | None)
    assert_type(copied(db[Signed], lambda one: one), list[Signed])
    assert_type(books.get(uuid4()), Book)
    assert_type(books.get(Book.name == "x", year=1), Book)
    assert_type(books.get_or_none(name="x"), Book | None)
    assert_type(books.first(), Book | None)
    assert_type(books.filter(year=1).last(), Book | None)
    assert_type(books[0], Book)
    assert_type(books[1:3], QuerySet[Book])
    assert_type(books.in_bulk([uuid4()]), dict[Any, Book])
    assert_type(books.get_or_create(name="x", defaults={"year": 1}), tuple[Book, bool])
    assert_type(books.bulk_create([signed]), list[BulkItem[Book]])
    assert_type(books.bulk_create([Book(name="x", year=1)])[0].obj, Book)
    assert_type(books.create(name="x", year=1), Book)
    assert_type(books.insert(signed), Book)
    assert_type(books.save(signed, force=True), Book)
    assert_type(books.refresh(signed), Book)
    assert_type(books.detach(signed), Book)
    assert_type(books.patch(signed.id, year=2), Book)
    assert_type(books.mutate(signed.id, grow), Book)
    assert_type(books.mutate(signed.id, renamed), Book)
    assert_type(books.mutate(signed.id, lambda book: setattr(book, "pages", 3)), Book)
    assert_type(books.remove(signed), bool)
    assert_type(books.count(), int)
    page = books.page(size=3)
    assert_type(page, Page[Book])
    assert_type(page.items, list[Book])
    assert_type(page.next_cursor, str | None)
    assert_type(page.has_previous, bool)
    assert_type([book.year for book in page], list[int])
    assert_type(iter(books), Iterator[Book])
    assert_type(books.iterator(), Iterator[Book])
    assert_type(books.explain(), QueryPlan)
    assert_type(books.explain(analyze=True).estimated_reads, int | None)
    assert_type(books.aggregate(Count(), pages=Sum("pages")), dict[str, Any])
    assert_type(books.group_by(Book.year).aggregate(Count()).to_list(), list[dict[str, Any]])
    assert_type(kv.get(("x",)).versionstamp, str | None)


async def awaited(db: AsyncDatabase, books: AsyncRepository[Book], kv: AsyncKv) -> None:
    assert_type(db[Book], AsyncRepository[Book])
    assert_type(books.filter(since(3)), AsyncQuerySet[Book])
    assert_type(books[0], Awaitable[Book])
    assert_type(await books[0], Book)
    assert_type(books[1:3], AsyncQuerySet[Book])
    assert_type(await books.get(name="x"), Book)
    assert_type(await books.get_or_none(uuid4()), Book | None)
    assert_type(await books.first(), Book | None)
    assert_type(await books.get_or_create(name="x"), tuple[Book, bool])
    assert_type(await books.in_bulk([uuid4()]), dict[Any, Book])
    assert_type((await books.bulk_create([signed]))[0].obj, Book)
    assert_type(await books.mutate(signed.id, grow), Book)
    assert_type(await books.remove(signed), bool)
    assert_type((await books.page(size=3)).items, list[Book])
    assert_type(books.iterator(), AsyncIterator[Book])
    assert_type([book.name async for book in books], list[str])
    assert_type(await books.explain(), QueryPlan)
    assert_type(await books.group_by("year").aggregate(Count()).to_list(), list[dict[str, Any]])
    assert_type(await asyncio.gather(books.count(), books.exists()), tuple[int, bool])
    four = books.values_list(Book.name, Book.year, Book.read, Book.subtitle)
    assert_type(await four.to_list(), list[tuple[str, int, date | None, str | None]])
    assert_type((await kv.get(("x",))).versionstamp, str | None)


# --- ranked queries

def nearest(books: Repository[Book], kv: Kv) -> list[str]:
    near = books.filter(name="x").nearest("year", 1990, within_m=5)
    assert_type(near, RankedQuery[Hit[Book]])
    assert_type(books.nearest(Book.year, 1990).filter(Book.year > 3, name="x").exclude(year=3), RankedQuery[Hit[Book]])
    assert_type(near[:10], RankedQuery[Hit[Book]])
    assert_type(near[0], Hit[Book])
    assert_type(near[0].record, Book)
    assert_type(near[0].distance, float)
    assert_type(near.first(), Hit[Book] | None)
    assert_type(near.to_list(), list[Hit[Book]])
    assert_type(near.count(), int)
    assert_type(near.exists(), bool)
    assert_type(near.page(20), Page[Hit[Book]])
    assert_type(near.page(size=20, after=near.page(20).next_cursor).items, list[Hit[Book]])
    assert_type(near.page(before=near.page(20).previous_cursor), Page[Hit[Book]])
    assert_type(near.explain(analyze=True), QueryPlan)
    assert_type(near.values("name", "distance"), RankedQuery[dict[str, Any]])
    assert_type(near.values("name")[:5].to_list(), list[dict[str, Any]])
    assert_type(iter(near), Iterator[Hit[Book]])
    return [f"{book.name}: {distance:.0f} m" for book, distance in near]


def found(books: Repository[Book]) -> list[str]:
    best = books.filter(name="x").search("by_text", Search.all("key") | Search.phrase("key value"), max_postings=9)
    assert_type(best, RankedQuery[SearchHit[Book]])
    assert_type(best.filter(Book.year > 3)[:10], RankedQuery[SearchHit[Book]])
    assert_type(best[0].score, float)
    assert_type(best.page(20), Page[SearchHit[Book]])
    assert_type(best[0].highlight("name", before="[", after="]", words=None), str)
    return [f"{book.name}: {score:.1f}" for book, score in best]


async def nearest_awaited(books: AsyncRepository[Book]) -> list[str]:
    near = books.nearest("year", 1990)
    assert_type(near, AsyncRankedQuery[Hit[Book]])
    assert_type(near[:10], AsyncRankedQuery[Hit[Book]])
    assert_type(near[0], Awaitable[Hit[Book]])
    assert_type(await near[0], Hit[Book])
    assert_type(await near.first(), Hit[Book] | None)
    assert_type((await near.page(20)).items, list[Hit[Book]])
    assert_type(await near.count(), int)
    assert_type(await near.values("name")[:5].to_list(), list[dict[str, Any]])
    return [book.name async for book, _ in near[:3]]
