"""A tour of the library: a record shop, from the declaration of its models to the bare key-value store.

Read it from top to bottom, and run it beside that: each step prints what it found. Nothing but the library itself is
needed, and no server: the store is in memory here, and a path instead of the URL makes it a file. Transactions, bulk
writes and new releases of a model have a tour of their own, ``changes.py``.

Rules of this module: mypy and pyright accept it in strict mode, without a cast and without an ignored line; a test
runs both of them, and compares every line that the tour prints.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, NamedTuple, TypedDict

from pydantic import BaseModel, NonNegativeInt, ValidationError

from kvmodels import (
    ULID,
    AggregateIndex,
    AlreadyExistsError,
    AsyncDatabase,
    Avg,
    Count,
    Database,
    Field,
    Index,
    Indexed,
    InvalidCursorError,
    Kv,
    KvModel,
    KvModelsError,
    Max,
    Min,
    MultiIndexed,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    Repository,
    ReservedKeyError,
    StaleObjectError,
    Sum,
    Unique,
    UniqueConstraint,
    UniqueViolationError,
    UnknownFieldError,
    col,
)


def chapter(title: str) -> None:
    """A heading between the steps."""
    print(f"\n== {title}")


def show(what: str, found: object) -> None:
    """One line of the output: what was asked, and what came out."""
    print(f"{what:<28} {found}")


# --- 1. Declare ---------------------------------------------------------------------------------------------------
# A model is a pydantic model. What can be looked up quickly is said in the annotations of its fields, and in Meta
# for what concerns several fields. Nothing else has to be created or migrated before the first record is stored.


class Genre(StrEnum):
    """Enums, dates, Decimals, UUIDs, ULIDs, IP addresses … can be indexed as well as numbers and texts."""

    CLASSICAL = "classical"
    FOLK = "folk"
    JAZZ = "jazz"


class Label(BaseModel):
    """A nested model: its fields are indexed by their path."""

    name: str
    city: str | None = None


def decade(released: int) -> int:
    """Makes a computed column: an index on what a function returns."""
    return released // 10 * 10


class Album(KvModel, collection="albums"):
    """An album on the shelves, with an index of every kind."""

    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    code: Unique[str]  # no two albums have the same
    genre: Indexed[Genre]  # found by value, range, list and prefix; gives its order
    price: Indexed[Decimal]
    artists: MultiIndexed[list[str]]  # an entry for each artist
    title: Annotated[str, Indexed(key=str.casefold)]  # compared and ordered without regard to case
    released: int
    label: Label
    stock: NonNegativeInt = 0  # validated by pydantic, as every field
    shelf: int | None = None

    class Meta:
        indexes = (
            # Compound, newest first; the entries hold title and price too, so that lists need no records.
            Index("genre", "-released", include=("title", "price")),
            # Partial: only what is in stock has entries.
            Index("-stock", where=Q(stock__gt=0), name="in_stock"),
            # Computed: a column of its own name. Count the version up when the function changes.
            Index("released", key=decade, version=1, name="decade"),
            # Nested, and compound with the several values of a field.
            Index("label.city", name="label_city"),
            Index("artists", "-released", name="artist_released"),
            # Unique for two fields together, but only where the second one is known.
            UniqueConstraint("genre", "shelf", where=~Q(shelf=None), name="place"),
            # Counts and sums, kept up to date by every write.
            AggregateIndex("genre", sums=("stock",), name="per_genre"),
        )


class Loan(KvModel, collection="loans"):
    """A loan of an album, with a primary key of two fields."""

    album: PrimaryKey[str]
    number: PrimaryKey[int]
    # The entries are copies of the records: lists read half as much, and writes write more.
    member: Annotated[str, Indexed(store="record")]
    # Loans without a date have no entry, so they are not found through this index.
    due: Annotated[date | None, Indexed(nulls="skip")] = None


# --- 2. Write -----------------------------------------------------------------------------------------------------
# Every write is one atomic operation: the record and all its index entries, or nothing. What two programs do at the
# same time is noticed and tried again, or refused by an error with a name.

ROWS = [
    ("M-1", "MASS in Blue", ["Choir of Thun"], Genre.CLASSICAL, 1747, "Thun", "24.00", 1, 1),
    ("F-1", "Straße am Fluss", ["Bo Lund"], Genre.FOLK, 1971, None, "12.90", 0, None),
    ("F-2", "The River", ["Bo Lund", "Cleo"], Genre.FOLK, 1974, "Bern", "15.00", 7, None),
    ("J-2", "Giant Stairs", ["Cleo"], Genre.JAZZ, 1960, "Basel", "21.00", 5, 2),
]


def stock_the_shop(albums: Repository[Album], loans: Repository[Loan]) -> Album:
    """Create one record, or many in one operation."""
    chapter("Write")
    first = albums.create(
        code="J-1",
        title="Kind of Green",
        artists=["Ada Byron", "Bo Lund"],
        genre=Genre.JAZZ,
        released=1959,
        label=Label(name="Columba", city="Bern"),
        price=Decimal("18.50"),
        stock=3,
        shelf=1,
    )
    results = albums.bulk_create(
        Album(
            code=code,
            title=title,
            artists=artists,
            genre=genre,
            released=released,
            label=Label(name="Small", city=city),
            price=Decimal(price),
            stock=stock,
            shelf=shelf,
        )
        for code, title, artists, genre, released, city, price, stock, shelf in ROWS
    )
    show("albums", 1 + sum(result.created for result in results))
    loans.create(album="J-1", number=1, member="eve", due=date(2026, 4, 1))
    _, created = loans.get_or_create(album="J-1", number=2, defaults={"member": "eve"})
    _, again = loans.get_or_create(album="J-1", number=2, defaults={"member": "somebody else"})
    show("created, and once more", (created, again))
    return first


def change_records(albums: Repository[Album], first: Album) -> None:
    """Change some fields, apply a function, or save an object that was loaded before."""

    def sell(album: Album) -> None:
        album.stock -= 1  # on a fresh copy, again if somebody else was faster

    show("stock after a sale", albums.mutate(first.id, sell).stock)
    show("new price", albums.patch(first.id, price=Decimal("17.00")).price)
    try:
        first.title = "Green"
        albums.save(first)  # refused: the record has changed since this object was loaded
    except StaleObjectError as error:
        show("refused", error.message)
    albums.refresh(first)  # what is stored replaces what was assigned
    show("title as it is stored", first.title)


def break_rules(albums: Repository[Album], loans: Repository[Loan], first: Album) -> None:
    """Every refusal is an error with a name, a stable code, a hint and what it is about. Nothing has been written."""
    chapter("What is refused when writing")
    try:
        albums.patch(first.id, code="M-1")
    except UniqueViolationError as error:
        show("taken", (error.code, error.index, error.values))
    try:
        albums.patch(first.id, shelf=2)
    except UniqueViolationError as error:
        show("taken together", (error.index, error.fields))
    try:
        loans.create(album="J-1", number=1, member="cleo")
    except AlreadyExistsError as error:
        show("exists", error.key)
    try:
        albums.patch(first.id, stock=-1)
    except ValidationError as error:
        show("pydantic's own error", error.errors()[0]["msg"])
    try:
        albums.patch(first.id, tittle="Green")
    except UnknownFieldError as error:
        show("no such field", f"{error.field}, perhaps {error.suggestion}?")


# --- 3. Find ------------------------------------------------------------------------------------------------------
# Conditions are keywords, as Django has them, or expressions on the class, which a type checker reads: a comparison
# with a value of another type, and a filter on a field without an index, are errors in the editor.


def titles(albums: list[Album]) -> list[str]:
    """Return the text that most steps print."""
    return [album.title for album in albums]


def find_by_key(albums: Repository[Album], loans: Repository[Loan], first: Album) -> None:
    """One record, by its primary key or a unique field."""
    chapter("Find")
    show("by primary key", albums.get(first.id).title)
    show("by unique field", albums.get(Album.code == "F-2").title)
    show("or None", albums.get_or_none(code="X-9"))
    show("by composite key", loans.get(("J-1", 2)).member)
    show("several keys", sorted(loans.in_bulk([("J-1", 1), ("J-1", 2), ("J-1", 3)])))
    try:
        albums.get(code="X-9")
    except Album.DoesNotExist as error:
        show("absent", error.hint)


def find_by_index(albums: Repository[Album], loans: Repository[Loan]) -> None:
    """Many records, by every kind of index."""
    folk = albums.filter(genre=Genre.FOLK).order_by("-released")  # nothing is read yet
    show("compound, in its order", titles(folk.to_list()))
    show("range", [str(album.price) for album in albums.filter(Album.price.between(Decimal(15), Decimal(20)))])
    show("prefix", [album.code for album in albums.filter(Album.code.startswith("F-"))])
    # The class attribute of a field that is declared in the plain form needs col(), for type checkers only.
    show("folded", titles(albums.filter(col(Album.title) == "mass IN blue").to_list()))
    show("folded prefix", titles(albums.filter(title__startswith="STRASSE").to_list()))
    show(
        "one of several values",
        titles(albums.filter(Album.artists.contains("Bo Lund")).order_by("-released").to_list()),
    )
    show("all of them", titles(albums.filter(Album.artists.contains_all(["Bo Lund", "Cleo"])).to_list()))
    show("any with a prefix", titles(albums.filter(Album.artists.any().startswith("Choir")).to_list()))
    show("nested", sorted(titles(albums.filter(col(Album.label.city) == "Bern").to_list())))
    show("computed", sorted(titles(albums.filter(decade=1970).to_list())))
    show("partial", titles(albums.filter(stock__gt=0).order_by("-stock")[:2].to_list()))
    show("dates that are known", [loan.number for loan in loans.filter(due__isnull=False)])
    show("copies", [loan.number for loan in loans.filter(col(Loan.member) == "eve")])


def combine_conditions(albums: Repository[Album]) -> None:
    """With ``& | ~``, with lists, and with what is tested on the records that an index finds."""
    chapter("Combine")
    listed = albums.filter(Album.genre.in_([Genre.JAZZ, Genre.FOLK])).order_by("-released")
    show("a list, in one order", titles(listed.to_list()))
    either = albums.filter((Album.code == "M-1") | (Album.price > Decimal(20)) | Q(decade=1950))
    show("one or the other", sorted(titles(either.to_list())))
    both = albums.filter(Album.genre == Genre.JAZZ, Album.price < Decimal(20))
    show("both", titles(both.to_list()))
    rest = albums.filter(Album.genre == Genre.FOLK).exclude(stock=0)
    show("found, then tested", (titles(rest.to_list()), rest.explain().residual))


def read_in_pieces(albums: Repository[Album]) -> None:
    """Slices, batches and pages; each page costs the same, however deep it is."""
    chapter("Read in pieces")
    query = albums.all().order_by("price")
    show("slice", titles(query[1:3].to_list()))
    show("position", query[0].title)
    dearest = query.last()  # an album, or None if there is none
    show("the last", dearest.title if dearest else "nothing")
    show("in batches", sum(album.stock for album in query.iterator(batch_size=2)))
    first = query.page(size=2)
    second = query.page(size=2, after=first.next_cursor)  # a cursor is a text that may go to a client and come back
    back = query.page(size=2, before=second.previous_cursor)
    show("pages", (titles(first.items), titles(second.items)))
    show("and back", back.items == first.items)
    try:
        query.reverse().page(after=first.next_cursor)
    except InvalidCursorError as error:
        show("another query's cursor", error.hint)


# --- 4. Ask how ---------------------------------------------------------------------------------------------------
# A query never reads a whole collection because an index is missing: it is refused, with the line that would help.


def show_plans(albums: Repository[Album]) -> None:
    """Show the plan of a query, and its reads."""
    chapter("Plans")
    print(albums.filter(genre=Genre.JAZZ).order_by("-released")[:1].explain())
    print(albums.filter(Album.genre.in_([Genre.JAZZ, Genre.FOLK])).order_by("-released").explain(analyze=True))
    show("through another index", albums.filter(code="J-1").using_index("code").explain().index)


def meet_refusals(albums: Repository[Album]) -> None:
    """Show a query that no index serves, and two ways to run it."""
    chapter("What is refused when reading")
    old = albums.filter(released__lt=1900)
    try:
        old.to_list()
    except NoUsableIndexError as error:
        show("no index", error.hint)
    show("scan it all the same", titles(old.allow_scan().to_list()))
    by_stock = albums.filter(genre=Genre.FOLK).order_by("stock")
    try:
        by_stock.to_list()
    except NoUsableIndexError as error:
        show("no order", error.hint)
    show("sort in memory", titles(by_stock.sort_in_memory(limit=100).to_list()))
    try:
        albums.filter(stock__gt="three")
    except KvModelsError as error:  # the base of all errors of the library
        show("a wrong value", (type(error).__name__, error.code, error.hint))


# --- 5. Take parts and totals -------------------------------------------------------------------------------------


class Line(BaseModel):
    """A line of a catalogue: a projection is a class with some of the fields."""

    title: str
    price: Decimal


@dataclass
class Sticker:
    """Dataclasses will do too."""

    code: str
    price: Decimal


class Tag(NamedTuple):
    """And named tuples."""

    code: str
    released: int


class Row(TypedDict):
    """And typed dicts."""

    code: str
    stock: int


def project_fields(albums: Repository[Album]) -> None:
    """Some fields instead of objects, with their types; from the entries alone where those hold them."""
    chapter("Parts of records")
    jazz = albums.filter(genre=Genre.JAZZ).order_by("-released")
    lines: list[Line] = jazz.only(Line).to_list()
    stickers: list[Sticker] = jazz.only(Sticker).to_list()
    tags: list[Tag] = jazz.only(Tag).to_list()
    rows: list[Row] = jazz.only(Row).to_list()
    show("models", lines)
    show("dataclasses", stickers[0])
    show("named tuples", tags[0])
    show("typed dicts", rows[0])
    show("dicts", jazz.values("title", "label.city").to_list())
    pairs: list[tuple[str, Decimal]] = jazz.values_list(Album.code, Album.price).to_list()
    show("tuples", pairs)
    genres: list[Genre] = albums.values_list(Album.genre, flat=True).distinct().to_list()
    show("distinct", [genre.value for genre in genres])


def count_and_sum(albums: Repository[Album]) -> None:
    """From counters where an aggregate index keeps them: then a count of millions is one read."""
    chapter("Totals")
    show("count", (albums.count(), albums.filter(genre=Genre.FOLK).count(), albums.filter(code="X-9").exists()))
    totals = albums.aggregate(Sum("stock"), albums=Count(), cheapest=Min("price"), dearest=Max(Album.price))
    show("totals", totals)
    for row in albums.group_by("genre").aggregate(albums=Count(), stock=Sum("stock"), mean=Avg("stock")):
        show("group", row)
    show("where groups come from", albums.group_by(Album.genre).aggregate(Count()).explain())


# --- 6. The store below -------------------------------------------------------------------------------------------


def use_the_store(kv: Kv) -> None:
    """Models are records of a key-value store with ordered keys, checks and expiry, which is yours to use too."""
    chapter("The store below")
    kv.set(("opening", "saturday"), {"from": 9, "to": 16})
    kv.set(("opening", "monday"), {"from": 13, "to": 18}, expire_in=timedelta(days=7))
    show("in the order of keys", [entry.key[1] for entry in kv.list(prefix=("opening",))])
    read = kv.get(("opening", "monday"))
    moved = kv.atomic().check(read).delete(read.key).set(("opening", "tuesday"), read.value).commit()
    late = kv.atomic().check(read).set(read.key, "lost").commit()  # the check fails: the entry is gone
    show("first and second writer", (moved.ok, late.ok))
    for _ in range(3):
        kv.atomic().sum(("visitors",), 1).commit()  # counters never conflict
    show("visitors", kv.get(("visitors",)).value)
    try:
        kv.delete(("albums_by_code", "J-1"))
    except ReservedKeyError as error:
        show("kept from accidents", error.owner)


# --- 7. The same, asynchronous ------------------------------------------------------------------------------------


async def tour_async(url: str) -> None:
    """The same names and parameters; what talks to the store is awaited, and iterated with ``async for``."""
    chapter("Asynchronous")
    async with AsyncDatabase(url, models=[Album, Loan]) as db:
        albums = db[Album]
        jazz = albums.filter(Album.genre == Genre.JAZZ).order_by("-released")
        show("objects", [album.title async for album in jazz])
        show("count", await jazz.count())
        show("parts", [line.title async for line in jazz.only(Line)])
        page = await albums.all().order_by("price").page(size=1)
        show("page", (titles(page.items), page.has_more))
        async for row in albums.group_by("genre").aggregate(Count()):
            show("group", row)
        ada = await albums.get(code="J-1")
        show("removed", await albums.remove(ada))


def tour(url: str = "memory://tour") -> None:
    """Every step, on one store."""
    with Database(url, models=[Album, Loan]) as db:
        albums, loans = db[Album], db[Loan]
        first = stock_the_shop(albums, loans)
        change_records(albums, first)
        break_rules(albums, loans, first)
        find_by_key(albums, loans, first)
        find_by_index(albums, loans)
        combine_conditions(albums)
        read_in_pieces(albums)
        show_plans(albums)
        meet_refusals(albums)
        project_fields(albums)
        count_and_sum(albums)
        use_the_store(db.kv)
        asyncio.run(tour_async(url))
        chapter("The whole store, entry by entry")
        show("consistent", db.check().ok)


if __name__ == "__main__":
    tour()
