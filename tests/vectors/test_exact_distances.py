"""Ties, vectors that are nearly equal, and numbers of any size: the order is exact, and the same for every store."""

from __future__ import annotations

from fractions import Fraction
from math import copysign, sqrt
from random import Random
from typing import Any, ClassVar

import pytest

from kvmodels import Database, KvModel, PrimaryKey, Vector, VectorIndex
from tests.vectors.queries import DIM, METRICS, STORES, Doc, exact
from tests.vectors.test_vector_queries import places
from tests.worlds import in_the_soak

WHOLE = (-2, -1, 0, 1, 2)
"""The numbers of vectors that often have the very same distance."""


def whole(chance: Random) -> list[int]:
    """A vector of whole numbers that are not all zero."""
    return [chance.choice(WHOLE) for _ in range(DIM - 1)] + [chance.choice((1, 2))]


def check_ties(db: Database, chance: Random) -> None:
    """Store vectors, of which many tie, and compare each slice with all distances in the order of distance and key."""
    vectors = [whole(chance) for _ in range(60)]
    db[Doc].bulk_create([Doc(id=key, embedding=Vector(one)) for key, one in enumerate(vectors)])
    ties = 0
    for _ in range(4):
        origin = whole(chance)
        for metric in METRICS:
            wanted = sorted((exact(metric, origin, one), key) for key, one in enumerate(vectors))
            for store in STORES:
                for stop in (1, 5, 30, 60):
                    hits = db[Doc].similar(f"{metric}_{store}", Vector(origin))[:stop]
                    assert places(hits) == wanted[:stop], (metric, store, stop)
            ties += len(wanted) - len({far for far, _ in wanted})
    assert ties > 100


def test_ties_are_in_the_order_of_their_keys_wherever_a_slice_ends():
    with Database("memory://", models=[Doc]) as db:
        check_ties(db, Random(7))


CROWD = 60


def check_crowd(db: Database, chance: Random) -> None:
    """Of vectors that differ less than int8 can show, the nearest one is found, whatever its key is."""
    middle = [chance.gauss(0, 1) for _ in range(DIM)]
    step = max(map(abs, middle)) / 127
    crowd = [Vector([number + chance.uniform(-0.4, 0.4) * step for number in middle]) for _ in range(CROWD)]
    db[Doc].bulk_create([Doc(id=key, embedding=one) for key, one in enumerate(crowd)])
    for nearest in range(0, CROWD, 7):
        for metric in ("cosine", "l2"):
            for store in STORES:
                (hit,) = db[Doc].similar(f"{metric}_{store}", crowd[nearest])[:1]
                assert (hit.record.id, hit.distance) == (nearest, 0.0), (metric, store)


def test_the_nearest_of_a_crowd_that_a_small_store_cannot_tell_apart_is_found():
    with Database("memory://", models=[Doc]) as db:
        check_crowd(db, Random(8))


class Wide(KvModel, collection="wide"):
    """Vectors of numbers that float16 does not hold."""

    id: PrimaryKey[int]
    look: Vector[4]  # type: ignore[type-arg,valid-type]

    class Meta:
        indexes: ClassVar = tuple(
            VectorIndex("look", metric=metric, store=store, name=f"{metric}_{store}")
            for metric in METRICS
            for store in ("float32", "int8")
        )


LARGEST = 3.4028234663852886e38
LEAST = 1e-45
FAR = 1e-14
"""Greater than the rounding of a distance, as a share of it, or of 1 for cosine."""
SIZES = (LARGEST, 1e38, 1e20, 1e19, 1.0, 1e-19, 1e-23, 1e-38, 1e-42, LEAST)


def distance(metric: str, origin: Vector, other: Vector) -> float:
    """The distance by fractions, which neither round nor overflow; only its roots are rounded."""
    pairs = [(Fraction(one), Fraction(two)) for one, two in zip(origin, other, strict=True)]
    product = sum((one * two for one, two in pairs), Fraction())
    if metric == "dot":
        return -float(product)
    if metric == "l2":
        return sqrt(sum(((one - two) ** 2 for one, two in pairs), Fraction()))
    lengths = sum((one**2 for one, _ in pairs), Fraction()) * sum((two**2 for _, two in pairs), Fraction())
    return 1 - copysign(sqrt(product**2 / lengths), product)


def sized(chance: Random) -> Vector:
    """A vector whose numbers are of one size, or of several."""
    size = chance.choice(SIZES)
    while True:
        found = Vector([chance.choice((size, size, chance.choice(SIZES))) * chance.uniform(-1, 1) for _ in range(4)])
        if any(found):
            return found


def check_sizes(db: Database, chance: Random) -> None:
    """Compare the distances of vectors of any size, and those of both stores with one another."""
    vectors = [sized(chance) for _ in range(40)]
    db[Wide].bulk_create([Wide(id=key, look=one) for key, one in enumerate(vectors)])
    for origin in [sized(chance) for _ in range(6)] + vectors[:2]:
        for metric in METRICS:
            found: list[Any] = [db[Wide].similar(f"{metric}_{store}", origin)[:12] for store in ("float32", "int8")]
            assert places(found[0]) == places(found[1]), (metric, origin)
            far = sorted(distance(metric, origin, one) for one in vectors)
            for hit, wanted in zip(found[0], far, strict=False):
                slack = FAR * (1 if metric == "cosine" else abs(wanted))
                assert abs(hit.distance - wanted) <= slack, (metric, origin)
                assert abs(distance(metric, origin, hit.record.look) - hit.distance) <= slack, (metric, origin)


@pytest.mark.parametrize("seed", [0, *in_the_soak(*range(1, 20))])
def test_numbers_of_any_size_are_compared_without_loss(seed: int):
    """Sums beyond 32 bits, and products that are lost below them, have bounds that enclose the distance too."""
    with Database("memory://", models=[Wide]) as db:
        check_sizes(db, Random(seed))
