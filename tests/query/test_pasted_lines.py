"""The line of code that a refusal names is pasted into the model: then the query is answered, and reads no more.

Refused queries are written out below, and drawn. A union may name one line after the other, one for each alternative.
"""

from __future__ import annotations

import re
import types
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import kvmodels
from kvmodels import (
    Avg,
    Count,
    Database,
    Field,
    Index,
    Indexed,
    KeyNumber,
    KvModel,
    Max,
    NoUsableIndexError,
    PrimaryKey,
    Q,
    Sum,
)
from tests.drawing import of_check
from tests.query.drawing import Asked, declarations, queries
from tests.query.family import Declaration, model_of, to_q

LINE = re.compile(
    r"(?:Add|or add) ((?:Index|AggregateIndex)\((?:[^()]|\([^()]*\))*\)) to the indexes of (\w+)\.Meta", re.I
)
MOST_LINES = 6


class Color(Enum):
    RED = "red"
    BLUE = "blue"


class Place(BaseModel):
    city: str
    floor: int | None = None


def item(*indexes: Any) -> type[KvModel]:
    """A model whose fields have all that a line could lose: defaults, types of their own, other metadata."""

    def body(namespace: dict[str, Any]) -> None:
        namespace |= {
            "__annotations__": {
                "id": PrimaryKey[int],
                "a": int | None,
                "b": Annotated[int, KeyNumber()],
                "color": Color,
                "size": Literal["s", "m"],
                "at": datetime | None,
                "tags": list[str],
                "place": Place | None,
                "places": list[Place],
                "name": Annotated[str, Indexed(key=str.casefold)],
                "score": float,
            },
            "a": None,
            "b": 0,
            "color": Color.RED,
            "size": "s",
            "at": None,
            "tags": Field(default_factory=list),
            "place": None,
            "places": Field(default_factory=list),
            "name": "a",
            "score": 0.0,
            "__module__": __name__,
            "__qualname__": "Item",
        }
        declared = (Index("a", nulls="skip"), Index("color", where=Q(a__gt=0), name="part"), *indexes)
        namespace["Meta"] = type("Meta", (), {"indexes": declared, "__qualname__": "Item.Meta"})

    return types.new_class("Item", (KvModel,), {"collection": "items"}, body)


def pasted(hint: str, model: str) -> list[Any]:
    """The indexes of the lines in a hint, in order."""
    found = LINE.findall(hint)
    assert found, hint
    assert all(name == model for _, name in found)
    return [eval(code, {"Index": Index, "AggregateIndex": kvmodels.AggregateIndex}) for code, _ in found]


def served(make: Callable[..., type[KvModel]], ask: Callable[[Any], Any], which: int) -> tuple[Any, int]:
    """The plan of a query once the lines that its refusals name are pasted, and how many they were."""
    added: list[Any] = []
    while True:
        model = make(*added)
        with Database("memory://", models=[model]) as db:
            try:
                return ask(db[model].all()).explain(), len(added)
            except NoUsableIndexError as error:
                lines = pasted(str(error.hint), model.__name__)
                added.append(lines[min(which, len(lines) - 1)])
        assert len(added) <= MOST_LINES, "a line that does not help"


QUERIES: dict[str, Callable[[Any], Any]] = {
    "an equality": lambda q: q.filter(b=1),
    "None in an index that leaves it out": lambda q: q.filter(a=None),
    "a range of an index that leaves None out": lambda q: q.exclude(a__gt=1),
    "an Enum of which an index is partial": lambda q: q.filter(color=Color.RED),
    "a Literal": lambda q: q.filter(size="m"),
    "an instant": lambda q: q.filter(at=None),
    "a range": lambda q: q.filter(score__gte=0.5),
    "a nested field": lambda q: q.filter(place__city="Bern"),
    "an optional nested field": lambda q: q.filter(place__floor=None),
    "an element": lambda q: q.filter(tags__contains="x"),
    "some elements": lambda q: q.filter(tags__contains_any=["x", "y"]),
    "all elements": lambda q: q.filter(tags__contains_all=["x", "y"]),
    "the beginning of an element": lambda q: q.filter(tags__any__startswith="x"),
    "a nested element": lambda q: q.filter(places__city__contains="Bern"),
    "what is not equal": lambda q: q.filter(size__ne="m"),
    "two equalities": lambda q: q.filter(b=1, size="m"),
    "an equality and a range": lambda q: q.filter(size="m", score__lt=0.5),
    "an order": lambda q: q.order_by("-score"),
    "an order that an index without None has": lambda q: q.order_by("a"),
    "an order of several": lambda q: q.order_by("size", "-b"),
    "an order behind an equality": lambda q: q.filter(size="m").order_by("-b"),
    "an order behind a list": lambda q: q.filter(size__in=["s", "m"]).order_by("b"),
    "an order behind an element": lambda q: q.filter(tags__contains="x").order_by("-score"),
    "an order behind a folded field": lambda q: q.filter(name="x").order_by("score"),
    "an order of a nested field": lambda q: q.order_by("place.city"),
    "a range in its own order": lambda q: q.filter(score__gt=0.5).order_by("-score"),
    "alternatives": lambda q: q.filter(Q(b=1) | Q(size="m")),
    "three alternatives": lambda q: q.filter(Q(b=1) | Q(size="m", score__gt=1.0) | Q(tags__contains="x")),
    "alternatives in an order": lambda q: q.filter(Q(b=1) | Q(size="m")).order_by("-score"),
    "distinct values": lambda q: q.values("size").distinct(),
    "distinct values of several": lambda q: q.values("size", "b").distinct(),
    "distinct values behind an equality": lambda q: q.filter(color=Color.RED).values("size").distinct(),
    "groups": lambda q: q.group_by("size").aggregate(Count()),
    "groups with sums": lambda q: q.group_by("size", "color").aggregate(Count(), Sum("b"), Sum("a")),
    "groups with one sum": lambda q: q.group_by("size").aggregate(Avg("a"), Count("a")),
    "groups that no counter gives": lambda q: q.group_by("size").aggregate(Max("b"), Sum("score")),
    "groups behind an equality": lambda q: q.filter(size="m").group_by("b").aggregate(Count()),
    "groups in falling order": lambda q: q.order_by("-size").group_by("size", "b").aggregate(Count()),
    "groups of elements": lambda q: q.group_by("tags").aggregate(Count()),
    "groups of an element": lambda q: q.filter(tags__contains="x").group_by("size").aggregate(Count()),
    "groups of nested fields": lambda q: q.group_by("place.city").aggregate(Count()),
    "groups of a range": lambda q: q.filter(size="m", b__gt=3).group_by("color").aggregate(Count()),
    "groups of a list": lambda q: q.filter(b__in=[1, 2]).group_by("size").aggregate(Count(), Sum("b")),
}


