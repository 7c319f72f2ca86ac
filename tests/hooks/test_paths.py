"""Every path by which a program writes records runs hooks, signals and time fields; what is no write runs none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kvmodels import Database, F, Field, Index, Indexed, KvModel, PrimaryKey, Unique, Version
from kvmodels.api.core import DatabaseCore
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.schema.declare.on_write import HOOK_NAMES


class Item(KvModel, collection="items"):
    id: PrimaryKey[int]
    code: Unique[str]
    n: Indexed[int] = Field(default=0)
    made: str = ""
    revision: int = Version()

    def before_insert(self) -> None:
        self.made = f"inserted {self.code}"

    def before_update(self, old: Any) -> None:
        self.made = f"{old.code} to {self.code}"


def filled() -> tuple[Database, list[str]]:
    """A database with three items, and what its signals were sent since."""
    calls: list[str] = []
    db = Database("memory://", models=[Item])
    db[Item].bulk_create([Item(id=number, code=f"c{number}", n=number) for number in range(3)])
    for name in HOOK_NAMES:
        getattr(db.signals, name).connect(lambda *objs, name=name: calls.append(f"{name} {objs[0].id}"), Item)
    return db, calls


def in_transaction(write: Callable[[Any], Any]) -> Callable[[Database], None]:
    """The same write as a part of a transaction."""

    def run(db: Database) -> None:
        with db.transaction() as tx:
            write(tx)

    return run


INSERTS: dict[str, Callable[[Any], Any]] = {
    "create": lambda db: db[Item].create(id=9, code="x"),
    "insert": lambda db: db[Item].insert(Item(id=9, code="x")),
    "save": lambda db: db[Item].save(Item(id=9, code="x")),
    "save force": lambda db: db[Item].save(Item(id=9, code="x"), force=True),
    "get_or_create": lambda db: db[Item].get_or_create(id=9, defaults={"code": "x"}),
    "update_or_create": lambda db: db[Item].update_or_create(id=9, defaults={"code": "x"}),
    "bulk_create": lambda db: db[Item].bulk_create([Item(id=9, code="x")]),
    "bulk_create ignore": lambda db: db[Item].bulk_create([Item(id=9, code="x")], on_conflict="ignore"),
    "bulk_create update": lambda db: db[Item].bulk_create([Item(id=9, code="x")], on_conflict="update"),
}
UPDATES: dict[str, Callable[[Any], Any]] = {
    "save": lambda db: db[Item].save(renumbered(db[Item].get(1))),
    "save force": lambda db: db[Item].save(Item(id=1, code="c1", n=7), force=True),
    "patch": lambda db: db[Item].patch(1, n=7),
    "patch body": lambda db: db[Item].patch(1, Item.partial()(n=7)),
    "mutate": lambda db: db[Item].mutate(1, renumbered),
    "update_or_create": lambda db: db[Item].update_or_create(id=1, defaults={"n": 7}),
    "bulk_create update": lambda db: db[Item].bulk_create([Item(id=1, code="c1", n=7)], on_conflict="update"),
    "bulk_update": lambda db: db[Item].bulk_update([renumbered(db[Item].get(1))]),
    "update": lambda db: db[Item].filter(n=1).update(n=F("n") + 6),
}
REMOVALS: dict[str, Callable[[Any], Any]] = {
    "remove": lambda db: db[Item].remove(1),
    "remove object": lambda db: db[Item].remove(db[Item].get(1)),
    "delete": lambda db: db[Item].filter(n=1).delete(),
}


def renumbered(item: Item) -> Item:
    """With another number."""
    item.n = 7
    return item


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("verb", INSERTS)
def test_every_verb_that_inserts(verb: str, together: bool):
    db, calls = filled()
    write = INSERTS[verb]
    (in_transaction(write) if together else write)(db)
    assert calls == ["before_insert 9", "after_insert 9"]
    item = db[Item].get(9)
    assert (item.made, item.revision) == ("inserted x", 1)
    assert db.check().ok


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("verb", UPDATES)
def test_every_verb_that_changes(verb: str, together: bool):
    db, calls = filled()
    write = UPDATES[verb]
    (in_transaction(write) if together else write)(db)
    assert calls == ["before_update 1", "after_update 1"]
    item = db[Item].get(1)
    assert (item.n, item.made, item.revision) == (7, "c1 to c1", 2)
    assert db[Item].filter(n=7).count() == 1
    assert db.check().ok


@pytest.mark.parametrize("together", [False, True], ids=["alone", "in a transaction"])
@pytest.mark.parametrize("verb", REMOVALS)
def test_every_verb_that_removes(verb: str, together: bool):
    db, calls = filled()
    write = REMOVALS[verb]
    (in_transaction(write) if together else write)(db)
    assert calls == ["before_remove 1", "after_remove 1"]
    assert db[Item].get_or_none(1) is None
    assert db.check().ok


def test_several_records_of_one_operation_are_told_of_in_order():
    db, calls = filled()
    db[Item].filter(n__gte=1).update(n=5)
    assert calls == ["before_update 1", "before_update 2", "after_update 1", "after_update 2"]
    assert [item.revision for item in db[Item].all()] == [1, 2, 2]


class Grown(KvModel, collection="items"):
    id: PrimaryKey[int]
    code: Unique[str]
    n: Indexed[int] = Field(default=0)
    made: str = ""
    revision: int = Version()
    size: int = 3

    def before_update(self, old: Any) -> None:
        self.made = "never by a build"

    class Meta:
        indexes = (Index("size"),)


def test_builds_repairs_and_schema_changes_run_none_and_leave_time_fields_alone():
    engine = MemoryEngine()
    first = Database.from_engine(engine, DatabaseCore([Item]))
    first[Item].create(id=1, code="a")
    before = first[Item].get(1).model_dump()
    db = Database.from_engine(engine, DatabaseCore([Grown]))
    calls: list[Any] = []
    for name in HOOK_NAMES:
        getattr(db.signals, name).connect(lambda *objs: calls.append(objs))
    db.apply()
    assert db[Grown].filter(size=3).count() == 1
    db.migrate(Grown)
    assert db.check(repair="all").ok
    assert calls == []
    assert db[Grown].get(1).model_dump() == {**before, "size": 3}
