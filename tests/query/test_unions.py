"""Filters with alternatives and lists: one walk, a merge, one scan after the other, what several have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any

import pytest

from kvmodels import Database, Index, KvModel, NoUsableIndexError, PrimaryKey, Q, Unique
from kvmodels.query.planning.branches import MAX_BRANCHES
from tests.query.shelves import ORDERS, Book, books, filters, value_of
from tests.worlds import in_the_soak

Ask = Callable[[Any], Any]


@pytest.fixture(scope="module")
def db() -> Iterator[Database]:
    with Database("memory://", models=[Book]) as db:
        for fields in books(Random(3), 120):
            db[Book].create(**fields)
        yield db


@pytest.mark.parametrize(
    ("ask", "combine", "indexes", "order"),
    [
        # alternatives about one column are ranges of one walk
        (lambda q: q.filter(Q(year=1) | Q(year=3)), "scan", ("year",), ("year", "id")),
        (lambda q: q.filter(Q(id__lt=3) | Q(id__gte=30)), "scan", (), ("id",)),
        (lambda q: q.filter(Q(year__gt=1) | Q(year=0)).order_by("year"), "scan", ("year",), ("year", "id")),
        (lambda q: q.filter(Q(year__gt=1) & Q(year__lt=3) | Q(year=0)), "scan", ("year",), ("year", "id")),
        # so are those of several columns of one index, if nothing else is tested
        (
            lambda q: q.filter(Q(genre="x", pages=1) | Q(genre="y", pages=2)),
            "scan",
            ("genre_pages",),
            ("genre", "pages", "id"),
        ),
        # alternatives about several columns whose rows come in one order are merged
        (lambda q: q.filter(Q(year=1) | Q(genre="x")), "merge", ("year", "genre"), ("id",)),
        (lambda q: q.filter(Q(year=1) | Q(genre="x")).reverse(), "merge", ("year", "genre"), ("-id",)),
        (lambda q: q.filter(Q(id=3) | Q(year=1)), "merge", ("year",), ("id",)),
        (lambda q: q.filter(Q(year=1) | Q(tags__contains="a")), "merge", ("year", "tags"), ("id",)),
        (lambda q: q.filter(Q(genre="x") | Q(tags__contains="a")).order_by("id"), "merge", ("genre", "tags"), ("id",)),
        # others are read one after the other
        (lambda q: q.filter(Q(year__gt=1) | Q(genre="x")), "concatenate", ("year", "genre"), ()),
        (lambda q: q.filter(Q(tags__any__gt="b") | Q(genre="x")), "concatenate", ("tags", "genre"), ()),
        # a list in front of an order is a scan for each value
        (lambda q: q.filter(year__in=[1, 3]).order_by("-rating"), "merge", ("year_rating",), ("-rating", "id")),
        (lambda q: q.filter(year__in=[1, 3]).order_by("rating"), "merge", ("year_rating",), ("rating", "-id")),
        (lambda q: q.filter(year__in=[1, 3]).order_by("year"), "scan", ("year",), ("year", "id")),
        (lambda q: q.filter(year__in=[1]).order_by("-rating"), "scan", ("year_rating",), ("-rating", "id")),
        (
            lambda q: q.filter(tags__contains_any=["a", "b"]).order_by("-pages"),
            "merge",
            ("tag_pages",),
            ("-pages", "id"),
        ),
        (lambda q: q.filter(tags__contains_any=["a", "b"]), "scan", ("tags",), ()),
        (
            lambda q: q.filter(Q(year=1) | Q(year=2, genre="x")).order_by("-rating"),
            "merge",
            ("year_rating",),
            ("-rating", "id"),
        ),
        # several single values without one index for all of them
        (lambda q: q.filter(year=1, genre="x"), "intersect", ("year", "genre"), ("id",)),
        (lambda q: q.filter(year=1, genre="x").order_by("-id"), "intersect", ("year", "genre"), ("-id",)),
        (lambda q: q.filter(year=1, genre="x", weight=0.5), "intersect", ("year", "genre"), ("id",)),
        (lambda q: q.filter(tags__contains_all=["a", "b"]), "intersect", ("tags",), ("id",)),
        (lambda q: q.filter(year=1, genre="x", id__gt=10), "intersect", ("year", "genre"), ("id",)),
        (lambda q: q.filter(year=1, genre="x").order_by("-rating"), "scan", ("year_rating",), ("-rating", "id")),
        (lambda q: q.filter(genre="x", pages=1), "scan", ("genre_pages",), ("id",)),
        # what is the same or contained is dropped
        (lambda q: q.filter(Q(year=1) | Q(year=1, genre="x")), "scan", ("year",), ("id",)),
        (lambda q: q.filter(Q(year=1, genre="x") | Q(year__lt=3)), "scan", ("year",), ("year", "id")),
        (lambda q: q.filter(Q(year=1, weight=0.5) | Q(weight=0.5, year=1)), "scan", ("year",), ("id",)),
        (lambda q: q.filter(Q(year=1) | Q(genre="x") & Q(genre="y")), "scan", ("year",), ("id",)),
        (lambda q: q.filter(Q(year=1) & Q(year=2) | Q(genre="x") & Q(genre="y")), "nothing", (), ()),
        # one access to the whole filter is preferred, unless its alternatives bind more
        (lambda q: q.filter(Q(rating=1) | Q(genre="x"), id=3), "scan", (), ()),  # one row is in any order
        (lambda q: q.filter(Q(pages=1) | Q(pages=2, weight=0.5), genre="x"), "merge", ("genre_pages",), ("id",)),
        # a column with the same one value everywhere may be ordered by in either direction
        (
            lambda q: q.filter(Q(pages=1) | Q(pages=2, weight=0.5), genre="x").order_by("-genre", "id"),
            "merge",
            ("genre_pages",),
            ("id",),
        ),
    ],
)
def test_how_alternatives_combine(
    db: Database, ask: Ask, combine: str, indexes: tuple[str, ...], order: tuple[str, ...]
):
    plan = ask(db[Book]).explain()
    assert (plan.combine, plan.indexes, plan.full_scan) == (combine, indexes, False), str(plan)
    assert plan.order == order


def ordered(found: Iterable[Book], order: tuple[str, ...]) -> list[int]:
    """The primary keys of some books in an order, by sorting from the last column to the first."""
    rows = list(found)
    for name in reversed(order):
        field = name.removeprefix("-")
        rows.sort(
            key=lambda book: (
                (value_of(book, field) is not None, value_of(book, field) or 0)
                if field not in ("genre", "place.room", "title")
                else (True, str(value_of(book, field)).casefold())
            ),
            reverse=name.startswith("-"),
        )
    return [book.id for book in rows]


@pytest.mark.parametrize("seed", [0, *in_the_soak(*range(1, 12))])
def test_random_filters_find_what_python_finds(db: Database, seed: int):
    random, everything, kinds = Random(seed), db[Book].all().to_list(), set[str]()
    for _ in range(60):
        wanted = filters(random, random.randrange(1, 4))
        asked = db[Book].filter(wanted.filter).order_by(*random.choice(ORDERS))
        asked = asked.reverse() if random.random() < 0.3 else asked
        asked = asked.allow_scan() if random.random() < 0.3 else asked
        try:
            plan = asked.explain()
        except NoUsableIndexError:
            continue
        kinds.add(plan.combine)
        expected = [book for book in everything if wanted.holds(book)]
        found = [book.id for book in asked]
        assert found == ordered(expected, plan.order) if plan.order else sorted(found) == sorted(b.id for b in expected)
        assert [book.id for book in asked.reverse()] == found[::-1]
        assert asked.count() == len(expected)
        assert _walked(asked) == found
    assert kinds >= {"scan", "merge"}


def _walked(asked: Any) -> list[int]:
    page = asked.page(size=7)
    found = [book.id for book in page]
    while page.next_cursor is not None:
        page = asked.page(size=7, after=page.next_cursor)
        found += [book.id for book in page]
    return found


def test_a_filter_with_too_many_alternatives_is_tested_where_something_else_narrows(db: Database):
    many = Q(year=0, weight=0.0) | Q(year=1, pages=1)
    for number in range(6):
        many = many & (Q(year=number) | Q(genre=str(number)))
    asked = db[Book].filter(many)
    with pytest.raises(NoUsableIndexError) as refused:
        asked.explain()
    assert refused.value.hint == (
        f"The filter has more than {MAX_BRANCHES} alternatives: write those about one field as one list, "
        "add a condition that an index answers, or call .allow_scan() to read all of 'books'."
    )
    assert asked.filter(genre="x").explain().index == "genre"
    assert asked.allow_scan().explain().full_scan


def test_a_union_with_an_alternative_without_an_index_is_refused(db: Database):
    asked = db[Book].filter(Q(year=1) | Q(weight=0.5))
    with pytest.raises(NoUsableIndexError) as refused:
        asked.to_list()
    assert refused.value.filters == ("year", "weight")
    assert refused.value.hint == (
        "Add Index(\"weight\") to the indexes of Book.Meta, or call .allow_scan() to read all of 'books'."
    )
    assert asked.allow_scan().explain().full_scan


def test_a_list_of_too_many_values_is_not_split(db: Database):
    asked = db[Book].filter(year__in=range(1_001))
    assert asked.explain().combine == "scan"
    with pytest.raises(NoUsableIndexError):
        asked.order_by("-rating").explain()
    assert len(db[Book].filter(year__in=range(1_000)).order_by("-rating").explain().scans) == 1_000


def test_scans_in_opposite_directions_are_not_merged():
    class Track(KvModel, collection="tracks"):
        id: PrimaryKey[int]
        album: int = 0
        artist: int = 0
        length: int = 0

        class Meta:
            indexes = (Index("album", "length"), Index("artist", "-length"), Index("artist", "length", name="up"))

    with Database("memory://", models=[Track]) as db:
        tracks = db[Track]
        for number in range(30):
            tracks.create(id=number, album=number % 3, artist=number % 5, length=number % 7)
        either = tracks.filter(Q(album=1) | Q(artist=2))
        for order in ("length", "-length"):
            plan = either.order_by(order).explain()
            assert plan.indexes == ("album_length", "up")
            found = [(track.length, track.id) for track in either.order_by(order)]
            assert found == sorted(found, reverse=order == "-length")
        with pytest.raises(NoUsableIndexError) as refused:
            either.order_by("-length", "id").explain()
        assert refused.value.hint is not None
        assert refused.value.hint.startswith('Add Index("album", "-length", name="album_length_2") to the indexes of')


def test_equal_records_of_a_split_composite_key_stay_apart():
    class Seat(KvModel, collection="seats"):
        hall: PrimaryKey[int]
        row: PrimaryKey[int]
        label: Unique[str]

    with Database("memory://", models=[Seat]) as db:
        seats = db[Seat]
        for hall in range(3):
            for row in range(4):
                seats.create(hall=hall, row=row, label=f"{hall}{row}")
        asked = seats.filter(hall__in=[0, 2]).order_by("row")
        assert asked.explain().combine == "merge"
        assert asked.explain().order == ("row", "hall")
        assert [seat.pk for seat in asked] == [(hall, row) for row in range(4) for hall in (0, 2)]
        assert [seat.pk for seat in asked.reverse()] == [(hall, row) for row in (3, 2, 1, 0) for hall in (2, 0)]
        with pytest.raises(NoUsableIndexError):
            seats.filter(hall__in=[0, 2]).order_by("row", "label").explain()


def test_the_text_of_a_plan_of_several_scans(db: Database):
    merge = db[Book].filter(year__in=range(8), weight=0.5).order_by("-rating").explain()
    assert str(merge) == (
        "Book: 8 scans merged in one order\n"
        "  then tests  weight = 0.5\n"
        "  in order    -rating, id\n"
        "  reads       an entry and a record for each row in the ranges\n"
        + "".join(f"    1 range of index year_rating\n      reads only  year = {year}\n" for year in range(5))
        + "    3 more"
    )
    after = db[Book].filter(Q(year__gt=1) | Q(tags__any__gt="c", weight=0.5)).explain()
    assert str(after) == (
        "Book: 2 scans, one after the other\n"
        "  in order    not specified\n"
        "  reads       an entry and a record for each row in the ranges\n"
        "    1 range of index year\n"
        "      reads only  year > 1\n"
        "    1 range of index tags\n"
        "      reads only  any tags > 'c'\n"
        "      once each   a record with several entries here counts at the lowest\n"
        "      then tests  weight = 0.5"
    )
    common = db[Book].filter(year=1, genre="x").explain(analyze=True)
    assert str(common).splitlines()[0] == "Book: the primary keys that 2 scans have in common"
    assert common.analysis is not None
    assert f"  took        {common.analysis}" in str(common).splitlines()
    tree = common.tree()
    assert [child.label for child in tree.children] == ["1 range of index year", "1 range of index genre"]
    sort = db[Book].filter(year=1).order_by("weight").sort_in_memory(limit=5_000).explain()
    assert "  sorts by    weight, id, with at most 5,000 records in memory" in str(sort).splitlines()


def test_single_rows_are_merged_in_the_order_that_is_asked_for_and_from_its_end():
    class Seat(KvModel, collection="seats"):
        id: PrimaryKey[int]
        code: Unique[str]

    with Database("memory://", models=[Seat]) as db:
        for number in range(4):
            db[Seat].create(id=number, code=f"c{9 - number}")
        one_of = db[Seat].filter(Q(id=2) | Q(code="c9"))
        assert one_of.explain().combine == "merge"
        assert [seat.id for seat in one_of] == [0, 2]
        assert [seat.id for seat in one_of.reverse()] == [2, 0]
        assert one_of.last() == db[Seat].get(2)
        assert [seat.id for seat in one_of.order_by("-id")] == [2, 0]
        assert one_of.order_by("-id").last() == db[Seat].get(0)
