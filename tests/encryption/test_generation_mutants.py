"""The rules of an index that moves to another key, each convicted by a deployment when it is left out."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

import pytest

from kvmodels import KvModelsError, SchemaProgress, UniqueViolationError
from kvmodels.catalog import collection as collections
from kvmodels.flows.evolution import rotation as rotations
from kvmodels.flows.hydration import blind_columns, rows
from kvmodels.schema.encryption.blind_values import BlindValue
from tests.encryption.test_index_generations import BOTH, DECLARED, LAST, TURNED, ask, filled, guest, opened
from tests.encryption.test_index_key_purges import blind_values, found_in

_NUMBERS = count()


def deployed() -> list[str]:
    """Return the steps of a deployment from key 1 to key 2, beside two writers, in which something was wrong."""
    url = f"memory://generations_mutants_{next(_NUMBERS)}"
    wrong: list[str] = []

    def asked(step: str, db: Any, cls: type[Any]) -> None:
        try:
            ask(db, cls)
            assert db[cls].get(passport="p-190").id == 190, "a record of the second batch of the build"
        except (AssertionError, KvModelsError):
            wrong.append(step)

    with filled(url) as first, opened(url, BOTH) as second, opened(url, TURNED) as turned:
        second[BOTH].bulk_create([guest(BOTH, number) for number in range(100, 200)])
        first.close()

        def meanwhile(progress: SchemaProgress) -> None:
            asked("build", second, BOTH)
            asked("build", turned, TURNED)
            for db, cls, number in ((second, BOTH, 50), (turned, TURNED, 201)):
                if db[cls].get_or_none(number) is None:
                    db[cls].insert(guest(cls, number))
                try:
                    db[cls].insert(guest(cls, 999, passport="p-3", room="other"))
                    wrong.append("unique")
                    db[cls].remove(999)
                except UniqueViolationError:
                    pass

        second.apply(progress=meanwhile)
        asked("built", second, BOTH)
        asked("built", turned, TURNED)
        if not second.check().ok:
            wrong.append("check")
        former = blind_values(second, 1)
        for name in DECLARED:
            second.drop_index(BOTH, name)
        asked("dropped", turned, TURNED)
        turned[TURNED].patch(5, room="after the drop")
        turned[TURNED].insert(guest(TURNED, 900))
        with opened(url, LAST) as third:
            third.rotate(LAST, to=2)
            turned[TURNED].patch(6, room="after the rotation")
            asked("rotated", third, LAST)
            if found_in(third, former):
                wrong.append("left")
            if not third.check().ok:
                wrong.append("check")
    return wrong


def test_nothing_is_wrong_with_all_rules():
    assert deployed() == []


def test_a_writer_that_keeps_the_first_column_alone_is_convicted(monkeypatch: pytest.MonkeyPatch):
    real = blind_columns.without_unused

    def first_alone(live: Any, document: Any) -> Any:
        made = real(live, document)
        columns = made.get("$kv", {}).get("c", {})
        fields = {name.partition("~")[0] for name in columns}
        kept = {name: columns[name] for field in fields for name in [min(n for n in columns if n.startswith(field))]}
        return {**made, "$kv": {**made["$kv"], "c": kept}} if columns else made

    monkeypatch.setattr(rows, "without_unused", first_alone)
    assert deployed()


def test_a_planner_that_takes_an_index_that_is_not_built_is_convicted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(collections, "_is_complete", lambda schema, stored, index: True)
    assert "build" in deployed()


def test_operands_that_are_hashed_with_the_first_key_alone_are_convicted(monkeypatch: pytest.MonkeyPatch):
    def of(by_key: Mapping[int, bytes]) -> BlindValue:
        first = next(iter(by_key.values()))
        made = BlindValue(first)
        made.by_key = dict.fromkeys(by_key, first)
        return made

    monkeypatch.setattr(BlindValue, "of", of)
    assert {"build", "dropped"} <= set(deployed())


def test_a_process_that_stores_all_declared_values_is_convicted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rows, "without_unused", lambda live, document: document)
    assert "left" in deployed()


def test_a_rotation_that_leaves_the_values_of_records_is_convicted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(rotations, "without_unused", lambda live, document: document)
    assert "left" in deployed()


def test_columns_of_the_class_in_place_of_the_header_are_convicted(monkeypatch: pytest.MonkeyPatch):
    def declared(live: Any) -> frozenset[str]:
        return frozenset(one.stored_as for one in live.schema.computed.values())

    monkeypatch.setattr(blind_columns, "_needed", declared)
    assert "left" in deployed()
