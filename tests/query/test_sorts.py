"""Sorts in memory: any order, what is held, pages in both directions, values that have no order."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kvmodels import Database, Field, Indexed, KvModel, NoUsableIndexError, OperationTooLargeError, PrimaryKey
from tests.query.engines import WatchedEngine, watched
from tests.query.walks import backward, forward
from tests.worlds import in_the_soak


class Song(KvModel, collection="songs"):
    id: PrimaryKey[int]
    year: Indexed[int]
    title: str
    length: float = 0.0
    stars: int | None = Field(default=None)


def songs(count: int = 60) -> list[Song]:
    return [
        Song(
            id=n,
            year=2000 + n % 3,
            title="abcdefg"[n * 5 % 7],
            length=(n * 37 % 11) / 2,
            stars=None if n % 4 == 0 else n % 3,
        )
        for n in range(count)
    ]


@pytest.fixture
def store() -> tuple[Database, WatchedEngine]:
    db, engine = watched([Song])
    db[Song].bulk_create(songs())
    engine.meter.reset()
    return db, engine


def key(*columns: str) -> Any:
    """The sort key of Python for columns with ``-``; None is below every value."""

    def of(song: Song) -> list[Any]:
        parts: list[Any] = []
        for column in (*columns, "id"):
            value = getattr(song, column.removeprefix("-"))
            if isinstance(value, str):
                value = ord(value)
            part = (value is not None, value or 0)
            parts.append(tuple(-one for one in part) if column.startswith("-") else part)
        return parts

    return of


def ids(found: Any) -> list[int]:
    return [one.id for one in found]


ORDERS = [("title",), ("-title", "length"), ("stars", "-length"), ("-stars",), ("length", "-title", "stars")]


@pytest.mark.parametrize("columns", ORDERS)
def test_a_sort_gives_the_order_of_python_in_both_directions(
    store: tuple[Database, WatchedEngine], columns: tuple[str, ...]
):
    asked = store[0][Song].filter(year__gte=2001).order_by(*columns)
    with pytest.raises(NoUsableIndexError):
        asked.to_list()
    asked = asked.sort_in_memory()
    expected = ids(sorted((song for song in songs() if song.year >= 2001), key=key(*columns)))
    assert ids(asked) == expected
    assert ids(asked.reverse()) == expected[::-1]
    assert ids([asked.first(), asked.last()]) == [expected[0], expected[-1]]
    assert ids(asked[3:9]) == expected[3:9]
    assert asked[5].id == expected[5]
    assert asked.count() == len(expected)
    assert asked[3:9].count() == 6
    assert ids(asked.iterator(batch_size=7)) == expected


@pytest.mark.parametrize("size", [4, 100, *in_the_soak(1, 13)])
@pytest.mark.parametrize("columns", ORDERS)
def test_pages_of_a_sort_go_forward_and_back(
    store: tuple[Database, WatchedEngine], columns: tuple[str, ...], size: int
):
    asked = store[0][Song].filter(year__gte=2001).order_by(*columns).sort_in_memory()
    pages = [ids(page) for page in forward(asked, size)]
    assert [one for page in pages for one in page] == ids(asked)
    assert [ids(page) for page in backward(asked, size)] == pages[::-1]


def test_a_field_that_is_named_twice_has_its_first_direction(store: tuple[Database, WatchedEngine]):
    repository = store[0][Song]
    for asked, order in ((repository.sort_in_memory(), ("-year", "id")), (repository.all(), ("-year", "-id"))):
        twice = asked.order_by(*order, "year", "-pk")
        assert twice.explain().order == order
        assert ids(twice) == ids(asked.order_by(*order))


def test_pages_of_a_sort_repeat_and_skip_nothing_beside_writers(store: tuple[Database, WatchedEngine]):
    repository = store[0][Song]
    asked = repository.filter(year__gte=2001).order_by("title").sort_in_memory()
    expected = [id for id in ids(asked) if id % 2]
    found = []
    for turn, page in enumerate(forward(asked, 3)):
        found += ids(page)
        repository.create(id=1_000 + turn, year=2002, title="abcdefg"[turn % 7])
        repository.remove(2 * turn)
        repository.patch(58, title="abcdefg"[turn % 7])
    assert [id for id in found if id % 2 and id < 1_000] == expected


def test_a_sort_that_would_hold_more_than_it_may_is_refused(store: tuple[Database, WatchedEngine]):
    asked = store[0][Song].all().order_by("title").sort_in_memory(limit=59)
    for ask in (asked.to_list, asked.first, lambda: asked.page(size=100), lambda: list(asked), asked[:70].to_list):
        if ask == asked.first:
            assert ask() is not None  # one record is held
            continue
        with pytest.raises(OperationTooLargeError) as refused:
            ask()
        assert (refused.value.limit, refused.value.size, refused.value.maximum) == ("sort_in_memory", 60, 59)
        assert "index" in (refused.value.hint or "")
    assert len(asked.sort_in_memory(limit=60).to_list()) == 60
    assert len(asked[:59].to_list()) == 59
    assert len(asked[10:20].to_list()) == 10
    assert len(asked.page(size=58)) == 58
    assert asked.count() == 60
    assert asked.exists()


def test_what_a_slice_of_a_sort_holds_does_not_depend_on_what_matches():
    db, engine = watched([Song])
    db[Song].bulk_create(songs(2_900))
    engine.meter.reset()
    found = db[Song].all().order_by("-length", "title").sort_in_memory(limit=5)[:5].to_list()
    assert ids(found) == ids(sorted(songs(2_900), key=key("-length", "title")))[:5]
    assert (engine.meter.reads, engine.meter.rows) == (6, 2_900)


def test_an_index_that_gives_the_order_is_used_although_a_sort_is_allowed(store: tuple[Database, WatchedEngine]):
    db, engine = store
    asked = db[Song].order_by("-year").sort_in_memory(limit=1)
    assert asked.explain().sort is None
    assert len(asked.to_list()) == 60
    engine.meter.reset()
    asked[:5].to_list()
    assert engine.meter.rows == 5


def test_values_without_an_order_come_behind_all_others_and_before_them_in_reverse():
    db = Database("memory://", models=[Song])
    lengths = [1.0, math.nan, -math.inf, 0.5, math.inf, math.nan]
    db[Song].bulk_create([Song(id=n, year=2000, title="x", length=length) for n, length in enumerate(lengths)])
    asked = db[Song].filter(year=2000).order_by("length").sort_in_memory()
    assert ids(asked) == [2, 3, 0, 4, 1, 5]
    assert ids(asked.reverse()) == [5, 1, 4, 0, 3, 2]
    assert [ids(page) for page in forward(asked, 4)] == [[2, 3, 0, 4], [1, 5]]


def test_a_sort_of_values_reads_no_more_than_they_need(store: tuple[Database, WatchedEngine]):
    asked = store[0][Song].filter(year=2001).order_by("title").sort_in_memory().values("title", "id")
    expected = sorted((song for song in songs() if song.year == 2001), key=key("title"))
    assert list(asked) == [{"title": song.title, "id": song.id} for song in expected]
    assert [row["id"] for row in asked.page(size=5)] == ids(expected)[:5]


def test_an_analysis_of_a_sort_counts_everything_that_matches(store: tuple[Database, WatchedEngine]):
    db, engine = store
    asked = db[Song].filter(year=2001).order_by("title").sort_in_memory()[:5]
    engine.meter.reset()
    analysis = asked.explain(analyze=True).analysis
    assert analysis is not None
    assert (analysis.rows, analysis.records, analysis.results) == (20, 20, 5)
    assert (engine.meter.rows, engine.meter.followed, engine.meter.reads) == (20, 20, analysis.batches)
