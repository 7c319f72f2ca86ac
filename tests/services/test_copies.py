"""Objects that belong to an open store cannot be pickled or copied; records can."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import AsyncDatabase, Database, Indexed, InvalidArgumentError, KvModel, PrimaryKey


class Note(KvModel, collection="notes"):
    id: PrimaryKey[int]
    day: Indexed[int] = 0  # type: ignore[assignment]


OBJECTS: dict[str, Callable[[Any], Any]] = {
    "database": lambda db: db,
    "repository": lambda db: db[Note],
    "query": lambda db: db[Note].filter(day=1).order_by("id"),
    "groups": lambda db: db[Note].sort_in_memory(10).group_by("day"),
    "transaction": lambda db: db.transaction(),
    "kv": lambda db: db.kv,
    "atomic operation": lambda db: db.kv.atomic(),
    "namespace": lambda db: db.kv.namespace("n"),
    "lock": lambda db: db.kv.lock("n"),
    "listing": lambda db: db.kv.list(()),
}


def require_no_duplicates(thing: Any) -> None:
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(InvalidArgumentError, match="cannot be pickled or copied") as caught:
            duplicate(thing)
        assert caught.value.value == type(thing).__name__


@pytest.mark.parametrize("name", OBJECTS)
def test_an_object_of_an_open_store_is_not_duplicated(name: str):
    with Database("memory://", models=[Note]) as db:
        require_no_duplicates(OBJECTS[name](db))


@pytest.mark.parametrize("name", OBJECTS)
async def test_an_object_of_a_store_that_is_open_in_an_event_loop_is_not_duplicated(name: str):
    async with AsyncDatabase("memory://", models=[Note]) as db:
        require_no_duplicates(OBJECTS[name](db))


def test_a_record_and_a_result_are_duplicated():
    with Database("memory://", models=[Note]) as db:
        note = db[Note].create(id=1)
        assert copy.deepcopy(note).versionstamp == pickle.loads(pickle.dumps(note)).versionstamp == note.versionstamp
        assert pickle.loads(pickle.dumps(db[Note].page())).items == [note]
