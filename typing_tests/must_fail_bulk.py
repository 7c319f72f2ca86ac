"""Mistakes with bulk writes that both type checkers must report, each line with their codes."""

from kvmodels import Database, F, KvModel, PrimaryKey


class Part(KvModel, collection="parts"):
    id: PrimaryKey[int]
    stock: int = 0


class Other(KvModel, collection="others"):
    id: PrimaryKey[int]


def writes(db: Database) -> None:
    parts = db[Part]
    parts.all().delete(on_error="ignore")  # mypy: arg-type / pyright: reportArgumentType
    parts.all().update(stock=1, batch_size="10")  # mypy: arg-type / pyright: reportArgumentType
    parts.all().delete(5)  # mypy: call-arg / pyright: reportCallIssue
    parts.bulk_update([Other(id=1)])  # mypy: list-item / pyright: reportArgumentType
    parts.bulk_create([], on_conflict="replace")  # mypy: call-overload / pyright: reportArgumentType
    F(5)  # mypy: arg-type / pyright: reportArgumentType
