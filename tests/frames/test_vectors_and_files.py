"""Vectors and files in tables: their types, the tools that read them, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from kvmodels import Blob, Database, KvModel, PrimaryKey, Vector

V3: Any = Vector.__class_getitem__(3)


class Picture(KvModel, collection="pictures"):
    id: PrimaryKey[int]
    look: V3
    sound: Vector | None = None
    scan: Blob | None = None


LOOKS = ("id", "look", "sound")


@pytest.fixture
def pictures() -> Any:
    with Database("memory://", models=[Picture]) as db:
        db[Picture].create(id=1, look=Vector([0.1, -2, 3]), sound=Vector([0.5]), scan=Blob(b"abc", content_type="a/b"))
        db[Picture].create(id=2, look=Vector([1, 0, 0]))
        yield db[Picture]


def test_a_vector_is_a_list_of_float32_of_the_size_in_its_annotation(pictures: Any):
    item = pa.field("item", pa.float32(), nullable=False)
    schema = Picture.arrow_schema()
    assert schema.field("look").type == pa.list_(item, 3)
    assert schema.field("sound").type == pa.list_(item)
    assert pictures.filter(id=0).allow_scan().to_arrow().schema == schema  # also without a row
    assert pictures.to_polars().schema["look"] == pl.Array(pl.Float32, 3)
    relation: Any = duckdb.sql("SELECT look[2] FROM pictures ORDER BY id")
    assert relation.fetchall() == [(-2.0,), (0.0,)]
    assert pictures.to_pandas()["look"][0].dtype == "float32"


def test_a_file_is_its_size_hash_and_type(pictures: Any):
    found = pictures.to_arrow(columns=("scan",)).to_pylist()
    assert found == [{"scan": pictures.get(1).model_dump(mode="json")["scan"]}, {"scan": None}]


def parquet(pictures: Any, folder: Path) -> Path:
    pictures.to_parquet(folder / "looks.parquet", columns=LOOKS)
    return folder / "looks.parquet"


@pytest.mark.parametrize(
    "made",
    [
        parquet,
        lambda pictures, _: pictures.to_arrow(columns=LOOKS),
        lambda pictures, _: pictures.to_pandas(columns=LOOKS),
        lambda pictures, _: pictures.to_polars(columns=LOOKS),
        lambda pictures, _: pictures.values(*LOOKS),
    ],
    ids=["parquet", "arrow", "pandas", "polars", "query"],
)
def test_vectors_come_back_unchanged(pictures: Any, made: Callable[[Any, Path], Any], tmp_path: Path):
    with Database("memory://", models=[Picture]) as db:
        assert db[Picture].bulk_create_from(made(pictures, tmp_path)).written == 2
        assert db[Picture].values(*LOOKS).to_list() == pictures.values(*LOOKS).to_list()


def test_a_row_with_a_file_or_a_vector_of_another_length_is_rejected(pictures: Any):
    other = pa.table({"id": [3, 4], "look": [[1.0, 2.0], [1.0, 2.0, 3.0]]})
    with Database("memory://", models=[Picture]) as db:
        for table, field, said in (
            (pictures.to_arrow(), "scan", "content is not taken"),
            (other, "look", "a vector of 3 numbers was expected, not 2"),
        ):
            result = db[Picture].bulk_create_from(table, on_error="collect")
            (row,) = result.rejected
            assert (result.written, row.position, row.errors[0]["loc"]) == (1, 0, (field,))
            assert said in row.errors[0]["msg"]
