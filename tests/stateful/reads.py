"""The verbs that read, on top of those that write."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import rule

from kvmodels import Circle, NoUsableIndexError, Vector
from tests.geo.brute_force import Place, distance
from tests.oracle_intervals import contains, is_found
from tests.stateful.faces import Face
from tests.stateful.machine import CODES, HERE, KEYS, LOOKS, SLOTS, Condition, Writes, fields_of, is_near, outcome
from tests.vectors.queries import exact

NEAR = Circle(HERE, 150)

CONDITIONS: tuple[Condition, ...] = (
    ({}, lambda one: True),
    ({"code": "a"}, lambda one: one["code"] == "a"),
    ({"code": None}, lambda one: one["code"] is None),
    ({"code__isnull": False}, lambda one: one["code"] is not None),
    ({"code__in": ["a", "ab", None]}, lambda one: one["code"] in ("a", "ab", None)),
    ({"code__startswith": "a"}, lambda one: (one["code"] or "").startswith("a")),
    ({"group": "x"}, lambda one: one["group"] == "x"),
    ({"group": "y", "rank__gte": 2}, lambda one: one["group"] == "y" and one["rank"] >= 2),
    ({"group": "x", "rank__range": (1, 2)}, lambda one: one["group"] == "x" and 1 <= one["rank"] <= 2),
    ({"rank__lt": 2}, lambda one: one["rank"] < 2),
    ({"note": "no1"}, lambda one: one["note"] == "no1"),
    ({"note": None}, lambda one: one["note"] is None),
    ({"id__gt": 2}, lambda one: one["id"] > 2),
    ({"group": "x", "rank__on": 0}, lambda one: one["group"] == "x" and one["rank"] % 2 == 1),
    ({"group": "y", "rank__only": 1}, lambda one: one["group"] == "y" and one["rank"] == 2),
    ({"group": "x", "spot__within": NEAR}, lambda one: one["group"] == "x" and is_near(one)),
    (
        {"group": "y", "term__overlaps": (1, 2)},
        lambda one: one["group"] == "y" and is_found(one["since"], one["until"], 1, 2),
    ),
    ({"group": "x", "term__contains": 3}, lambda one: one["group"] == "x" and contains(one["since"], one["until"], 3)),
    ({"group": "x", "note__endswith": "no1"}, lambda one: one["group"] == "x" and one["note"] == "no1"),
    ({"group__in": ["x", "y"], "note__icontains": "NO2"}, lambda one: one["note"] == "no2"),
    ({"group": "x", "words__search": "no1"}, lambda one: one["group"] == "x" and one["note"] == "no1"),
    (
        {"group__in": ["x", "y"], "words__search": "NO* -no1"},
        lambda one: one["note"] is not None and one["note"] != "no1",
    ),
    ({"id__in": [5, 1, 3], "group": "x"}, lambda one: one["id"] in (1, 3, 5) and one["group"] == "x"),
)
SERVED = [
    {},
    {"code": "a"},
    {"code": None},
    {"group": "x"},
    {"group": "y", "rank__gte": 2},
    {"note": "no1"},
    {"id__gt": 2},
    {"group": "x", "rank__on": 0},
    {"group": "x", "spot__within": NEAR},
    {"group": "x", "term__contains": 3},
    {"group": "x", "note__endswith": "no1"},
    {"group": "x", "words__search": "no1"},
]
"""Conditions that an index or the primary key serves without permission to scan."""

ORDERS = ((), ("id",), ("-id",), ("code",), ("-code",), ("group", "-rank"), ("-rank",), ("rank",), ("-note", "-id"))
ALWAYS_SERVED = ORDERS[:3]
SERVED_ALONE = ORDERS[:6]
"""Orders that an index or the primary key gives to any filter, and to none; the others depend on the filter."""


def position(value: Any) -> tuple[Any, ...]:
    """None sorts below every value."""
    return (False,) if value is None else (True, value)


class Repository(Writes):
    """Everything that a repository does."""

    # --- one record -------------------------------------------------------------------------------------------

    @rule(key=KEYS, slot=SLOTS)
    def get(self, key: int, slot: int) -> None:
        self.did("get by key")
        held = self.things.live(key)
        try:
            thing = self.repository.get(key)
        except self.model.DoesNotExist:
            assert held is None
            return
        assert held is not None
        assert fields_of(thing) == held.fields
        self.objects[slot] = (thing, held.version)

    @rule(code=CODES, slot=SLOTS)
    def get_by_code(self, code: str | None, slot: int) -> None:
        if code is None:
            return
        self.did("get by a unique value")
        owner = self.things.owner("code", code, -1)
        try:
            thing = self.repository.get(code=code)
        except self.model.DoesNotExist:
            assert owner is None
            return
        assert owner is not None
        held = self.things.all()[owner]
        assert fields_of(thing) == held.fields
        self.objects[slot] = (thing, held.version)

    @rule(key=KEYS, code=CODES)
    def get_or_none(self, key: int, code: str | None) -> None:
        self.did("get_or_none")
        held, thing = self.things.live(key), self.repository.get_or_none(key)
        assert (None if thing is None else fields_of(thing)) == (None if held is None else held.fields)
        if code is not None:
            thing = self.repository.get_or_none(self.model.code == code)
            assert (None if thing is None else thing.id) == self.things.owner("code", code, -1)

    @rule(keys=st.lists(KEYS, max_size=5))
    def in_bulk(self, keys: list[int]) -> None:
        self.did("in_bulk")
        found = self.repository.in_bulk(keys)
        wanted = {key: held.fields for key in keys if (held := self.things.live(key)) is not None}
        assert {key: fields_of(thing) for key, thing in found.items()} == wanted
        assert list(found) == list(dict.fromkeys(key for key in keys if key in wanted))

    @rule(slot=SLOTS, overtaken=st.booleans())
    def refresh(self, slot: int, overtaken: bool) -> None:
        if not self._hold(slot, overtaken):
            return
        self.did("refresh")
        thing, _ = self.objects[slot]
        held, before = self.things.live(thing.id), fields_of(thing)
        try:
            assert self.repository.refresh(thing) is thing
        except self.model.DoesNotExist:
            assert held is None
            assert fields_of(thing) == before
            return
        assert held is not None
        assert fields_of(thing) == held.fields
        self.objects[slot] = (thing, held.version)

    # --- many -------------------------------------------------------------------------------------------------

    @rule(data=st.data(), condition=st.sampled_from(CONDITIONS), order=st.sampled_from(ORDERS))
    def query(self, data: Any, condition: Condition, order: tuple[str, ...]) -> None:
        lookups, holds = condition
        query = self.repository.filter(**lookups) if lookups else self.repository.all()
        if lookups:
            self.did("filter")
        excluded = data.draw(st.sampled_from((None, None, *CONDITIONS[1:])))
        wanted = [held.fields for held in self.things.all().values() if holds(held.fields)]
        if excluded is not None:
            self.did("exclude")
            query = query.exclude(**excluded[0])
            wanted = [one for one in wanted if not excluded[1](one)]
        if order:
            self.did("order_by")
            query = query.order_by(*order)
        if order or excluded is not None or lookups not in SERVED:
            query = query.allow_scan()
        things, error = outcome(query.to_list, NoUsableIndexError)
        if error is not None:
            assert order not in (ALWAYS_SERVED if lookups or excluded is not None else SERVED_ALONE)
            assert error.hint is not None
            self.did("order refused")
            return
        found = [fields_of(thing) for thing in things]
        assert sorted(found, key=lambda one: one["id"]) == wanted
        for column in reversed(order):
            wanted.sort(key=lambda one: position(one[column.lstrip("-")]), reverse=column.startswith("-"))
        keys = [[position(one[column.lstrip("-")]) for column in order] for one in found]
        assert keys == [[position(one[column.lstrip("-")]) for column in order] for one in wanted]
        self._parts(query, found)
        self._slices(data, query, found)
        self._pages(data, query, found)

    @rule(group=st.sampled_from(["x", "y"]), radius=st.sampled_from([None, 200]), most=st.integers(1, 4))
    def nearest(self, group: str, radius: float | None, most: int) -> None:
        self.did("nearest")
        query = self.repository.filter(group=group).nearest("spot", HERE, within_m=radius)[:most]
        places = {
            key: distance(Place(HERE.lat, HERE.lon), Place(spot.lat, spot.lon))
            for key, held in self.things.all().items()
            if held.fields["group"] == group and (spot := held.fields["spot"]) is not None
        }
        ranked = sorted((far, key) for key, far in places.items() if radius is None or far <= radius)
        assert [(hit.distance, hit.record.id) for hit in query.to_list()] == ranked[:most]

    @rule(
        group=st.sampled_from(["x", "y"]), look=st.sampled_from(LOOKS), least=st.integers(0, 2), most=st.integers(1, 4)
    )
    def similar(self, group: str, look: Vector, least: int, most: int) -> None:
        self.did("similar")
        chosen = self.repository.filter(group=group)
        query = (chosen.filter(rank__gte=least) if least else chosen).similar("looks", look)
        ranked = sorted(
            (exact("cosine", look, held.fields["look"]), key)
            for key, held in self.things.all().items()
            if held.fields["look"] is not None and held.fields["group"] == group and held.fields["rank"] >= least
        )
        assert [(hit.distance, hit.record.id) for hit in query[:most].to_list()] == ranked[:most]
        assert query.count() == len(ranked)

    def _parts(self, query: Face, full: list[dict[str, Any]]) -> None:
        for verb in ("count", "exists", "first", "last", "iterate"):
            self.did(verb)
        assert query.count() == len(full)
        assert query.exists() is bool(full)
        first, last = query.first(), query.last()
        assert (None if first is None else fields_of(first)) == (full[0] if full else None)
        assert (None if last is None else fields_of(last)) == (full[-1] if full else None)
        assert [fields_of(thing) for thing in query.listed()] == full

    def _slices(self, data: Any, query: Face, full: list[dict[str, Any]]) -> None:
        self.did("slice")
        start, stop = data.draw(st.integers(0, 3)), data.draw(st.one_of(st.none(), st.integers(0, 6)))
        sliced = query[start:stop]
        assert [fields_of(thing) for thing in sliced.to_list()] == full[start:stop]
        assert sliced.count() == len(full[start:stop])
        if start < len(full):
            self.did("item")
            assert fields_of(self.world.wait(query.target[start])) == full[start]

    def _pages(self, data: Any, query: Face, full: list[dict[str, Any]]) -> None:
        self.did("pages")
        size = data.draw(st.integers(1, 3))
        found, cursor, more = [], None, True
        while more:
            page = query.page(size=size, after=cursor)
            found += [fields_of(thing) for thing in page]
            cursor, more = page.next_cursor, page.has_more
            assert len(page.items) == size or not more
        assert cursor is None
        assert found == full
