"""``bulk_create_from``: rows of tables, data frames and files become records, with rejected rows and resumption."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pydantic import SecretStr, ValidationError, computed_field

from kvmodels import (
    AlreadyExistsError,
    AsyncDatabase,
    Database,
    DecodeError,
    EngineError,
    Field,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    PrimaryKey,
    Unique,
    UnknownFieldError,
)
from kvmodels.flows.bulk.options_and_results import LISTED_AT_MOST, BulkProgress


class Part(KvModel, collection="parts"):
    id: PrimaryKey[int]
    cents: int = Field(default=1, ge=0)
    code: Unique[str | None] = Field(default=None)
    tags: list[str] = Field(default_factory=list)
    weight: Decimal | None = None
    at: datetime | None = None
    token: SecretStr = SecretStr("")

    @computed_field  # type: ignore[prop-decorator]
    @property
    def euros(self) -> float:
        return self.cents / 100


@pytest.fixture
def db():
    with Database("memory://", models=[Part]) as opened:
        yield opened
        assert opened.check().ok


ROWS: dict[str, list[Any]] = {"id": [1, 2], "cents": [5, 6], "tags": [["a"], []]}
NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)


def csv_file(folder: Path, text: str) -> Path:
    file = folder / "parts.csv"
    file.write_text(text)
    return file


def parquet_file(folder: Path) -> str:
    with Database("memory://", models=[Part]) as other:
        other[Part].bulk_create([Part(id=1, cents=5, tags=["a"]), Part(id=2, cents=6)])
        other[Part].to_parquet(folder / "parts.parquet", columns=["id", "cents", "tags"])
    return str(folder / "parts.parquet")


def pandas_file(folder: Path) -> Path:
    pd.DataFrame(ROWS, index=["x", "y"]).to_parquet(folder / "pandas.parquet")
    return folder / "pandas.parquet"


@pytest.mark.parametrize(
    "source",
    [
        lambda _: pa.table(ROWS),
        lambda _: pa.table(ROWS).to_reader(),
        lambda _: pl.DataFrame(ROWS),
        lambda _: pd.DataFrame(ROWS),
        pandas_file,
        lambda _: duckdb.from_arrow(pa.table(ROWS)),
        parquet_file,
        lambda folder: csv_file(folder, '\ufeffid,cents,tags,euros\n1,5,"[""a""]",0.05\n2,6,,\n'),
    ],
)
def test_a_table_or_file_becomes_records(db, tmp_path, source):
    result = db[Part].bulk_create_from(source(tmp_path))
    assert (result.rows, result.written, result.rejections, result.failures, result.batches) == (2, 2, 0, 0, 1)
    assert db[Part].to_list() == [Part(id=1, cents=5, tags=["a"]), Part(id=2, cents=6)]


def test_a_query_of_another_store_is_copied_with_its_types(db):
    with Database("memory://", models=[Part]) as other:
        stored = other[Part].create(id=1, weight=Decimal("1.5"), at=NOON, code="x")
        columns = ("id", "weight", "at", "code", "cents")
        assert db[Part].bulk_create_from(other[Part].values(*columns)).written == 1
    assert db[Part].get(1) == stored


async def test_the_methods_are_awaited_in_an_asynchronous_database():
    async with AsyncDatabase("memory://", models=[Part]) as db:
        result = await db[Part].bulk_create_from(pa.table({"id": [1, 2, 3], "cents": [1, -1, 3]}), on_error="collect")
        assert (result.written, [row.position for row in result.rejected]) == (2, [1])
        assert [one.id async for one in db[Part]] == [1, 3]


def test_rejected_rows_are_collected_with_their_places_and_errors(db, tmp_path):
    file = csv_file(tmp_path, "id,cents\n1,5\n2,free\n3,-1\n4,5,6\n,1\n5,7\n")
    reports: list[BulkProgress] = []
    result = db[Part].bulk_create_from(file, on_error="collect", batch_size=1, progress=reports.append)
    assert (result.rows, result.written, result.rejections, result.failures) == (6, 2, 4, 0)
    assert [(row.position, row.place) for row in result.rejected] == [
        (1, "line 3"),
        (2, "line 4"),
        (3, "line 5"),
        (4, "line 6"),
    ]
    assert [row.errors[0]["loc"] for row in result.rejected] == [("cents",), ("cents",), (), ("id",)]
    assert result.rejected[1].errors == (
        {"type": "greater_than_equal", "loc": ("cents",), "msg": "Input should be greater than or equal to 0"},
    )
    assert [one.written for one in reports] == [1, 2]


def test_the_first_rejected_row_ends_the_import_and_earlier_batches_stay(db):
    with pytest.raises(ValidationError) as refused:
        db[Part].bulk_create_from(pa.table({"id": [1, 2, 3, 4], "cents": [1, 1, 1, -1]}), batch_size=2)
    assert refused.value.__notes__ == [
        "kvmodels: this is about row 4",
        "kvmodels: the batches before position 2 are committed",
    ]
    assert [one.id for one in db[Part]] == [1, 2]


def test_only_the_first_rejected_rows_are_listed(db):
    table = pa.table({"id": range(1, LISTED_AT_MOST + 4), "cents": [-1] * (LISTED_AT_MOST + 2) + [1]})
    result = db[Part].bulk_create_from(table, on_error="collect")
    assert (len(result.rejected), result.rejections, result.written) == (LISTED_AT_MOST, LISTED_AT_MOST + 2, 1)


def test_positions_of_records_that_are_left_out_are_those_of_their_rows(db):
    db[Part].create(id=3)
    table = pa.table({"id": [1, 2, 3, 4, 5], "cents": [-1, 1, 1, -1, 1], "code": ["a", "b", "c", "d", "b"]})
    with pytest.raises(AlreadyExistsError) as taken:
        db[Part].bulk_create_from(table, on_error="collect", batch_size=1)
    assert (taken.value.position, taken.value.committed) == (2, 1)
    result = db[Part].bulk_create_from(table, on_error="collect", on_conflict="ignore")
    assert [(one.key, one.error.position) for one in result.failed] == [(2, 1), (3, 2), (5, 4)]
    assert "position=4" in result.failed[2].message
    assert (result.written, result.failures, result.rejections) == (0, 3, 2)


def test_an_import_resumes_and_finds_the_rejected_rows_again(db):
    table = pa.table({"id": range(1, 8), "cents": [1, -1, 1, 1, 1, -1, 1]})

    class Killed(BaseException):
        pass

    def die(progress: BulkProgress) -> None:
        if progress.batches == 2:
            raise Killed

    options: dict[str, Any] = {"batch_size": 2, "resume_id": "parts", "on_error": "collect"}
    with pytest.raises(Killed):
        db[Part].bulk_create_from(table, progress=die, **options)
    assert db[Part].count() == 4
    result = db[Part].bulk_create_from(table, **options)
    assert (result.rows, result.written, result.resumed) == (7, 5, True)
    assert [row.position for row in result.rejected] == [1, 5]
    with pytest.raises(InvalidArgumentError, match="other arguments"):
        db[Part].bulk_create_from(table.slice(1), **options)


def test_in_a_transaction_the_rows_are_part_of_its_commit(db):
    with db.transaction() as tx:
        assert tx[Part].bulk_create_from(pa.table(ROWS)).written == 2
        assert db[Part].count() == 0
    assert db[Part].count() == 2


def test_a_second_import_overwrites_and_batches_are_small_enough_for_the_engine(db):
    table = pa.table({"id": range(1200)})
    assert db[Part].bulk_create_from(table, on_conflict="update").batches == 3
    assert db[Part].bulk_create_from(table, on_conflict="update").written == 1200


def test_times_keep_microseconds_and_nanoseconds_are_refused_by_their_column(db):
    times = pd.DataFrame({"id": [1], "at": pd.to_datetime([NOON]).astype("datetime64[ns, UTC]")})
    db[Part].bulk_create_from(times)
    assert type(db[Part].get(1).at) is datetime
    assert db[Part].get(1).at == NOON
    times["at"] += pd.Timedelta(1, "ns")
    with pytest.raises(InvalidValueError, match="nanoseconds") as refused:
        db[Part].bulk_create_from(times)
    assert refused.value.field == "at"


def test_a_mask_in_place_of_a_secret_is_rejected(db):
    table = pa.table({"id": [1, 2], "token": ["**********", "open sesame"]})
    [row] = db[Part].bulk_create_from(table, on_error="collect").rejected
    assert (row.position, row.errors[0]["loc"]) == (0, ("token",))
    assert db[Part].get(2).token.get_secret_value() == "open sesame"


def test_columns_and_files_are_refused_before_anything_is_written(db, tmp_path):
    parts = db[Part]
    damaged = tmp_path / "damaged.parquet"
    damaged.write_text("nothing")
    for source, error, message in (
        (pa.table({"id": [1], "cent": [1]}), UnknownFieldError, "cent"),
        (pa.table([[1], [2]], names=["id", "id"]), InvalidArgumentError, "two columns"),
        (csv_file(tmp_path, "id,colour\n1,red\n"), UnknownFieldError, "colour"),
        (tmp_path / "missing.csv", EngineError, "missing.csv"),
        (tmp_path / "parts.xlsx", InvalidArgumentError, "csv or .parquet"),
        (damaged, DecodeError, "cannot be read"),
        ([{"id": 1}], InvalidArgumentError, "not a table"),
    ):
        with pytest.raises(error, match=message):
            parts.bulk_create_from(source)
    for text in ('id,code\n1,"a\n', "id,code\n1,\udce9\n"):
        csv_file(tmp_path, "").write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(DecodeError, match="CSV"):
            parts.bulk_create_from(tmp_path / "parts.csv")
    with pytest.raises(InvalidArgumentError, match="treat errors"):
        parts.bulk_create_from(pa.table(ROWS), on_error="ignore")
    assert parts.count() == 0