@pytest.mark.parametrize("which", [0, 1], ids=["the first line", "the second line"])
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_is_answered_when_the_line_of_its_refusal_is_pasted(name: str, which: int):
    plan, lines = served(item, QUERIES[name], which)
    assert lines > 0, "it was refused"
    assert not getattr(getattr(plan, "rows", None) or plan, "full_scan", False)


@pytest.mark.parametrize("name", QUERIES)
def test_what_the_line_answers_is_what_a_scan_answers(name: str):
    """The lines of the first refusals, over records."""
    added: list[Any] = []
    while True:
        model = item(*added)
        with Database("memory://", models=[model]) as db:
            for number in range(40):
                db[model].create(
                    id=number,
                    a=number % 3 or None,
                    b=number % 4,
                    color=list(Color)[number % 2],
                    size="sm"[number // 3 % 2],
                    tags=["x", "y", "xy"][: number % 4],
                    place=Place(city="Bern", floor=number % 2 or None) if number % 5 else None,
                    places=[Place(city="Bern")] * (number % 3),
                    name="xX"[number % 2],
                    score=number % 7 / 4,
                )
            permitted = QUERIES[name](db[model].all().allow_scan().sort_in_memory())
            expected = permitted.to_list()
            try:
                found = QUERIES[name](db[model].all()).to_list()
            except NoUsableIndexError as error:
                added.append(pasted(str(error.hint), model.__name__)[0])
                continue
            assert sorted(map(str, found)) == sorted(map(str, expected))
            return


def widened(declaration: Declaration, *added: Any) -> type[KvModel]:
    """A member of the family with further indexes."""
    model = model_of(declaration)
    if not added:
        return model
    declared = (*model.Meta.indexes, *added)  # type: ignore[attr-defined]
    meta = type("Meta", (), {"indexes": declared, "__qualname__": "Member.Meta"})

    def body(namespace: dict[str, Any]) -> None:
        namespace |= {"Meta": meta, "__module__": __name__, "__qualname__": "Member"}

    return types.new_class("Member", (model,), {"collection": "members"}, body)


IMPOSSIBLE = ("No index", "The type of", "The filter has more")
"""How a hint begins where no index does it: it tells what else may be called."""


def lines_help(asked: Asked, declaration: Declaration, counts: Counter[str]) -> None:
    """Paste what the refusals of a query name until it is answered."""
    added: list[Any] = []
    while len(added) <= MOST_LINES:
        with Database("memory://", models=[model := widened(declaration, *added)]) as db:
            query = db[model].filter(*(to_q(tree) for tree in asked.where)).order_by(*asked.order)
            try:
                plan = query.explain()
            except NoUsableIndexError as error:
                hint = str(error.hint)
                if hint.startswith(IMPOSSIBLE):
                    counts["impossible"] += 1
                    return
                added.append(pasted(hint, "Member")[0])
                continue
        assert not plan.full_scan
        counts[f"{len(added)} pasted"] += 1
        return
    raise AssertionError(f"{len(added)} lines did not help")


def test_drawn_queries_are_answered_when_the_lines_are_pasted():
    counts = Counter[str]()

    @settings(max_examples=of_check(60))
    @given(declarations(), st.data())
    def check(declaration: Declaration, data: st.DataObject) -> None:
        for _ in range(3):
            lines_help(data.draw(queries(declaration), label="asked"), declaration, counts)

    check()
    print(dict(sorted(counts.items())))
    assert counts["1 pasted"] > 20
    assert counts["2 pasted"]
