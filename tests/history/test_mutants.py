"""Mutants of the rules of histories, each of which the test of its rule convicts.

The mutants of rules about concurrent writers are in ``test_interleavings.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvmodels.core.keys import decode_key, encode_key
from kvmodels.core.operations import Row, Set
from kvmodels.flows.evolution import old_versions
from kvmodels.flows.history import past, reading
from kvmodels.indexing import versions
from kvmodels.indexing.entries import RecordChange
from tests.history.test_evolution import (
    test_a_history_that_is_added_to_records_begins_with_the_commit_that_makes_it_readable as added,
)
from tests.history.test_evolution import test_a_shorter_lifetime_moves_the_horizon_and_hides_old_rows as shortened
from tests.history.test_rewrites import (
    test_a_field_that_is_forgotten_leaves_the_old_versions_whose_ends_stay as forgotten,
)
from tests.history.test_rewrites import (
    test_rewrites_end_no_version_and_are_found_by_each_of_their_versionstamps as rewritten,
)
from tests.history.test_rows import test_a_transaction_writes_one_row_for_each_record as one_row
from tests.history.test_rows import (
    test_one_commit_has_one_time_that_is_not_below_those_of_the_versions_that_it_ends as one_time,
)

Stage = versions._Stage  # pyright: ignore[reportPrivateUsage]


def a_rewrite_without_its_begin(patch: pytest.MonkeyPatch) -> None:
    real = Stage._held

    def held(self: Any, change: RecordChange) -> dict[str, Any]:
        return {name: value for name, value in real(self, change).items() if name != "b"}

    patch.setattr(Stage, "_held", held)


def a_rewritten_row_without_its_end(patch: pytest.MonkeyPatch) -> None:
    real = old_versions._without

    def without(context: Any, row: Row, names: Any) -> Any:
        found = real(context, row, names)
        if found is None:
            return None
        made: Set = found[1]
        value = context.codec.decode_document(made.value, made.encoding, made.key)
        del value["s"]
        stored, encoding = context.codec.encode_document(value)
        return row, made._replace(value=stored, encoding=encoding)

    patch.setattr(old_versions, "_without", without)


def a_time_for_each_record(patch: pytest.MonkeyPatch) -> None:
    real = Stage._held

    def held(self: Any, change: RecordChange) -> dict[str, Any]:
        own = versions.note_of(change.old_document).get("t", 0)
        return {**real(self, change), "t": max(self._now_ms, own)}

    patch.setattr(Stage, "_held", held)


def a_time_below_that_of_the_ended_version(patch: pytest.MonkeyPatch) -> None:
    real = Stage._held

    def held(self: Any, change: RecordChange) -> dict[str, Any]:
        return {**real(self, change), "t": self._now_ms}

    patch.setattr(Stage, "_held", held)


def absence_before_the_horizon(patch: pytest.MonkeyPatch) -> None:
    def certain(*_: Any) -> bool:
        return True

    for module in (reading, past):
        patch.setattr(module, "is_certain_at", certain)


def two_rows_for_two_writes_of_a_transaction(patch: pytest.MonkeyPatch) -> None:
    real = Stage.end

    def end(self: Any, change: RecordChange) -> None:
        real(self, change)
        rows = [one for key, one in self.mutations.items() if key.startswith(encode_key(("__kvmodels__", "history")))]
        for one in rows:
            *start, begin = decode_key(one.key)
            again = encode_key((*start, f"{int(str(begin), 16) + 1:020x}"))
            self.mutations[again] = one._replace(key=again)

    patch.setattr(Stage, "end", end)


Apply = Callable[[pytest.MonkeyPatch], None]


@pytest.mark.parametrize(
    ("mutant", "rule"),
    [
        (a_rewrite_without_its_begin, rewritten),
        (a_rewritten_row_without_its_end, forgotten),
        (absence_before_the_horizon, added),
        (absence_before_the_horizon, shortened),
    ],
)
def test_a_mutant_is_convicted_on_a_file(
    mutant: Apply, rule: Callable[..., None], url_of: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
):
    mutant(monkeypatch)
    convicts(lambda: rule(url_of))


@pytest.mark.parametrize("mutant", [a_time_for_each_record, a_time_below_that_of_the_ended_version])
def test_a_mutant_of_the_time_of_a_commit_is_convicted(mutant: Apply, monkeypatch: pytest.MonkeyPatch):
    mutant(monkeypatch)
    convicts(lambda: one_time(monkeypatch))


def test_two_rows_for_two_writes_of_a_transaction_are_convicted(monkeypatch: pytest.MonkeyPatch):
    two_rows_for_two_writes_of_a_transaction(monkeypatch)
    convicts(one_row)


def convicts(rule: Callable[[], None]) -> None:
    """Fail unless the test of a rule fails by one of its assertions."""
    try:
        rule()
    except (AssertionError, pytest.fail.Exception):
        return
    pytest.fail("the mutant was not noticed")
