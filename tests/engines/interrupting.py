"""Interrupts at a line of some modules or functions, by a trace function, and what must hold after one."""

from __future__ import annotations

import fcntl
import linecache
import sqlite3
import sys
from collections.abc import Callable, Collection
from contextlib import closing
from types import CodeType, FrameType
from typing import Any

from kvmodels.core.operations import AtomicWrite, Committed
from kvmodels.engines.contract import Engine
from kvmodels.engines.lmdb.engine import LmdbEngine
from kvmodels.engines.lmdb.file import writer_lock_file
from kvmodels.engines.sqlite.engine import SqliteEngine
from tests.contract.shorthand import get


def cut_short_at(
    line: int,
    modules: Collection[str | None],
    change: Callable[[], object],
    interrupt: type[BaseException] = KeyboardInterrupt,
    spared: str | None = None,
) -> bool:
    """Whether the change was interrupted at its n-th line in the modules (files); False: it has fewer.

    Lines that contain ``spared`` do not count. Where the interpreter releases the lock of a ``with`` statement it does
    not look for signals, but a trace function is called even there.
    """
    left = line

    def trace(frame: Any, event: str, _: object) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in modules:
            return None
        if event == "line" and not (spared and spared in linecache.getline(frame.f_code.co_filename, frame.f_lineno)):
            left -= 1
            if left == 0:
                raise interrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        change()
    except interrupt:
        return True
    finally:
        sys.settrace(before)
    return False


def interrupted_at(
    number: int, codes: Collection[CodeType], engine: Engine, write: AtomicWrite, spared: Collection[str] = ()
) -> tuple[Any, list[str] | None]:
    """Return the outcome of a commit that is interrupted before the n-th line of some functions, and the notes.

    Lines in ``spared`` do not count.
    """
    left = number

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal left
        if frame.f_code not in codes:
            return None
        # Where the interpreter gives a lock back, or does nothing, it does not look for signals; a trace function is
        # called even there.
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        if event == "line" and line != "try:" and not line.startswith("with ") and line not in spared:
            left -= 1
            if left == 0:
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        return engine.commit(write), None
    except KeyboardInterrupt as interrupt:
        return None, getattr(interrupt, "__notes__", [])
    finally:
        sys.settrace(None)


def require_unlocked(engine: Engine) -> None:
    """Another process could write at once: no transaction was left open, and no lock."""
    if isinstance(engine, SqliteEngine):
        with closing(sqlite3.connect(engine.check_open().path, timeout=0, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            other.rollback()
    elif isinstance(engine, LmdbEngine):
        store = engine.check_open()
        with open(writer_lock_file(store.path), "rb+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert store._opened is not None
        store._opened.environment.begin(write=True).abort()
        assert store._reading == {}


def interrupted_everywhere(
    engine: Engine, codes: Collection[CodeType], write_of: Callable[[bytes], AtomicWrite], spared: Collection[str] = ()
) -> int:
    """Interrupt commits of new keys before each line of some functions; return how many were applied nevertheless.

    Each is whole or absent, says which, and leaves no lock.
    """
    applied = 0
    for number in range(1, 200):
        key = b"key %03d" % number
        outcome, notes = interrupted_at(number, codes, engine, write_of(key), spared)
        if notes is None:
            assert isinstance(outcome, Committed)
            return applied
        there = get(engine, key) is not None
        if notes:
            assert notes == ["the commit was applied" if there else "the commit was not applied"]
        else:
            assert not there or number > 20  # before it began, or when its outcome was known
        applied += there
        require_unlocked(engine)
    raise AssertionError("it has no end")
