"""Rows that a transaction keeps, so that it asks a server for each of them once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kvmodels import Database, KvModel, PrimaryKey
from kvmodels.api.core import DatabaseCore
from kvmodels.core.operations import ReadRange, ReadResult, Row, point
from kvmodels.engines.memory.engine import MemoryEngine
from kvmodels.flows.transaction import checks as kept_rows
from kvmodels.flows.transaction.checks import KeptRows
from tests.passing_engine import PassingEngine


class Item(KvModel, collection="items"):
    id: PrimaryKey[int]
    n: int = 0


class Remote(PassingEngine):
    """Counts the reads of its snapshots."""

    reads = 0

    @property
    def traits(self):
        return replace(super().traits, remote=True)

    def snapshot(self) -> Any:
        return Counting(self, self.inner.snapshot())


class Counting:
    def __init__(self, engine: Remote, inner: Any) -> None:
        self._engine = engine
        self._inner = inner

    def read(self, *args: Any, **options: Any) -> ReadResult:
        self._engine.reads += 1
        return self._inner.read(*args, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def test_what_a_transaction_has_read_is_not_read_again_and_its_own_writes_are_seen():
    engine = Remote(MemoryEngine())
    db = Database.from_engine(engine, DatabaseCore([Item]))
    db[Item].bulk_create([Item(id=number) for number in range(3)])
    with db.transaction() as tx:
        items = tx[Item]
        listed = [*items.all()]
        before = engine.reads
        one = items.get(1)
        assert one == listed[1]
        one.n = 5
        items.save(one)
        items.patch(2, n=7)
        assert (items.get(1).n, items.get(2).n, items.in_bulk([0, 1])[1].n) == (5, 7, 5)
        assert engine.reads == before
        items.remove(1)
        assert items.get_or_none(1) is None
        items.create(id=1, n=9)
    assert [(item.id, item.n) for item in db[Item].all()] == [(0, 0), (1, 9), (2, 7)]
    assert db.check().ok


def row(key: bytes, expire_at: int | None = None) -> Row:
    return Row(key, b"v", 3, bytes(10), expire_at)


def test_only_whole_rows_that_are_alive_are_kept(monkeypatch):
    monkeypatch.setattr(kept_rows, "MOST_KEPT", 3)
    kept = KeptRows()
    ranges = [ReadRange(b"a", b"c"), ReadRange(b"k", b"l", keys_only=True)]
    kept.keep(ranges, ReadResult([[row(b"a", 10), row(b"b", 11)], [row(b"k")]], [[row(b"f")]], b"s"), 10)
    assert kept.result([point(b"b"), point(b"f")]) == ReadResult([[row(b"b", 11)], [row(b"f")]], [], b"s")
    for wanted in (point(b"a"), point(b"k"), ReadRange(b"b", b"c"), ReadRange(b"b", None, 0)):
        assert kept.result([point(b"b"), wanted]) is None
    kept.keep([ReadRange(b"x", b"z")], ReadResult([[row(b"x"), row(b"y")]], [], b"s"), 10)
    assert (kept.result([point(b"x")]) is None, kept.result([point(b"y")])) == (False, None)
