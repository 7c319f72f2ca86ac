"""Encrypted fields have the plain type in objects, and sources of keys are any objects with ``get``."""

from typing import Annotated, assert_type

from kvmodels import (
    Database,
    Encrypted,
    Field,
    FieldRef,
    Indexed,
    KeyProvider,
    KeyRing,
    KvModel,
    MultiIndexed,
    PrimaryKey,
    RotationReport,
    Unique,
)


class Patient(KvModel, collection="patients"):
    id: PrimaryKey[int]
    name: Encrypted[str]
    insurance: Annotated[Encrypted[str], Unique(key=str.casefold)]
    city: Annotated[str | None, Encrypted(index_key=2), Indexed()] = Field(default=None)
    tags: Annotated[Encrypted[list[str]], MultiIndexed()] = Field(default_factory=list)


class KeyService:
    def get(self, key_id: int, /) -> bytes:
        return bytes([key_id]) * 32


service: KeyProvider = KeyService()
ring: KeyProvider = KeyRing({1: bytes(32), 2: bytes(32)})
patient = Patient(id=1, name="Ada", insurance="1")
assert_type(patient.name, str)
assert_type(patient.city, str | None)
assert_type(patient.tags, list[str])
assert_type(Patient.name, FieldRef[str])


def rotated(db: Database) -> RotationReport:
    found = db[Patient].get(insurance="1")
    assert_type(found.insurance, str)
    return db.rotate(Patient, to=2)


with Database("memory://", models=[Patient], keys=service) as opened:
    opened[Patient].insert(patient)
    rotated(opened)
