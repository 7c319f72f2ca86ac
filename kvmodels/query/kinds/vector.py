"""Access to an index of vectors: the order of records by the distance of their vectors from another one.

Every entry of the group is compared, or those of the records that the filter finds through another index. Bounds of
their distances decide which records are read, and the vectors in the records decide the order. So the results are the
same for every form of stored vectors.

Rules of this module: pure.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from kvmodels.errors import InvalidValueError
from kvmodels.query.kinds.contract import KindAccess
from kvmodels.query.kinds.ranking import (
    CountEntries,
    EntrySpan,
    KindRanking,
    RankCandidates,
    Ranking,
    RankingStep,
    Reach,
    ReadPoints,
    ScanEntries,
)
from kvmodels.schema.declare.annotations import types_at
from kvmodels.schema.definition.definition import Document, IndexDefinition, ModelSchema
from kvmodels.schema.definition.values import reader_of
from kvmodels.schema.kinds.vector import VectorOptions, options_of, vector_of
from kvmodels.schema.vectors import arrays
from kvmodels.schema.vectors.distances import METRICS
from kvmodels.schema.vectors.vector import Vector, VectorLength, components, is_vector

MOST_SIMILAR: Final = 1_000
"""The maximum number of results of ``similar()``."""

AT_ONCE: Final = 1_000
"""The number of entries that are looked up at once; for more of them, all entries are counted first."""

_MANY: Final = 4
"""All entries of the groups are read if they are fewer than so many times the lookups: records times groups."""


class Similar(KindRanking):
    """The order by the distance from a vector, the nearest first."""

    most: ClassVar[int | None] = MOST_SIMILAR
    named: ClassVar[bool] = True

    def origin(self, schema: ModelSchema, field: str, given: Any) -> Vector:
        """Return the vector."""
        try:
            return vector_of(options_of(schema.indexes[field]), given)
        except InvalidValueError as error:
            error.model = schema.name
            raise

    def digest(self, origin: Vector) -> bytes:
        """Return the numbers."""
        return origin.tobytes()

    def declaration(self, schema: ModelSchema, field: str) -> str | None:
        """Return an index of the field, if it is a Vector."""
        types = [found for found, _ in types_at(schema.model, field)]
        if not types or any(one.annotation is not Vector for one in types):
            return None
        if any(isinstance(mark, VectorLength) for mark in types[0].metadata):
            return f'VectorIndex("{field}")'
        others = (one.options for one in schema.indexes.values())
        dims = [one.dim for one in others if isinstance(one, VectorOptions) and one.field == field]
        return f'VectorIndex("{field}", dim={dims[0] if dims else "..."})'

    def rings(self, definition: IndexDefinition, origin: Vector, reach: Reach) -> Ranking:
        """Yield the records of all entries, or of those that are needed."""
        options = options_of(definition)
        bounds = arrays.VectorBounds(options.metric, options.store, origin.tobytes())
        nearest = arrays.NearestBounds(bounds)
        keys = reach.keys
        if keys is None:
            yield ScanEntries(nearest.add)
        elif (yield from _are_most(len(keys) * reach.groups)):
            yield ScanEntries(partial(nearest.add, needed=frozenset(keys)))
        else:
            some = max(1, AT_ONCE // reach.groups)
            for at in range(0, len(keys), some):
                found: Mapping[bytes, bytes] = yield ReadPoints(b"", keys[at : at + some])
                nearest.add(found.items())
        candidates = nearest.candidates(reach.wanted)
        yield RankCandidates(*candidates, _distance_of(options, origin))


def _are_most(lookups: int) -> Generator[RankingStep, Any, bool]:
    """Return whether so many entries, of records in groups, are a large part of all entries of the groups."""
    if lookups <= AT_ONCE:
        return False
    most = _MANY * lookups
    counted: list[int] | None = yield CountEntries((EntrySpan(b"", b"\xff", most),))
    return counted is not None and sum(counted) < most


def _distance_of(options: VectorOptions, origin: Vector) -> Callable[[Document], float | None]:
    """Return the function from a document to the distance of its vector; None without one that can be compared."""
    read = reader_of(options.vector)
    distance = METRICS[options.metric](components(origin.tobytes()))
    size = len(origin.tobytes())

    def found(document: Document) -> float | None:
        data: Any = read(document)
        if not is_vector(data) or len(data) != size:
            return None
        try:
            return distance(data)
        except ZeroDivisionError:
            return None

    return found


class VectorAccess(KindAccess):
    """Access to an index of vectors."""

    rankings: ClassVar[Mapping[str, KindRanking]] = {"similar": Similar()}


ACCESS: Final = VectorAccess()
