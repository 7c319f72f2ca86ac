"""Encrypted records in a store with another codec: dumps of models and of stores, copies of tenants, a rotation."""

from __future__ import annotations

import io
from collections.abc import Callable

import pytest

from kvmodels import Database
from tests.encryption.models import RING, Note, Patient, patient

Move = Callable[[Database, Database], object]


def by_dump(source: Database, target: Database) -> None:
    file = io.BytesIO()
    source.dump(file, Patient, history=True)
    file.seek(0)
    target.load(file, Patient)


def by_whole_dump(source: Database, target: Database) -> None:
    file = io.StringIO()
    source.kv.dump(file)
    file.seek(0)
    target.kv.load(file)


@pytest.mark.parametrize("move", [by_dump, by_whole_dump], ids=["models", "store"])
@pytest.mark.parametrize(("first", "second"), [("msgpack", "v8"), ("v8", "msgpack")])
def test_encrypted_records_are_read_in_a_store_with_another_codec(first: str, second: str, move: Move):
    with Database("memory://", models=[Patient], keys=RING, codec=first) as source:
        made = patient(1).model_copy(update={"notes": [Note(text="é")], "tags": ["b", "a"], "city": None})
        source[Patient].insert(made)
        source[Patient].patch(1, name="newer")
        with Database("memory://", models=[Patient], keys=RING, codec=second) as target:
            move(source, target)
            assert target[Patient].get(1) == source[Patient].get(1)
            assert target[Patient].get(insurance=made.insurance).notes == [Note(text="é")]
            assert [one.record for one in target[Patient].history(1)] == [
                one.record for one in source[Patient].history(1)
            ]
            target[Patient].patch(1, bed=5)
            target.rotate(Patient, to=2)
            assert target[Patient].get(1).name == "newer"
            target[Patient].patch(1, name="newest")
            assert [one.id for one in target[Patient].filter(tags__contains="a")] == [1]
            assert target.check().ok


@pytest.mark.parametrize(("first", "second"), [("msgpack", "v8"), ("v8", "msgpack")])
def test_a_tenant_with_encrypted_records_is_copied_to_a_store_with_another_codec(first: str, second: str):
    with Database("memory://", tenant_models=[Patient], keys=RING, codec=first) as source:
        source.tenant("acme", create=True)[Patient].insert(patient(1))
        with Database("memory://", models=[Patient], keys=RING, codec=second) as target:
            source.copy_tenant("acme", to=target, as_=None)
            assert target[Patient].get(1) == source.tenant("acme")[Patient].get(1)
            assert target.check().ok
