"""Memory and disk space as the operating system reports them, and a load that keeps the cores awake.

Rules of this module: no figure is judged or rounded here.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
import tempfile
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


LARGEST_BLOCK = 512
_FREE_BLOCKS = re.compile(r"# bytes in available blocks *= *([\d,]+)")
_FREE_POOLS = re.compile(r"([\d,]+) unused pools \* \d+ bytes *= *([\d,]+)")


def used_bytes() -> int:
    """Memory of this process that is in RAM, without what its allocators keep free.

    The C library gives back what is free. Python's allocator gives back pieces of one megabyte of which nothing is in
    use, so that up to two of them, and what a batch has needed on its way, were chance. It tells what it keeps free;
    that is taken off, after all of it has been touched, because it does not tell what never was.
    """
    touched = [bytes(LARGEST_BLOCK - 33) for _ in range(kept_free()[1] // LARGEST_BLOCK)]
    del touched
    give_back()
    return resident_bytes() - sum(kept_free())


def kept_free() -> tuple[int, int]:
    """Bytes that Python's allocator keeps free, in blocks of pools that are in use and in other pools."""
    if not hasattr(sys, "_debugmallocstats"):
        return 0, 0
    with tempfile.TemporaryFile() as said:
        sys.stderr.flush()
        kept = os.dup(2)
        try:
            os.dup2(said.fileno(), 2)
            sys._debugmallocstats()
        finally:
            os.dup2(kept, 2)
            os.close(kept)
        said.seek(0)
        text = said.read().decode()
    blocks, pools = _FREE_BLOCKS.search(text), _FREE_POOLS.search(text)
    if blocks is None or pools is None:
        return 0, 0  # PYTHONMALLOC=malloc
    return int(blocks[1].replace(",", "")), int(pools[2].replace(",", ""))


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
    """Return the bytes on disk of the files of a store: blocks, not lengths, because some stores make sparse files."""
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
