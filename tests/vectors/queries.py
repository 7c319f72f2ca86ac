"""Drawn records with vectors and drawn queries for them, with their answers by numpy over all records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import sqrt
from random import Random
from typing import Any, ClassVar, NamedTuple

import numpy as np

from kvmodels import Field, Indexed, KvModel, PrimaryKey, Q, Vector, VectorIndex
from kvmodels.schema.kinds.vector import Metric, VectorStore

DIM = 8
METRICS: tuple[Metric, ...] = ("cosine", "l2", "dot")
STORES: tuple[VectorStore, ...] = ("float32", "float16", "int8")
LANGS = ("de", "fr", None)
FAR = 1e-9
"""Distances that differ by less count as equal: numpy adds in another order."""


class Doc(KvModel, collection="docs"):
    """A vector in an index of each metric and store, in a group, in each of several groups, and of some records."""

    id: PrimaryKey[int]
    lang: str | None = None
    rank: Indexed[int] = Field(default=0)
    size: int = 0
    tags: list[str] = []
    embedding: Vector[DIM] | None = None  # type: ignore[type-arg,valid-type]

    class Meta:
        indexes: ClassVar = (
            *(
                VectorIndex("embedding", metric=metric, store=store, name=f"{metric}_{store}")
                for metric in METRICS
                for store in STORES
            ),
            VectorIndex("embedding", store="int8", group="lang", name="of_lang"),
            VectorIndex("embedding", metric="l2", store="float16", group="tags", name="of_tag"),
            VectorIndex("embedding", metric="dot", where=Q(size__gte=2), name="large"),
        )


def vector(chance: Random, others: Sequence[Vector]) -> Vector:
    """A vector in any direction, one of great or small numbers, one of few numbers, or one like another one."""
    match chance.randrange(10):
        case 0 | 1 if others:
            return chance.choice(others)
        case 2:
            return Vector([float(place == chance.randrange(DIM)) or 0.25 for place in range(DIM)])
        case 3 if others:
            return Vector([number + chance.gauss(0, 1e-4) for number in chance.choice(others)])
        case 4:
            share = 10 ** chance.uniform(-4, 4)
            return Vector([chance.gauss(0, share) for _ in range(DIM)])
    return Vector([chance.gauss(0, 1) for _ in range(DIM)])


def docs(chance: Random, number: int) -> list[Doc]:
    """Records of which some have no vector, and some one vector."""
    vectors: list[Vector] = []
    found: list[Doc] = []
    for key in range(number):
        if key % 10 != 9:
            vectors.append(vector(chance, vectors))
        found.append(
            Doc(
                id=key,
                lang=chance.choice(LANGS),
                rank=chance.randrange(number),
                size=chance.randrange(4),
                tags=chance.sample("xyz", chance.randrange(3)),
                embedding=None if key % 10 == 9 else vectors[-1],
            )
        )
    return found


Test = Callable[[Doc], bool]


class Drawn(NamedTuple):
    """A query: the index, its metric, the origin, the filter, and the test of a record."""

    by: str
    metric: str
    origin: Vector
    condition: Any
    test: Test


def drawn(chance: Random, records: Sequence[Doc]) -> Drawn:
    """A query of one of the indexes, with a filter that the group, another index or the records answer."""
    origin = vector(chance, [one.embedding for one in records if one.embedding is not None])
    metric, store = chance.choice(METRICS), chance.choice(STORES)
    lang, tags, size = chance.choice(LANGS), chance.sample("xyz", 2), chance.randrange(4)
    most = int(len(records) * 10 ** chance.uniform(-3, 0)) + 1
    name, condition, test = _filtered(chance, most, size)
    match chance.randrange(8):
        case 0:
            return Drawn(
                "of_lang", "cosine", origin, _and(condition, Q(lang=lang)), lambda one: one.lang == lang and test(one)
            )
        case 1:
            langs = chance.sample(LANGS, 2)
            return Drawn(
                "of_lang",
                "cosine",
                origin,
                _and(condition, Q(lang__in=langs)),
                lambda one: one.lang in langs and test(one),
            )
        case 2:
            return Drawn(
                "of_tag",
                "l2",
                origin,
                _and(condition, Q(tags__contains_any=tags)),
                lambda one: bool({*tags} & {*one.tags}) and test(one),
            )
        case 3:
            return Drawn(
                "large", "dot", origin, _and(condition, Q(size__gte=2)), lambda one: one.size >= 2 and test(one)
            )
    del name
    return Drawn(f"{metric}_{store}", metric, origin, condition, test)


def _filtered(chance: Random, most: int, size: int) -> tuple[str, Any, Test]:
    match chance.randrange(5):
        case 0:
            return "index", Q(rank__lt=most), lambda one: one.rank < most
        case 1:
            return "records", Q(size=size), lambda one: one.size == size
        case 2:
            return "both", Q(rank__lt=most, size=size), lambda one: one.rank < most and one.size == size
        case 3:
            return "either", Q(rank__lt=most) | Q(rank=size), lambda one: one.rank < most or one.rank == size
    return "nothing", None, lambda one: True


def _and(condition: Any, other: Any) -> Any:
    return other if condition is None else condition & other


def distances(metric: str, origin: Vector, records: Sequence[Doc]) -> list[float]:
    """The distances of records with vectors, by numpy with 64 bits."""
    if not records:
        return []
    matrix = np.array([np.asarray(one.embedding) for one in records], dtype=np.float64)
    own = np.asarray(origin, dtype=np.float64)
    if metric == "l2":
        found = np.linalg.norm(matrix - own, axis=1)
    elif metric == "dot":
        found = -(matrix * own).sum(axis=1)
    else:
        found = 1 - (matrix * own).sum(axis=1) / (np.linalg.norm(matrix, axis=1) * np.linalg.norm(own))
    return [float(one) for one in found]


def exact(metric: str, origin: Sequence[float], numbers: Sequence[float]) -> float:
    """The distance between vectors of whole numbers, whose sums are exact; the formula is that of the page."""
    product = sum(one * other for one, other in zip(origin, numbers, strict=True))
    if metric == "dot":
        return -float(product)
    if metric == "l2":
        return sqrt(sum((one - other) ** 2 for one, other in zip(origin, numbers, strict=True)))
    lengths = sqrt(float(sum(one * one for one in origin)) * float(sum(one * one for one in numbers)))
    return min(max(1 - product / lengths, 0.0), 2.0)


def expected(asked: Drawn, records: Sequence[Doc]) -> list[tuple[float, Doc]]:
    """All results in order; equal vectors by key."""
    passing = [one for one in records if one.embedding is not None and asked.test(one)]
    pairs = zip(distances(asked.metric, asked.origin, passing), passing, strict=True)
    return sorted(pairs, key=lambda pair: (pair[0], pair[1].id))


def check_answer(
    asked: Drawn,
    hits: Sequence[Any],
    wanted: Sequence[tuple[float, Doc]],
    records: Sequence[Doc] | Mapping[int, Doc],
) -> None:
    """Compare hits with the same part of all results: every distance, and the order of equal ones by key.

    ``records``: all of them by their keys, which are the places in a list.
    """
    assert len(hits) == len(wanted), asked
    own = distances(asked.metric, asked.origin, [hit.record for hit in hits])
    for hit, distance, (far, _) in zip(hits, own, wanted, strict=True):
        slack = FAR * max(1.0, abs(far))
        assert abs(hit.distance - distance) <= slack, asked
        assert abs(hit.distance - far) <= slack, asked
        assert hit.record == records[hit.record.id]
        assert asked.test(hit.record), asked
    places = [(hit.distance, hit.record.id) for hit in hits]
    assert places == sorted(set(places)), asked
    _check_equal_vectors(hits, wanted)


def _check_equal_vectors(hits: Sequence[Any], wanted: Sequence[tuple[float, Doc]]) -> None:
    """Of records with one vector, those with the least keys are returned."""
    for keys in _keys_of_equal_vectors(one for _, one in wanted):
        returned = sorted(hit.record.id for hit in hits if hit.record.id in keys)
        assert returned == sorted(keys)[: len(returned)]


def _keys_of_equal_vectors(records: Iterator[Doc]) -> list[set[int]]:
    keys: dict[Vector, set[int]] = {}
    for one in records:
        assert one.embedding is not None
        keys.setdefault(one.embedding, set()).add(one.id)
    return [some for some in keys.values() if len(some) > 1]
