"""Mistakes with what repositories and queries give: each line with a code must be reported with it, and no other line."""

from datetime import date
from typing import NamedTuple

from pydantic import BaseModel

from kvmodels import (
    AsyncDatabase,
    AsyncRepository,
    Count,
    Database,
    Field,
    Indexed,
    KvModel,
    MultiIndexed,
    Page,
    PrimaryKey,
    QuerySet,
    Repository,
    Unique,
)


class Card(BaseModel):
    name: str


class Pair(NamedTuple):
    name: str
    year: int


class Book(KvModel, collection="books"):
    isbn: PrimaryKey[str]
    name: Unique[str]
    year: Indexed[int]
    read: Indexed[date | None] = Field(default=None)
    tags: MultiIndexed[list[str]] = Field(default_factory=list)


class Loan(KvModel, collection="loans"):
    id: PrimaryKey[int]


def no_result(book: Book) -> str:
    return book.name


def other_model(loan: Loan) -> None:
    print(loan.id)


async def awaited(book: Book) -> None:
    book.year += 1


def change(book: Book) -> None:
    book.year += 1


# --- fields of objects and of classes

book = Book(isbn="1", name="x", year=1)
isbn: int = book.isbn  # mypy: assignment / pyright: reportAssignmentType
name: int = book.name  # mypy: assignment / pyright: reportAssignmentType
year: str = book.year  # mypy: assignment / pyright: reportAssignmentType
read: date = book.read  # mypy: assignment / pyright: reportAssignmentType
tags: list[int] = book.tags  # mypy: assignment / pyright: reportAssignmentType
on_class: str = Book.name  # mypy: assignment / pyright: reportAssignmentType
on_object = book.name.desc()  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType
element: str = Book.tags[0]  # mypy: index / pyright: reportIndexIssue, reportUnknownVariableType


# --- databases and repositories

def repositories(db: Database, books: Repository[Book]) -> None:
    Database(models=[Card])  # mypy: list-item / pyright: reportArgumentType
    db[Card]  # mypy: type-var / pyright: reportArgumentType
    db[Book(isbn="1", name="x", year=1)]  # mypy: index / pyright: reportArgumentType
    db.repository("books")  # mypy: call-overload / pyright: reportArgumentType
    wrong: Repository[Loan] = db[Book]  # mypy: index / pyright: reportAssignmentType
    cards: Repository[Card] | None = None  # mypy: type-var / pyright: reportInvalidTypeArguments
    asynchronous_one: AsyncRepository[Book] = db[Book]  # mypy: assignment / pyright: reportAssignmentType
    queries: QuerySet[Loan] = books.filter(year=1)  # mypy: assignment / pyright: reportAssignmentType
    print(wrong, cards, asynchronous_one, queries)


# --- objects and None

def objects(books: Repository[Book]) -> None:
    loan: Loan = books.get("1")  # mypy: assignment / pyright: reportAssignmentType
    print(books.get("1").title)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    print(books.get_or_none("1").name)  # mypy: union-attr / pyright: reportOptionalMemberAccess
    print(books.first().name)  # mypy: union-attr / pyright: reportOptionalMemberAccess
    print(books.last().name)  # mypy: union-attr / pyright: reportOptionalMemberAccess
    print(books[0].title)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    print(books[:3].name)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    found: Book = books.get_or_create(isbn="1")  # mypy: assignment / pyright: reportAssignmentType
    some: dict[str, Loan] = books.in_bulk(["1"])  # mypy: assignment / pyright: reportAssignmentType
    print(books.bulk_create([book])[0].isbn)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    books.bulk_create([Loan(id=1)])  # mypy: list-item / pyright: reportArgumentType
    books.create(book)  # mypy: arg-type / pyright: reportArgumentType
    books.insert(Loan(id=1))  # mypy: arg-type / pyright: reportArgumentType
    books.save(Loan(id=1))  # mypy: arg-type / pyright: reportArgumentType
    books.refresh("1")  # mypy: arg-type / pyright: reportArgumentType
    print(loan, found, some, books.remove("1").name)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType


# --- callbacks

def callbacks(books: Repository[Book]) -> None:
    books.mutate("1", no_result)  # mypy: arg-type / pyright: reportArgumentType
    books.mutate("1", other_model)  # mypy: arg-type / pyright: reportArgumentType
    books.mutate("1", awaited)  # mypy: arg-type / pyright: reportArgumentType
    books.mutate("1", change(book))  # mypy: arg-type, func-returns-value / pyright: reportArgumentType
    books.mutate("1")  # mypy: call-arg / pyright: reportCallIssue
    books.mutate("1", lambda found: found.title)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownLambdaType, reportUnknownMemberType
    books.mutate("1", lambda: None)  # mypy: arg-type, misc / pyright: reportArgumentType


# --- several results

