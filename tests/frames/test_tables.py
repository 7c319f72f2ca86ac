"""Queries, values and groups as tables of Arrow and data frames: columns, refusals, tools that read them, bounds."""

from __future__ import annotations

import sys
import tracemalloc
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import BaseModel, SecretStr

from kvmodels import (
    AsyncDatabase,
    Avg,
    Count,
    Database,
    EngineError,
    Field,
    ForeignKey,
    Indexed,
    InvalidArgumentError,
    InvalidValueError,
    KvModel,
    Max,
    NoUsableIndexError,
    PrimaryKey,
    Sum,
    UnknownFieldError,
    UnsupportedError,
)
from kvmodels.frames import streams
from tests.frames.every_type import Color


class Address(BaseModel):
    city: str


class Shop(KvModel, collection="shops"):
    id: PrimaryKey[int]
    name: str


class Sale(KvModel, collection="sales"):
    region: PrimaryKey[str]
    number: PrimaryKey[int]
    shop: ForeignKey[int | None, Shop] = Field(default=None)
    color: Indexed[Color] = Field(default=Color.RED)
    price: Decimal = Field(default=Decimal(2), max_digits=6, decimal_places=2)
    address: Address | None = None


class Odd(KvModel, collection="odd"):
    id: PrimaryKey[int]
    anything: Any = None
    secret: SecretStr = SecretStr("")
    when: datetime | None = None


@pytest.fixture
def db():
    with Database("memory://", models=[Shop, Sale, Odd]) as opened:
        opened[Shop].create(id=1, name="Corner")
        opened[Sale].bulk_create(
            [
                Sale(region="n", number=1, shop=1, address=Address(city="Bern")),
                Sale(region="s", number=2, color=Color.BLUE, price=Decimal("1.50")),
            ]
        )
        yield opened


def test_values_paths_targets_and_a_composite_key_are_columns(db):
    query = db[Sale].values("pk", "address.city", "shop__name", "color")
    table = query.to_arrow()
    assert table.schema == pa.schema(
        [
            pa.field(
                "pk", pa.struct([pa.field("region", pa.string(), False), pa.field("number", pa.int64(), False)]), False
            ),
            pa.field("address.city", pa.string()),
            pa.field("shop__name", pa.string()),
            pa.field("color", pa.dictionary(pa.int32(), pa.string()), False),
        ]
    )
    assert table.to_pylist()[0] == {
        "pk": {"region": "n", "number": 1},
        "address.city": "Bern",
        "shop__name": "Corner",
        "color": "red",
    }
    assert query.to_arrow(columns=["color"]).to_pylist() == [{"color": "red"}, {"color": "blue"}]
    assert db[Sale].to_arrow(columns=(Sale.number,)).column_names == ["number"]
    assert db[Sale].values_list("color", flat=True).distinct().to_arrow().to_pylist() == [
        {"color": "blue"},
        {"color": "red"},
    ]


def test_an_empty_query_has_the_columns_of_a_full_one(db):
    nothing = db[Sale].filter(region="none").to_arrow()
    assert nothing.num_rows == 0
    assert nothing.schema == db[Sale].to_arrow().schema == Sale.arrow_schema()


def test_groups_have_the_types_of_their_functions(db):
    table = db[Sale].group_by("color").aggregate(Count(), Sum("price"), Avg("price"), last=Max("number")).to_arrow()
    assert [str(kind) for kind in table.schema.types] == [
        "dictionary<values=string, indices=int32, ordered=0>",
        "int64",
        "decimal128(38, 2)",
        "string",
        "int64",
    ]
    assert table.to_pylist()[0] == {
        "color": "blue",
        "count": 1,
        "price__sum": Decimal("1.50"),
        "price__avg": "1.50",
        "last": 2,
    }


def test_polars_pandas_duckdb_and_pyarrow_read_a_query_as_it_is(db):
    sales = db[Sale].filter(color=Color.BLUE).values("number", "price")
    expected = [{"number": 2, "price": Decimal("1.50")}]
    assert pl.DataFrame(sales).to_dicts() == expected
    assert pa.table(sales).to_pylist() == expected
    assert pd.DataFrame.from_arrow(sales).to_dict("records") == expected
    found = duckdb.sql("SELECT number, price FROM sales")
    assert found is not None
    assert found.fetchall() == [(2, Decimal("1.50"))]
    assert sales.to_polars().to_dicts() == sales.to_pandas().to_dict("records") == expected


def test_an_int_that_may_be_missing_stays_an_int_in_pandas(db):
    frame = db[Sale].to_pandas(columns=["shop"])
    assert str(frame["shop"].dtype) == "Int64"
    assert frame["shop"].tolist() == [1, pd.NA]


