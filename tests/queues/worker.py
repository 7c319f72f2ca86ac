"""A process that handles messages until it is killed: it notes the beginning and the end of each in a file."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from kvmodels import open_kv


def main(path: str, journal: str, pause: str) -> None:
    notes = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def handle(message: int) -> None:
        os.write(notes, f"begin {message}\n".encode())
        if pause == "until the file is there":
            while not Path(journal).with_suffix(".go").exists():
                time.sleep(0.01)
        else:
            time.sleep(float(pause))
        if message % 7 == 0 and os.urandom(1)[0] < 64:
            raise ValueError("try again")
        os.write(notes, f"end {message}\n".encode())

    with open_kv(path, durability="relaxed") as kv:
        listener = kv.listen(handle, concurrency=2, lease=1.5)
        print("ready", flush=True)
        sys.stdin.read()
        listener.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
