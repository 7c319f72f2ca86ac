"""Drawn queries of every shape through foreign keys equal a Python program over all records, on each engine.

In `make check` there are 2,000 queries: 1,200 in memory and in a part of a store, 400 with files and small limits, and
the others in transactions and on servers. The soak has 20,000.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from kvmodels import Database
from kvmodels.flows.execution import targets
from kvmodels.flows.reading import child_counts
from kvmodels.flows.reading import referrers as reading
from tests.query.engines import watched
from tests.references import drawn_shapes
from tests.references.drawn_models import MODELS, Condition, Crate, Depot, Is, Keeper, OfQuery, Records, stocked
from tests.references.drawn_shapes import (
    SHAPES,
    Shape,
    check_one,
    links,
    lists,
    numbers,
    referrers,
    related,
    slices,
    totals,
)
from tests.worlds import in_the_soak


def check_many(
    repositories: Any, records: Records, drawn: random.Random, times: int, shapes: Mapping[Shape, int] = SHAPES
) -> Counter[str]:
    return Counter(check_one(repositories, records, drawn, shapes) for _ in range(times))


@pytest.mark.parametrize("seed", [0, 1, *in_the_soak(*range(2, 60))])
def test_drawn_queries_equal_python(seed: int):
    drawn = random.Random(seed)
    with Database("memory://", models=MODELS) as db:
        seen = check_many(db, stocked(db, drawn), drawn, 300)
        assert db.check().ok
    assert set(seen) == {shape.__name__ for shape in SHAPES}


@pytest.mark.parametrize("kind", ["sqlite", "lmdb", "no snapshots", "nine ranges"])
@pytest.mark.parametrize("times", [100, *in_the_soak(500)])
def test_answers_are_the_same_on_each_engine(kind: str, times: int, tmp_path: Path):
    drawn = random.Random(kind)
    if kind in ("sqlite", "lmdb"):
        db = Database(f"{kind}:///{tmp_path / 'store'}", models=MODELS)
    else:
        db, _ = watched(MODELS, **({"snapshots": False} if kind == "no snapshots" else {"max_ranges": 9}))
    with db:
        check_many(db, stocked(db, drawn), drawn, times)


@pytest.mark.parametrize("times", [60, *in_the_soak(400)])
def test_answers_are_the_same_on_each_server(times: int):
    drawn = random.Random(times)
    with Database("memory://", models=MODELS) as db:
        check_many(db, stocked(db, drawn, crates=20), drawn, times)


class RolledBackError(Exception):
    """Ends a transaction without a commit."""


@pytest.mark.parametrize("times", [40, *in_the_soak(300)])
def test_a_transaction_answers_with_its_own_writes(times: int):
    """The commit is left out: on some engines it may not have so many checks and mutations."""
    drawn = random.Random(times)
    with Database("memory://", models=MODELS) as db:
        before = stocked(db, drawn, crates=15)
        with pytest.raises(RolledBackError), db.transaction() as tx, tx.unchecked():
            tx[Keeper].patch(1, age=9, nick="b", boss=None)
            tx[Depot].patch(2, name="q", owner=1)
            tx[Crate].patch(3, depot=2, keeper=1)
            tx[Crate].create(id=90, depot=2, status="up", created=4, size=1)
            tx[Crate].remove(5)
            check_many(tx, Records.of(tx), drawn, times)
            raise RolledBackError
        assert Records.of(db).rows == before.rows


# --- the comparison can fail ------------------------------------------------------------------------------------------


class UnknownNegations(Records):
    """None makes a negation unknown, as in SQL."""

    def negation_holds(self, record: Any, inner: Condition) -> bool:
        is_unknown = isinstance(inner, Is) and self.value(record, inner.path) is None
        return not is_unknown and super().negation_holds(record, inner)


class NoneLast(Records):
    """None is greater than everything."""

    def rank(self, value: Any) -> tuple[bool, Any]:
        return (value is None, 0 if value is None else value)


class OtherTies(Records):
    """Equal results are in the order of their keys, whatever the plan states."""

    def in_order(self, found: Iterable[Any], order: Sequence[str]) -> list[Any]:
        return super().in_order(found, [*order[:1], "id"] if order else order)


class LateSlices(Records):
    """A slice begins behind its first result."""

    def part(self, found: Sequence[Any], start: int, stop: int) -> list[Any]:
        return super().part(found, start + 1, stop)


class FirstTargets(Records):
    """A path of several foreign keys ends at the first of them."""

    def target(self, record: Any, path: str) -> Any:
        return super().target(record, path.partition("__")[0])


class AnyChildren(Records):
    """The conditions of one operand hold for different records."""

    def keys_of(self, operand: OfQuery) -> set[Any]:
        each = [super(AnyChildren, self).keys_of(operand._replace(where=(one,))) for one in operand.where]
        return set.intersection(*each)


class AnyLinks(Records):
    """Conditions on a relation hold for different links."""

    def any_satisfies(self, found: Iterable[Any], where: Iterable[Condition]) -> bool:
        return all(any(self.holds(one, part) for one in found) for part in where)


class AllChildren(Records):
    """The condition of a number, or of the referring records, is ignored."""

    def referring(self, target: Any, model: str, field: str, where: Iterable[Condition] = ()) -> list[Any]:
        return super().referring(target, model, field)


class LargerLimits(Records):
    """One more record of each target is returned."""

    def first_of_each(self, found: Sequence[Any], limit: int) -> list[Any]:
        return super().first_of_each(found, limit + 1)


class EmptySums(Records):
    """A sum of nothing is 0."""

    def total(self, found: Sequence[Any], field: str) -> int:
        return super().total(found, field) or 0


class UnequalNone(Records):
    """None does not equal None."""

    def compares(self, value: Any, lookup: str, operand: Any) -> bool:
        return super().compares(value, lookup, operand) and not (lookup == "exact" and value is None)


FAULTS: dict[type[Records], Shape] = {
    UnknownNegations: totals,
    NoneLast: lists,
    OtherTies: lists,
    LateSlices: slices,
    FirstTargets: related,
    AnyChildren: totals,
    AnyLinks: links,
    AllChildren: numbers,
    LargerLimits: referrers,
    EmptySums: numbers,
    UnequalNone: totals,
}
MOST = 1_000
"""The most queries of one shape that are drawn to find a fault."""


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_in_the_program_is_convicted(fault: type[Records]):
    drawn = random.Random(5)
    with Database("memory://", models=MODELS) as db:
        records = fault(stocked(db, drawn).rows)
        with pytest.raises(AssertionError):
            check_many(db, records, drawn, MOST, {FAULTS[fault]: 1})


def targets_are_not_tested(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(targets._Level, "holds", lambda self, where, record: True)


def numbers_are_those_of_the_first_result(patch: pytest.MonkeyPatch) -> None:
    real = reading.queries_of

    def of_first(context: Any, query: Any, field: str, keys: Sequence[Any]) -> Any:
        return real(context, query, field, [keys[0]] * len(keys))

    patch.setattr(child_counts, "queries_of", of_first)


def one_test_is_made_for_all_targets(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(reading, "are_one_scan", lambda plans, field: True)


@pytest.mark.parametrize(
    ("fault", "shape"),
    [
        (targets_are_not_tested, totals),
        (numbers_are_those_of_the_first_result, numbers),
        (one_test_is_made_for_all_targets, referrers),
    ],
)
def test_a_fault_in_the_library_is_convicted(
    fault: Callable[[pytest.MonkeyPatch], None], shape: Shape, monkeypatch: pytest.MonkeyPatch
):
    drawn = random.Random(6)
    with Database("memory://", models=MODELS) as db:
        records = stocked(db, drawn)
        fault(monkeypatch)
        with pytest.raises((AssertionError, IndexError)):
            check_many(db, records, drawn, MOST, {shape: 1})


def test_every_model_and_foreign_key_is_drawn():
    names = {model.__name__ for model in MODELS}
    for drawn_parts in (drawn_shapes.PATHS, drawn_shapes.OWN, drawn_shapes.SEMI_JOINS, drawn_shapes.TARGETS):
        assert set(drawn_parts) == names
