"""Every supported type equals itself after a way through Arrow and Parquet."""

from __future__ import annotations

import io

import pyarrow.parquet as pq
from hypothesis import HealthCheck, given, settings

from kvmodels import Database
from kvmodels.frames import table_rows
from tests.frames.every_type import RECORDS, Everything, Owner, row_of


@settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow])
@given(RECORDS)
def test_a_table_has_the_values_of_to_list_and_parquet_gives_them_back(record):
    with Database("memory://", models=[Everything, Owner]) as db:
        query = db[Everything]
        query.insert(record)
        expected = [row_of(values) for values in query.values().to_list()]
        table = query.to_arrow()
        assert table.schema.equals(Everything.arrow_schema())
        assert table.to_pylist() == expected
        file = io.BytesIO()
        assert query.to_parquet(file) == 1
    assert pq.read_table(file).to_pylist() == expected
    record.options.setdefault("name", "")  # a table has None for a key that is absent, which a typed dict refuses
    with Database("memory://", models=[Everything, Owner]) as db:
        db[Everything].insert(record)
        file = io.BytesIO()
        db[Everything].to_parquet(file)
    assert [table_rows.object_of(Everything, row) for row in table_rows.rows_in(file)] == [record]
