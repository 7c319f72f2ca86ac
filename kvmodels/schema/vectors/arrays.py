"""DistanceBounds of the distances of many vectors at once, by numpy, the package of the extra ``vector``.

The distances are computed with 32 bits, from what an index stores. The bounds enclose the exact distance to the vector
of the record: they are moved outwards by the greatest error of the store, and by that of the arithmetic. A sum of n
products of 32 bits is wrong by at most n 2^-24 / (1 - n 2^-24) times the product of the lengths, in any order of the
additions.

Rules of this module: it is loaded only for a query, or when numpy asks for an array. Bounds that are not numbers, of
sums beyond 32 bits, are infinite.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kvmodels.schema.vectors.stores import SCALE, size_in

Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]

_ROUNDING: Final = 2.0**-24
_LEAST: Final = 2.0**-120
"""More than what is lost below the least number of 32 bits, in products and in their sums."""
_HALF: Final = 2.0**-11
_HALF_LEAST: Final = 2.0**-24


def array_of(data: bytes, dtype: Any = None, *, copy: bool | None = None) -> NDArray[Any]:
    """Return the numbers of a vector as an array, which is read-only unless it is a copy.

    Raises ValueError, as numpy asks for, if ``copy`` is False and another type needs a copy.
    """
    array = np.frombuffer(data, "<f4")
    if dtype is not None and np.dtype(dtype) != array.dtype:
        if copy is False:
            raise ValueError("a vector has numbers of float32: another type needs a copy")
        return array.astype(dtype)
    return array.copy() if copy else array


class Decoded(NamedTuple):
    """Vectors as an index stores them, and the greatest length of the difference from the vector of each record."""

    vectors: Matrix
    errors: Floats


def _of_float32(joined: bytes, number: int) -> Decoded:
    vectors = np.frombuffer(joined, "<f4").reshape(number, -1).astype(np.float32, copy=False)
    return Decoded(vectors, np.zeros(number))


def _of_float16(joined: bytes, number: int) -> Decoded:
    vectors = np.frombuffer(joined, "<f2").reshape(number, -1).astype(np.float32)
    least = _HALF_LEAST * np.sqrt(vectors.shape[1])
    return Decoded(vectors, _norms(vectors) * _HALF * 1.01 + least)


def _of_int8(joined: bytes, number: int) -> Decoded:
    rows = np.frombuffer(joined, np.int8).reshape(number, -1)
    scales = rows[:, : SCALE.size].copy().view("<f4").astype(np.float64)
    vectors = (rows[:, SCALE.size :] * scales).astype(np.float32)
    # Half of the scale, and the rounding of the product of scale and number.
    each = scales[:, 0] * 0.50001
    return Decoded(vectors, each * np.sqrt(vectors.shape[1]) + _LEAST)


_DECODED: Final[Mapping[str, Callable[[bytes, int], Decoded]]] = {
    "float32": _of_float32,
    "float16": _of_float16,
    "int8": _of_int8,
}


def _norms(vectors: Matrix) -> Floats:
    """Return at least the lengths of vectors, at most a little more."""
    squares: Floats = np.einsum("ij,ij->i", vectors, vectors, dtype=np.float64)
    lengths: Floats = np.sqrt(squares)
    return lengths * (1.0 + 1e-9)


class DistanceBounds(NamedTuple):
    """The least and the greatest possible distance of each of some records."""

    lower: Floats
    upper: Floats


class VectorBounds:
    """The bounds of the distances of stored vectors from an origin.

    Args:
        metric: ``cosine``, ``l2`` or ``dot``.
        store: the form of the stored vectors.
        origin: the bytes of the origin.
    """

    def __init__(self, metric: str, store: str, origin: bytes) -> None:
        self._bounds = {"cosine": self._cosine, "l2": self._l2, "dot": self._dot}[metric]
        self._decoded = _DECODED[store]
        self._origin = np.frombuffer(origin, "<f4").astype(np.float32)
        self._length = float(np.sqrt(np.dot(self._origin.astype(np.float64), self._origin.astype(np.float64))))
        self._length *= 1.0 + 1e-9
        self.size = size_in(store, len(self._origin))
        terms = len(self._origin) + 2
        self._share = terms * _ROUNDING / (1 - terms * _ROUNDING) * 1.01

    def of(self, stored: Sequence[bytes]) -> DistanceBounds:
        """Return the bounds for stored vectors, each of ``size`` bytes."""
        with np.errstate(all="ignore"):
            decoded = self._decoded(b"".join(stored), len(stored))
            lower, upper = self._bounds(decoded)
        return DistanceBounds(np.where(np.isnan(lower), -np.inf, lower), np.where(np.isnan(upper), np.inf, upper))

    def _products(self, vectors: Matrix) -> Floats:
        found: Floats = (vectors @ self._origin).astype(np.float64)
        # Beyond 32 bits a sum is infinite, with either sign in the end.
        return np.where(np.isfinite(found), found, np.nan)

    def _dot(self, decoded: Decoded) -> DistanceBounds:
        vectors, errors = decoded
        found = -self._products(vectors)
        slack = self._length * (_norms(vectors) * self._share + errors) + _LEAST
        return DistanceBounds(found - slack, found + slack)

    def _l2(self, decoded: Decoded) -> DistanceBounds:
        vectors, errors = decoded
        differences = (vectors - self._origin).astype(np.float64)
        # Each difference is rounded once to 32 bits, a share of itself.
        found = np.sqrt(np.einsum("ij,ij->i", differences, differences))
        slack = found * 1e-6 + errors + _LEAST
        return DistanceBounds(found - slack, found + slack)

    def _cosine(self, decoded: Decoded) -> DistanceBounds:
        vectors, errors = decoded
        norms = _norms(vectors)
        found = 1.0 - self._products(vectors) / (norms * self._length)
        share = errors / norms
        # Two vectors whose difference is so small beside their lengths have directions that differ by at most this.
        turned = share / np.sqrt((1.0 + np.sqrt(1.0 - share * share)) / 2.0)
        slack = turned + self._share * 1.01 + 1e-8 + _LEAST / (norms * self._length)
        return DistanceBounds(found - slack, found + slack)


class OrderedBounds(NamedTuple):
    """Records in the order of their lower bounds, how many of the first have the wanted results, and their number."""

    in_order: Iterator[tuple[float, bytes]]
    first: int
    number: int


class NearestBounds:
    """The bounds of many records, part by part; a stateful object for one query.

    Args:
        bounds: computes them.
    """

    def __init__(self, bounds: VectorBounds) -> None:
        self._bounds = bounds
        self._keys: list[bytes] = []
        self._parts: list[DistanceBounds] = []

    def add(self, entries: Iterable[tuple[bytes, bytes]], *, needed: Container[bytes] | None = None) -> None:
        """Add entries: packed primary keys and stored vectors.

        A value of another size is left out, and so are keys that are not ``needed``; None: all of them are.
        """
        size = self._bounds.size
        kept = [one for one in entries if len(one[1]) == size and (needed is None or one[0] in needed)]
        if kept:
            self._keys += [key for key, _ in kept]
            self._parts.append(self._bounds.of([value for _, value in kept]))

    def candidates(self, wanted: int | None) -> OrderedBounds:
        """Return the records; ``wanted`` is the number of results that are needed, None for all."""
        number = len(self._keys)
        if not number:
            return OrderedBounds(iter(()), 0, 0)
        lower = np.concatenate([part.lower for part in self._parts])
        if wanted is None or wanted >= number:
            return OrderedBounds(self._in_order(lower, np.arange(number)), number if wanted else 0, number)
        upper = np.concatenate([part.upper for part in self._parts])
        bound = np.partition(upper, max(wanted - 1, 0))[max(wanted - 1, 0)]
        near, far = np.nonzero(lower <= bound)[0], np.nonzero(lower > bound)[0]
        return OrderedBounds(chain(self._in_order(lower, near), self._in_order(lower, far)), len(near), number)

    def _in_order(self, lower: Floats, places: NDArray[np.intp]) -> Iterator[tuple[float, bytes]]:
        """Yield bounds and keys of some places, sorted when the first one is asked for."""
        keys, bounds = self._keys, lower[places]
        for at in np.argsort(bounds, kind="stable").tolist():
            yield float(bounds[at]), keys[int(places[at])]
