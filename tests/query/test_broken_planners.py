"""Proofs that the comparison with Python can fail: planners and readers that are broken on purpose are convicted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, settings

from kvmodels import KvModelsError
from kvmodels.flows.execution.executor import mark_of
from kvmodels.flows.execution.join import EntryReader
from kvmodels.query.planning import accesses, branches
from kvmodels.schema.filters import predicate
from tests.query.test_brute_force import answers_equal_python

EXAMPLES = 2_500
"""The most that are drawn; each broken one is found out sooner."""

Break = Callable[[pytest.MonkeyPatch], None]


def nothing_is_tested(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EntryReader, "_holds", lambda self, test, hit: test not in self._dropped)


def every_filter_implies_the_condition(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(branches, "implies", lambda schema, where, partial: True)


def a_condition_answers_whatever_is_about_its_field(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(branches, "covers", lambda outer, inner: True)


def excluded_bounds_are_included(patch: pytest.MonkeyPatch) -> None:
    ordered = predicate._ordered

    def careless(condition: Any, column: Any) -> Any:
        lookup, operand = condition.lookup, condition.operand
        if lookup == "range":
            return ordered(condition._replace(operand=(*operand[:2], "[]")), column)
        return ordered(condition._replace(lookup=f"{lookup[:2]}e"), column)

    patch.setattr(predicate, "_ordered", careless)


def a_record_counts_at_each_of_its_entries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EntryReader, "_is_first", lambda self, hit, row: True)


def a_record_counts_in_every_scan(patch: pytest.MonkeyPatch) -> None:
    made = EntryReader.__init__

    def forgetful(self: EntryReader, *args: Any) -> None:
        made(self, *args)
        self._dropped = []

    patch.setattr(EntryReader, "__init__", forgetful)


def values_are_taken_from_keys_that_do_not_hold_them(patch: pytest.MonkeyPatch) -> None:
    available = accesses.available

    def careless(schema: Any, path: Any) -> Any:
        held = available(schema, path)
        return None if held is None else held.union(column.field for column in path.columns)

    patch.setattr(accesses, "available", careless)


def a_cursor_stands_before_the_last_result(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "kvmodels.flows.reading.scan.mark_of", lambda plan, found, *, behind: mark_of(plan, found, behind=False)
    )


BROKEN: dict[str, Break] = {
    one.__name__.replace("_", " "): one
    for one in (
        nothing_is_tested,
        every_filter_implies_the_condition,
        a_condition_answers_whatever_is_about_its_field,
        excluded_bounds_are_included,
        a_record_counts_at_each_of_its_entries,
        a_record_counts_in_every_scan,
        values_are_taken_from_keys_that_do_not_hold_them,
        a_cursor_stands_before_the_last_result,
    )
}


@pytest.mark.soak
@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_planner_or_reader_is_convicted(name: str, monkeypatch: pytest.MonkeyPatch):
    BROKEN[name](monkeypatch)
    # The first example that fails is enough: nobody wants to know the smallest one.
    first = settings(phases=[Phase.generate], report_multiple_bugs=False, derandomize=True)
    with pytest.raises((AssertionError, KvModelsError)):
        answers_equal_python(EXAMPLES, first)