def several(books: Repository[Book]) -> None:
    page: Page[Loan] = books.page(size=3)  # mypy: assignment / pyright: reportAssignmentType
    print(books.page(size=3)[0])  # mypy: index / pyright: reportIndexIssue, reportUnknownArgumentType
    print(books.page(size=3).next_cursor.upper())  # mypy: union-attr / pyright: reportOptionalMemberAccess
    print(books.page(size=3).items[0].title)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    books.page(3)  # mypy: arg-type / pyright: reportArgumentType
    for one in books.page():
        print(one.title)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    for two in books.iterator():
        print(two.title)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    for three in books.filter(year=1):
        print(three.title)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    lines: list[Card] = books.only(Pair).to_list()  # mypy: assignment / pyright: reportAssignmentType
    print(books.only(Pair).first().year)  # mypy: union-attr / pyright: reportOptionalMemberAccess
    names: list[str] = books.values_list(Book.name).to_list()  # mypy: assignment / pyright: reportAssignmentType
    years: list[tuple[str, str]] = books.values_list(Book.name, Book.year).to_list()  # mypy: assignment / pyright: reportAssignmentType
    four: list[tuple[str, int, str, str]] = books.values_list(Book.name, Book.year, Book.isbn, Book.read).to_list()  # mypy: assignment / pyright: reportAssignmentType
    none: list[date] = books.values_list(Book.read, flat=True).to_list()  # mypy: assignment / pyright: reportAssignmentType
    print(page, lines, names, years, four, none)


# --- totals

def totals(books: Repository[Book]) -> None:
    print(books.aggregate(Count()).count)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    print(books.aggregate(Count())[0])  # mypy: index / pyright: reportArgumentType
    number: str = books.count()  # mypy: assignment / pyright: reportAssignmentType
    books.exists().bit_count("x")  # mypy: call-arg / pyright: reportCallIssue
    for row in books.group_by("year").aggregate(Count()):
        print(row.year)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    books.group_by("year").count()  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownMemberType
    books.group_by("year").to_list()  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownMemberType
    books.group_by("year").aggregate("count")  # mypy: arg-type / pyright: reportArgumentType
    plan: str = books.explain()  # mypy: assignment / pyright: reportAssignmentType
    print(number, plan, books.explain().analysis.rows)  # mypy: union-attr / pyright: reportOptionalMemberAccess
    books.explain(True)  # mypy: call-arg / pyright: reportCallIssue
    books.sort_in_memory(limit=None)  # mypy: arg-type / pyright: reportArgumentType
    books.iterator(3).to_list()  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownMemberType


# --- the same, asynchronous

async def asynchronous(db: AsyncDatabase, books: AsyncRepository[Book]) -> None:
    wrong: Repository[Book] = db[Book]  # mypy: assignment / pyright: reportAssignmentType
    for _ in books.filter(year=1):  # mypy: misc / pyright: reportGeneralTypeIssues, reportUnknownVariableType
        print("never")
    await books.filter(year=1)  # mypy: misc / pyright: reportGeneralTypeIssues
    print(books.count() + 1)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    print(books.page(size=3).items)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    print(books[0].name)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    print((await books.get("1")).title)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    print((await books.first()).name)  # mypy: union-attr / pyright: reportOptionalMemberAccess
    found: Loan = await books.get("1")  # mypy: assignment / pyright: reportAssignmentType
    page: Page[Loan] = await books.page(size=3)  # mypy: assignment / pyright: reportAssignmentType
    async for name in books.values_list(Book.name, flat=True):
        print(name + 1)  # mypy: operator / pyright: reportOperatorIssue, reportUnknownArgumentType
    async for row in books.group_by("year").aggregate(Count()):
        print(row.year)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    for _ in books.group_by("year").aggregate(Count()):  # mypy: attr-defined / pyright: reportGeneralTypeIssues, reportUnknownVariableType
        print("never")
    await books.mutate("1", awaited)  # mypy: arg-type / pyright: reportArgumentType
    await books.mutate("1", other_model)  # mypy: arg-type / pyright: reportArgumentType
    await books.patch("1", 2)  # mypy: arg-type / pyright: reportArgumentType
    books.count()  # mypy: unused-coroutine / pyright: reportUnusedCoroutine
    books.patch("1", year=2)  # mypy: unused-coroutine / pyright: reportUnusedCoroutine
    db[Card]  # mypy: type-var / pyright: reportArgumentType
    print(wrong, found, page)


# --- ranked queries

def nearest(books: Repository[Book]) -> None:
    near = books.nearest("year", 1990)
    found: list[Book] = near.to_list()  # mypy: assignment / pyright: reportAssignmentType
    books.nearest("year")  # mypy: call-arg / pyright: reportCallIssue
    books.nearest("year", 1990, 5)  # mypy: call-arg / pyright: reportCallIssue
    books.nearest("year", 1990, within=5)  # mypy: call-arg / pyright: reportCallIssue
    near.page(20, "cursor")  # mypy: call-arg / pyright: reportCallIssue
    near.values_list("name")  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownMemberType
    print(near[0].name)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
    print(near.first().record)  # mypy: union-attr / pyright: reportOptionalMemberAccess
    print(found)


async def nearest_awaited(books: AsyncRepository[Book]) -> None:
    for _ in books.nearest("year", 1990):  # mypy: misc / pyright: reportGeneralTypeIssues, reportUnknownVariableType
        print("never")
    print(books.nearest("year", 1990)[0].record)  # mypy: attr-defined / pyright: reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType
