"""The tests of vectors notice wrong bounds, a filter that comes too late, and results in the order of bounds."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, cast

import numpy as np
import pytest

from kvmodels import Database
from kvmodels.flows.execution import bounded
from kvmodels.flows.execution.bounded import BoundedRanking
from kvmodels.schema.vectors import arrays
from kvmodels.schema.vectors.arrays import DistanceBounds, VectorBounds
from kvmodels.schema.vectors.distances import METRICS
from tests.vectors.queries import Doc
from tests.vectors.test_vector_queries import check_queries, check_stores, filled

Patch = pytest.MonkeyPatch


def the_error_of_the_store_is_forgotten(patch: Patch) -> None:
    for store, decoded in list(arrays._DECODED.items()):

        def without(joined: bytes, number: int, decoded: Any = decoded) -> Any:
            return decoded(joined, number)._replace(errors=np.zeros(number))

        patch.setitem(cast("dict[str, Any]", arrays._DECODED), store, without)


def the_entries_decide_the_order(patch: Patch) -> None:
    """Records are results as they were read."""

    def results(self: Any) -> list[Any]:
        found, self._read = self._read, []
        return found

    patch.setattr(BoundedRanking, "results", results)
    patch.setattr(bounded, "heappush", lambda held, one: held.append(one))


def a_filter_after_the_limit(patch: Patch) -> None:
    taken = BoundedRanking.take

    def once(self: Any, size: int, *, tested: bool) -> Any:
        found = taken(self, 1, tested=False)
        self._next = None
        del size, tested
        return found

    patch.setattr(BoundedRanking, "take", once)


def a_record_counts_in_each_of_its_groups(patch: Patch) -> None:
    """Of a record in two groups, both entries are results."""
    original = bounded.BoundedRanking.take

    def again(self: Any, size: int, *, tested: bool) -> Any:
        self._seen = set()
        found = original(self, size, tested=tested)
        return [one for one in found for _ in range(2)]

    patch.setattr(BoundedRanking, "take", again)


def only_the_keys_of_one_index_are_read(patch: Patch) -> None:
    """The keys of the first half of the records found."""
    found_keys = bounded.found_keys

    def half(*arguments: Any) -> Any:
        keys = yield from found_keys(*arguments)
        return keys[: len(keys) // 2]

    patch.setattr("kvmodels.flows.execution.rings.found_keys", half)


def the_bounds_are_too_narrow(patch: Patch) -> None:
    original = VectorBounds.of

    def narrow(self: Any, stored: Any) -> DistanceBounds:
        lower, upper = original(self, stored)
        middle = (lower + upper) / 2
        return DistanceBounds(middle + (upper - middle) * 0.9, upper)

    patch.setattr(VectorBounds, "of", narrow)


def the_metric_is_another(patch: Patch) -> None:
    patch.setitem(cast("dict[str, Any]", METRICS), "l2", METRICS["cosine"])


BROKEN: list[Callable[[Patch], None]] = [
    the_error_of_the_store_is_forgotten,
    the_entries_decide_the_order,
    a_filter_after_the_limit,
    a_record_counts_in_each_of_its_groups,
    only_the_keys_of_one_index_are_read,
    the_bounds_are_too_narrow,
    the_metric_is_another,
]


@pytest.mark.parametrize("broken", BROKEN, ids=[one.__name__ for one in BROKEN])
def test_a_broken_ranking_is_noticed(broken: Callable[[Patch], None], monkeypatch: Patch):
    chance = Random(3)
    with Database("memory://", models=[Doc]) as db:
        records = filled(db, chance, 40)
        broken(monkeypatch)
        with pytest.raises(AssertionError):
            for _ in range(10):
                check_queries(db, records, chance, 20)
                check_stores(db, records, chance, 5)
