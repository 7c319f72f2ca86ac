"""What type checkers know of bulk writes: results, terms, options, both worlds."""

from pathlib import Path
from typing import assert_type

from kvmodels import AsyncDatabase, Database, F, Indexed, KvModel, PrimaryKey
from kvmodels.flows.bulk.import_results import ImportResult, RejectedRow
from kvmodels.flows.bulk.options_and_results import BulkFailure, BulkItem, BulkProgress, BulkResult


class Part(KvModel, collection="parts"):
    id: PrimaryKey[int]
    stock: Indexed[int]
    note: str = ""


def told(progress: BulkProgress) -> None:
    assert_type(progress.written, int)


def writes(db: Database) -> None:
    parts = db[Part]
    changed = parts.filter(Part.stock > 3).update(stock=F("stock") + F(Part.stock) * 2 - 1, note="x")
    assert_type(changed, BulkResult)
    assert_type(changed.failed, tuple[BulkFailure, ...])
    assert_type(parts.filter(stock=0)[:5].delete(on_error="collect", progress=told, resume_id="a"), BulkResult)
    parts.all().update({"stock": 1 - F("stock")}, batch_size=10)
    assert_type(parts.update_or_create(id=1, defaults={"stock": 1}), tuple[Part, bool])
    assert_type(parts.bulk_update(parts.to_list(), ["stock"]), BulkResult)
    assert_type(parts.bulk_create([Part(id=1, stock=2)], on_conflict="update"), list[BulkItem[Part]])
    imported = parts.bulk_create_from("parts.csv", on_error="collect", on_conflict="update", progress=True)
    assert_type(imported, ImportResult)
    assert_type(imported.rejected, tuple[RejectedRow, ...])
    parts.bulk_create_from(parts.filter(stock=1))
    assert_type(db.forget_bulk("a"), bool)
    with db.transaction() as tx:
        assert_type(tx[Part].all().delete().written, int)


async def asynchronous_writes(db: AsyncDatabase) -> None:
    parts = db[Part]
    assert_type(await parts.filter(Part.stock > 3).update(stock=F("stock") + 1), BulkResult)
    assert_type(await parts.all()[:5].delete(progress=told), BulkResult)
    assert_type(await parts.update_or_create(id=1, defaults={"stock": 1}), tuple[Part, bool])
    assert_type(await parts.bulk_update(await parts.to_list()), BulkResult)
    assert_type(await parts.bulk_create_from(Path("parts.parquet")), ImportResult)
