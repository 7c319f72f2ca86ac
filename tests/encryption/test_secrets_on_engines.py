"""No planted secret is in the files of LMDB and of servers, in the rows of their tables, and in spans."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from psycopg import sql

from kvmodels import Database
from kvmodels.ext.opentelemetry import instrument
from tests.encryption.models import RING, Patient
from tests.encryption.test_secrets import SECRETS, Told, assert_unseen, work
from tests.etcd.server import own_cluster
from tests.postgres.server import own_server
from tests.worlds import ETCD_OPERATIONS

USER_TABLES = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"


def files_in(folder: Path) -> dict[str, bytes]:
    """The contents of all files below a folder, without the space that they keep ahead."""
    found = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes().rstrip(b"\0") for path in found}


def test_no_span_and_no_measurement_has_a_planted_value():
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider(shutdown_on_exit=False)
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    with Database("memory://", models=[Patient], keys=RING) as db:
        instrument(db, tracer_provider=tracers, meter_provider=MeterProvider([reader], shutdown_on_exit=False))
        work(db, Told())
    spans = [span.to_json() for span in exporter.get_finished_spans()]
    measured = reader.get_metrics_data()
    assert len(spans) > 40
    assert measured is not None
    assert_unseen("".join([*spans, measured.to_json()]).encode(), "spans and measurements")


def test_no_file_of_lmdb_has_a_planted_value(quick_folder: Path):
    with Database(f"lmdb:///{quick_folder}/secret.lmdb", models=[Patient], keys=RING, change_log=3600) as db:
        work(db, Told())
        db.kv.backup(quick_folder / "backup.lmdb")
        found = files_in(quick_folder)
    assert sum(b"patients" in content for content in found.values()) >= 2, "the store and its backup"
    for name, content in found.items():
        assert_unseen(content, name)


@pytest.mark.servers
def test_no_row_and_no_file_of_postgres_has_a_planted_value():
    with own_server(fsync="off") as server:
        with Database(server.url, models=[Patient], keys=RING, change_log=3600) as db:
            work(db, Told())
            with psycopg.connect(server.url, autocommit=True) as admin:
                rows = b"".join(copied(admin, *place) for place in admin.execute(USER_TABLES).fetchall())
                admin.execute("CHECKPOINT")
        found = files_in(server.folder)
    assert rows.count(b"patients") > 50
    assert_unseen(rows, "the rows of all tables")
    holders = {name for name, content in found.items() if b"patients" in content}
    assert any("pg_wal" in name for name in holders)
    assert any("base" in name for name in holders)
    for name, content in found.items():  # with the write-ahead log and the log of the server
        for secret in SECRETS:
            assert secret.encode() not in content, name
            assert secret.casefold().encode() not in content, name


def copied(admin: psycopg.Connection, schema: str, table: str) -> bytes:
    """All rows of a table, in the binary form of the server."""
    copy = sql.SQL("COPY {} TO STDOUT (FORMAT binary)").format(sql.Identifier(schema, table))
    with admin.cursor() as cursor, cursor.copy(copy) as rows:
        return b"".join(map(bytes, rows))


@pytest.mark.servers
def test_no_file_of_etcd_has_a_planted_value():
    with own_cluster(1, durable=False, max_txn_ops=str(ETCD_OPERATIONS)) as cluster:
        url = cluster.url("secret")
        with Database(url, models=[Patient], keys=RING, max_txn_ops=ETCD_OPERATIONS) as db:
            work(db, Told())
        found = files_in(cluster.nodes[0].data)
    holders = {Path(name).suffix for name, content in found.items() if b"patients" in content}
    assert holders >= {"", ".wal"}, "the database and its write-ahead log"
    for name, content in found.items():
        assert_unseen(content, name)
