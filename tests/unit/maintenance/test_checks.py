"""What a check of entries computes, and what it says that it has not compared."""

from __future__ import annotations

from typing import Any

import pytest

from kvmodels.database import Database
from kvmodels.flows import expectations
from kvmodels.schema.markers import Field, Index, Indexed, MultiIndexed, PrimaryKey, Unique
from kvmodels.schema.model import KvModel


class Item(KvModel, collection="items"):
    """Six indexes, one of them with several entries of a record."""

    id: PrimaryKey[int]
    code: Unique[str]
    name: Indexed[str]
    price: Indexed[int] = Field(default=0)
    tags: MultiIndexed[list[str]] = Field(default_factory=list)

    class Meta:
        indexes = (Index("name", "-price"), Index("price", "code", include=("name",), name="by_price"))


INDEXES = 6


def item(number: int, tags: int) -> Item:
    return Item(
        id=number, code=f"c{number}", name=f"n{number % 7}", price=number % 5, tags=[f"t{one}" for one in range(tags)]
    )


@pytest.mark.parametrize("tags", [1, 9])
def test_a_check_computes_each_index_of_a_record_twice_however_many_entries_the_record_has(monkeypatch, tags):
    computed: list[str] = []

    def counted(index: Any, *arguments: Any) -> Any:
        computed.append(index.stored.name)
        return entry_keys(index, *arguments)

    entry_keys = expectations.entry_keys
    count = 40  # all entries of an index are one batch
    with Database("memory://", models=[Item]) as db:
        db[Item].bulk_create([item(number, tags) for number in range(count)])
        monkeypatch.setattr(expectations, "entry_keys", counted)
        report = db.check()
    assert (report.ok, report.scanned) == (True, count * (1 + INDEXES - 1 + tags))
    assert {name: computed.count(name) for name in set(computed)} == {
        name: 2 * count for name in ("code", "name", "price", "tags", "name_price", "by_price")
    }


def test_a_check_decodes_a_record_once_per_batch_of_entries(monkeypatch):
    made: list[bytes] = []
    whole = expectations.RecordEntries.__init__

    def counted(self: Any, context: Any, live: Any, row: Any) -> None:
        made.append(row.key)
        whole(self, context, live, row)

    with Database("memory://", models=[Item]) as db:
        db[Item].bulk_create([item(number, 9) for number in range(10)])
        monkeypatch.setattr(expectations.RecordEntries, "__init__", counted)
        assert db.check().ok
    assert len(made) == 10 * (1 + INDEXES)
