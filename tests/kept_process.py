"""Servers of the tests in processes of their own, which ``keeper.py`` ends when no process of the run uses them.

A server that is shared serves a whole test run: the first process of pytest-xdist that needs it starts it. The keeper
ends it after the last one, also if the run is killed.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Protocol, TypeVar

from tests.keeper import PID

KEEPER = Path(__file__).with_name("keeper.py")
START_S = 120


class KeptProcess:
    """A server in a folder of its own, which ``keeper.py`` ends with the run.

    Args:
        folder: empty, or that of a server that runs.
        user: runs the server; empty for the user of the tests.
        environment: of its programs.
    """

    def __init__(self, folder: Path, user: str, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.user = user
        self._environment = environment
        self._keeper: int | None = None

    @property
    def pid(self) -> int:
        """The id of the process of the server."""
        return int((self.folder / PID).read_text())

    def own_folder(self) -> None:
        """Give the folder to the user who runs the server."""
        if self.user:
            os.chown(self.folder, _uid_of(self.user), -1)

    def run(self, program: Path, *arguments: str) -> str:
        """Run a program of the server to its end, and return what it prints.

        Raises:
            RuntimeError: with what it says.
        """
        made = subprocess.run(
            [str(program), *arguments],
            user=self.user or None,
            cwd=self.folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if made.returncode != 0:
            raise RuntimeError(f"{program.name} failed, so there is no server for the tests:\n{made.stderr}")
        return made.stdout

    def spawn(
        self, users: Path, command: Sequence[str | Path], variables: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """Start the server beside a keeper.

        Args:
            users: the file whose lock every process shares that uses the server.
            command: of the server.
            variables: of its environment, beside those of its programs.
        """
        arguments = [str(one) for one in (KEEPER, users, self.folder, self.user, *command)]
        # Not a Popen, which would want to be waited for.
        self._keeper = os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", *arguments],
            {**self._environment, **variables},
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(self.folder / "keeper.log"), os.O_WRONLY | os.O_CREAT, 0o600),
            ],
        )

    def wait_until(self, answers: Callable[[], bool]) -> None:
        """Wait until the server answers.

        Raises:
            RuntimeError: with its log.
        """
        assert self._keeper is not None
        end = time.monotonic() + START_S
        while not answers():
            if os.waitpid(self._keeper, os.WNOHANG) != (0, 0) or time.monotonic() > end:
                logs = [path.read_text() for path in sorted(self.folder.glob("*.log"))]
                raise RuntimeError("\n".join(["the server of the tests does not answer:", *logs]))
            time.sleep(0.02)

    def wait_for_its_end(self) -> None:
        """Wait until the server has ended by itself, and its keeper with it."""
        if self._keeper is not None:
            os.waitpid(self._keeper, 0)
            self._keeper = None


def new_folder() -> Path:
    """A folder for a server: a socket has a short path, which a folder of pytest has not."""
    return Path(tempfile.mkdtemp(prefix="kvmodels-server-"))


def _uid_of(user: str) -> int:
    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        missing = user
    raise RuntimeError(f"the server does not run as root, and there is no user {missing} to run it as")


class _Startable(Protocol):
    @property
    def folder(self) -> Path: ...

    def make(self) -> None: ...

    def start(self, users: Path) -> None: ...


ServerT = TypeVar("ServerT", bound=_Startable)


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
