"""The packed form of operations of many mutations on PostgreSQL: the same as that of each mutation in turn."""

from __future__ import annotations

import pytest

from kvmodels.core.operations import Arithmetic, AtomicWrite, Delete, Mutation, Set
from kvmodels.engines.postgres import packing
from kvmodels.engines.postgres.packing import packed

MANY = [Set(b"%d" % number, b"value", 3) for number in range(packing._MANY)]


@pytest.mark.parametrize(
    "last",
    [
        MANY[0],
        MANY[0]._replace(value=b"later"),
        Set(b"other", b"value", 3),
        Set(b"other", b"value", 3, expire_at=5),
        Set(b"other", b"value", 3, expire_at=1 << 64),
        Set(b"0", b"value", 3, versionstamped=True),
        Delete(b"0"),
        Arithmetic("sum", b"other", 1),
    ],
    ids=str,
)
def test_an_operation_of_many_mutations_is_packed_as_one_of_few(monkeypatch: pytest.MonkeyPatch, last: Mutation):
    write = AtomicWrite((), (*MANY, last))
    together = packed(write, adds_integers=True)
    monkeypatch.setattr(packing, "_MANY", len(MANY) + 2)
    assert together == packed(write, adds_integers=True)
