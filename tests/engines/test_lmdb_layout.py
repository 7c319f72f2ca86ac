"""The bytes of an LMDB folder: a later release must read them, or refuse their format."""

from __future__ import annotations

import random
from pathlib import Path

import lmdb
import pytest

from kvmodels.core.operations import Delete, Row
from kvmodels.engines.lmdb import rows as lmdb_rows
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.lmdb.rows import from_ordered, ordered, packed, unpacked
from tests.contract.shorthand import commit, counter, get, keys, put
from tests.contract.test_sweeping import EVERYTHING

STATE = (
    b"kvmodels" + b"\0\0\0\1"
    b"\0\0\0\0\0\x0f\x42\x43"  # the version: 1,000 ms in microseconds when it was made, and three commits
    b"\0\0\0\0\0\0\x03\xe8"  # the clock
    b"\0\0\0\0\0\0\xea\x60"  # the retention of changes in ms
    b"\0\0\0\0\0\x0f\x42\x40"  # up to which changes are unknown
)
FIRST, SECOND = b"\0\0\0\0\0\x0f\x42\x42", b"\0\0\0\0\0\x0f\x42\x43"
AT = b"\x80\0\0\0\0\0\x03\xe8"
CONTENTS = {
    b"rows": [
        (b"a", SECOND + b"\x03\0" + b"again"),
        (b"n", FIRST + b"\x02\0" + b"\x07\0\0\0\0\0\0\0"),
        (b"soon", FIRST + b"\x03\1" + b"\x80\0\0\0\0\0\x07\xd0" + b"v"),
    ],
    b"deadlines": [(b"\x80\0\0\0\0\0\x07\xd0", b"soon")],
    b"log": [(b"a", SECOND + AT), (b"b", SECOND + AT), (b"n", FIRST + AT), (b"soon", FIRST + AT)],
    b"commits": [(FIRST + AT, b"n"), (FIRST + AT, b"soon"), (SECOND + AT, b"a"), (SECOND + AT, b"b")],
}


def stored(path: Path) -> tuple[bytes, dict[bytes, list[tuple[bytes, bytes]]]]:
    """The state, and the items of every database."""
    with lmdb.Environment(str(path), max_dbs=4) as environment:
        databases = {name: environment.open_db(name, create=False) for name in CONTENTS}
        with environment.begin() as transaction:
            found = {name: list(transaction.cursor(database)) for name, database in databases.items()}
            return transaction.get(b"kvmodels", b""), found


def test_a_store_is_laid_out_as_format_1(quick_folder: Path):
    path = quick_folder / "store.lmdb"
    engine = LmdbEngine(path, clock=lambda: 1_000, change_log=60)
    commit(engine, put(b"a"), put(b"b"), put(b"soon", b"v", 2_000), counter(b"n", 7))
    commit(engine, put(b"a", b"again"), Delete(b"b"), Delete(b"absent"))
    engine.close()
    assert stored(path) == (STATE, CONTENTS)


def test_what_is_laid_out_as_format_1_is_read(quick_folder: Path):
    path = quick_folder / "store.lmdb"
    path.mkdir()
    with lmdb.Environment(str(path), max_dbs=4) as environment:
        databases = {name: environment.open_db(name, dupsort=name in (b"deadlines", b"commits")) for name in CONTENTS}
        with environment.begin(write=True) as transaction:
            transaction.put(b"kvmodels", STATE)
            for name, items in CONTENTS.items():
                for key, value in items:
                    transaction.put(key, value, db=databases[name])
    now = [1_000]
    engine = LmdbEngine(path, clock=lambda: now[0])
    assert keys(engine, EVERYTHING) == [b"a", b"n", b"soon"]
    assert get(engine, b"soon") == Row(b"soon", b"v", 3, FIRST + b"\0\0", 2_000)
    floor = (1_000_000).to_bytes(8, "big") + b"\0\0"
    changes = engine.changes(EVERYTHING, floor).changes
    assert [(change.key, change.versionstamp[:8]) for change in changes] == [
        (b"n", FIRST),
        (b"soon", FIRST),
        (b"a", SECOND),
        (b"b", SECOND),
    ]
    now[0] = 2_000
    assert engine.sweep(10) == 1
    assert keys(engine, EVERYTHING, include_expired=True) == [b"a", b"n"]
    engine.close()


@pytest.mark.parametrize("deadline", [None, 0, -1, 1, 2**63 - 1, -(2**63)])
def test_rows_with_any_deadline_come_back_and_deadlines_are_in_order_as_bytes(deadline: int | None):
    row = Row(b"k", b"\0value", 255, b"12345678\0\0", deadline)
    assert unpacked(b"k", packed(row)) == row
    if deadline is not None:
        assert from_ordered(ordered(deadline)) == deadline
        assert all((ordered(deadline) < ordered(other)) == (deadline < other) for other in (-5, 0, 7))


@pytest.mark.parametrize("change_log", [None, 60])
def test_many_rows_in_one_call_are_stored_as_one_by_one(quick_folder: Path, monkeypatch, change_log: int | None):
    """Over others, beside removals, with deadlines and, once there is one, after them; and with a change log."""
    calls: list[int] = []
    original = lmdb_rows._plain_pairs

    def counted(changes):
        pairs = original(changes)
        calls.append(0 if pairs is None else len(pairs))
        return pairs

    monkeypatch.setattr(lmdb_rows, "_plain_pairs", counted)
    found = []
    for many in (4, 10**9):
        monkeypatch.setattr(lmdb_rows, "MANY", many)
        chance = random.Random(20_261_121)
        path = quick_folder / f"{many}.lmdb"
        engine = LmdbEngine(path, clock=lambda: 1_000, change_log=change_log)
        for round_ in range(40):
            drawn = [b"%03d" % chance.randrange(200) for _ in range(chance.randrange(1, 12))]
            mutations = [
                Delete(key)
                if chance.random() < 0.02
                else put(key, b"%d" % round_, 9_000 if round_ > 30 and chance.random() < 0.1 else None)
                for key in drawn
            ]
            commit(engine, *mutations)
        engine.close()
        found.append(stored(path))
    assert found[0] == found[1]
    assert (max(calls, default=0) > 4) == (change_log is None)
