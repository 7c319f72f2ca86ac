"""A tour of models, indexes and queries: everything is typed, everything runs, and each step prints what it found.

Rules of this module: mypy and pyright accept it in strict mode, without a cast and without an ignored line; a test
runs both of them, and the tour.
"""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from typing import Annotated, NamedTuple

from pydantic import AwareDatetime, BaseModel, NonNegativeInt

from kvmodels import (
    ULID,
    AggregateIndex,
    AsyncDatabase,
    Avg,
    Count,
    Database,
    Field,
    Index,
    Indexed,
    InvalidCursorError,
    KvModel,
    Max,
    Min,
    MultiIndexed,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    StaleObjectError,
    Sum,
    Unique,
    UniqueConstraint,
    UniqueViolationError,
    col,
)
from kvmodels.repository import Repository

MORNING = datetime(2026, 3, 1, 8, tzinfo=UTC)


# --- declare ------------------------------------------------------------------------------------------------------


class Genre(StrEnum):
    """What a record shop sorts by."""

    CLASSICAL = "classical"
    FOLK = "folk"
    JAZZ = "jazz"


class Label(BaseModel):
    """A nested model; its fields can be indexed by their path."""

    name: str
    city: str | None = None


def decade(released: int) -> int:
    """What a computed column is made by."""
    return released // 10 * 10


class Album(KvModel, collection="albums"):
    """An album of a record shop, with an index of every kind."""

    id: PrimaryKey[ULID] = Field(default_factory=ULID)
    code: Unique[str]
    title: Annotated[str, Indexed(key=str.casefold)]
    artists: MultiIndexed[list[str]]
    genre: Indexed[Genre]
    released: int
    label: Label
    price: Indexed[Decimal]
    stock: NonNegativeInt = 0
    added: AwareDatetime = MORNING
    shelf: int | None = None

    class Meta:
        indexes = (
            Index("genre", "-released", include=("title", "price")),
            Index("-stock", where=Q(stock__gt=0), name="in_stock"),
            Index("released", key=decade, version=1, name="decade"),
            Index("label.city", name="label_city"),
            Index("artists", "-released", name="artist_released"),
            UniqueConstraint("genre", "shelf", where=~Q(shelf=None), name="place"),
            AggregateIndex("genre", sums=("stock",), name="per_genre"),
        )


class Line(BaseModel):
    """A line of a catalogue: some fields of an album."""

    title: str
    price: Decimal


class Tag(NamedTuple):
    """The same, as a tuple."""

    code: str
    released: int


# --- write --------------------------------------------------------------------------------------------------------


def stock_the_shop(albums: Repository[Album]) -> Album:
    """Create one album, and several in one operation."""
    first = albums.create(
        code="K-1",
        title="Kind of Green",
        artists=["Ada Byron", "Bo Lund"],
        genre=Genre.JAZZ,
        released=1959,
        label=Label(name="Columba", city="Bern"),
        price=Decimal("18.50"),
        stock=3,
        shelf=1,
    )
    rows = [
        ("M-1", "MASS in Blue", ["Choir of Thun"], Genre.CLASSICAL, 1747, "Thun", "24.00", 1, 1),
        ("F-1", "Straße am Fluss", ["Bo Lund"], Genre.FOLK, 1971, None, "12.90", 0, None),
        ("F-2", "The River", ["Bo Lund", "Cleo"], Genre.FOLK, 1974, "Bern", "15.00", 7, None),
        ("K-2", "Giant Stairs", ["Cleo"], Genre.JAZZ, 1960, "Basel", "21.00", 5, 2),
    ]
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
        for code, title, artists, genre, released, city, price, stock, shelf in rows
    )
    print("stored", 1 + len(results))
    return first


def change_albums(albums: Repository[Album], first: Album) -> None:
    """Every way to change a record, and what is refused."""

    def sell(album: Album) -> None:
        album.stock -= 1

    print("stock", albums.mutate(first.id, sell).stock)
    print("price", albums.patch(first.id, price=Decimal("17.00")).price)
    try:
        first.title = "An old title"
        albums.save(first)
    except StaleObjectError as error:
        print("refused", error.code)
    albums.refresh(first)
    try:
        albums.patch(first.id, code="M-1")
    except UniqueViolationError as error:
        print("refused", error.index)


# --- ask ----------------------------------------------------------------------------------------------------------


def titles(albums: list[Album]) -> list[str]:
    """What most steps print."""
    return [album.title for album in albums]