@pytest.mark.parametrize(
    ("field", "reason"), [("anything", "any type"), ("secret", "It is a secret")], ids=["any", "secret"]
)
def test_a_field_without_an_arrow_type_is_refused_by_name_before_a_read(db, field, reason):
    with pytest.raises(InvalidValueError) as caught:
        db[Odd].to_arrow(columns=("id", field))
    assert caught.value.field == field
    assert reason in str(caught.value.hint)
    with pytest.raises(InvalidValueError):
        Odd.arrow_schema()
    assert db[Odd].to_arrow(columns=("id", "when")).num_rows == 0


def test_a_value_that_does_not_fit_names_its_field_and_shows_no_value(db):
    db[Odd].create(id=2**70, when=datetime(2026, 1, 1))
    for field, kind in (("id", "int"), ("when", "datetime")):
        with pytest.raises(InvalidValueError) as caught:
            db[Odd].to_arrow(columns=(field,))
        assert (caught.value.field, caught.value.type) == (field, kind)
        assert str(2**70) not in str(caught.value)


@pytest.mark.parametrize("columns", ["number", (), 7])
def test_columns_are_a_list_of_names(db, columns):
    with pytest.raises(InvalidArgumentError):
        db[Sale].to_arrow(columns=columns)


def test_a_wrong_column_a_query_without_an_index_and_related_records_are_refused(db):
    with pytest.raises(UnknownFieldError):
        db[Sale].to_arrow(columns=["numbr"])
    with pytest.raises(InvalidArgumentError):
        db[Sale].values("number").to_arrow(columns=["price"])
    with pytest.raises(InvalidArgumentError):
        db[Sale].with_related(Sale.shop).to_arrow()
    with pytest.raises(NoUsableIndexError):
        pl.DataFrame(db[Sale].filter(price=2))


def test_a_table_in_a_transaction_has_its_own_writes(db):
    with db.transaction() as tx:
        tx[Sale].create(region="w", number=3)
        assert pl.DataFrame(tx[Sale].values("number"))["number"].to_list() == [1, 2, 3]


def test_a_table_of_a_tenant_has_the_records_of_this_tenant_alone():
    with Database("memory://", tenant_models=[Shop]) as store:
        for number, name in enumerate(["acme", "zeta"]):
            store.create_tenant(name)
            store.tenant(name)[Shop].create(id=number, name=name)
        shops = store.tenant("zeta")[Shop]
        assert shops.to_arrow().to_pylist() == pl.DataFrame(shops).to_dicts() == [{"id": 1, "name": "zeta"}]


def test_a_parquet_file_is_new_and_private_and_a_failed_one_is_removed(db, tmp_path):
    path = tmp_path / "sales.parquet"
    assert db[Sale].to_parquet(path) == 2
    assert pq.read_table(path).equals(db[Sale].to_arrow())
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(EngineError):
        db[Sale].to_parquet(path)
    db[Odd].create(id=1, when=datetime(2026, 1, 1))
    with pytest.raises(InvalidValueError):
        db[Odd].to_parquet(tmp_path / "odd.parquet", columns=("when",))
    assert [one.name for one in Path(tmp_path).iterdir()] == ["sales.parquet"]


def test_a_stream_has_several_batches_and_keeps_only_one(db, monkeypatch):
    monkeypatch.setattr(streams, "ROWS", 1_000)
    db[Shop].bulk_create([Shop(id=number, name="x" * 100) for number in range(10, 5_010)])
    shops = db[Shop]
    tracemalloc.start()
    try:
        sizes = [batch.num_rows for batch in pa.RecordBatchReader.from_stream(shops)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert sum(sizes) == 5_001
    assert max(sizes) <= 1_500
    assert peak < 2_000_000  # 500 records and their values, not 5,000


async def test_an_asynchronous_query_is_awaited_and_tools_that_cannot_await_are_told(tmp_path):
    db = await AsyncDatabase("memory://", models=[Shop, Sale, Odd]).open()
    shops = db[Shop]
    await shops.create(id=1, name="Corner")
    assert (await shops.to_arrow()).to_pylist() == [{"id": 1, "name": "Corner"}]
    assert (await shops.to_polars()).to_dicts() == (await shops.to_pandas()).to_dict("records")
    assert await shops.to_parquet(tmp_path / "shops.parquet", columns=["name"]) == 1
    assert (await shops.group_by("id").aggregate(Count()).to_arrow()).to_pylist() == [{"id": 1, "count": 1}]
    with pytest.raises(UnsupportedError) as caught:
        pl.DataFrame(shops)
    assert "await" in str(caught.value.hint)
    await db.close()


@pytest.mark.parametrize(("package", "line"), [("pyarrow", "'kvmodels[arrow]'"), ("pandas", "pandas")])
def test_a_missing_package_is_an_error_with_the_line_to_install_it(package, line, monkeypatch):
    from kvmodels._support.lazy_modules import optional_module
    from kvmodels.schema.arrow import packages

    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UnsupportedError) as caught:
        optional_module(package, packages._missing).anything
    assert caught.value.reason == package
    assert f"pip install {line}" in str(caught.value.hint)
