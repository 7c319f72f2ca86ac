"""Classes of repositories with methods of their own: on a database, in a transaction, and in interleavings."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels import (
    AsyncDatabase,
    AsyncRepository,
    Database,
    Field,
    Indexed,
    InvalidArgumentError,
    KvModel,
    PrimaryKey,
    QuerySet,
    Repository,
)
from kvmodels.testing.interleaving import Interleaving


class Task(KvModel, collection="tasks"):
    id: PrimaryKey[int]
    done: Indexed[bool] = Field(default=False)


class Other(KvModel, collection="others"):
    id: PrimaryKey[int]


class Tasks(Repository[Task]):
    def open(self) -> QuerySet[Task]:
        return self.filter(done=False)

    def finish(self, *keys: int) -> list[Task]:
        return [self.patch(key, done=True) for key in keys]


class AsyncTasks(AsyncRepository[Task]):
    async def finish(self, *keys: int) -> list[Task]:
        return [await self.patch(key, done=True) for key in keys]


@pytest.fixture
def kv_models():
    return [Task, Other]


def test_own_methods_read_and_write_as_the_repository_does(kv_db):
    tasks = kv_db.repository(Task, Tasks)
    tasks.bulk_create([Task(id=1), Task(id=2), Task(id=3)])
    assert [task.id for task in tasks.finish(1, 2)] == [1, 2]
    assert [task.id for task in tasks.open()] == [3]
    assert type(kv_db.repository(Task)) is type(kv_db[Task]) is Repository


def test_own_methods_in_a_transaction_belong_to_its_commit():
    with Database("memory://", models=[Task]) as db:
        db[Task].create(id=1)
        with pytest.raises(ZeroDivisionError), db.transaction() as tx:
            tx.repository(Task, Tasks).finish(1)
            assert not tx.repository(Task, Tasks).open().exists()
            raise ZeroDivisionError
        assert db.repository(Task, Tasks).open().count() == 1


async def test_own_coroutines():
    async with AsyncDatabase("memory://", models=[Task]) as db:
        await db[Task].create(id=1)
        async with db.transaction() as tx:
            await tx.repository(Task, AsyncTasks).finish(1)
        assert (await db.repository(Task, AsyncTasks).get(1)).done


def test_a_process_of_an_interleaving_has_them_too():
    test = Interleaving()
    process = test.process(Task)
    test.at_once(process[Task].create(id=1))
    assert [task.done for task in test.at_once(process.repository(Task, AsyncTasks).finish(1))] == [True]


@pytest.mark.parametrize("wrong", [int, Task, "Tasks", AsyncTasks, Tasks.open])
def test_what_is_no_class_of_repositories_is_refused(wrong: Any):
    with Database("memory://", models=[Task]) as db:
        with pytest.raises(InvalidArgumentError, match=r"not a class of repositories.*class Users\(Repository"):
            db.repository(Task, wrong)
        with pytest.raises(InvalidArgumentError, match="without this model"):
            db.repository(Other, Tasks)
