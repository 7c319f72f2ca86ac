"""After a blind index has moved to another key, a rotation removes all values of the former key from the store."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from kvmodels import Database, KeyRing, SchemaProgress, UniqueViolationError
from kvmodels.schema.encryption.blind_values import key_id_in
from tests.encryption.models import RING, TWO
from tests.encryption.test_index_generations import BOTH, DECLARED, LAST, ONE, ask, filled, guest, opened

_NUMBERS = count()


@pytest.fixture
def url() -> str:
    return f"memory://purges_{next(_NUMBERS)}"


def blind_values(db: Database, key_id: int) -> set[bytes]:
    """The blind values under a key in records and old versions."""
    found: set[bytes] = set()
    for entry in db.kv.unsafe().list(()):
        value: Any = entry.value
        document = value.get("doc", value) if isinstance(value, dict) else None
        if not isinstance(document, dict):
            continue
        for name, held in document.get("$kv", {}).get("c", {}).items():
            if key_id_in(name) == key_id:
                found.update(one for one in (held if isinstance(held, list) else [held]) if one is not None)
    return found


def parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for name, held in value.items():
            yield name
            yield from parts(held)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from parts(one)
    else:
        yield value


def found_in(db: Database, values: set[bytes]) -> list[Any]:
    """The rows with one of these values in their keys or values, and those with the name of a column of key 1."""
    entries = list(db.kv.unsafe().list(()))
    texts = [(entry.key, set(parts([list(entry.key), entry.value]))) for entry in entries]
    return [key for key, held in texts if held & values or any(str(one).endswith("~blind1") for one in held)]


def moved(url: str) -> tuple[Database, Database, set[bytes]]:
    """Stores of the last two releases after the drop of the former indexes, and the values under the former key."""
    first, second = filled(url), opened(url, BOTH)
    first[ONE].filter(floor=1).update(room="old")
    first[ONE].remove(23)
    second.apply()
    second[BOTH].filter(floor=0).update(room="between")
    second[BOTH].remove(22)
    former = blind_values(second, 1)
    for name in DECLARED:
        second.drop_index(BOTH, name)
    first.close()
    return second, opened(url, LAST), former


def test_nothing_of_the_former_key_is_left(url: str):
    second, third, former = moved(url)
    with second, third:
        assert len(former) > 24
        assert found_in(third, former)
        assert third.stats().collections[0].keys == (1, 2)
        before = [(one.versionstamp, one.record) for one in third[LAST].history(3)]

        def meanwhile(progress: SchemaProgress) -> None:
            for number in (1, 4, 21):
                second[BOTH].patch(number, room=f"beside {progress.scanned}")
            second[BOTH].get_or_create(id=70, defaults=guest(BOTH, 70).model_dump(exclude={"id"}))

        assert third.rotate(LAST, to=2, progress=meanwhile).complete
        assert third.stats().collections[0].keys == (2,)
        assert found_in(third, former) == []
        second[BOTH].patch(5, room="late")
        assert found_in(third, former) == [], "no process of the release before stores them again"
        assert [(one.versionstamp, one.record) for one in third[LAST].history(3)] == before
        assert third.check().ok
        with opened(url, LAST, KeyRing({2: TWO})) as alone:
            assert alone[LAST].get(passport="p-6").id == 6
            alone[LAST].insert(guest(LAST, 60))
            with pytest.raises(UniqueViolationError):
                alone[LAST].insert(guest(LAST, 61, passport="p-60"))
            assert alone.check().ok
        assert third[LAST].restore(22).id == 22
        assert third[LAST].get(passport="p-22").id == 22
        assert found_in(third, former) == []


@pytest.mark.parametrize("stop", [0, 1])
def test_an_interrupted_rotation_is_resumed(url: str, stop: int):
    second, third, former = moved(url)
    steps = count()

    def interrupted(progress: SchemaProgress) -> None:
        del progress
        if next(steps) == stop:
            raise KeyboardInterrupt

    with second, third:
        second[BOTH].bulk_create([guest(BOTH, number) for number in range(100, 200)])
        with pytest.raises(KeyboardInterrupt):
            third.rotate(LAST, to=2, progress=interrupted)
        second[BOTH].patch(7, room="meanwhile")
        assert third.rotate(LAST, to=2).complete
        assert found_in(third, former) == []
        assert third.check().ok


def test_a_key_in_use_stays_until_its_indexes_are_dropped(url: str):
    with filled(url), opened(url, BOTH) as second:
        second.apply()
        second.rotate(BOTH, to=2)
        assert second.stats().collections[0].keys == (1, 2)
        ask(second, BOTH)
        for name in DECLARED[1:]:
            second.drop_index(BOTH, name)
        second.rotate(BOTH, to=2)
        held: Any = second.kv.unsafe().get(("guests", 1)).value["$kv"]["c"]
        assert "passport~casefold~blind1" in held
        assert second.check().ok


def test_duplicates_between_the_drop_and_the_build_of_a_single_step_are_listed(url: str):
    """Without the release of both keys, nothing enforces the field for a moment; the build then finds what came in."""
    with filled(url) as first, opened(url, LAST) as last:

        def meanwhile(progress: SchemaProgress) -> None:
            if progress.step == "drop" and progress.index == "passport" and first[ONE].get_or_none(50) is None:
                first[ONE].insert(guest(ONE, 50, passport="P-3", room="other"))

        report = last.apply(allow=("drop_index",), progress=meanwhile)
        assert not report.complete
        assert [one.key for one in last.violations(LAST)] == [50]
        with pytest.raises(UniqueViolationError):
            last[LAST].insert(guest(LAST, 51, passport="p-3"))
        last[LAST].remove(50)
        assert last.apply().complete
        assert last[LAST].get(passport="p-3").id == 3
        assert last.check().ok


def test_each_tenant_moves_by_itself(url: str):
    tenants = ("acme", "initech")
    with (
        Database(url, tenant_models=[ONE], keys=RING) as first,
        Database(url, tenant_models=[BOTH], keys=RING) as second,
        Database(url, tenant_models=[LAST], keys=RING) as third,
    ):
        for name in tenants:
            first.create_tenant(name)
            first.tenant(name)[ONE].bulk_create([guest(ONE, one) for one in range(24)])
        assert second.apply(tenants=["acme"]).complete
        for name in tenants:
            ask(second.tenant(name), BOTH)
        assert second.apply(tenants=True).complete
        for name in DECLARED:
            second.tenant("acme").drop_index(BOTH, name)
        for name in tenants:
            ask(second.tenant(name), BOTH)
        assert third.tenant("acme").rotate(LAST, to=2).complete
        assert third.tenant("acme").stats().collections[0].keys == (2,)
        assert second.tenant("initech").stats().collections[0].keys == (1, 2)
        ask(third.tenant("acme"), LAST)
        assert third.check(tenants=True).ok
