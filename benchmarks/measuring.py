"""What the operating system says about a process and a folder, and how the cores are kept awake.

Rules of this module: no figure is judged or rounded here.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SPIN = """
import os
try:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
except (AttributeError, OSError):
    os.nice(19)
parent = os.getppid()
while os.getppid() == parent:
    for _ in range(1_000_000):
        pass
"""


def resident_bytes() -> int:
    """Memory of this process that is in RAM; the highest so far where the system does not tell the present."""
    statm = Path("/proc/self/statm")
    if statm.exists():
        return int(statm.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource  # noqa: PLC0415 - absent on Windows

    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else highest * 1024


def give_back() -> None:
    """Have the C allocator give free memory back to the system, where it can.

    Otherwise a store can fill memory that is free since the process has read its workload, and it seems to need none.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)


def folder_bytes(folder: Path) -> int:
    """What the files of a store take on disk: blocks, not lengths, because some stores make sparse files."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file())


@contextmanager
def cores_awake() -> Iterator[None]:
    """Keep each core from falling asleep between two commits, by a process that only runs where nobody else wants to.

    Without it a store that waits for the disk is measured on a core that has just been woken and clocked down.
    """
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    spinning = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(count)]
    try:
        yield
    finally:
        for process in spinning:
            process.terminate()
        for process in spinning:
            process.wait()
