"""The tests of vectors notice wrong bounds, a filter that comes too late, results in the order of bounds, and more."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappush
from random import Random
from typing import Any, cast

import numpy as np
import pytest

from kvmodels import Database
from kvmodels.flows.execution import bounded
from kvmodels.flows.execution.bounded import BoundedRanking
from kvmodels.flows.execution.join import EntryReader
from kvmodels.flows.execution.rings import RankedReader
from kvmodels.schema.vectors import arrays, distances
from kvmodels.schema.vectors.arrays import DistanceBounds, NearestBounds, OrderedBounds, VectorBounds
from tests.vectors.queries import METRICS, Doc
from tests.vectors.test_exact_distances import Wide, check_crowd, check_sizes, check_ties
from tests.vectors.test_vector_costs import check_costs
from tests.vectors.test_vector_costs import filled as counted
from tests.vectors.test_vector_queries import check_queries, check_stores, filled
from tests.vectors.test_vectors_beside_writers import check_a_record_that_comes_nearer, check_between_reads

Patch = pytest.MonkeyPatch


def forget(patch: Patch, store: str, share: float = 0.0) -> None:
    """Keep a share of the error of a store."""
    decoded = arrays._DECODED[store]

    def less(joined: bytes, number: int) -> Any:
        found = decoded(joined, number)
        return found._replace(errors=found.errors * share)

    patch.setitem(cast("dict[str, Any]", arrays._DECODED), store, less)


def the_error_of_int8_is_forgotten(patch: Patch) -> None:
    forget(patch, "int8")


def the_error_of_float16_is_forgotten(patch: Patch) -> None:
    forget(patch, "float16")


def a_part_of_the_scale_is_forgotten(patch: Patch) -> None:
    forget(patch, "int8", share=0.3)


def the_length_of_a_vector_does_not_matter_to_its_error(patch: Patch) -> None:
    """An error turns every vector as it turns one of length 1."""
    cosine = VectorBounds._cosine

    def alike(self: Any, decoded: Any) -> Any:
        return cosine(self, decoded._replace(errors=np.minimum(decoded.errors, decoded.errors * 0.01)))

    patch.setattr(VectorBounds, "_cosine", alike)


def sums_beyond_32_bits_count(patch: Patch) -> None:
    patch.setattr(VectorBounds, "_products", lambda self, vectors: (vectors @ self._origin).astype(np.float64))


def what_is_lost_below_32_bits_counts(patch: Patch) -> None:
    patch.setattr(arrays, "_LEAST", 0.0)


def the_best_four_times_as_many_are_read(patch: Patch) -> None:
    """In place of all that the bounds leave."""
    candidates = NearestBounds.candidates

    def best(self: Any, wanted: int | None) -> OrderedBounds:
        if not wanted or not self._keys:
            return candidates(self, wanted)
        middle = np.concatenate([(part.lower + part.upper) / 2 for part in self._parts])
        nearest = np.argsort(middle, kind="stable")[: 4 * wanted].tolist()
        return OrderedBounds(((-np.inf, self._keys[at]) for at in nearest), len(nearest), len(self._keys))

    patch.setattr(NearestBounds, "candidates", best)


def as_many_records_are_read_as_results_are_wanted(patch: Patch) -> None:
    """The others follow one by one."""
    candidates = NearestBounds.candidates
    patch.setattr(
        NearestBounds, "candidates", lambda self, wanted: candidates(self, wanted)._replace(first=wanted or 0)
    )


def the_bound_is_the_distance(patch: Patch) -> None:
    """The vector in the record is not looked at."""

    def add(self: Any, bound: float, found: Any) -> None:
        heappush(self._read, found._replace(place=found.place._replace(distance=bound)))

    patch.setattr(BoundedRanking, "add", add)


def a_record_that_came_nearer_in_between_is_a_result(patch: Patch) -> None:
    patch.setattr(BoundedRanking, "add", lambda self, bound, found: heappush(self._read, found))


def a_record_is_not_tested_again(patch: Patch) -> None:
    """The conditions are not tested on the record."""
    patch.setattr(EntryReader, "counts", lambda self, found, row: True)


def ties_are_in_the_order_of_their_bounds(patch: Patch) -> None:
    def results(self: Any) -> list[Any]:
        self._read.sort(key=lambda one: one.place.distance)
        found = []
        while self._read and (self._next is None or self._read[0].place.distance < self._next[0]):
            found.append(self._read.pop(0))
        return found

    patch.setattr(bounded, "heappush", lambda held, one: held.append(one))
    patch.setattr(BoundedRanking, "results", results)


def the_group_is_ignored(patch: Patch) -> None:
    """Entries of the groups of earlier queries are read too."""
    adopt = RankedReader._adopt
    heads: dict[Any, set[bytes]] = {}

    def more(self: Any, plan: Any) -> None:
        adopt(self, plan)
        known = heads.setdefault(plan.index, set())
        known.update(self._heads)
        self._heads = sorted(known)

    patch.setattr(RankedReader, "_adopt", more)


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
    patch.setitem(cast("dict[str, Any]", distances.METRICS), "l2", distances.METRICS["cosine"])


def ask_drawn_queries() -> None:
    chance = Random(3)
    with Database("memory://", models=[Doc]) as db:
        records = filled(db, chance, 40)
        for _ in range(10):
            check_queries(db, records, chance, 20)
            check_stores(db, records, chance, 5)


def ask_for_ties() -> None:
    with Database("memory://", models=[Doc]) as db:
        check_ties(db, Random(7))


def ask_a_crowd() -> None:
    with Database("memory://", models=[Doc]) as db:
        check_crowd(db, Random(8))


def ask_for_numbers_of_any_size() -> None:
    for seed in (16, 18):
        with Database("memory://", models=[Wide]) as db:
            check_sizes(db, Random(seed))


def count_reads() -> None:
    engine, texts = counted()
    for metric in METRICS:
        check_costs(engine, texts, metric, "int8")


def write_between_reads() -> None:
    for snapshots in (True, False):
        check_between_reads(1, 40, snapshots=snapshots)


BROKEN: list[tuple[Callable[[Patch], None], Callable[[], None]]] = [
    (the_error_of_int8_is_forgotten, ask_drawn_queries),
    (the_error_of_int8_is_forgotten, ask_a_crowd),
    (the_error_of_float16_is_forgotten, ask_drawn_queries),
    (a_part_of_the_scale_is_forgotten, ask_a_crowd),
    (the_length_of_a_vector_does_not_matter_to_its_error, ask_drawn_queries),
    (the_bounds_are_too_narrow, ask_drawn_queries),
    (sums_beyond_32_bits_count, ask_for_numbers_of_any_size),
    (what_is_lost_below_32_bits_counts, ask_for_numbers_of_any_size),
    (the_best_four_times_as_many_are_read, ask_a_crowd),
    (as_many_records_are_read_as_results_are_wanted, count_reads),
    (the_entries_decide_the_order, ask_drawn_queries),
    (the_bound_is_the_distance, ask_drawn_queries),
    (a_record_that_came_nearer_in_between_is_a_result, check_a_record_that_comes_nearer),
    (a_record_is_not_tested_again, write_between_reads),
    (ties_are_in_the_order_of_their_bounds, ask_for_ties),
    (a_filter_after_the_limit, ask_drawn_queries),
    (a_record_counts_in_each_of_its_groups, ask_drawn_queries),
    (the_group_is_ignored, ask_drawn_queries),
    (only_the_keys_of_one_index_are_read, ask_drawn_queries),
    (the_metric_is_another, ask_drawn_queries),
]


@pytest.mark.parametrize(("broken", "check"), BROKEN, ids=[f"{one.__name__}-{two.__name__}" for one, two in BROKEN])
def test_a_broken_ranking_is_noticed(broken: Callable[[Patch], None], check: Callable[[], None], monkeypatch: Patch):
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        check()
