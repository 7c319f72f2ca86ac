"""Proofs that the comparison of lookups with Python can fail: a broken planner, reader or kind is convicted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from kvmodels import Database, KvModelsError
from kvmodels.flows.execution import executor
from kvmodels.flows.execution.join import EntryReader
from kvmodels.flows.reading import scan
from kvmodels.query.planning import accesses
from kvmodels.schema.definition.definition import Column
from tests.kinds.bands import BandAccess
from tests.kinds.places import Shop, both_kinds, shop
from tests.kinds.test_lookups import through_kinds
from tests.kinds.weekdays import WeekdayAccess


@pytest.fixture(autouse=True)
def kinds() -> Iterator[None]:
    with both_kinds():
        yield


def ranges_are_taken_for_exact(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(BandAccess, "exact", frozenset({"holds", "begins"}))


def a_weekday_is_taken_for_the_only_one(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WeekdayAccess, "exact", frozenset({"on", "only"}))


def rows_are_not_tested(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EntryReader, "_holds", lambda self, test, hit: hit.whole is False or test.on_document(hit.document))


def counts_take_every_row(patch: pytest.MonkeyPatch) -> None:
    for module in (executor, scan):
        patch.setattr(module, "counts_rows", lambda plan: plan.combine == "scan")


def a_range_is_left_out(patch: pytest.MonkeyPatch) -> None:
    spans = BandAccess.spans
    patch.setattr(BandAccess, "spans", lambda self, *args: spans(self, *args)[:-1])


def two_entries_of_a_record_are_taken_for_one(patch: pytest.MonkeyPatch) -> None:
    parts = WeekdayAccess.parts

    def careless(self: WeekdayAccess, definition: Any) -> tuple[Column, ...]:
        (column,) = parts(self, definition)
        return (Column(column.field, column.codec),)

    patch.setattr(WeekdayAccess, "parts", careless)


def ranges_of_several_widths_are_in_order(patch: pytest.MonkeyPatch) -> None:
    provided = accesses.provided

    def careless(schema: Any, access: Any) -> Any:
        return tuple(one for one in provided(schema, access) if one[0] != "width of band")

    patch.setattr(accesses, "provided", careless)


BROKEN: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    one.__name__.replace("_", " "): one
    for one in (
        ranges_are_taken_for_exact,
        a_weekday_is_taken_for_the_only_one,
        rows_are_not_tested,
        counts_take_every_row,
        a_range_is_left_out,
        two_entries_of_a_record_are_taken_for_one,
        ranges_of_several_widths_are_in_order,
    )
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_lookup_is_convicted(name: str, monkeypatch: pytest.MonkeyPatch):
    with Database("memory://", models=[Shop]) as db:
        chance = Random(7)
        db[Shop].bulk_create([Shop(**shop(chance, key)) for key in range(40)])
        BROKEN[name](monkeypatch)
        with pytest.raises((AssertionError, KvModelsError)):
            through_kinds(db, Random(5), 400)
