"""Databases and schemas of a test on the servers of the test run, each empty when the test first asks for it."""

from __future__ import annotations

from contextlib import suppress
from hashlib import sha256

import psycopg

from tests.postgres.server import Bouncer, PostgresServer

_MADE: set[tuple[str, str]] = set()
"""The databases that this process has made, with the folder of their server."""

_RESET = """
DO $$
DECLARE
    name text;
BEGIN
    FOR name IN SELECT n.nspname FROM pg_namespace n WHERE n.nspname !~ '^(pg_|information_schema|public)' LOOP
        -- To empty a store takes a tenth of the time that it takes to make it.
        IF to_regclass(format('%I.gate', name)) IS NULL OR to_regclass(format('%I.meta', name)) IS NULL THEN
            EXECUTE format('DROP SCHEMA %I CASCADE', name);
        ELSE
            EXECUTE format('TRUNCATE %I.kv, %I.log, %I.commits, %I.seals', name, name, name, name);
            EXECUTE format(
                'UPDATE %I.meta SET clock_offset = 0, forgotten = 0, resolutions = 0, log_ms = NULL, log_floor = NULL,'
                ' durable_reads = false',
                name
            );
            EXECUTE format(
                'INSERT INTO %I.commits (version, prev, at, id, void) VALUES (1, 0, 0, gen_random_uuid(), true)', name
            );
        END IF;
    END LOOP;
END
$$
"""


class Databases:
    """Databases of one test: each name has one, which is empty when the test first asks for it.

    Args:
        server: holds them.
        worker: the process of pytest-xdist, which has databases of its own.
        test: a text that no other test has; a URL with it belongs to no store that another test left open.
    """

    def __init__(self, server: PostgresServer | Bouncer, worker: str, test: str) -> None:
        self.server = server
        self._behind = server.server if isinstance(server, Bouncer) else server
        self._worker = worker
        self._test = test
        self._ready: set[str] = set()
        self._emptied = 0

    def url(self, name: str = "app", *, emptied: bool = True) -> str:
        """Return the URL of a database.

        Args:
            name: of the database in this test.
            emptied: whether the stores in it are emptied when the test first asks for it.
        """
        database = self._database(name)
        if database not in self._ready:
            self._end_connections(database, emptied=emptied)
            self._ready.add(database)
        return self.server.url.replace("/postgres?", f"/{database}?") + f"&application_name={self._test}"

    def emptied(self, name: str = "app") -> str:
        """Return the URL of a database that is empty now, whatever the test has stored there."""
        self._ready.clear()
        self._emptied += 1
        return f"{self.url(name)}-{self._emptied}"

    def admin(self, name: str = "app") -> psycopg.Connection:
        """Return a connection of the administrator to a database, not through a proxy."""
        return psycopg.connect(self._behind.url.replace("/postgres?", f"/{self._database(name)}?"), autocommit=True)

    def _database(self, name: str) -> str:
        database = f"kv_{self._worker}_{sha256(name.encode()).hexdigest()[:12]}"
        made = (str(self._behind.folder), database)
        if made not in _MADE:
            with psycopg.connect(self._behind.url, autocommit=True) as admin:
                admin.execute(f'CREATE DATABASE "{database}"'.encode())
            _MADE.add(made)
            self._ready.add(database)
        return database

    def _end_connections(self, database: str, *, emptied: bool) -> None:
        with psycopg.connect(self._behind.url.replace("/postgres?", f"/{database}?"), autocommit=True) as one:
            # Each waits for the end of its process: a proxy could hand out a connection that is about to end.
            ended = one.execute(
                "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            ).fetchall()
            if emptied:
                one.execute(_RESET)
        if ended and isinstance(self.server, Bouncer):
            self._drop_ended(database, len(ended))

    def _drop_ended(self, database: str, number: int) -> None:
        """Ask the proxy until it has noticed that its connections to the server have ended."""
        for _ in range(number + 1):
            with (
                suppress(psycopg.OperationalError),
                psycopg.connect(self.server.url.replace("/postgres?", f"/{database}?"), autocommit=True) as probe,
            ):
                probe.execute("SELECT 1")
                return
