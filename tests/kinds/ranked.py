"""A model whose records are ranked by the kind ``lines``, and what ranked queries must return."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, ClassVar

from kvmodels import KvModel, PrimaryKey, Q
from tests.kinds.lines import LineIndex

Found = list[tuple[int, float]]
"""Primary keys, and distances."""


@cache
def stall_model() -> Any:
    """Return the model; the kind must be registered."""

    class Stall(KvModel, collection="stalls"):
        id: PrimaryKey[int]
        at: int | None = 0
        kind: str | None = "a"
        tags: list[str] = []
        open: bool = True

        class Meta:
            indexes: ClassVar = (
                LineIndex("at"),
                LineIndex("at", group=("kind",), name="by_kind"),
                LineIndex("at", group=("kind", "open"), name="by_both"),
                LineIndex("at", group=("tags",), name="by_tag"),
                LineIndex("at", where=Q(open=True), name="open_ones"),
            )

    return Stall


def stalls(count: int, *, seed: int = 20261129, spread: int = 60) -> list[Any]:
    """Return records many of which lie at one place."""
    chance, model = random.Random(seed), stall_model()
    return [
        model(
            id=number,
            at=None if chance.random() < 0.05 else chance.randint(-spread, spread),
            kind=chance.choice(["a", "b", "c", None]),
            tags=chance.sample("xyz", chance.randrange(4)),
            open=chance.random() < 0.3,
        )
        for number in range(count)
    ]


def ranked(
    records: Iterable[Any], origin: int, holds: Callable[[Any], bool] = lambda one: True, within: float | None = None
) -> Found:
    """Return what a ranked query must: a sorted list of all distances."""
    found = [(float(abs(one.at - origin)), one.id) for one in records if one.at is not None and holds(one)]
    return [(key, distance) for distance, key in sorted(found) if within is None or distance <= within]


def pairs(hits: Iterable[Any]) -> Found:
    """Return hits as primary keys and distances."""
    return [(hit.record.id, hit.distance) for hit in hits]


FILTERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], bool]]] = {
    "nothing": (lambda query: query, lambda one: True),
    "one group": (lambda query: query.filter(kind="b"), lambda one: one.kind == "b"),
    "None as the group": (lambda query: query.filter(kind=None), lambda one: one.kind is None),
    "two groups": (lambda query: query.filter(kind__in=["a", None]), lambda one: one.kind in ("a", None)),
    "an alternative of one group": (
        lambda query: query.filter(Q(kind="a") | Q(kind="c")),
        lambda one: one.kind in ("a", "c"),
    ),
    "both columns": (lambda query: query.filter(kind="a", open=True), lambda one: one.kind == "a" and one.open),
    "a rare residual": (lambda query: query.filter(id__in=[3, 17, 29]), lambda one: one.id in (3, 17, 29)),
    "a residual": (lambda query: query.filter(open=False), lambda one: not one.open),
    "a group and a residual": (
        lambda query: query.filter(kind="b").exclude(id__lt=20),
        lambda one: one.kind == "b" and one.id >= 20,
    ),
    "one value of several": (lambda query: query.filter(tags__contains="x"), lambda one: "x" in one.tags),
    "values of several": (
        lambda query: query.filter(tags__contains_any=["x", "z"]),
        lambda one: bool({"x", "z"} & {*one.tags}),
    ),
    "an alternative of two fields": (
        lambda query: query.filter(Q(kind="a") | Q(open=True)),
        lambda one: one.kind == "a" or one.open,
    ),
    "a partial index": (lambda query: query.filter(open=True), lambda one: one.open),
    "never": (lambda query: query.filter(kind="a").filter(kind="b"), lambda one: False),
}
"""Ways to narrow a query, and whether a record passes."""
