"""The rules of a rotation, each convicted by a rotation beside writers when it is left out."""

from __future__ import annotations

from collections.abc import Callable, Generator
from itertools import count
from typing import Any

import pytest

from kvmodels import Database, SchemaProgress
from kvmodels.flows.evolution import old_versions
from kvmodels.flows.evolution import rotation as rotations
from kvmodels.schema.encryption.documents import Sealer
from tests.encryption.models import RING, Patient, patient
from tests.encryption.test_rotation import key_ids

_NUMBERS = count()


def rotated_beside_writers(before: Callable[[Database], None] = lambda _: None) -> set[int | None]:
    """The keys of all values after a rotation, whose first batch leaves 30 records for a writer."""
    url = f"memory://mutants_{next(_NUMBERS)}"
    with Database(url, models=[Patient], keys=RING) as db, Database(url, models=[Patient], keys=RING) as other:
        db[Patient].bulk_create([patient(number) for number in range(130)])
        other[Patient].get(1)
        before(db)

        def meanwhile(progress: SchemaProgress) -> None:
            if progress.scanned == 100:
                for number in (5, 120):
                    other[Patient].patch(number, name="beside")
                other[Patient].insert(patient(200))

        assert db.rotate(Patient, to=2, progress=meanwhile).complete
        return key_ids(db)


def test_nothing_of_the_old_key_is_left_beside_writers():
    assert rotated_beside_writers() == {2}


def test_a_write_that_does_not_ask_the_header_is_convicted(monkeypatch: pytest.MonkeyPatch):
    settled = Sealer.settled

    def with_its_own_key(self: Sealer, document: Any, old: Any, key: Any, key_id: int) -> Any:
        return settled(self, document, old, key, 1)

    def begun(db: Database) -> None:
        real = rotations.Rotation.change

        def change(self: Any, live: Any, row: Any, *, listed: bool) -> Any:
            with pytest.MonkeyPatch.context() as inner:
                inner.setattr(Sealer, "settled", settled)
                return real(self, live, row, listed=listed)

        monkeypatch.setattr(rotations.Rotation, "change", change)
        monkeypatch.setattr(Sealer, "settled", with_its_own_key)

    assert 1 in rotated_beside_writers(begun)


def test_old_versions_before_the_records_are_convicted(monkeypatch: pytest.MonkeyPatch):
    real, scan = old_versions.seal_versions, rotations.Rotation.scan

    def too_early(self: Any, known: Any, pace: Any) -> Generator[Any, Any, Any]:
        yield from real(self.context, self.schema)
        return (yield from scan(self, known, pace))

    def nothing(context: Any, schema: Any) -> Generator[Any, Any, Any]:
        yield from ()
        return 0, ()

    monkeypatch.setattr(rotations.Rotation, "scan", too_early)
    monkeypatch.setattr(rotations, "seal_versions", nothing)
    assert 1 in rotated_beside_writers()


def test_old_versions_up_to_a_fence_are_convicted(monkeypatch: pytest.MonkeyPatch):
    real = old_versions._brought

    def begun(db: Database) -> None:
        fence = bytes.fromhex(db[Patient].get(129).versionstamp or "")

        def brought(context: Any, live: Any, row: Any, key: Any) -> Any:
            return None if row.versionstamp > fence else real(context, live, row, key)

        monkeypatch.setattr(old_versions, "_brought", brought)

    assert 1 in rotated_beside_writers(begun)