def find_albums(albums: Repository[Album]) -> None:
    """By every kind of index."""
    print("unique", albums.get(code="F-2").title)
    print("compound", titles(albums.filter(Album.genre == Genre.FOLK).order_by("-released").to_list()))
    print("folded", titles(albums.filter(col(Album.title) == "mass IN blue").to_list()))
    print("prefix", titles(albums.filter(title__startswith="STRASSE").to_list()))
    print("element", titles(albums.filter(Album.artists.contains("Bo Lund")).order_by("-released").to_list()))
    print("elements", titles(albums.filter(Album.artists.contains_all(["Bo Lund", "Cleo"])).to_list()))
    print("any", titles(albums.filter(Album.artists.any().startswith("Choir")).to_list()))
    print("nested", titles(albums.filter(col(Album.label.city) == "Bern").to_list()))
    print("computed", titles(albums.filter(decade=1970).order_by("pk").to_list()))
    print("partial", titles(albums.filter(stock__gt=0).order_by("-stock")[:2].to_list()))
    print("range", titles(albums.filter(Album.price.between(Decimal(15), Decimal(20), bounds="[)")).to_list()))


def combine_conditions(albums: Repository[Album]) -> None:
    """With ``& | ~``, lists and what is tested on the records found."""
    merged = albums.filter(Album.genre.in_([Genre.JAZZ, Genre.FOLK])).order_by("-released")
    print("merged", titles(merged.to_list()))
    either = albums.filter((Album.code == "M-1") | (Album.price > Decimal(20)) | Q(decade=1950))
    print("either", sorted(titles(either.to_list())))
    rest = albums.filter(Album.genre == Genre.FOLK, ~Q(stock=0))
    print("tested", titles(rest.to_list()), rest.explain().residual)


def walk_pages(albums: Repository[Album]) -> None:
    """Forwards and backwards; a cursor fits one query only."""
    query = albums.all().order_by("price")
    first = query.page(size=2)
    second = query.page(size=2, after=first.next_cursor)
    back = query.page(size=2, before=second.previous_cursor)
    print("pages", titles(first.items), titles(second.items), back.items == first.items)
    try:
        albums.all().order_by("-price").filter(genre=Genre.JAZZ).page(after=first.next_cursor)
    except (InvalidCursorError, NoUsableIndexError) as error:
        print("refused", error.code)


def show_plans(albums: Repository[Album]) -> None:
    """What a query will read, what it has read, and what is refused."""
    print(albums.filter(genre=Genre.JAZZ).order_by("-released")[:1].explain())
    analysis = albums.filter(genre=Genre.JAZZ).explain(analyze=True).analysis
    assert analysis is not None
    print("read", analysis.rows, "rows and", analysis.records, "records for", analysis.results)
    try:
        albums.filter(released__lt=1900).to_list()
    except NoUsableIndexError as error:
        print("refused", error.hint)
    print("scan", titles(albums.filter(released__lt=1900).allow_scan().to_list()))
    print("sorted", titles(albums.filter(genre=Genre.FOLK).order_by("stock").sort_in_memory(limit=100).to_list()))
    print("through", albums.filter(code="K-1").using_index("code").explain().index)


def project_fields(albums: Repository[Album]) -> None:
    """Some fields instead of objects, from the entries alone where they hold them."""
    jazz = albums.filter(genre=Genre.JAZZ).order_by("-released")
    lines: list[Line] = list(jazz.only(Line))
    tags: list[Tag] = list(jazz.only(Tag))
    print("lines", lines)
    print("tags", tags)
    print("values", list(jazz.values("title", "released")))
    print("flat", list(jazz.values_list("title", flat=True)))
    print("distinct", list(albums.all().order_by("genre").distinct().values_list("genre", flat=True)))


def count_and_sum(albums: Repository[Album]) -> None:
    """From counters where an aggregate index keeps them."""
    print("count", albums.count(), albums.filter(genre=Genre.FOLK).count(), albums.filter(code="X").exists())
    print("totals", albums.aggregate(Sum("stock"), albums=Count(), cheapest=Min("price"), dearest=Max("price")))
    for row in albums.group_by("genre").aggregate(albums=Count(), stock=Sum("stock"), mean=Avg("stock")):
        print("group", row)


# --- the same, asynchronous ---------------------------------------------------------------------------------------


async def tour_async(url: str) -> None:
    """The same names and parameters; what talks to the store is awaited."""
    async with AsyncDatabase(url, models=[Album]) as db:
        albums = db[Album]
        jazz = albums.filter(Album.genre == Genre.JAZZ).order_by("-released")
        print("async", [album.title async for album in jazz], await jazz.count())
        lines = [line async for line in jazz.only(Line)]
        print("async lines", [line.title for line in lines])
        page = await albums.all().order_by("price").page(size=1)
        print("async page", titles(page.items), page.has_more)


def tour(url: str = "memory://tour") -> None:
    """Every step, on one store."""
    with Database(url, models=[Album]) as db:
        albums = db[Album]
        first = stock_the_shop(albums)
        change_albums(albums, first)
        find_albums(albums)
        combine_conditions(albums)
        walk_pages(albums)
        show_plans(albums)
        project_fields(albums)
        count_and_sum(albums)
        asyncio.run(tour_async(url))
        print("check", db.check().ok)


if __name__ == "__main__":
    tour()
