"""The models of this folder, and what every refusal must look like."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import Database, Field, Indexed, KvModel, KvModelsError, PrimaryKey, Unique


class Member(KvModel, collection="members"):
    """One index of each kind, and fields that are in none."""

    id: PrimaryKey[int]
    email: Unique[str]
    color: Indexed[str]
    score: Indexed[float | None] = Field(default=None)
    note: str = Field(default="")
    tags: list[str] = Field(default_factory=list)


class Seat(KvModel, collection="seats"):
    """A primary key of two fields."""

    hall: PrimaryKey[str]
    number: PrimaryKey[int]
    taken: bool = Field(default=False)


class Stranger(KvModel, collection="strangers"):
    """A model that no database of these tests knows."""

    id: PrimaryKey[int]


MODELS = (Member, Seat)


def ada() -> Member:
    return Member(id=1, email="ada@x.org", color="red", score=1.5)


def stored_rows(db: Database) -> list[Any]:
    """Everything in the store, versionstamps included, so that a write without effect shows as well."""
    return [(entry.key, entry.value, entry.versionstamp, entry.expires_at) for entry in db.kv.list(prefix=())]


def refused(call: Callable[[], Any], error: Any, **attributes: Any) -> Any:
    """The error of a call, after looking at all that somebody needs who has not seen the code."""
    with pytest.raises(error) as caught:
        call()
    raised = caught.value
    require_readable(raised)
    assert {name: getattr(raised, name) for name in attributes} == attributes
    return raised


def require_readable(error: KvModelsError) -> None:
    """A fixed sentence, a code, and a hint that says what to do; the same after a trip to another process."""
    text = str(error)
    assert re.fullmatch(r"KV[1-9]\d\d", error.code), text
    assert error.message, text
    assert error.message[0].islower() or error.message.startswith("NaN"), text
    assert error.hint, text
    assert len(error.hint.split()) > 2, text
    assert error.code in text
    assert error.hint in text
    assert str(pickle.loads(pickle.dumps(error))) == text
