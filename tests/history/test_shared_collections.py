"""Models that share a collection see the old versions of their own classes, and the first class sees all."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Literal

import pytest

from kvmodels import AlreadyExistsError, Database, DoesNotExist, History, KvModel, PrimaryKey
from tests.kv.stores import Clock


class Event(KvModel, collection="events", discriminator="kind"):
    id: PrimaryKey[int]
    kind: str
    size: int = 0

    class Meta:
        history = History()


class Talk(Event):
    kind: Literal["talk"] = "talk"  # pyright: ignore[reportIncompatibleVariableOverride]


class Party(Event):
    kind: Literal["party"] = "party"  # pyright: ignore[reportIncompatibleVariableOverride]


def test_each_class_has_the_versions_of_its_records():
    clock = Clock()
    with Database("memory://", models=[Event, Talk, Party], clock=clock) as db:
        db[Talk].create(id=1, size=1)
        db[Party].create(id=2)
        clock.ms += 1_000
        db[Talk].patch(1, size=2)
        when = datetime.fromtimestamp(clock.ms / 1_000, UTC)
        assert [type(one.record) for one in db[Event].history(1)] == [Talk, Talk]
        assert [one.record for one in db[Talk].history(1)] == [Talk(id=1, size=2), Talk(id=1, size=1)]
        assert list(db[Party].history(1)) == []
        assert db[Party].history(1).at(when) is None
        assert db[Party].as_of(when).get_many([1, 2]) == [None, Party(id=2)]
        assert [one.id for one in db[Talk].as_of(when).filter().allow_scan()] == [1]
        with pytest.raises(DoesNotExist):
            db[Party].revert(1, db[Talk].get(1).versionstamp or "")
        for including in (False, True):
            with pytest.raises(AlreadyExistsError):
                db[Party].forget(1, including=including)
        db[Talk].remove(1)
        db[Party].remove(2)
        assert [one.key for one in db[Event].trash()] == [1, 2]
        assert [one.key for one in db[Talk].trash()] == [1]
        assert [one.key for one in db[Party].trash()] == [2]
        with pytest.raises(DoesNotExist):
            db[Party].restore(1)
        assert db[Talk].restore(1) == Talk(id=1, size=2)
        assert db[Event].restore(2) == Party(id=2)
