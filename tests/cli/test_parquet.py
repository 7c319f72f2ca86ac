"""``export --parquet`` and ``insert --parquet``."""

from __future__ import annotations

import io
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cli.conftest import Run

PROGRAM = """
from decimal import Decimal
from pydantic import SecretStr
from kvmodels import Database, Encrypted, Field, Indexed, KeyRing, KvModel, PrimaryKey

class Item(KvModel, collection="items"):
    id: PrimaryKey[int]
    kind: Indexed[str]
    price: Decimal = Field(default=Decimal(1), max_digits=8, decimal_places=2)
    spot: tuple[int, str] = (0, "a")
    tags: dict[str, int] = {}

class User(KvModel, collection="users"):
    id: PrimaryKey[int]
    password: SecretStr = SecretStr("x")

class Patient(KvModel, collection="patients"):
    id: PrimaryKey[int]
    name: Encrypted[str] = "Planted"

def opened(url):
    return Database(url, models=[Item, User, Patient], keys=KeyRing({1: bytes(32)}))

def make():
    return opened("items.db")

def other():
    return opened("other.db")
"""


@pytest.fixture
def items(folder, run: Run) -> Run:
    """The commands, in a folder with a store of two records."""
    (folder / "items_app.py").write_text(PROGRAM)
    first = '{"id": 1, "kind": "a", "price": "2.50", "tags": {"x": 1}}'
    second = '{"id": 2, "kind": "b", "price": "1.00", "spot": [7, "z"]}'
    (folder / "lines").write_text(f"{first}\n{second}\n")
    assert run("-d", "items_app:make", "insert", "items", "lines").stderr == "2 records written\n"
    return run


def test_a_parquet_file_is_written_and_inserted_into_another_store(items, folder):
    assert items("-d", "items_app:make", "export", "items", "--parquet", "all.parquet").stderr == "2 records written\n"
    assert pq.read_table(folder / "all.parquet").schema.field("price").type == pa.decimal128(8, 2)
    inserted = items("-d", "items_app:other", "insert", "items", "all.parquet", "--parquet")
    assert inserted.stderr == "2 records written\n"
    exported = [items("-d", f"items_app:{name}", "export", "items", "--nl").stdout for name in ("make", "other")]
    assert exported[0] == exported[1]


def test_conditions_and_columns_choose_what_is_written(items, folder):
    words = ("export", "items", "kind=a", "--parquet", "some.parquet", "--column", "id", "--column", "price")
    assert items("-d", "items_app:make", *words).exit_code == 0
    assert pq.read_table(folder / "some.parquet").to_pylist() == [{"id": 1, "price": Decimal("2.50")}]


def test_an_encrypted_field_is_written_only_on_demand(items, folder):
    (folder / "patients").write_text('{"id": 1}\n')
    assert items("-d", "items_app:make", "insert", "patients", "patients").exit_code == 0
    words = ("-d", "items_app:make", "export", "patients", "--parquet")
    assert items(*words, "hidden.parquet").exit_code == 0
    assert pq.read_table(folder / "hidden.parquet").column_names == ["id"]
    assert "name is encrypted" in items(*words, "new", "--column", "name").stderr
    assert items(*words, "clear.parquet", "--show-encrypted").exit_code == 0
    assert pq.read_table(folder / "clear.parquet").to_pylist() == [{"id": 1, "name": "Planted"}]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("export", "items", "--parquet", "lines"), "never overwritten"),
        (("export", "items", "--parquet", "new", "--csv"), "more than one format"),
        (("export", "items", "--column", "id"), "--column needs --parquet"),
        (("export", "users", "--parquet", "new"), "field='password'"),
        (("insert", "items", "lines", "--parquet"), "a Parquet file cannot be read"),
        (("insert", "items", "lines", "--parquet", "--csv"), "more than one format"),
    ],
)
def test_wrong_words_and_files_are_refused(items, folder, words, message):
    found = items("-d", "items_app:make", *words)
    assert found.exit_code != 0
    assert message in found.stderr
    assert not (folder / "new").exists()


def test_a_row_that_the_model_refuses_is_named_and_nothing_is_written(items, folder):
    pq.write_table(pa.table({"id": [3, 4], "kind": ["c", None]}), folder / "bad.parquet")
    found = items("-d", "items_app:make", "insert", "items", "bad.parquet", "--parquet")
    assert found.stderr.startswith("Error: row 2: kind: ")
    pq.write_table(pa.table({"id": [3], "kin": ["c"]}), folder / "named.parquet")
    found = items("-d", "items_app:make", "insert", "items", "named.parquet", "--parquet")
    assert "has no field 'kin'" in found.stderr
    assert items("-d", "items_app:make", "count", "items").stdout == "2\n"


def test_a_table_of_another_program_is_inserted_by_the_names_of_its_columns(items, folder):
    file = io.BytesIO()
    pq.write_table(pa.table({"kind": ["c"], "id": pa.array([9], pa.int16())}), file)
    (folder / "foreign.parquet").write_bytes(file.getvalue())
    assert items("-d", "items_app:make", "insert", "items", "foreign.parquet", "--parquet").exit_code == 0
    assert items("-d", "items_app:make", "count", "items").stdout == "3\n"
