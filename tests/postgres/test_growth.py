"""Buffers that the server reads for a get and for a page in a store of 1,000,000 records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from kvmodels.core.operations import Guard, PredictedFollow, ReadRange, SuffixFollow, point, to_versionstamp
from kvmodels.engines.postgres.engine import PostgresEngine
from tests.postgres.databases import Databases
from tests.postgres.test_plans import REPORTING, nodes, plans

pytestmark = [pytest.mark.servers, pytest.mark.soak]

__all__ = ["plans"]

SMALL, LARGE = 10_000, 1_000_000
MOST_GROWTH = 1.5
FILL = """
INSERT INTO {schema}.kv (key, value, encoding, version, expires_at)
SELECT convert_to(part || lpad(n::text, 9, '0'), 'UTF8'), convert_to(repeat('v', 60) || lpad(n::text, 9, '0'), 'UTF8'),
    3, 2, NULL
FROM generate_series(1, {rows}) n, LATERAL (VALUES ('r'), ('e' || lpad((n % 100)::text, 2, '0')), ('u')) parts(part);
ANALYZE {schema}.kv;
"""

READS: dict[str, tuple[list[ReadRange], dict[str, Any]]] = {
    "get": ([point(b"r000005050")], {}),
    "unique get": (
        [point(b"u000005050")],
        {"follow": PredictedFollow(lambda ranges: [point(b"r" + row[1][60:]) for row in ranges[0]], (b"r", 60, b""))},
    ),
    "page": ([ReadRange(b"e50", b"e51", 20)], {"follow": SuffixFollow(b"r", 3)}),
    "page backwards": ([ReadRange(b"e50", b"e51", 20, reverse=True)], {"follow": SuffixFollow(b"r", 3)}),
}


def counting(told: list[dict[str, Any]]) -> int:
    """Return the buffers of the statement that was reported: those of a function are in the plan of its caller too."""
    return max(node["Shared Hit Blocks"] + node["Shared Read Blocks"] for one in told for node in nodes(one["Plan"]))


def opened(databases: Databases, rows: int) -> PostgresEngine:
    schema = f"of_{rows}"
    PostgresEngine(databases.url(), schema=schema).close()
    with databases.admin() as admin:
        admin.execute(FILL.format(schema=schema, rows=rows).encode())
    reporting = {**REPORTING, "auto_explain.log_buffers": "on"}
    options = quote(" ".join(f"-c{name}={value}" for name, value in reporting.items()))
    return PostgresEngine(f"{databases.url()}&options={options}", schema=schema)


def test_reads_of_a_million_records_look_at_little_more(
    databases_on: Callable[[str], Databases], plans: list[dict[str, Any]]
):
    databases = databases_on("postgres15")
    guard = Guard(b"r000000001", to_versionstamp(2))
    buffers: dict[str, list[int]] = {name: [] for name in READS}
    for rows in (SMALL, LARGE):
        engine = opened(databases, rows)
        for name, (ranges, options) in READS.items():
            engine.read(ranges, guard, **options)  # prepares the statement
            plans.clear()
            engine.read(ranges, guard, **options)
            buffers[name].append(counting(plans))
        engine.close()
    print(buffers)
    grown = {name: large / small for name, (small, large) in buffers.items()}
    assert max(grown.values()) <= MOST_GROWTH, buffers
