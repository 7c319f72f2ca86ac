"""Proofs that the comparison with Python can fail: planners and readers that are broken on purpose are convicted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import Phase, settings

from kvmodels import DecodeError
from kvmodels.flows.entries import EntryReader
from kvmodels.flows.marks import mark_of
from kvmodels.flows.merging import Merge
from kvmodels.query import accesses, combining, shapes
from kvmodels.query.counting import CounterPlan
from kvmodels.query.distinct import jump_parts
from kvmodels.schema import spans
from tests.query.test_brute_force import answers_equal_python

EXAMPLES = 1_000
"""The most that are drawn; each broken one is found out sooner."""

Break = Callable[[pytest.MonkeyPatch], None]


def nothing_is_tested(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EntryReader, "_holds", lambda self, test, hit: test not in self._dropped)


def every_filter_implies_the_condition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shapes, "implies", lambda schema, where, partial: True)


def a_condition_answers_whatever_is_about_its_field(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shapes, "covers", lambda outer, inner: True)


def an_index_without_none_has_every_record(patch: pytest.MonkeyPatch) -> None:
    complete = accesses._complete

    def careless(definition: Any, *args: Any) -> bool:
        return complete(None if definition is None else replace(definition, nulls="distinct"), *args)

    patch.setattr(accesses, "_complete", careless)


def excluded_bounds_are_included(patch: pytest.MonkeyPatch) -> None:
    ordered = spans._ordered

    def careless(condition: Any, column: Any, pack: Any) -> Any:
        lookup, operand = condition.lookup, condition.operand
        if lookup == "range":
            return ordered(condition._replace(operand=(*operand[:2], "[]")), column, pack)
        return ordered(condition._replace(lookup=f"{lookup[:2]}e"), column, pack)

    patch.setattr(spans, "_ordered", careless)


def a_record_counts_at_each_of_its_entries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EntryReader, "_is_first", lambda self, hit, row: True)


def a_record_counts_in_every_scan(patch: pytest.MonkeyPatch) -> None:
    made = EntryReader.__init__

    def forgetful(self: EntryReader, *args: Any) -> None:
        made(self, *args)
        self._dropped = []

    patch.setattr(EntryReader, "__init__", forgetful)


def a_merge_believes_every_row(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Merge, "_horizon", lambda self, parts: None)


def any_index_of_one_value_is_in_the_order_of_the_key(patch: pytest.MonkeyPatch) -> None:
    in_order = combining._in_key_order

    def careless(branch: Any, access: Any) -> bool:
        return in_order(branch, access._replace(lists=(), split=frozenset())) or (
            bool(access.equal) and access.path.definition is not None and not access.path.definition.unique
        )

    patch.setattr(combining, "_in_key_order", careless)


def values_are_taken_from_keys_that_do_not_hold_them(patch: pytest.MonkeyPatch) -> None:
    available = accesses.available

    def careless(schema: Any, path: Any) -> Any:
        held = available(schema, path)
        return None if held is None else held.union(column.field for column in path.columns)

    patch.setattr(accesses, "available", careless)


def the_leap_behind_a_value_is_too_long(patch: pytest.MonkeyPatch) -> None:
    def careless(plan: Any, fields: Any) -> int | None:
        parts = jump_parts(plan, fields)
        return None if parts is None else max(1, parts - 1)

    patch.setattr("kvmodels.flows.distinct.jump_parts", careless)


def every_group_of_a_range_passes(patch: pytest.MonkeyPatch) -> None:
    parts_in = CounterPlan.parts_in
    patch.setattr(CounterPlan, "parts_in", lambda self, key: parts_in(replace(self, tests=()), key))


def a_cursor_stands_before_the_last_result(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("kvmodels.flows.paging.mark_of", lambda plan, found, *, behind: mark_of(plan, found, behind=False))


BROKEN: dict[str, Break] = {
    one.__name__.replace("_", " "): one
    for one in (
        nothing_is_tested,
        every_filter_implies_the_condition,
        a_condition_answers_whatever_is_about_its_field,
        an_index_without_none_has_every_record,
        excluded_bounds_are_included,
        a_record_counts_at_each_of_its_entries,
        a_record_counts_in_every_scan,
        a_merge_believes_every_row,
        any_index_of_one_value_is_in_the_order_of_the_key,
        values_are_taken_from_keys_that_do_not_hold_them,
        the_leap_behind_a_value_is_too_long,
        every_group_of_a_range_passes,
        a_cursor_stands_before_the_last_result,
    )
}


@pytest.mark.soak
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_planner_or_reader_is_convicted(name: str, monkeypatch: pytest.MonkeyPatch):
    BROKEN[name](monkeypatch)
    # The first example that fails is enough: nobody wants to know the smallest one.
    first = settings(phases=[Phase.generate], report_multiple_bugs=False)
    with pytest.raises((AssertionError, DecodeError, ValueError)):
        answers_equal_python(EXAMPLES, first)
