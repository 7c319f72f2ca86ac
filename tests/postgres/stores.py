"""Stores on a server in the place of stores in memory, so that a suite which knows only memory runs on the server.

Each ``memory://`` is a schema of its own in one database, and ``memory://name`` one for as long as a handle of it is
open. A schema is emptied when it is used again, which takes a tenth of the time that it takes to make one.
"""

from __future__ import annotations

import weakref
from typing import Any

from psycopg import sql

from kvmodels import Limits
from kvmodels.engines.postgres import engine as postgres
from kvmodels.engines.postgres.engine import PostgresEngine
from kvmodels.engines.postgres.store import PostgresStore
from tests.postgres.databases import Databases
from tests.worlds import server_options

MEMORY = "memory://"

_EMPTY = """
TRUNCATE {schema}.kv, {schema}.log, {schema}.commits, {schema}.seals;
UPDATE {schema}.meta SET clock_offset = 0, forgotten = 0, resolutions = 0, log_ms = NULL, log_floor = NULL,
    durable_reads = false;
INSERT INTO {schema}.commits (version, prev, at, id, void) VALUES (1, 0, 0, gen_random_uuid(), true);
"""


class ServerStores:
    """Makes engines on a server from the arguments of ``MemoryEngine``.

    Args:
        databases: of this test.
        server: its name in ``tests/worlds.py``.
    """

    def __init__(self, databases: Databases, server: str) -> None:
        self._url = databases.url("suites", emptied=False)
        self._options = server_options(server)
        self._admin = databases.admin("suites")
        self._made = {name for (name,) in self._admin.execute("SELECT nspname FROM pg_namespace").fetchall()}
        self._schemas: dict[str, str] = {}
        self._opened: list[tuple[weakref.ref[PostgresEngine], PostgresStore, str]] = []
        self._unnamed = 0

    def open(self, limits: Limits = Limits.EMBEDDED, *, url: str = MEMORY, **options: Any) -> PostgresEngine:
        """Return an engine as ``MemoryEngine`` would be."""
        self._close_abandoned()
        if url == MEMORY:
            self._unnamed += 1
            url = f"{MEMORY}{self._unnamed} unnamed"
        schema = self._schemas.get(url)
        if schema is None:
            schema = self._schemas[url] = self._free_schema()
        options = {"poll_interval": 0.01, **self._options, **options}
        opened = PostgresEngine(self._url, limits, schema=schema, **options)
        self._opened.append((weakref.ref(opened), opened.check_open(), url))
        return opened

    def close(self) -> None:
        """Close what the test has left open."""
        for _, store, _ in self._opened:
            self._end(store)
        self._admin.close()

    def _free_schema(self) -> str:
        used = set(self._schemas.values())
        schema = next(name for name in (f"store_{at}" for at in range(10_000)) if name not in used)
        if schema in self._made:
            self._admin.execute(sql.SQL(_EMPTY).format(schema=sql.Identifier(schema)))
        self._made.add(schema)
        return schema

    def _close_abandoned(self) -> None:
        """Forget stores without a handle; a test may leave a handle to the collector, in memory that is no matter."""
        in_use = {id(store) for engine, store, _ in self._opened if engine() is not None}
        for _, store, _ in self._opened:
            if id(store) not in in_use:
                self._end(store)
        kept = [one for one in self._opened if one[1].closed_reason is None]
        self._opened = kept
        open_urls = {url for _, _, url in kept}
        self._schemas = {url: schema for url, schema in self._schemas.items() if url in open_urls}

    def _end(self, store: PostgresStore) -> None:
        if store.closed_reason is None:
            postgres._stores.stores.pop(store.path, None)
            store.close()
