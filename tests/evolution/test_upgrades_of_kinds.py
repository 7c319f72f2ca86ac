"""An upgrade that touches nearly everything, over every kind of index, at random moments of every record's life."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any, ClassVar

import pytest

from kvmodels import IntegrityError, StaleObjectError, Upgrade
from tests.evolution.residents import change, key_of, resident
from tests.oracle import audit, read_store, spec_of
from tests.worlds import in_test_servers
from tests.zoo_kinds import COUNTERS, ENTRIES, Habitat, Resident, ResidentFields

RECORDS = 60
TOUCHED = ("name", "handle", "species", "age", "weight", "stay", "tags", "habitat", "nick")


def older(document: dict[str, Any]) -> dict[str, Any]:
    """Everybody is a year older, and much is spelled in another way."""
    document["name"] = document["name"].swapcase() + " o"
    document["handle"] = None if document["handle"] is None else document["handle"] + "x"
    document["species"] = {"lynx": "ibex", "ibex": "lynx"}.get(document["species"], document["species"])
    document["age"] += 1
    document["weight"] = None if document["weight"] is None else document["weight"] + 1
    document["stay"] += 1_000_000
    document["tags"] = [*document["tags"][1:], "new"]
    document["habitat"] = {"zone": "wood", "climate": None} if document["habitat"] is None else None
    document["nick"] = None if document["nick"] is None else "o"
    return document


class Later(ResidentFields, collection="residents"):
    """The release after ``Resident``, with the same indexes."""

    class Meta:
        schema_version: ClassVar = 2
        upgrades: ClassVar = (Upgrade(2, older, touches=TOUCHED),)
        indexes: ClassVar = (*ENTRIES, *COUNTERS)


def upgraded(values: dict[str, Any]) -> dict[str, Any]:
    """Return the result of ``older`` for a person, by objects instead of stored documents."""
    habitat = Habitat(zone="wood") if values["habitat"] is None else None
    return {
        **values,
        "name": values["name"].swapcase() + " o",
        "handle": None if values["handle"] is None else values["handle"] + "x",
        "species": {"lynx": "ibex", "ibex": "lynx"}[values["species"]],
        "age": values["age"] + 1,
        "weight": None if values["weight"] is None else values["weight"] + 1,
        "stay": values["stay"] + timedelta(seconds=1),
        "tags": [*values["tags"][1:], "new"],
        "habitat": habitat,
        "nick": None if values["nick"] is None else "o",
    }


def exact(db: Any) -> None:
    assert audit(read_store(db.kv), [spec_of(Later)]) == []
    assert db.check().ok


@pytest.mark.parametrize("seed", [0, *in_test_servers(1, 2, 3)])
def test_all_kinds_are_exact_before_during_and_after_an_upgrade(opened, seed):
    rng = random.Random(seed)
    print(f"seed {seed}")
    old = opened(Resident)
    before = {key_of(n): resident(n, rng) for n in range(RECORDS)}
    for (park, number), values in before.items():
        old[Resident].create(park=park, number=number, **values)
    db = opened(Later)
    found = db[Later].all().to_list()
    assert {one.pk: one.model_dump(exclude={"park", "number"}) for one in found} == {
        key: Later(park=key[0], number=key[1], **upgraded(values)).model_dump(exclude={"park", "number"})
        for key, values in before.items()
    }
    assert db.check().ok
    db.build_indexes()
    for _ in range(40):
        try:
            change(db[Later], rng, RECORDS)
        except (IntegrityError, StaleObjectError, Later.DoesNotExist):
            continue
    exact(db)
    expected = {one.pk: one.model_dump() for one in db[Later].all()}
    report = db.apply()
    for one in db.violations(Later):  # two that the upgrade gives one unique value
        assert one.kind == "duplicate"
        db[Later].remove(one.key)
        del expected[one.key]
    assert report.complete or db.apply().complete
    assert {one.pk: one.model_dump() for one in db[Later].all()} == expected
    assert db.plan().is_current
    assert db[Later].filter(species="lynx", age__gt=0).order_by("-age").explain().index == "grown"
    exact(db)
