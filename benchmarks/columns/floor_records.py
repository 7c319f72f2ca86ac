"""Shared code of the hand-written floors: the pydantic model, its msgpack form, and the keys of the rows.

Rules of this module: as little work as an experienced programmer would do by hand, and no less: every read
validates, every write validates and packs.
"""

from __future__ import annotations

import msgpack
from pydantic import BaseModel

from benchmarks.workload import User


class Record(BaseModel):
    """The record of the workload."""

    id: int
    name: str
    email: str
    colour: str
    age: int
    bio: str


_validate = Record.__pydantic_validator__.validate_python
_pack = msgpack.Packer().pack
_unpack = msgpack.unpackb


class Taken(ValueError):  # noqa: N818 - an answer to the caller, as in the stores themselves
    """A key or an e-mail address that exists already."""


def made(user: User) -> Record:
    """A validated record."""
    return Record(id=user.id, name=user.name, email=user.email, colour=user.colour, age=user.age, bio=user.bio)


def packed(record: Record) -> bytes:
    """The stored form."""
    return _pack(record.__dict__)


def loaded(data: bytes) -> Record:
    """A validated record of its stored form."""
    record: Record = _validate(_unpack(data))
    return record


def changed(record: Record, field: str, value: object) -> Record:
    """A validated copy with one field changed."""
    fresh: Record = _validate({**record.__dict__, field: value})
    return fresh


def fields(record: Record) -> User:
    """The row that a record holds."""
    return User(record.id, record.name, record.email, record.colour, record.age, record.bio)


def record_key(key: int) -> bytes:
    """Where a record is kept."""
    return b"r" + key.to_bytes(8, "big")


def email_key(email: str) -> bytes:
    """The slot of an e-mail address."""
    return b"e" + email.encode()


def colour_prefix(colour: str) -> bytes:
    """Return the prefix of the index rows of a colour."""
    return b"c" + colour.encode() + b"\0"


def colour_key(colour: str, key: int) -> bytes:
    """The index row of a record."""
    return colour_prefix(colour) + key.to_bytes(8, "big")


def key_in(index_key: bytes) -> bytes:
    """The record's key at the end of an index row."""
    return b"r" + index_key[-8:]
