"""Runs the server of a test run and ends it when nobody uses it any more: ``keeper.py USERS FOLDER USER PROGRAM ...``.

It is a process of its own, so that a run that is killed leaves no server behind. Every process of the run shares the
lock on the file ``USERS`` while it lives. The id of the server's process is in the file ``server.pid`` of the folder.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TextIO

LOOK_S = 0.1
PID = "server.pid"


def in_use(users: TextIO) -> bool:
    """Whether any process of the run still lives; if not, the lock is taken, and others wait for it."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def keep(users: Path, folder: Path, user: str, command: list[str]) -> None:
    """Run a server as a user (empty: as this one); if it ends by itself, its folder stays for its log."""
    with open(users) as file, open(folder / "server.log", "ab") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log, user=user or None, cwd=folder)
        (folder / PID).write_text(str(server.pid))
        while in_use(file):
            if server.poll() is not None:
                return
            time.sleep(LOOK_S)
        server.send_signal(signal.SIGQUIT)  # at once: nobody needs what it stores
        server.send_signal(signal.SIGCONT)  # a test may have stopped it
        server.wait()
        shutil.rmtree(folder)


if __name__ == "__main__":
    os.setsid()  # what interrupts the run does not interrupt this
    keep(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
